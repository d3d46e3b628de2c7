//! Gradient-boosted regression trees with histograms (as in LightGBM), the default cost model.
//! Input: rows of features of measured candidates with labels; output: a score for any row.
//! Features are put into at most 64 bins once, a node's histogram of gradients decides its split,
//! and a child's histogram is its parent's less its sibling's. Row and column subsets are drawn
//! from a seed, so equal data give equal trees.

use super::CostModel;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

mod bytes;

pub use bytes::TreeError;

const BINS: usize = 64;

/// The loss that the trees minimise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The squared error of the label.
    Squared,
    /// The logistic loss of the order of pairs, weighted by how far their labels are apart.
    Pairwise,
}

/// The size and manner of the trees.
#[derive(Clone, Copy, Debug)]
pub struct GbdtSettings {
    /// At most this many trees; fewer where rows are few.
    pub trees: usize,
    /// Levels of splits.
    pub depth: u32,
    /// Share of a tree's answer that is added.
    pub shrinkage: f64,
    /// Share of the rows that a tree sees.
    pub row_share: f64,
    /// Share of the features that a tree sees.
    pub column_share: f64,
    /// Added to a leaf's weight, pulling its value towards 0.
    pub ridge: f64,
    /// Least weight on either side of a split.
    pub least: f64,
    /// The loss that is minimised.
    pub loss: Loss,
    /// The seed of drawn rows, columns and pairs.
    pub seed: u64,
}

impl Default for GbdtSettings {
    fn default() -> GbdtSettings {
        GbdtSettings {
            trees: 50,
            depth: 6,
            shrinkage: 0.15,
            row_share: 0.8,
            column_share: 0.5,
            ridge: 0.5,
            least: 2.0,
            loss: Loss::Squared,
            seed: 0,
        }
    }
}

const LEAF: u32 = u32::MAX;

/// Rows go to `next` where `row[feature] <= threshold`, else to `next + 1`.
#[derive(Clone, Debug, PartialEq)]
struct Node {
    feature: u32,
    next: u32,
    /// A leaf's value where `feature` is [`LEAF`].
    threshold: f32,
}

/// Gradient-boosted trees.
#[derive(Clone, Debug)]
pub struct Gbdt {
    settings: GbdtSettings,
    base: f32,
    trees: Vec<Vec<Node>>,
    /// The squared error of the training labels after each tree.
    losses: Vec<f64>,
}

impl Gbdt {
    /// A model that is not fitted yet; it gives every row the same score.
    pub fn new(settings: GbdtSettings) -> Gbdt {
        Gbdt { settings, base: 0.0, trees: Vec::new(), losses: Vec::new() }
    }

    /// The mean squared error on the training rows after each tree (of the order only, where the
    /// loss is pairwise, whose scores have no scale).
    pub fn training_losses(&self) -> &[f64] {
        &self.losses
    }
}

impl CostModel for Gbdt {
    fn fit(&mut self, rows: &[&[f32]], labels: &[f32]) {
        let s = self.settings;
        let n = rows.len().min(labels.len());
        self.trees.clear();
        self.losses.clear();
        self.base = 0.0;
        if n == 0 {
            return;
        }
        if s.loss == Loss::Squared {
            self.base = (labels[..n].iter().map(|&l| f64::from(l)).sum::<f64>() / n as f64) as f32;
        }
        let data = Binned::new(&rows[..n]);
        if data.columns.is_empty() {
            return;
        }
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(s.seed);
        let mut scores = vec![f64::from(self.base); n];
        let (mut g, mut h) = (vec![0.0; n], vec![1.0; n]);
        let pairs =
            if s.loss == Loss::Pairwise { draw_pairs(&labels[..n], &mut rng) } else { Vec::new() };
        // More trees on few rows would overfit.
        let trees = s.trees.min(8 + n / 2);
        let mut pool = Vec::new();
        for _ in 0..trees {
            match s.loss {
                Loss::Squared => {
                    for i in 0..n {
                        g[i] = scores[i] - f64::from(labels[i]);
                    }
                }
                Loss::Pairwise => pair_gradients(&pairs, labels, &scores, &mut g, &mut h),
            }
            let columns = subset(data.columns.len(), s.column_share, &mut rng);
            let picked = subset(n, s.row_share, &mut rng);
            let mut grower = Grower {
                data: &data,
                g: &g,
                h: &h,
                columns: &columns,
                s: &s,
                pool: &mut pool,
                nodes: Vec::new(),
                scratch: Vec::new(),
            };
            let tree = grower.grow(picked);
            for (score, row) in scores.iter_mut().zip(rows) {
                *score += f64::from(answer(&tree, row));
            }
            self.trees.push(tree);
            let error = |(s, &l): (&f64, &f32)| (s - f64::from(l)).powi(2);
            self.losses.push(scores.iter().zip(labels).map(error).sum::<f64>() / n as f64);
        }
    }

    fn predict(&self, rows: &[&[f32]]) -> Vec<f32> {
        let mut out = vec![self.base; rows.len()];
        // Tree by tree, so that a tree stays in the innermost cache.
        for tree in &self.trees {
            for (o, row) in out.iter_mut().zip(rows) {
                *o += answer(tree, row);
            }
        }
        out
    }
}

fn answer(tree: &[Node], row: &[f32]) -> f32 {
    let mut at = 0;
    loop {
        let node = &tree[at];
        if node.feature == LEAF {
            return node.threshold;
        }
        let right = row.get(node.feature as usize).is_some_and(|&x| x > node.threshold);
        at = node.next as usize + usize::from(right);
    }
}

/// A share of `0..n` in ascending order, at least one.
fn subset(n: usize, share: f64, rng: &mut Xoshiro256PlusPlus) -> Vec<u32> {
    let want = ((n as f64 * share).ceil() as usize).clamp(1, n);
    // Selection sampling: each is taken with the odds that leave exactly `want` in the end.
    let (mut left, mut out) = (want, Vec::with_capacity(want));
    for i in 0..n {
        if rng.random_range(0..n - i) < left {
            out.push(i as u32);
            left -= 1;
        }
    }
    out
}

/// Up to eight partners for each row, the better row first.
fn draw_pairs(labels: &[f32], rng: &mut Xoshiro256PlusPlus) -> Vec<(u32, u32)> {
    let n = labels.len();
    let mut out = Vec::with_capacity(n * 8);
    for i in 0..n {
        for _ in 0..8 {
            let j = rng.random_range(0..n);
            if labels[i] > labels[j] {
                out.push((i as u32, j as u32));
            } else if labels[j] > labels[i] {
                out.push((j as u32, i as u32));
            }
        }
    }
    out
}

fn pair_gradients(
    pairs: &[(u32, u32)],
    labels: &[f32],
    scores: &[f64],
    g: &mut [f64],
    h: &mut [f64],
) {
    g.fill(0.0);
    h.fill(1e-3);
    for &(better, worse) in pairs {
        let (b, w) = (better as usize, worse as usize);
        let weight = f64::from(labels[b] - labels[w]);
        let wrong = 1.0 / (1.0 + (scores[b] - scores[w]).exp());
        g[b] -= weight * wrong;
        g[w] += weight * wrong;
        let curvature = weight * wrong * (1.0 - wrong);
        h[b] += curvature;
        h[w] += curvature;
    }
}

/// A feature that differs between rows.
struct Column {
    feature: u32,
    /// Ascending; a value belongs to the first bin whose cut is not below it.
    cuts: Vec<f32>,
}

/// The training rows, each value replaced by its bin.
struct Binned {
    rows: usize,
    columns: Vec<Column>,
    /// Bins of one column after the other.
    bins: Vec<u8>,
}

impl Binned {
    fn new(rows: &[&[f32]]) -> Binned {
        let width = rows.iter().map(|r| r.len()).min().unwrap_or(0);
        let (mut columns, mut bins) = (Vec::new(), Vec::new());
        let mut values = Vec::with_capacity(rows.len());
        for feature in 0..width {
            values.clear();
            values.extend(rows.iter().map(|r| r[feature]));
            values.sort_by(f32::total_cmp);
            let cuts = cut(&values);
            if !cuts.is_empty() {
                bins.extend(rows.iter().map(|r| cuts.partition_point(|&c| c < r[feature]) as u8));
                columns.push(Column { feature: feature as u32, cuts });
            }
        }
        Binned { rows: rows.len(), columns, bins }
    }

    fn column(&self, c: usize) -> &[u8] {
        &self.bins[c * self.rows..(c + 1) * self.rows]
    }
}

/// Cuts between sorted values: between all neighbours that differ where they are few, else so
/// that the bins hold about equally many.
fn cut(sorted: &[f32]) -> Vec<f32> {
    let between = |a: f32, b: f32| {
        let middle = a / 2.0 + b / 2.0;
        // The cut belongs to the left bin, so it may be `a` but never `b`.
        if middle >= b || middle < a { a } else { middle }
    };
    let steps = || sorted.windows(2).enumerate().filter(|(_, w)| w[0] < w[1]);
    if steps().count() < BINS {
        return steps().map(|(_, w)| between(w[0], w[1])).collect();
    }
    let (mut cuts, mut next) = (Vec::new(), 1);
    for (i, w) in steps() {
        if (i + 1) * BINS >= next * sorted.len() {
            cuts.push(between(w[0], w[1]));
            next = (i + 1) * BINS / sorted.len() + 1;
        }
    }
    cuts.truncate(BINS - 1);
    cuts
}

/// Sums of gradient and weight.
type Sums = [f64; 2];

struct Grower<'a> {
    data: &'a Binned,
    g: &'a [f64],
    h: &'a [f64],
    columns: &'a [u32],
    s: &'a GbdtSettings,
    /// Histograms whose memory is used again.
    pool: &'a mut Vec<Vec<Sums>>,
    nodes: Vec<Node>,
    scratch: Vec<Sums>,
}

/// A node that is to be split.
struct Branch {
    /// Its place in the tree.
    at: usize,
    histogram: Vec<Sums>,
    total: Sums,
    /// Levels of splits that are left.
    depth: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Split {
    gain: f64,
    /// Position in the data's columns.
    column: usize,
    /// The last bin that goes left.
    bin: usize,
    left: Sums,
}

impl Grower<'_> {
    fn grow(&mut self, mut rows: Vec<u32>) -> Vec<Node> {
        let total = rows
            .iter()
            .fold([0.0, 0.0], |t: Sums, &r| [t[0] + self.g[r as usize], t[1] + self.h[r as usize]]);
        self.nodes.push(Node { feature: LEAF, next: 0, threshold: 0.0 });
        let histogram = self.histogram(&rows);
        let mut other = vec![0; rows.len()];
        let root = Branch { at: 0, histogram, total, depth: self.s.depth };
        self.node(root, &mut rows, &mut other);
        std::mem::take(&mut self.nodes)
    }

    /// Splits a node, or makes it a leaf. `other` has room for as many rows.
    fn node(&mut self, branch: Branch, rows: &mut [u32], other: &mut [u32]) {
        let Branch { at, histogram, total, depth } = branch;
        let split = if depth > 0 { self.best_split(&histogram, total) } else { None };
        let Some(split) = split else {
            self.nodes[at].threshold =
                (-total[0] / (total[1] + self.s.ridge) * self.s.shrinkage) as f32;
            self.pool.push(histogram);
            return;
        };
        let column = self.data.column(split.column);
        let (mut left, mut right) = (0, 0);
        for i in 0..rows.len() {
            let r = rows[i];
            if column[r as usize] as usize <= split.bin {
                rows[left] = r;
                left += 1;
            } else {
                other[right] = r;
                right += 1;
            }
        }
        rows[left..].copy_from_slice(&other[..right]);
        let next = self.nodes.len();
        let Column { feature, cuts } = &self.data.columns[split.column];
        self.nodes[at] = Node { feature: *feature, next: next as u32, threshold: cuts[split.bin] };
        self.nodes.extend([(); 2].map(|()| Node { feature: LEAF, next: 0, threshold: 0.0 }));
        let (rows_left, rows_right) = rows.split_at_mut(left);
        let (other_left, other_right) = other.split_at_mut(left);
        let rest = [total[0] - split.left[0], total[1] - split.left[1]];
        let (mut of_left, mut of_right) = (Vec::new(), histogram);
        if depth > 1 {
            let small_left = left <= right;
            let mut small = self.histogram(if small_left { rows_left } else { rows_right });
            for (big, small) in of_right.iter_mut().zip(&small) {
                big[0] -= small[0];
                big[1] -= small[1];
            }
            if !small_left {
                std::mem::swap(&mut small, &mut of_right);
            }
            of_left = small;
        }
        let depth = depth - 1;
        let left = Branch { at: next, histogram: of_left, total: split.left, depth };
        self.node(left, rows_left, other_left);
        let right = Branch { at: next + 1, histogram: of_right, total: rest, depth };
        self.node(right, rows_right, other_right);
    }

    fn histogram(&mut self, rows: &[u32]) -> Vec<Sums> {
        let mut out = loop {
            match self.pool.pop() {
                // Leaves of the last level hand back empty ones.
                Some(v) if v.capacity() == 0 => {}
                Some(v) => break v,
                None => break Vec::new(),
            }
        };
        out.clear();
        out.resize(self.columns.len() * BINS, [0.0, 0.0]);
        self.scratch.clear();
        self.scratch.extend(rows.iter().map(|&r| [self.g[r as usize], self.h[r as usize]]));
        for (histogram, &c) in out.as_chunks_mut::<BINS>().0.iter_mut().zip(self.columns) {
            let column = self.data.column(c as usize);
            for (sums, &r) in self.scratch.iter().zip(rows) {
                let bin = &mut histogram[column[r as usize] as usize % BINS];
                bin[0] += sums[0];
                bin[1] += sums[1];
            }
        }
        out
    }

    /// The split of most gain; of equal gains the first column's and bin's.
    fn best_split(&self, histogram: &[Sums], total: Sums) -> Option<Split> {
        let worth = |s: Sums| s[0] * s[0] / (s[1] + self.s.ridge);
        if total[1] < 2.0 * self.s.least {
            return None;
        }
        let before = worth(total);
        let mut best: Option<Split> = None;
        for (bins, &c) in histogram.chunks_exact(BINS).zip(self.columns) {
            let mut left = [0.0, 0.0];
            for (bin, sums) in bins[..self.data.columns[c as usize].cuts.len()].iter().enumerate() {
                left = [left[0] + sums[0], left[1] + sums[1]];
                let right = [total[0] - left[0], total[1] - left[1]];
                if sums[1] < 1e-9 || left[1] < self.s.least {
                    continue;
                }
                if right[1] < self.s.least {
                    break;
                }
                let gain = worth(left) + worth(right) - before;
                if gain > best.map_or(1e-9, |b| b.gain * (1.0 + 1e-9)) {
                    best = Some(Split { gain, column: c as usize, bin, left });
                }
            }
        }
        best
    }
}

#[cfg(test)]
mod tests;
