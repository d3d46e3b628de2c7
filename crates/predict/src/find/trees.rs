//! Histogram gradient-boosted trees on features of at most 64 bins, one of which is a category. A
//! loss is a function that gives gradients, so that candidates of one problem can be compared.

use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Bins of a feature that is a number.
const BINS: usize = 64;
/// Values of a category; feature 0 is one.
pub const CATEGORIES: usize = 256;
/// Pulls the mean of a category that few rows have towards 0.
const CATEGORY_RIDGE: f64 = 10.0;

/// Where numbers are cut into bins, by feature. A missing number (NaN) is in bin 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bins {
    /// Ascending; a number is in the bin after the last cut that it is above.
    pub cuts: Vec<Vec<f32>>,
}

impl Bins {
    /// Cuts that hold as many of the sampled numbers each. `column` gives a feature of all rows.
    pub fn new(features: usize, rows: usize, value: &dyn Fn(usize, usize) -> f32) -> Bins {
        let step = (rows / 60_000).max(1);
        let cut = |feature: usize| {
            if feature == 0 {
                return Vec::new();
            }
            let mut sample: Vec<f32> = (0..rows)
                .step_by(step)
                .map(|r| value(r, feature))
                .filter(|v| !v.is_nan())
                .collect();
            sample.sort_by(f32::total_cmp);
            let mut cuts: Vec<f32> = Vec::new();
            if sample.is_empty() {
                return cuts;
            }
            // The first cut divides missing numbers from the least one.
            cuts.push(f32::NEG_INFINITY);
            for i in 1..BINS - 2 {
                let v = sample[i * (sample.len() - 1) / (BINS - 2)];
                if v < sample[sample.len() - 1] && cuts.last().is_none_or(|&l| v > l) {
                    cuts.push(v);
                }
            }
            cuts
        };
        Bins { cuts: (0..features).map(cut).collect() }
    }

    /// The bin of a number.
    pub fn of(&self, feature: usize, value: f32) -> u8 {
        if feature == 0 {
            return (value.max(0.0) as usize).min(CATEGORIES - 1) as u8;
        }
        if value.is_nan() {
            return 0;
        }
        self.cuts[feature].partition_point(|&c| c < value) as u8
    }
}

/// Rows to learn from, a column of bins a feature.
pub struct Binned {
    /// By feature, then by row.
    pub columns: Vec<Vec<u8>>,
}

/// The size and manner of the trees.
#[derive(Clone, Copy, Debug)]
pub struct TreeSettings {
    /// Trees.
    pub rounds: usize,
    /// Share of a tree's answer that is added.
    pub rate: f64,
    /// Leaves of a tree.
    pub leaves: usize,
    /// Least weight of a leaf's rows.
    pub least: f64,
    /// Share of the rows that a tree sees.
    pub row_share: f64,
    /// Share of the features that a tree sees.
    pub column_share: f64,
    /// Pulls leaves towards 0.
    pub ridge: f64,
    /// Of rows and columns.
    pub seed: u64,
}

/// A branch: rows go to `left` where the bin is at most `split`, or where the category is in the
/// mask. The places of leaves have the highest bit set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Node {
    /// The feature.
    pub feature: u8,
    /// The last bin of the left side.
    pub split: u8,
    /// The place of the category's mask, where the feature is one.
    pub mask: u16,
    /// Where rows go.
    pub next: [u16; 2],
}

/// Marks a leaf.
pub const LEAF: u16 = 0x8000;

/// A tree. Without a branch it is its first leaf.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tree {
    /// Branches, the root first.
    pub nodes: Vec<Node>,
    /// Categories that go left.
    pub masks: Vec<[u64; 4]>,
    /// What a leaf adds.
    pub leaves: Vec<f32>,
}

impl Tree {
    fn answer(&self, bin: impl Fn(usize) -> u8) -> f32 {
        if self.nodes.is_empty() {
            return self.leaves[0];
        }
        let mut at = 0;
        loop {
            let node = &self.nodes[at];
            let b = bin(usize::from(node.feature));
            let left = if node.feature == 0 {
                self.masks[usize::from(node.mask)][usize::from(b >> 6)] >> (b & 63) & 1 == 1
            } else {
                b <= node.split
            };
            let next = node.next[usize::from(!left)];
            if next & LEAF != 0 {
                return self.leaves[usize::from(next & !LEAF)];
            }
            at = usize::from(next);
        }
    }

    /// Whether every place that it names is there and no branch leads back.
    pub fn is_sound(&self, features: usize) -> bool {
        !self.leaves.is_empty()
            && self.leaves.iter().all(|l| l.is_finite())
            && self.nodes.iter().enumerate().all(|(i, n)| {
                usize::from(n.feature) < features
                    && (n.feature != 0 || usize::from(n.mask) < self.masks.len())
                    && n.next.iter().all(|&x| match x & LEAF {
                        0 => usize::from(x) > i && usize::from(x) < self.nodes.len(),
                        _ => usize::from(x & !LEAF) < self.leaves.len(),
                    })
            })
    }
}

/// Trees whose answers are added.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Forest {
    /// What stands before the first tree.
    pub base: f32,
    /// The trees.
    pub trees: Vec<Tree>,
}

impl Forest {
    /// The answer for a row of bins.
    pub fn answer(&self, row: &[u8]) -> f32 {
        self.trees.iter().map(|t| t.answer(|f| row[f])).sum::<f32>() + self.base
    }
}

/// Gives the gradient and the curvature of the loss for each of the rows that are learned from.
pub type Gradients<'a> = dyn FnMut(&[f32], &mut [[f32; 2]]) + 'a;

/// Fits trees to the rows of a list; gives them and the scores of all rows. `go_on` is asked before
/// each tree.
pub fn fit(
    data: &Binned,
    picked: &[u32],
    s: &TreeSettings,
    base: f32,
    gradients: &mut Gradients<'_>,
    go_on: &dyn Fn() -> bool,
) -> (Forest, Vec<f32>) {
    let n = data.columns.first().map_or(0, Vec::len);
    let mut scores = vec![base; n];
    let mut forest = Forest { base, trees: Vec::new() };
    let mut slopes = vec![[0.0f32; 2]; n];
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(s.seed);
    for _ in 0..s.rounds {
        if picked.is_empty() || !go_on() {
            break;
        }
        gradients(&scores, &mut slopes);
        let threshold = (s.row_share * f64::from(u32::MAX)) as u32;
        let rows: Vec<u32> =
            picked.iter().copied().filter(|_| rng.random::<u32>() <= threshold).collect();
        let columns: Vec<usize> = (0..data.columns.len())
            .filter(|&f| f == 0 || rng.random::<f64>() < s.column_share)
            .collect();
        let tree = Grower::new(data, &slopes, &columns, s).grow(rows);
        for (r, score) in scores.iter_mut().enumerate() {
            *score += tree.answer(|f| data.columns[f][r]);
        }
        forest.trees.push(tree);
    }
    (forest, scores)
}

/// The sums of a bin: gradient and curvature.
type Sum = [f64; 2];

/// The best split of a leaf.
#[derive(Clone, Default)]
struct Split {
    gain: f64,
    feature: usize,
    bin: u8,
    mask: [u64; 4],
}

/// A leaf that may be split.
struct Open {
    rows: std::ops::Range<usize>,
    sums: Vec<Vec<Sum>>,
    total: Sum,
    split: Split,
    /// Where its place is named: a branch and its side.
    parent: Option<(usize, usize)>,
}

struct Grower<'a> {
    data: &'a Binned,
    slopes: &'a [[f32; 2]],
    columns: &'a [usize],
    s: &'a TreeSettings,
    tree: Tree,
}

impl<'a> Grower<'a> {
    fn new(
        data: &'a Binned,
        slopes: &'a [[f32; 2]],
        columns: &'a [usize],
        s: &'a TreeSettings,
    ) -> Grower<'a> {
        Grower { data, slopes, columns, s, tree: Tree::default() }
    }

    fn grow(mut self, mut rows: Vec<u32>) -> Tree {
        let mut scratch = Vec::with_capacity(rows.len());
        let sums = self.sums(&rows);
        let all = 0..rows.len();
        let mut open = vec![self.open(all, sums, None)];
        let mut closed: Vec<Open> = Vec::new();
        while open.len() + closed.len() < self.s.leaves {
            let best = (0..open.len())
                .max_by(|&x, &y| open[x].split.gain.total_cmp(&open[y].split.gain).then(y.cmp(&x)));
            let Some(best) = best.filter(|&b| open[b].split.gain > 1e-9) else { break };
            let leaf = open.swap_remove(best);
            let node = self.tree.nodes.len();
            if let Some((parent, side)) = leaf.parent {
                self.tree.nodes[parent].next[side] = node as u16;
            }
            let split = &leaf.split;
            if split.feature == 0 {
                self.tree.masks.push(split.mask);
            }
            self.tree.nodes.push(Node {
                feature: split.feature as u8,
                split: split.bin,
                mask: self.tree.masks.len().saturating_sub(1) as u16,
                next: [LEAF; 2],
            });
            let middle = self.divide(&mut rows[leaf.rows.clone()], split, &mut scratch);
            let (left, right) = (
                leaf.rows.start..leaf.rows.start + middle,
                leaf.rows.start + middle..leaf.rows.end,
            );
            // The sums of the larger side are what the smaller side leaves.
            let small_left = left.len() <= right.len();
            let small = self.sums(&rows[if small_left { left.clone() } else { right.clone() }]);
            let mut large = leaf.sums;
            for (l, s) in large.iter_mut().flatten().zip(small.iter().flatten()) {
                l[0] -= s[0];
                l[1] -= s[1];
            }
            let (l, r) = if small_left { (small, large) } else { (large, small) };
            open.push(self.open(left, l, Some((node, 0))));
            open.push(self.open(right, r, Some((node, 1))));
            // What cannot be split needs no sums any more.
            let mut i = 0;
            while i < open.len() {
                if open[i].split.gain > 1e-9 {
                    i += 1;
                } else {
                    let mut leaf = open.swap_remove(i);
                    leaf.sums = Vec::new();
                    closed.push(leaf);
                }
            }
        }
        for leaf in open.into_iter().chain(closed) {
            let place = self.tree.leaves.len() as u16;
            let value = -leaf.total[0] / (leaf.total[1] + self.s.ridge) * self.s.rate;
            self.tree.leaves.push(value as f32);
            if let Some((parent, side)) = leaf.parent {
                self.tree.nodes[parent].next[side] = place | LEAF;
            }
        }
        self.tree
    }

    /// Sums by feature and bin.
    fn sums(&self, rows: &[u32]) -> Vec<Vec<Sum>> {
        let slopes: Vec<[f32; 2]> = rows.iter().map(|&r| self.slopes[r as usize]).collect();
        let sum = |&feature: &usize| {
            let column = &self.data.columns[feature];
            let mut out = vec![[0.0; 2]; if feature == 0 { CATEGORIES } else { BINS }];
            for (&r, s) in rows.iter().zip(&slopes) {
                let b = &mut out[usize::from(column[r as usize])];
                b[0] += f64::from(s[0]);
                b[1] += f64::from(s[1]);
            }
            out
        };
        self.columns.iter().map(sum).collect()
    }

    fn open(
        &self,
        rows: std::ops::Range<usize>,
        sums: Vec<Vec<Sum>>,
        parent: Option<(usize, usize)>,
    ) -> Open {
        let total = sums[0].iter().fold([0.0; 2], |t, b| [t[0] + b[0], t[1] + b[1]]);
        let mut split = Split::default();
        for (&feature, sums) in self.columns.iter().zip(&sums) {
            if feature == 0 {
                self.category(sums, total, &mut split);
            } else {
                self.number(feature, sums, total, &mut split);
            }
        }
        Open { rows, sums, total, split, parent }
    }

    fn worth(&self, s: Sum) -> f64 {
        s[0] * s[0] / (s[1] + self.s.ridge)
    }

    /// The gain of dividing a total; nothing where a side has too little weight.
    fn gain(&self, left: Sum, total: Sum) -> Option<f64> {
        let right = [total[0] - left[0], total[1] - left[1]];
        if left[1] < self.s.least || right[1] < self.s.least {
            return None;
        }
        Some(self.worth(left) + self.worth(right) - self.worth(total))
    }

    fn number(&self, feature: usize, sums: &[Sum], total: Sum, best: &mut Split) {
        let mut left = [0.0; 2];
        for (bin, s) in sums.iter().enumerate().take(BINS - 1) {
            left = [left[0] + s[0], left[1] + s[1]];
            if s[1] == 0.0 {
                continue;
            }
            if let Some(gain) = self.gain(left, total).filter(|&g| g > best.gain) {
                *best = Split { gain, feature, bin: bin as u8, mask: [0; 4] };
            }
        }
    }

    /// Categories in the order of their mean gradients; the best beginning of it goes left.
    fn category(&self, sums: &[Sum], total: Sum, best: &mut Split) {
        let mut order: Vec<usize> = (0..sums.len()).filter(|&c| sums[c][1] > 1e-9).collect();
        let mean = |c: usize| sums[c][0] / (sums[c][1] + CATEGORY_RIDGE);
        order.sort_by(|&x, &y| mean(x).total_cmp(&mean(y)).then(x.cmp(&y)));
        let (mut left, mut mask) = ([0.0; 2], [0u64; 4]);
        for &c in order.iter().take(order.len().saturating_sub(1)) {
            left = [left[0] + sums[c][0], left[1] + sums[c][1]];
            mask[c >> 6] |= 1 << (c & 63);
            if let Some(gain) = self.gain(left, total).filter(|&g| g > best.gain) {
                *best = Split { gain, feature: 0, bin: 0, mask };
            }
        }
    }

    /// Puts the rows that go left first, in their order; how many they are.
    fn divide(&self, rows: &mut [u32], split: &Split, scratch: &mut Vec<u32>) -> usize {
        let column = &self.data.columns[split.feature];
        scratch.clear();
        let mut n = 0;
        for i in 0..rows.len() {
            let r = rows[i];
            let b = column[r as usize];
            let left = match split.feature {
                0 => split.mask[usize::from(b >> 6)] >> (b & 63) & 1 == 1,
                _ => b <= split.bin,
            };
            if left {
                rows[n] = r;
                n += 1;
            } else {
                scratch.push(r);
            }
        }
        rows[n..].copy_from_slice(scratch);
        n
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_in_a_number_within_a_category_is_learned() {
        let n = 4000;
        let category = |r: usize| r % 3;
        let number = |r: usize| (r / 3) as f32;
        let value = |r: usize, f: usize| if f == 0 { category(r) as f32 } else { number(r) };
        let bins = Bins::new(2, n, &value);
        let columns = (0..2).map(|f| (0..n).map(|r| bins.of(f, value(r, f))).collect()).collect();
        let truth = |r: usize| match category(r) {
            1 if number(r) > 600.0 => 2.0,
            2 => -1.0,
            _ => 0.5,
        };
        let s = TreeSettings {
            rounds: 60,
            rate: 0.2,
            leaves: 8,
            least: 5.0,
            row_share: 1.0,
            column_share: 1.0,
            ridge: 1.0,
            seed: 1,
        };
        let rows: Vec<u32> = (0..n as u32).collect();
        let mut gradients = |scores: &[f32], out: &mut [[f32; 2]]| {
            for (r, o) in out.iter_mut().enumerate() {
                *o = [scores[r] - truth(r), 1.0];
            }
        };
        let (forest, scores) = fit(&Binned { columns }, &rows, &s, 0.0, &mut gradients, &|| true);
        let wrong = (0..n).filter(|&r| (scores[r] - truth(r)).abs() > 0.1).count();
        assert!(wrong < n / 50, "{wrong}");
        assert!(forest.trees.iter().all(|t| t.is_sound(2)));
        let row = [1, bins.of(1, 900.0)];
        assert!((forest.answer(&row) - 2.0).abs() < 0.1);
        assert_eq!(bins.of(1, f32::NAN), 0);
    }
}
