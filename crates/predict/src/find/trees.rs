//! Histogram gradient-boosted trees for the chooser of solvers, on features of at most 64 bins, one
//! of which is a category (the solver). A loss is a function that gives gradients, so that
//! candidates of one problem can be compared. `search/src/cost_model/gbdt.rs` is the simpler form
//! for searches.

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
            let Some(&most) = sample.last() else { return Vec::new() };
            let mut distinct = sample.clone();
            distinct.dedup();
            // Few numbers have a bin each, however seldom they are.
            let wanted: Vec<f32> = if distinct.len() < BINS - 2 {
                distinct
            } else {
                (1..BINS - 2).map(|i| sample[i * (sample.len() - 1) / (BINS - 2)]).collect()
            };
            // The first cut divides missing numbers from the least one.
            let mut cuts = vec![f32::NEG_INFINITY];
            for v in wanted.into_iter().filter(|&v| v < most) {
                if cuts.last().is_none_or(|&l| v > l) {
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

/// Rows to learn from.
#[derive(Clone, Copy)]
pub struct Binned<'a> {
    /// Features of a row.
    pub width: usize,
    /// Bins, row after row.
    pub bins: &'a [u8],
    /// Features that are not looked at.
    pub hidden: &'a [std::ops::Range<usize>; 2],
}

impl Binned<'_> {
    fn row(&self, row: usize) -> &[u8] {
        &self.bins[row * self.width..][..self.width]
    }
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
    /// The seed by which rows and columns are drawn.
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

/// Rows that go down a tree together.
const TOGETHER: usize = 8;

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
    /// Where a row goes from a branch.
    fn step(&self, at: u16, bin: impl Fn(usize) -> u8) -> u16 {
        let node = &self.nodes[usize::from(at)];
        let b = bin(usize::from(node.feature));
        let left = if node.feature == 0 {
            self.masks[usize::from(node.mask)][usize::from(b >> 6)] >> (b & 63) & 1 == 1
        } else {
            b <= node.split
        };
        node.next[usize::from(!left)]
    }

    fn root(&self) -> u16 {
        if self.nodes.is_empty() { LEAF } else { 0 }
    }

    fn answer(&self, bin: impl Fn(usize) -> u8) -> f32 {
        let mut at = self.root();
        while at & LEAF == 0 {
            at = self.step(at, &bin);
        }
        self.leaves[usize::from(at & !LEAF)]
    }

    /// Adds the answers for some rows. They go down together: each waits for memory at every
    /// branch.
    fn add<const W: usize>(&self, rows: &[[u8; W]], sums: &mut [f32]) {
        let mut places = [self.root(); TOGETHER];
        let places = &mut places[..rows.len()];
        let mut moving = true;
        while moving {
            moving = false;
            for (at, row) in places.iter_mut().zip(rows) {
                if *at & LEAF == 0 {
                    *at = self.step(*at, |f| row[f]);
                    moving = true;
                }
            }
        }
        for (sum, at) in sums.iter_mut().zip(places) {
            *sum += self.leaves[usize::from(*at & !LEAF)];
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
    /// The answers for some rows of bins. Each tree answers for all rows before the next one: a
    /// forest is larger than a cache.
    pub fn answers<const W: usize>(&self, rows: &[[u8; W]]) -> Vec<f32> {
        let mut sums = vec![0.0; rows.len()];
        for tree in &self.trees {
            for (sums, rows) in sums.chunks_mut(TOGETHER).zip(rows.chunks(TOGETHER)) {
                tree.add(rows, sums);
            }
        }
        sums.iter_mut().for_each(|s| *s += self.base);
        sums
    }
}

/// Gives the gradient and the curvature of the loss for each of the rows that are learned from.
pub type Gradients<'a> = dyn FnMut(&[f32], &mut [[f32; 2]]) + 'a;

/// What trees are fitted to.
pub enum Goal<'a> {
    /// The least of a loss: leaves are steps of Newton's.
    Loss(&'a mut Gradients<'a>),
    /// The least sum of absolute differences from numbers, one for each row: a leaf is the median
    /// of what its rows lack.
    Median(&'a [f32]),
}

/// Fits trees to the rows of a list; gives them and the scores of all rows. `go_on` is asked before
/// each tree.
pub fn fit(
    data: Binned<'_>,
    picked: &[u32],
    s: &TreeSettings,
    base: f32,
    mut goal: Goal<'_>,
    go_on: &dyn Fn() -> bool,
) -> (Forest, Vec<f32>) {
    let n = data.bins.len() / data.width;
    let mut scores = vec![base; n];
    let mut forest = Forest { base, trees: Vec::new() };
    let mut slopes = vec![[0.0f32; 2]; n];
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(s.seed);
    for _ in 0..s.rounds {
        if picked.is_empty() || !go_on() {
            break;
        }
        match &mut goal {
            Goal::Loss(gradients) => gradients(&scores, &mut slopes),
            Goal::Median(wanted) => picked.iter().map(|&r| r as usize).for_each(|r| {
                let slope = if scores[r] > wanted[r] { 1.0 } else { -1.0 };
                slopes[r] = [slope, 1.0];
            }),
        }
        let threshold = (s.row_share * f64::from(u32::MAX)) as u32;
        let rows: Vec<u32> =
            picked.iter().copied().filter(|_| rng.random::<u32>() <= threshold).collect();
        // A number is drawn for each feature, hidden or not.
        let columns: Vec<usize> = (0..data.width)
            .filter(|&f| f == 0 || rng.random::<f64>() < s.column_share)
            .filter(|f| data.hidden.iter().all(|h| !h.contains(f)))
            .collect();
        let mut bins = Vec::with_capacity(rows.len() * columns.len());
        for &r in &rows {
            let row = data.row(r as usize);
            bins.extend(columns.iter().map(|&f| row[f]));
        }
        let lack = |wanted: &[f32], r: u32| wanted[r as usize] - scores[r as usize];
        let grower = Grower {
            bins,
            slopes: rows.iter().map(|&r| slopes[r as usize]).collect(),
            lacks: match &goal {
                Goal::Loss(_) => None,
                Goal::Median(wanted) => Some(rows.iter().map(|&r| lack(wanted, r)).collect()),
            },
            columns: &columns,
            s,
        };
        let tree = grower.grow();
        for (r, score) in scores.iter_mut().enumerate() {
            let row = data.row(r);
            *score += tree.answer(|f| row[f]);
        }
        forest.trees.push(tree);
    }
    (forest, scores)
}

/// The sums of a bin: gradient and curvature.
type Sum = [f64; 2];

/// The sums of a leaf: those of the category's values, then those of each other feature's bins.
type Sums = (Box<[Sum; CATEGORIES]>, Vec<[Sum; BINS]>);

/// The best split of a leaf.
#[derive(Clone, Default)]
struct Split {
    gain: f64,
    feature: usize,
    bin: u8,
    mask: [u64; 4],
}

/// A leaf.
struct Leaf {
    rows: std::ops::Range<usize>,
    total: Sum,
    /// Where its place is named: a branch and its side.
    parent: Option<(usize, usize)>,
}

/// A leaf that may be split.
struct Open {
    leaf: Leaf,
    sums: Sums,
    split: Split,
}

/// Grows a tree from some rows, which it numbers from 0.
struct Grower<'a> {
    /// The features that the tree may look at; the category is the first.
    columns: &'a [usize],
    /// Their bins, row after row: those of a row lie together, for the rows of a small leaf lie
    /// apart.
    bins: Vec<u8>,
    slopes: Vec<[f32; 2]>,
    /// What rows lack of what is wanted, where a leaf is a median.
    lacks: Option<Vec<f32>>,
    s: &'a TreeSettings,
}

impl Grower<'_> {
    fn grow(&self) -> Tree {
        let mut rows: Vec<u32> = (0..self.slopes.len() as u32).collect();
        let mut tree = Tree::default();
        let mut scratch = Vec::with_capacity(rows.len());
        let sums = self.sums(&rows);
        let all = 0..rows.len();
        let mut open = vec![self.open(all, sums, None)];
        let mut closed: Vec<Leaf> = Vec::new();
        while open.len() + closed.len() < self.s.leaves {
            let best = (0..open.len())
                .max_by(|&x, &y| open[x].split.gain.total_cmp(&open[y].split.gain).then(y.cmp(&x)));
            let Some(best) = best.filter(|&b| open[b].split.gain > 1e-9) else { break };
            let Open { leaf, sums: mut large, split } = open.swap_remove(best);
            let node = tree.nodes.len();
            if let Some((parent, side)) = leaf.parent {
                tree.nodes[parent].next[side] = node as u16;
            }
            if split.feature == 0 {
                tree.masks.push(split.mask);
            }
            tree.nodes.push(Node {
                feature: split.feature as u8,
                split: split.bin,
                mask: tree.masks.len().saturating_sub(1) as u16,
                next: [LEAF; 2],
            });
            let middle = self.divide(&mut rows[leaf.rows.clone()], &split, &mut scratch);
            let (left, right) = (
                leaf.rows.start..leaf.rows.start + middle,
                leaf.rows.start + middle..leaf.rows.end,
            );
            // The sums of the larger side are what the smaller side leaves.
            let small_left = left.len() <= right.len();
            let small = self.sums(&rows[if small_left { left.clone() } else { right.clone() }]);
            take(&mut large, &small);
            let (l, r) = if small_left { (small, large) } else { (large, small) };
            open.push(self.open(left, l, Some((node, 0))));
            open.push(self.open(right, r, Some((node, 1))));
            // What cannot be split needs no sums any more.
            let mut i = 0;
            while i < open.len() {
                if open[i].split.gain > 1e-9 {
                    i += 1;
                } else {
                    closed.push(open.swap_remove(i).leaf);
                }
            }
        }
        for leaf in open.into_iter().map(|o| o.leaf).chain(closed) {
            let place = tree.leaves.len() as u16;
            tree.leaves.push(short(self.value(&leaf, &rows) as f32));
            if let Some((parent, side)) = leaf.parent {
                tree.nodes[parent].next[side] = place | LEAF;
            }
        }
        tree
    }

    /// What a leaf adds.
    fn value(&self, leaf: &Leaf, rows: &[u32]) -> f64 {
        let Some(lacks) = &self.lacks else {
            return -leaf.total[0] / (leaf.total[1] + self.s.ridge) * self.s.rate;
        };
        let lack = |&r: &u32| lacks[r as usize];
        f64::from(median(rows[leaf.rows.clone()].iter().map(lack))) * self.s.rate
    }

    /// Bins of a row.
    fn row(&self, row: u32) -> &[u8] {
        let width = self.columns.len();
        &self.bins[row as usize * width..][..width]
    }

    /// Sums by feature and bin.
    fn sums(&self, rows: &[u32]) -> Sums {
        let mut category = Box::new([[0.0; 2]; CATEGORIES]);
        let mut numbers = vec![[[0.0; 2]; BINS]; self.columns.len() - 1];
        for &r in rows {
            let [gradient, curvature] = self.slopes[r as usize].map(f64::from);
            let Some((&first, rest)) = self.row(r).split_first() else { continue };
            let sum = &mut category[usize::from(first)];
            *sum = [sum[0] + gradient, sum[1] + curvature];
            for (sums, &bin) in numbers.iter_mut().zip(rest) {
                // A bin is below the number of them.
                let sum = &mut sums[usize::from(bin) & (BINS - 1)];
                *sum = [sum[0] + gradient, sum[1] + curvature];
            }
        }
        (category, numbers)
    }

    fn open(
        &self,
        rows: std::ops::Range<usize>,
        sums: Sums,
        parent: Option<(usize, usize)>,
    ) -> Open {
        let total = sums.0.iter().fold([0.0; 2], |t, b| [t[0] + b[0], t[1] + b[1]]);
        let mut split = Split::default();
        self.category(&*sums.0, total, &mut split);
        for (&feature, sums) in self.columns[1..].iter().zip(&sums.1) {
            self.number(feature, sums, total, &mut split);
        }
        Open { leaf: Leaf { rows, total, parent }, sums, split }
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
        let at = self.columns.iter().position(|&f| f == split.feature).unwrap_or(0);
        scratch.clear();
        let mut n = 0;
        for i in 0..rows.len() {
            let r = rows[i];
            let b = self.row(r)[at];
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

/// The median of some numbers, the upper one of two; 0 without any.
pub fn median(numbers: impl Iterator<Item = f32>) -> f32 {
    let mut all: Vec<f32> = numbers.collect();
    let middle = all.len() / 2;
    if all.is_empty() { 0.0 } else { *all.select_nth_unstable_by(middle, f32::total_cmp).1 }
}

/// The nearest number whose lower 16 bits are 0, as files keep it.
fn short(x: f32) -> f32 {
    f32::from_bits(x.to_bits().wrapping_add(0x8000) & 0xffff_0000)
}

/// Takes the sums of one side from those of both.
fn take(both: &mut Sums, side: &Sums) {
    let numbers = side.1.as_flattened();
    let sides = side.0.iter().chain(numbers);
    for (sum, s) in both.0.iter_mut().chain(both.1.as_flattened_mut()).zip(sides) {
        *sum = [sum[0] - s[0], sum[1] - s[1]];
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
        let row = |r: usize| [bins.of(0, value(r, 0)), bins.of(1, value(r, 1))];
        let data: Vec<u8> = (0..n).flat_map(row).collect();
        let data = Binned { width: 2, bins: &data, hidden: &[0..0, 0..0] };
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
        let goal = Goal::Loss(&mut gradients);
        let (forest, scores) = fit(data, &rows, &s, 0.0, goal, &|| true);
        let wrong = (0..n).filter(|&r| (scores[r] - truth(r)).abs() > 0.1).count();
        assert!(wrong < n / 50, "{wrong}");
        assert!(forest.trees.iter().all(|t| t.is_sound(2)));
        let answers = forest.answers(&[[1, bins.of(1, 900.0)], [2, 9]]);
        assert!((answers[0] - 2.0).abs() < 0.1 && (answers[1] + 1.0).abs() < 0.1);
        assert_eq!(bins.of(1, f32::NAN), 0);
    }
}
