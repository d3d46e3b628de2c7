//! The classical baselines of the paper's Table II (Mahmood, Khan, Afzal; see `options.rs`): one
//! classifier for each knob, on the problem's standardised numbers. A configuration's score is the
//! product of its knobs' probabilities. Decision tree and random forest (Breiman 2001) split on 32
//! bins of each number by Gini's impurity; Gaussian naive Bayes; linear support vector machines,
//! one against the rest (Pegasos, Shalev-Shwartz et al. 2011). The nearest neighbours are
//! [`Method::Neighbours`](crate::Method::Neighbours).

use crate::features::{EncodedProblem, Featurizer};
use crate::nn::vector::{add_scaled, dot, log_softmax};
use crate::options::{Classical, Options};
use crate::parallel;
use crate::trainer::{TrainingData, encode_all, labelled};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Generator;
use squall_core::forecast::{FamilyError, Part};

const BINS: usize = 32;
const TREES: usize = 50;
const DEPTH: usize = 24;
/// The mark of a leaf in the numbers of a tree.
const LEAF: u32 = u32::MAX;

/// Problems and the values of one knob.
struct Table<'a> {
    /// `n x width`
    numbers: &'a [f32],
    /// The bin of each number.
    bins: &'a [u8],
    width: usize,
    labels: Vec<u16>,
    classes: usize,
}

/// The classifier of one knob. It scores each value, as log-probabilities do.
#[derive(Debug)]
enum Classifier {
    Trees(Vec<Vec<Node>>),
    Bayes { prior: Vec<f32>, mean: Vec<f32>, inverse: Vec<f32> },
    Linear { weights: Vec<f32>, bias: Vec<f32> },
}

/// A node of a tree; children are given by their places among the nodes.
#[derive(Debug)]
enum Node {
    Split { number: usize, bin: u8, left: usize, right: usize },
    Leaf(Vec<f32>),
}

impl Classifier {
    fn learn(kind: Classical, t: &Table, rng: &mut Generator) -> Classifier {
        let n = t.labels.len();
        let all: Vec<u32> = (0..n as u32).collect();
        match kind {
            Classical::DecisionTree => Classifier::Trees(vec![grow(t, all, t.width, 4, rng)]),
            Classical::RandomForest => {
                let tried = (t.width as f64).sqrt().ceil() as usize;
                let sample =
                    |rng: &mut Generator| (0..n).map(|_| rng.random_range(0..n as u32)).collect();
                Classifier::Trees(
                    (0..TREES)
                        .map(|_| {
                            let s = sample(rng);
                            grow(t, s, tried, 1, rng)
                        })
                        .collect(),
                )
            }
            Classical::NaiveBayes => bayes(t),
            Classical::Svm => machines(t, rng),
        }
    }

    fn scores(&self, numbers: &[f32], bins: &[u8], classes: usize) -> Vec<f32> {
        match self {
            Classifier::Trees(trees) => {
                let mut sum = vec![0.0; classes];
                for tree in trees {
                    let mut at = 0;
                    while let Node::Split { number, bin, left, right } = &tree[at] {
                        at = if bins[*number] <= *bin { *left } else { *right };
                    }
                    if let Node::Leaf(shares) = &tree[at] {
                        add_scaled(1.0, shares, &mut sum);
                    }
                }
                sum.iter().map(|s| (s / trees.len() as f32 + 1e-3).ln()).collect()
            }
            Classifier::Bayes { prior, mean, inverse } => {
                let w = numbers.len();
                let score = |c: usize| {
                    let (m, i) = (&mean[c * w..(c + 1) * w], &inverse[c * w..(c + 1) * w]);
                    let terms = numbers
                        .iter()
                        .zip(m)
                        .zip(i)
                        .map(|((x, m), i)| 0.5 * i.ln() - 0.5 * i * (x - m) * (x - m));
                    prior[c] + terms.sum::<f32>()
                };
                (0..classes).map(score).collect()
            }
            Classifier::Linear { weights, bias } => {
                let w = numbers.len();
                (0..classes).map(|c| bias[c] + dot(numbers, &weights[c * w..(c + 1) * w])).collect()
            }
        }
    }
}

/// Grows a tree over samples. Each split tries `tried` numbers, and no child has fewer than `least`
/// samples.
fn grow(
    t: &Table,
    samples: Vec<u32>,
    tried: usize,
    least: usize,
    rng: &mut Generator,
) -> Vec<Node> {
    let mut nodes = vec![Node::Leaf(Vec::new())];
    let mut open = vec![(0usize, samples, 0usize)];
    let mut order: Vec<usize> = (0..t.width).collect();
    while let Some((at, samples, depth)) = open.pop() {
        let mut counts = vec![0.0f32; t.classes];
        samples.iter().for_each(|&s| counts[t.labels[s as usize] as usize] += 1.0);
        let total = samples.len() as f32;
        // The number of samples times their purity, which a split must raise.
        let purity = |counts: &[f32], n: f32| {
            if n > 0.0 { counts.iter().map(|c| c * c).sum::<f32>() / n } else { 0.0 }
        };
        let mut best = (purity(&counts, total) + 1e-4, None);
        if depth < DEPTH && counts.iter().filter(|c| **c > 0.0).count() > 1 {
            for i in 0..tried {
                let j = rng.random_range(i..t.width);
                order.swap(i, j);
                let number = order[i];
                let mut histogram = vec![0.0f32; BINS * t.classes];
                for &s in &samples {
                    histogram[t.bins[s as usize * t.width + number] as usize * t.classes
                        + t.labels[s as usize] as usize] += 1.0;
                }
                let (mut left, mut right) = (vec![0.0f32; t.classes], counts.clone());
                let mut below = 0.0;
                for (bin, row) in histogram.chunks_exact(t.classes).enumerate().take(BINS - 1) {
                    for (c, &x) in row.iter().enumerate() {
                        left[c] += x;
                        right[c] -= x;
                        below += x;
                    }
                    if below >= least as f32 && total - below >= least as f32 {
                        let gain = purity(&left, below) + purity(&right, total - below);
                        if gain > best.0 {
                            best = (gain, Some((number, bin as u8)));
                        }
                    }
                }
            }
        }
        match best.1 {
            None => nodes[at] = Node::Leaf(counts.iter().map(|c| c / total.max(1.0)).collect()),
            Some((number, bin)) => {
                let goes_left = |s: &u32| t.bins[*s as usize * t.width + number] <= bin;
                let (left, right): (Vec<u32>, Vec<u32>) = samples.into_iter().partition(goes_left);
                let next = nodes.len();
                nodes.extend([Node::Leaf(Vec::new()), Node::Leaf(Vec::new())]);
                nodes[at] = Node::Split { number, bin, left: next, right: next + 1 };
                open.extend([(next, left, depth + 1), (next + 1, right, depth + 1)]);
            }
        }
    }
    nodes
}

fn bayes(t: &Table) -> Classifier {
    let mut count = vec![0.0f32; t.classes];
    let (mut sum, mut square) =
        (vec![0.0f32; t.classes * t.width], vec![0.0f32; t.classes * t.width]);
    for (x, &label) in t.numbers.chunks_exact(t.width).zip(&t.labels) {
        let c = label as usize;
        count[c] += 1.0;
        for (i, x) in x.iter().enumerate() {
            sum[c * t.width + i] += x;
            square[c * t.width + i] += x * x;
        }
    }
    let total = t.labels.len() as f32;
    let of = |i: usize| count[i / t.width].max(1.0);
    let mean: Vec<f32> = sum.iter().enumerate().map(|(i, s)| s / of(i)).collect();
    // The variance of all samples is one. A hundredth of it is added, so that no class has none.
    let inverse = square
        .iter()
        .enumerate()
        .map(|(i, q)| 1.0 / ((q / of(i) - mean[i] * mean[i]).max(0.0) + 0.01))
        .collect();
    Classifier::Bayes {
        prior: count.iter().map(|c| ((c + 1e-3) / total).ln()).collect(),
        mean,
        inverse,
    }
}

fn machines(t: &Table, rng: &mut Generator) -> Classifier {
    const LAMBDA: f32 = 1e-4;
    const PASSES: usize = 20;
    let n = t.labels.len();
    let (mut weights, mut bias) = (vec![0.0f32; t.classes * t.width], vec![0.0f32; t.classes]);
    for step in 0..PASSES * n {
        let s = rng.random_range(0..n);
        let x = &t.numbers[s * t.width..(s + 1) * t.width];
        let rate = 1.0 / (LAMBDA * (step as f32 + 1.0 / LAMBDA));
        for c in 0..t.classes {
            let w = &mut weights[c * t.width..(c + 1) * t.width];
            let y = if t.labels[s] as usize == c { 1.0 } else { -1.0 };
            let margin = y * (dot(x, w) + bias[c]);
            w.iter_mut().for_each(|w| *w *= 1.0 - rate * LAMBDA);
            if margin < 1.0 {
                // Features are of unit size, so a product grows with their number. The step is
                // divided by it in turn.
                add_scaled(rate * y / t.width as f32, x, w);
                bias[c] += rate * y / t.width as f32;
            }
        }
    }
    Classifier::Linear { weights, bias }
}

/// Classifiers of all knobs of a solver.
#[derive(Debug)]
pub struct Trained {
    featurizer: Featurizer,
    /// Upper ends of every number's bins but the last.
    edges: Vec<Vec<f32>>,
    classifiers: Vec<Classifier>,
}

impl Trained {
    /// Trains the classifiers.
    pub(crate) fn train(m: &TrainingData, kind: Classical) -> Result<Trained, FamilyError> {
        let Options { seed, threads, .. } = *m.options;
        let training = m.of(Part::Train);
        let featurizer = Featurizer::learn(m.family.clone(), &training, &[], None)?;
        let encoded = encode_all(&featurizer, &training, threads, None)?;
        let learned: Vec<&EncodedProblem> =
            labelled(&encoded, &training).into_iter().map(|(c, _)| c).collect();
        let width = featurizer.facts.encoder.width();
        let numbers: Vec<f32> = learned.iter().flat_map(|c| c.numbers.iter().copied()).collect();
        let edges: Vec<Vec<f32>> = (0..width)
            .map(|i| quantiles(numbers.iter().skip(i).step_by(width.max(1)).copied().collect()))
            .collect();
        let bins: Vec<u8> =
            numbers.chunks_exact(width.max(1)).flat_map(|x| binned(&edges, x)).collect();
        let knobs: Vec<usize> = (0..featurizer.offsets.len()).collect();
        let classifiers = parallel::map(threads, &knobs, |&k, _: &mut ()| {
            let labels = learned
                .iter()
                .map(|c| c.candidates.row(c.truth.unwrap_or(0) as usize)[k])
                .collect();
            let classes = featurizer.family.spec().knobs[k].values.len();
            let table = Table { numbers: &numbers, bins: &bins, width, labels, classes };
            Classifier::learn(kind, &table, &mut Generator::seed_from_u64(seed ^ (k as u64) << 32))
        });
        Ok(Trained { featurizer, edges, classifiers })
    }

    pub(crate) fn featurizer(&self) -> &Featurizer {
        &self.featurizer
    }

    /// All parameters as numbers, which [`Trained::from_numbers`] reads.
    pub(crate) fn numbers(&self) -> (Vec<u32>, Vec<f32>) {
        let (mut ints, mut floats) = (Vec::new(), Vec::new());
        for e in &self.edges {
            ints.push(e.len() as u32);
            floats.extend(e);
        }
        for c in &self.classifiers {
            match c {
                Classifier::Trees(trees) => {
                    ints.extend([0, trees.len() as u32]);
                    for tree in trees {
                        ints.push(tree.len() as u32);
                        for node in tree {
                            match node {
                                Node::Split { number, bin, left, right } => {
                                    ints.extend([
                                        *number as u32,
                                        u32::from(*bin),
                                        *left as u32,
                                        *right as u32,
                                    ]);
                                }
                                Node::Leaf(shares) => {
                                    ints.push(LEAF);
                                    floats.extend(shares);
                                }
                            }
                        }
                    }
                }
                Classifier::Bayes { prior, mean, inverse } => {
                    ints.push(1);
                    [prior, mean, inverse].into_iter().for_each(|v| floats.extend(v));
                }
                Classifier::Linear { weights, bias } => {
                    ints.push(2);
                    [weights, bias].into_iter().for_each(|v| floats.extend(v));
                }
            }
        }
        (ints, floats)
    }

    /// Reads the numbers of [`Trained::numbers`]; `None` where they are inconsistent.
    pub(crate) fn from_numbers(
        featurizer: Featurizer,
        ints: &[u32],
        floats: &[f32],
    ) -> Option<Trained> {
        let width = featurizer.facts.encoder.width();
        let (mut ints, mut floats) = (ints.iter(), floats);
        let mut take = |n: usize| -> Option<Vec<f32>> {
            let (now, rest) = floats.split_at_checked(n)?;
            floats = rest;
            Some(now.to_vec())
        };
        let mut edges = Vec::new();
        for _ in 0..width {
            edges.push(take(*ints.next()? as usize)?);
        }
        let mut classifiers = Vec::new();
        for knob in &featurizer.family.spec().knobs {
            let n = knob.values.len();
            classifiers.push(match ints.next()? {
                0 => {
                    let mut trees = Vec::new();
                    for _ in 0..*ints.next()? {
                        let mut tree = Vec::new();
                        let nodes = *ints.next()? as usize;
                        for i in 0..nodes {
                            let number = *ints.next()?;
                            if number == LEAF {
                                tree.push(Node::Leaf(take(n)?));
                                continue;
                            }
                            let (bin, left, right) = (
                                u8::try_from(*ints.next()?).ok()?,
                                *ints.next()? as usize,
                                *ints.next()? as usize,
                            );
                            // Children stand after their parent, so every walk ends.
                            if number as usize >= width
                                || left <= i
                                || right <= i
                                || left >= nodes
                                || right >= nodes
                            {
                                return None;
                            }
                            tree.push(Node::Split { number: number as usize, bin, left, right });
                        }
                        if tree.is_empty() {
                            return None;
                        }
                        trees.push(tree);
                    }
                    if trees.is_empty() {
                        return None;
                    }
                    Classifier::Trees(trees)
                }
                1 => Classifier::Bayes {
                    prior: take(n)?,
                    mean: take(n * width)?,
                    inverse: take(n * width)?,
                },
                2 => Classifier::Linear { weights: take(n * width)?, bias: take(n)? },
                _ => return None,
            });
        }
        (ints.next().is_none() && floats.is_empty()).then_some(Trained {
            featurizer,
            edges,
            classifiers,
        })
    }

    /// Log-probabilities of a problem's candidates.
    pub(crate) fn score(&self, encoded: &EncodedProblem) -> Vec<f32> {
        let bins: Vec<u8> = binned(&self.edges, &encoded.numbers).collect();
        let mut values = vec![0.0f32; self.featurizer.values];
        for ((c, offset), knob) in self
            .classifiers
            .iter()
            .zip(&self.featurizer.offsets)
            .zip(&self.featurizer.family.spec().knobs)
        {
            let n = knob.values.len();
            let mut scores = c.scores(&encoded.numbers, &bins, n);
            log_softmax(&mut scores);
            values[*offset..offset + n].copy_from_slice(&scores);
        }
        let one = |row: &[u16]| {
            row.iter().zip(&self.featurizer.offsets).map(|(&v, o)| values[o + v as usize]).sum()
        };
        let mut out: Vec<f32> =
            encoded.candidates.table.chunks_exact(encoded.candidates.width).map(one).collect();
        log_softmax(&mut out);
        out
    }
}

/// Up to 31 values that divide the numbers into bins of about equal size.
fn quantiles(mut x: Vec<f32>) -> Vec<f32> {
    x.sort_unstable_by(f32::total_cmp);
    let mut distinct = x.clone();
    distinct.dedup();
    if distinct.len() <= BINS {
        distinct.pop();
        return distinct;
    }
    let mut out: Vec<f32> = (1..BINS).map(|i| x[i * x.len() / BINS]).collect();
    out.dedup();
    out
}

/// The bins of a problem's numbers.
fn binned(edges: &[Vec<f32>], x: &[f32]) -> impl Iterator<Item = u8> {
    edges.iter().zip(x).map(|(e, x)| e.partition_point(|e| e < x) as u8)
}
