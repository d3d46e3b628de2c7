//! The candidate ranker: scores a whole configuration given the problem, so that all of its values
//! are weighed together. A perceptron reads the problem; each candidate is the sum of its values'
//! embeddings, its derived features, its neighbours' votes and the problem's query; a second,
//! smaller perceptron makes a score of that. Beside it stand a score per value that the problem
//! gives (the bilinear term) and one linear in the features. Soft-max over the space.
//!
//! Training sees the truth and a sample of the space, weighted so that the sum over the sample
//! estimates the sum over the space without bias: half of the draws are even, a quarter are what
//! the row answered elsewhere, a quarter what the neighbours answered.

use crate::case::{Case, Ground, Rows};
use crate::memory::{NOWHERE, Neighbour};
use crate::nn::vector::{add_row, gelu, gelu_backward, sum_rows};
use crate::nn::{Layout, Linear, Mlp, MlpRoom, Tables, cross_entropy, sized, zeroed};
use crate::train::{Learner, Lesson};
use rand::{Rng, RngExt};
use rand_xoshiro::Xoshiro256PlusPlus as Generator;
use squall_core::forecast::{FamilyError, Instance};

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
        RankerSizes { context: 192, hidden: 128, last: 64, negatives: 320, dropout: 0.5 }
    }
}

/// The ranker's layers.
#[derive(Clone, Debug)]
pub struct Ranker {
    sizes: RankerSizes,
    layout: Layout,
    context: Mlp,
    query: Linear,
    products: Linear,
    tables: Tables,
    features: Linear,
    hidden: Linear,
    last: Linear,
    skip: Linear,
}

/// Buffers of one thread.
#[derive(Debug, Default)]
pub struct RankerRoom {
    mlp: MlpRoom,
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
    rows: Vec<u32>,
    corrections: Vec<f32>,
    truths: Vec<usize>,
    counts: Vec<usize>,
    d1: Vec<f32>,
    d2: Vec<f32>,
    dquery: Vec<f32>,
    dproducts: Vec<f32>,
    dcontext: Vec<f32>,
}

/// Adds to each candidate's score the scores of its values.
fn add_lines(products: &[f32], offsets: &[usize], table: &[u16], scores: &mut [f32]) {
    for (s, row) in scores.iter_mut().zip(table.chunks_exact(offsets.len())) {
        *s += row.iter().zip(offsets).map(|(&v, o)| products[o + v as usize]).sum::<f32>();
    }
}

/// The mean of several networks' log-probabilities, as log-probabilities.
pub fn mean(lists: Vec<Vec<f32>>) -> Vec<f32> {
    let n = lists.len() as f32;
    let mut lists = lists.into_iter();
    let mut sum = lists.next().unwrap_or_default();
    if n > 1.0 {
        lists.for_each(|l| crate::nn::vector::add(&l, &mut sum));
        sum.iter_mut().for_each(|s| *s /= n);
        crate::nn::vector::log_softmax(&mut sum);
    }
    sum
}

impl Ranker {
    /// A ranker for a solver.
    pub fn new(ground: &Ground, sizes: RankerSizes) -> Ranker {
        let mut l = Layout::default();
        let knobs: Vec<usize> = ground.family.spec().knobs.iter().map(|k| k.values.len()).collect();
        let vocabulary = ground.facts.encoder.vocabulary();
        Ranker {
            sizes,
            context: Mlp::new(
                &mut l,
                "context",
                ground.inputs(),
                &vocabulary,
                sizes.context,
                sizes.dropout,
            ),
            query: Linear::new(&mut l, "query", sizes.context, sizes.hidden, 1.0),
            products: Linear::new(&mut l, "products", sizes.context, ground.values, 0.3),
            tables: Tables::new(&mut l, "values", &knobs, sizes.hidden, 0.4),
            features: Linear::new(&mut l, "features", ground.features(), sizes.hidden, 0.7),
            hidden: Linear::new(&mut l, "hidden", sizes.hidden, sizes.last, 1.4),
            last: Linear::new(&mut l, "last", sizes.last, 1, 1.0),
            skip: Linear::new(&mut l, "skip", ground.features(), 1, 0.1),
            layout: l,
        }
    }

    /// Its sizes.
    pub fn sizes(&self) -> RankerSizes {
        self.sizes
    }

    /// Log-probabilities of a case's candidates, among those that are asked for: the mean of those
    /// of several networks. `table` holds their positions.
    pub fn score(
        &self,
        members: &[Vec<f32>],
        ground: &Ground,
        (case, instance): (&Case, &Instance),
        (rows, table): (Rows, &[u16]),
        room: &mut RankerRoom,
    ) -> Vec<f32> {
        let votes = ground.ask(case, sized(&mut room.inputs, ground.inputs()));
        let (f, width) = (ground.features(), ground.offsets.len());
        let n = table.len() / width;
        let mut features = std::mem::take(&mut room.features);
        ground.write_features(case, instance, &votes, rows, table, sized(&mut features, n * f));
        let mut lists = Vec::with_capacity(members.len());
        for p in members {
            self.read(p, &case.tokens, 1, None::<&mut Generator>, room);
            let mut out = Vec::with_capacity(n);
            // Where values of all candidates begin: the problem's view and the features' bias.
            let start = sized(&mut room.start, self.sizes.hidden);
            start.copy_from_slice(&room.query);
            crate::nn::vector::add(self.features.bias(p), start);
            // In parts that stay in the cache.
            const PART: usize = 128;
            for (table, features) in table.chunks(PART * width).zip(features.chunks(PART * f)) {
                let n = table.len() / width;
                let z1 = sized(&mut room.z1, n * self.sizes.hidden);
                self.tables.forward_sorted(p, &room.start, table, z1, &mut room.sums);
                self.features.weigh_onto(p, features, n, z1);
                self.finish(p, features, n, room);
                add_lines(&room.products, &ground.offsets, table, &mut room.scores);
                out.extend_from_slice(&room.scores);
            }
            crate::nn::vector::log_softmax(&mut out);
            lists.push(out);
        }
        room.features = features;
        mean(lists)
    }

    /// The problems' perceptron and what follows from it for all candidates.
    fn read(
        &self,
        p: &[f32],
        tokens: &[u16],
        n: usize,
        rng: Option<&mut impl Rng>,
        room: &mut RankerRoom,
    ) {
        self.context.forward(p, &room.inputs, tokens, n, rng, &mut room.mlp);
        self.query.forward(p, &room.mlp.out, n, sized(&mut room.query, n * self.sizes.hidden));
        self.products.forward(
            p,
            &room.mlp.out,
            n,
            sized(&mut room.products, n * self.products.outputs()),
        );
    }

    /// Scores candidates: `room.counts` says how many belong to each problem.
    fn weigh(
        &self,
        p: &[f32],
        ground: &Ground,
        table: &[u16],
        features: &[f32],
        room: &mut RankerRoom,
    ) {
        let (h, width) = (self.sizes.hidden, ground.offsets.len());
        let n = table.len() / width;
        self.features.forward(p, features, n, sized(&mut room.z1, n * h));
        self.tables.forward_onto(p, table, &mut room.z1);
        let mut at = 0;
        for (i, &count) in room.counts.iter().enumerate() {
            add_row(&room.query[i * h..(i + 1) * h], &mut room.z1[at * h..(at + count) * h]);
            at += count;
        }
        self.finish(p, features, n, room);
        let values = self.products.outputs();
        let mut at = 0;
        for (i, &count) in room.counts.iter().enumerate() {
            let products = &room.products[i * values..(i + 1) * values];
            add_lines(
                products,
                &ground.offsets,
                &table[at * width..(at + count) * width],
                &mut room.scores[at..at + count],
            );
            at += count;
        }
    }

    /// From the sums in `room.z1` to scores, without the scores of single values.
    fn finish(&self, p: &[f32], features: &[f32], n: usize, room: &mut RankerRoom) {
        let (h, last) = (self.sizes.hidden, self.sizes.last);
        gelu(&room.z1[..n * h], sized(&mut room.a1, n * h));
        self.hidden.forward(p, &room.a1, n, sized(&mut room.z2, n * last));
        gelu(&room.z2, sized(&mut room.a2, n * last));
        self.last.forward(p, &room.a2, n, sized(&mut room.scores, n));
        self.skip.forward_onto(p, features, n, &mut room.scores, true);
    }

    /// Draws candidates of a case: places in ascending order and what their scores are corrected
    /// by. Gives back where the truth stands among them.
    fn sample(
        &self,
        ground: &Ground,
        case: &Case,
        neighbours: &[Neighbour],
        rng: &mut Generator,
        rows: &mut Vec<u32>,
        corrections: &mut Vec<f32>,
    ) -> usize {
        let truth = case.truth.unwrap_or(0);
        let n = case.candidates.len();
        let m = self.sizes.negatives;
        rows.clear();
        corrections.clear();
        if n <= m + 1 {
            rows.extend(0..n as u32);
            corrections.resize(n, 0.0);
            return truth as usize;
        }
        let near: Vec<u32> =
            neighbours.iter().map(|x| x.candidate).filter(|&c| c != NOWHERE).collect();
        let members = ground.members(case.row);
        let often = if case.legal_share > 0.05 && !members.is_empty() { 0.25 } else { 0.0 };
        let close = if near.is_empty() { 0.0 } else { 0.25 };
        let even = 1.0 - often - close;
        let mut drawn: Vec<u32> = Vec::with_capacity(m);
        for i in 0..m {
            let u = (i as f64 + 0.5) / m as f64;
            let one = if u < even {
                Some(rng.random_range(0..n as u32))
            } else if u < even + often {
                // Until one is legal here: the share of those is known to be fair.
                (0..200).find_map(|_| {
                    let i = members[rng.random_range(0..members.len())];
                    case.candidates.find(ground.facts.memory.answer(i)).map(|i| i as u32)
                })
            } else {
                Some(near[rng.random_range(0..near.len())])
            };
            drawn.extend(one.filter(|&i| i != truth));
        }
        drawn.sort_unstable();
        let mut at = 0;
        for group in drawn.chunk_by(|a, b| a == b) {
            let i = group[0];
            if i > truth && (rows.is_empty() || rows[rows.len() - 1] < truth) {
                at = rows.len();
                rows.push(truth);
                corrections.push(0.0);
            }
            let frequency = if often > 0.0 {
                f64::from(
                    ground.frequency(case.row, case.candidates.row(i as usize)) / case.legal_share,
                )
            } else {
                0.0
            };
            let share = near.iter().filter(|x| **x == i).count() as f64 / near.len().max(1) as f64;
            let q = even / n as f64 + often * frequency + close * share;
            rows.push(i);
            corrections.push((group.len() as f64 / (m as f64 * q)).ln() as f32);
        }
        if rows.last().is_none_or(|&l| l < truth) {
            at = rows.len();
            rows.push(truth);
            corrections.push(0.0);
        }
        at
    }
}

impl Learner for Ranker {
    type Room = RankerRoom;

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn learn(
        &self,
        p: &[f32],
        lesson: Lesson,
        rng: &mut Generator,
        mut gradient: Option<&mut [f32]>,
        room: &mut RankerRoom,
    ) -> Result<f64, FamilyError> {
        let ground = lesson.ground;
        let (h, f, width, inputs) =
            (self.sizes.hidden, ground.features(), ground.offsets.len(), ground.inputs());
        let mut loss = 0.0;
        for cases in lesson.cases.chunks(8) {
            let n = cases.len();
            zeroed(&mut room.inputs, n * inputs);
            room.tokens.clear();
            room.table.clear();
            room.features.clear();
            room.counts.clear();
            room.truths.clear();
            let mut all_corrections = Vec::new();
            for (i, (case, instance)) in cases.iter().enumerate() {
                let votes = ground.read(
                    case,
                    gradient.is_some(),
                    rng,
                    &mut room.inputs[i * inputs..(i + 1) * inputs],
                );
                room.tokens.extend(&case.tokens);
                let (mut rows, mut corrections) =
                    (std::mem::take(&mut room.rows), std::mem::take(&mut room.corrections));
                room.truths.push(self.sample(
                    ground,
                    case,
                    &votes[0].0,
                    rng,
                    &mut rows,
                    &mut corrections,
                ));
                let start = room.table.len();
                room.table.extend(rows.iter().flat_map(|&r| case.candidates.row(r as usize)));
                let at = room.features.len();
                room.features.resize(at + rows.len() * f, 0.0);
                ground.write_features(
                    case,
                    instance,
                    &votes,
                    Rows::Some(&rows),
                    &room.table[start..],
                    &mut room.features[at..],
                );
                room.counts.push(rows.len());
                all_corrections.extend_from_slice(&corrections);
                (room.rows, room.corrections) = (rows, corrections);
            }
            let tokens = std::mem::take(&mut room.tokens);
            self.read(p, &tokens, n, gradient.is_some().then_some(&mut *rng), room);
            let (table, features) =
                (std::mem::take(&mut room.table), std::mem::take(&mut room.features));
            self.weigh(p, ground, &table, &features, room);
            crate::nn::vector::add(&all_corrections, &mut room.scores);
            let mut at = 0;
            for (&count, &truth) in room.counts.iter().zip(&room.truths) {
                loss += cross_entropy(&mut room.scores[at..at + count], truth, 1.0);
                at += count;
            }
            if let Some(g) = gradient.as_deref_mut() {
                let rows = table.len() / width;
                let ds = &room.scores;
                // Features' own line, then the perceptron backwards.
                self.skip.backward(&features, rows, ds, g);
                self.last.backward(&room.a2, rows, ds, g);
                let d2 = sized(&mut room.d2, rows * self.sizes.last);
                self.last.backward_argument(p, ds, rows, d2, false);
                gelu_backward(&room.z2, d2);
                self.hidden.backward(&room.a1, rows, d2, g);
                let d1 = sized(&mut room.d1, rows * h);
                self.hidden.backward_argument(p, d2, rows, d1, false);
                gelu_backward(&room.z1, d1);
                self.features.backward(&features, rows, d1, g);
                self.tables.backward(&table, d1, g);
                let values = self.products.outputs();
                let dquery = zeroed(&mut room.dquery, n * h);
                let dproducts = zeroed(&mut room.dproducts, n * values);
                let mut at = 0;
                for (i, &count) in room.counts.iter().enumerate() {
                    sum_rows(&d1[at * h..(at + count) * h], &mut dquery[i * h..(i + 1) * h]);
                    let d = &mut dproducts[i * values..(i + 1) * values];
                    for (s, row) in
                        ds[at..at + count].iter().zip(table[at * width..].chunks_exact(width))
                    {
                        row.iter().zip(&ground.offsets).for_each(|(&v, o)| d[o + v as usize] += s);
                    }
                    at += count;
                }
                self.query.backward(&room.mlp.out, n, dquery, g);
                self.products.backward(&room.mlp.out, n, dproducts, g);
                let dcontext = sized(&mut room.dcontext, n * self.sizes.context);
                self.query.backward_argument(p, dquery, n, dcontext, false);
                self.products.backward_argument(p, dproducts, n, dcontext, true);
                self.context.backward(p, &room.inputs, &tokens, n, dcontext, &mut room.mlp, g);
            }
            (room.tokens, room.table, room.features) = (tokens, table, features);
        }
        Ok(loss)
    }
}
