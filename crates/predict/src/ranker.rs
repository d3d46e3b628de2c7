//! The candidate ranker: a network that scores a whole configuration given the problem, so that all
//! of its values are weighed together. Input: an encoded problem and its candidates; output:
//! log-probabilities. A perceptron reads the problem. Each candidate is the sum of its values'
//! embeddings, its derived features, its neighbours' votes and the problem's query, and a second,
//! smaller perceptron makes a score of that. Two terms are added to the score: one per value, given
//! by the problem (bilinear), and one linear in the features. The scores of a space go through a
//! soft-max.
//!
//! Training sees the truth and a sample of the space, weighted so that the sum over the sample is
//! an unbiased estimate of the sum over the space: half of the draws are even, a quarter are
//! answers of the same row, a quarter are answers of the neighbours.

use crate::features::{ChannelVotes, EncodedProblem, Featurizer, Selection};
use crate::memory::{NOWHERE, Neighbour};
use crate::nn::vector::{add, add_row, gelu, gelu_backward, log_softmax, sum_rows};
use crate::nn::{
    Linear, Mlp, MlpInput, MlpScratch, ParameterLayout, Tables, cross_entropy, sized, zeroed,
};
use crate::train::{Batch, Learner};
use rand::{Rng, RngExt};
use rand_xoshiro::Xoshiro256PlusPlus as Generator;
use squall_core::forecast::{FamilyError, Instance};

/// Problems that training scores together.
const TOGETHER: usize = 8;

/// Sizes of a ranker.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RankerSizes {
    /// Width of the problem's perceptron.
    pub context: usize,
    /// Width of a candidate's embedding.
    pub hidden: usize,
    /// Width of the layer after it.
    pub last: usize,
    /// Candidates drawn beside the truth.
    pub negatives: usize,
    /// Share of elements dropped while training.
    pub dropout: f32,
}

impl Default for RankerSizes {
    fn default() -> RankerSizes {
        RankerSizes { context: 192, hidden: 128, last: 64, negatives: 128, dropout: 0.5 }
    }
}

impl RankerSizes {
    /// The default for spaces that are no more than the vectors that occurred: there is less to
    /// learn of them, and a predictor of all solvers holds many.
    pub const OF_LISTED: RankerSizes =
        RankerSizes { context: 96, hidden: 64, last: 32, negatives: 128, dropout: 0.5 };
}

/// The ranker's layers.
#[derive(Clone, Debug)]
pub struct Ranker {
    sizes: RankerSizes,
    layout: ParameterLayout,
    context: Mlp,
    query: Linear,
    products: Linear,
    tables: Tables,
    features: Linear,
    hidden: Linear,
    last: Linear,
    skip: Linear,
}

/// What the ranker is given of problems.
struct Inputs<'a> {
    /// The problems' tokens.
    tokens: &'a [u16],
    /// The values of their candidates.
    table: &'a [u16],
    /// The candidates' features.
    features: &'a [f32],
}

/// Buffers of one thread.
#[derive(Debug, Default)]
pub struct RankerScratch {
    mlp: MlpScratch,
    inputs: Vec<f32>,
    tokens: Vec<u16>,
    query: Vec<f32>,
    products: Vec<f32>,
    start: Vec<f32>,
    sums: Vec<f32>,
    table: Vec<u16>,
    features: Vec<f32>,
    z1: Vec<f32>,
    a1: Vec<f32>,
    z2: Vec<f32>,
    a2: Vec<f32>,
    scores: Vec<f32>,
    sample: Sample,
    corrections: Vec<f32>,
    truths: Vec<usize>,
    counts: Vec<usize>,
    d1: Vec<f32>,
    d2: Vec<f32>,
    dquery: Vec<f32>,
    dproducts: Vec<f32>,
    dcontext: Vec<f32>,
}

/// Some of a problem's candidates, drawn for a training step.
#[derive(Debug, Default)]
struct Sample {
    /// Places among the candidates, ascending; the truth is one of them.
    places: Vec<u32>,
    /// What is added to each score, so that the sum over the sample estimates that over the space.
    corrections: Vec<f32>,
    /// Where the truth stands in the sample.
    truth: usize,
}

impl Sample {
    fn push_truth(&mut self, truth: u32) {
        self.truth = self.places.len();
        self.places.push(truth);
        self.corrections.push(0.0);
    }
}

/// Adds to each candidate's score the scores of its values.
fn add_value_scores(products: &[f32], offsets: &[usize], table: &[u16], scores: &mut [f32]) {
    for (s, row) in scores.iter_mut().zip(table.chunks_exact(offsets.len())) {
        *s += row.iter().zip(offsets).map(|(&v, o)| products[o + v as usize]).sum::<f32>();
    }
}

/// The mean of several networks' log-probabilities, normalised to log-probabilities.
pub fn mean(lists: Vec<Vec<f32>>) -> Vec<f32> {
    let n = lists.len() as f32;
    let mut lists = lists.into_iter();
    let mut sum = lists.next().unwrap_or_default();
    if n > 1.0 {
        lists.for_each(|l| add(&l, &mut sum));
        sum.iter_mut().for_each(|s| *s /= n);
        log_softmax(&mut sum);
    }
    sum
}

impl Ranker {
    /// A ranker for a solver.
    pub fn new(featurizer: &Featurizer, sizes: RankerSizes) -> Ranker {
        let mut l = ParameterLayout::default();
        let knobs: Vec<usize> =
            featurizer.family.spec().knobs.iter().map(|k| k.values.len()).collect();
        let vocabulary = featurizer.facts.encoder.vocabulary();
        Ranker {
            sizes,
            context: Mlp::new(
                &mut l,
                "context",
                featurizer.inputs(),
                &vocabulary,
                sizes.context,
                sizes.dropout,
            ),
            query: Linear::new(&mut l, "query", sizes.context, sizes.hidden, 1.0),
            products: Linear::new(&mut l, "products", sizes.context, featurizer.values, 0.3),
            tables: Tables::new(&mut l, "values", &knobs, sizes.hidden, 0.4),
            features: Linear::new(&mut l, "features", featurizer.features(), sizes.hidden, 0.7),
            hidden: Linear::new(&mut l, "hidden", sizes.hidden, sizes.last, 1.4),
            last: Linear::new(&mut l, "last", sizes.last, 1, 1.0),
            skip: Linear::new(&mut l, "skip", featurizer.features(), 1, 0.1),
            layout: l,
        }
    }

    /// Its sizes.
    pub fn sizes(&self) -> RankerSizes {
        self.sizes
    }

    /// Log-probabilities among some candidates of a problem: the mean over several networks, whose
    /// parameters are `members`.
    pub fn score(
        &self,
        members: &[Vec<f32>],
        featurizer: &Featurizer,
        encoded: &EncodedProblem,
        instance: &Instance,
        selection: Selection,
        scratch: &mut RankerScratch,
    ) -> Vec<f32> {
        let inputs = sized(&mut scratch.inputs, featurizer.inputs());
        let votes = featurizer.prediction_inputs(encoded, inputs);
        let (f, width) = (featurizer.features(), featurizer.offsets.len());
        let n = selection.table.len() / width;
        let mut features = std::mem::take(&mut scratch.features);
        let written = sized(&mut features, n * f);
        featurizer.write_features(encoded, instance, &votes, selection, written);
        let mut lists = Vec::with_capacity(members.len());
        for p in members {
            self.read(p, &encoded.tokens, 1, None::<&mut Generator>, scratch);
            let mut out = Vec::with_capacity(n);
            // The part of the first layer that all candidates share.
            let start = sized(&mut scratch.start, self.sizes.hidden);
            start.copy_from_slice(&scratch.query);
            add(self.features.bias(p), start);
            // Candidates are scored in parts that stay in the cache.
            const PART: usize = 128;
            let parts = selection.table.chunks(PART * width).zip(features.chunks(PART * f));
            for (table, features) in parts {
                let n = table.len() / width;
                let z1 = sized(&mut scratch.z1, n * self.sizes.hidden);
                self.tables.forward_sorted(p, &scratch.start, table, z1, &mut scratch.sums);
                self.features.weigh_onto(p, features, n, z1);
                self.finish(p, features, n, scratch);
                let (products, scores) = (&scratch.products, &mut scratch.scores);
                add_value_scores(products, &featurizer.offsets, table, scores);
                out.extend_from_slice(&scratch.scores);
            }
            log_softmax(&mut out);
            lists.push(out);
        }
        scratch.features = features;
        mean(lists)
    }

    /// Runs the perceptron over problems, whose numbers stand in `scratch.inputs`, and computes
    /// what all candidates of a problem share.
    fn read(
        &self,
        p: &[f32],
        tokens: &[u16],
        n: usize,
        rng: Option<&mut impl Rng>,
        scratch: &mut RankerScratch,
    ) {
        let input = MlpInput { numbers: &scratch.inputs, tokens, n };
        self.context.forward(p, input, rng, &mut scratch.mlp);
        let context = &scratch.mlp.out;
        self.query.forward(p, context, n, sized(&mut scratch.query, n * self.sizes.hidden));
        let products = sized(&mut scratch.products, n * self.products.outputs());
        self.products.forward(p, context, n, products);
    }

    /// Scores candidates of several problems; `scratch.counts` says how many belong to each.
    fn weigh(
        &self,
        p: &[f32],
        offsets: &[usize],
        table: &[u16],
        features: &[f32],
        scratch: &mut RankerScratch,
    ) {
        let (h, width) = (self.sizes.hidden, offsets.len());
        let n = table.len() / width;
        self.features.forward(p, features, n, sized(&mut scratch.z1, n * h));
        self.tables.forward_onto(p, table, &mut scratch.z1);
        let mut at = 0;
        for (i, &count) in scratch.counts.iter().enumerate() {
            add_row(&scratch.query[i * h..(i + 1) * h], &mut scratch.z1[at * h..(at + count) * h]);
            at += count;
        }
        self.finish(p, features, n, scratch);
        let values = self.products.outputs();
        let mut at = 0;
        for (i, &count) in scratch.counts.iter().enumerate() {
            let products = &scratch.products[i * values..(i + 1) * values];
            let table = &table[at * width..(at + count) * width];
            add_value_scores(products, offsets, table, &mut scratch.scores[at..at + count]);
            at += count;
        }
    }

    /// From the first layer's sums in `scratch.z1` to scores, without the scores of single values.
    fn finish(&self, p: &[f32], features: &[f32], n: usize, scratch: &mut RankerScratch) {
        let (h, last) = (self.sizes.hidden, self.sizes.last);
        gelu(&scratch.z1[..n * h], sized(&mut scratch.a1, n * h));
        self.hidden.forward(p, &scratch.a1, n, sized(&mut scratch.z2, n * last));
        gelu(&scratch.z2, sized(&mut scratch.a2, n * last));
        self.last.forward(p, &scratch.a2, n, sized(&mut scratch.scores, n));
        self.skip.forward_onto(p, features, n, &mut scratch.scores, true);
    }

    /// Draws candidates of a problem for a training step.
    fn sample(
        &self,
        featurizer: &Featurizer,
        encoded: &EncodedProblem,
        neighbours: &[Neighbour],
        rng: &mut Generator,
        sample: &mut Sample,
    ) {
        let truth = encoded.truth.unwrap_or(0);
        let n = encoded.candidates.len();
        let m = self.sizes.negatives;
        sample.places.clear();
        sample.corrections.clear();
        sample.truth = truth as usize;
        if n <= m + 1 {
            sample.places.extend(0..n as u32);
            sample.corrections.resize(n, 0.0);
            return;
        }
        let near: Vec<u32> =
            neighbours.iter().map(|x| x.candidate).filter(|&c| c != NOWHERE).collect();
        let members = featurizer.members(encoded.row);
        let often = if encoded.legal_share > 0.05 && !members.is_empty() { 0.25 } else { 0.0 };
        let close = if near.is_empty() { 0.0 } else { 0.25 };
        let even = 1.0 - often - close;
        let mut drawn: Vec<u32> = Vec::with_capacity(m);
        for i in 0..m {
            let u = (i as f64 + 0.5) / m as f64;
            let one = if u < even {
                Some(rng.random_range(0..n as u32))
            } else if u < even + often {
                // Answers of the row are drawn until one is legal here. The share of legal ones is
                // known to be above a twentieth.
                (0..200).find_map(|_| {
                    let i = members[rng.random_range(0..members.len())];
                    encoded.candidates.find(featurizer.facts.memory.answer(i)).map(|i| i as u32)
                })
            } else {
                Some(near[rng.random_range(0..near.len())])
            };
            drawn.extend(one.filter(|&i| i != truth));
        }
        drawn.sort_unstable();
        for group in drawn.chunk_by(|a, b| a == b) {
            let i = group[0];
            if i > truth && sample.places.last().is_none_or(|&l| l < truth) {
                sample.push_truth(truth);
            }
            let frequency = if often > 0.0 {
                let row = encoded.candidates.row(i as usize);
                f64::from(featurizer.frequency(encoded.row, row) / encoded.legal_share)
            } else {
                0.0
            };
            let share = near.iter().filter(|x| **x == i).count() as f64 / near.len().max(1) as f64;
            let q = even / n as f64 + often * frequency + close * share;
            sample.places.push(i);
            sample.corrections.push((group.len() as f64 / (m as f64 * q)).ln() as f32);
        }
        if sample.places.last().is_none_or(|&l| l < truth) {
            sample.push_truth(truth);
        }
    }

    /// Draws candidates of one more problem and writes their features and positions after those of
    /// the problems before it.
    fn add_sample(
        &self,
        featurizer: &Featurizer,
        encoded: &EncodedProblem,
        instance: &Instance,
        votes: &ChannelVotes,
        rng: &mut Generator,
        scratch: &mut RankerScratch,
    ) {
        let mut sample = std::mem::take(&mut scratch.sample);
        self.sample(featurizer, encoded, &votes[0].0, rng, &mut sample);
        let start = scratch.table.len();
        let rows = sample.places.iter().flat_map(|&r| encoded.candidates.row(r as usize));
        scratch.table.extend(rows);
        let at = scratch.features.len();
        scratch.features.resize(at + sample.places.len() * featurizer.features(), 0.0);
        let places = Some(&sample.places[..]);
        let selection = Selection { places, table: &scratch.table[start..] };
        let features = &mut scratch.features[at..];
        featurizer.write_features(encoded, instance, votes, selection, features);
        scratch.truths.push(sample.truth);
        scratch.counts.push(sample.places.len());
        scratch.corrections.extend_from_slice(&sample.corrections);
        scratch.sample = sample;
    }

    /// Backwards from the gradients of the scores, which stand in `scratch.scores`, through
    /// everything that [`Ranker::weigh`] and [`Ranker::read`] computed for problems.
    fn backward(
        &self,
        p: &[f32],
        offsets: &[usize],
        inputs: &Inputs,
        scratch: &mut RankerScratch,
        g: &mut [f32],
    ) {
        let Inputs { tokens, table, features } = *inputs;
        let (h, width, n) = (self.sizes.hidden, offsets.len(), scratch.counts.len());
        let rows = table.len() / width;
        let ds = &scratch.scores;
        // The term that is linear in the features, then the perceptron backwards.
        self.skip.backward(features, rows, ds, g);
        self.last.backward(&scratch.a2, rows, ds, g);
        let d2 = sized(&mut scratch.d2, rows * self.sizes.last);
        self.last.backward_argument(p, ds, rows, d2, false);
        gelu_backward(&scratch.z2, d2);
        self.hidden.backward(&scratch.a1, rows, d2, g);
        let d1 = sized(&mut scratch.d1, rows * h);
        self.hidden.backward_argument(p, d2, rows, d1, false);
        gelu_backward(&scratch.z1, d1);
        self.features.backward(features, rows, d1, g);
        self.tables.backward(table, d1, g);
        let values = self.products.outputs();
        let dquery = zeroed(&mut scratch.dquery, n * h);
        let dproducts = zeroed(&mut scratch.dproducts, n * values);
        let mut at = 0;
        for (i, &count) in scratch.counts.iter().enumerate() {
            sum_rows(&d1[at * h..(at + count) * h], &mut dquery[i * h..(i + 1) * h]);
            let d = &mut dproducts[i * values..(i + 1) * values];
            for (s, row) in ds[at..at + count].iter().zip(table[at * width..].chunks_exact(width)) {
                row.iter().zip(offsets).for_each(|(&v, o)| d[o + v as usize] += s);
            }
            at += count;
        }
        self.query.backward(&scratch.mlp.out, n, dquery, g);
        self.products.backward(&scratch.mlp.out, n, dproducts, g);
        let dcontext = sized(&mut scratch.dcontext, n * self.sizes.context);
        self.query.backward_argument(p, dquery, n, dcontext, false);
        self.products.backward_argument(p, dproducts, n, dcontext, true);
        let input = MlpInput { numbers: &scratch.inputs, tokens, n };
        self.context.backward(p, input, dcontext, &mut scratch.mlp, g);
    }
}

impl Learner for Ranker {
    type Scratch = RankerScratch;

    fn layout(&self) -> &ParameterLayout {
        &self.layout
    }

    fn learn(
        &self,
        p: &[f32],
        batch: Batch,
        rng: &mut Generator,
        mut gradient: Option<&mut [f32]>,
        scratch: &mut RankerScratch,
    ) -> Result<f64, FamilyError> {
        let featurizer = batch.featurizer;
        let inputs = featurizer.inputs();
        let mut loss = 0.0;
        for problems in batch.problems.chunks(TOGETHER) {
            let n = problems.len();
            zeroed(&mut scratch.inputs, n * inputs);
            scratch.tokens.clear();
            scratch.table.clear();
            scratch.features.clear();
            scratch.counts.clear();
            scratch.truths.clear();
            scratch.corrections.clear();
            for (i, (encoded, instance)) in problems.iter().enumerate() {
                let out = &mut scratch.inputs[i * inputs..(i + 1) * inputs];
                let votes = featurizer.training_inputs(encoded, gradient.is_some(), rng, out);
                scratch.tokens.extend(&encoded.tokens);
                self.add_sample(featurizer, encoded, instance, &votes, rng, scratch);
            }
            let tokens = std::mem::take(&mut scratch.tokens);
            self.read(p, &tokens, n, gradient.is_some().then_some(&mut *rng), scratch);
            let (table, features) =
                (std::mem::take(&mut scratch.table), std::mem::take(&mut scratch.features));
            self.weigh(p, &featurizer.offsets, &table, &features, scratch);
            add(&scratch.corrections, &mut scratch.scores);
            let mut at = 0;
            for (&count, &truth) in scratch.counts.iter().zip(&scratch.truths) {
                loss += cross_entropy(&mut scratch.scores[at..at + count], truth, 1.0);
                at += count;
            }
            if let Some(g) = gradient.as_deref_mut() {
                let inputs = Inputs { tokens: &tokens, table: &table, features: &features };
                self.backward(p, &featurizer.offsets, &inputs, scratch, g);
            }
            (scratch.tokens, scratch.table, scratch.features) = (tokens, table, features);
        }
        Ok(loss)
    }
}
