//! The inputs of the models of one solver. [`Featurizer`] holds the facts that training learned
//! apart from networks; it turns a problem into an [`EncodedProblem`]: numbers and tokens, the
//! candidates of its tuner space, and the votes of its nearest neighbours among the training
//! answers. `ranker.rs`, `chain.rs` and `paper.rs` read these.

use crate::encode::{Encoder, sizes_of};
use crate::memory::{CHANNELS, Memory, Metric, NOWHERE, Neighbour, Query, Votes, columns};
use crate::metric::{self, Learning};
use crate::nn::vector::wide;
use foldhash::fast::FixedState;
use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};
use squall_core::forecast::{Candidates, Example, Family, FamilyError, Instance, Problem};
use std::collections::HashMap;
use std::sync::Arc;

/// Everything that the models of a solver share: its kernel family, how problems are encoded, the
/// answers of training, and how often each answer occurred.
#[derive(Debug)]
pub struct Featurizer {
    /// The kernel family.
    pub family: Arc<Family>,
    /// Where each knob's values begin when the values of all knobs are laid one after another.
    pub offsets: Vec<usize>,
    /// The number of values of all knobs together.
    pub values: usize,
    /// The facts that training learned of the data.
    pub facts: Facts,
    /// Distances that are not learned.
    fixed: Metric,
    /// For each distinct answer, how often each row gave it.
    counts: HashMap<Box<[u16]>, Vec<f32>, FixedState>,
    /// The number of answers of each row.
    totals: Vec<f32>,
    /// For each row, the places of its answers in the memory.
    members: Vec<Vec<u32>>,
    /// For each answer in the memory, the number of its problem on its device: several tunings of
    /// one problem may differ. Known while training alone.
    problems: Vec<u32>,
}

/// The facts that training learned of the data, apart from networks. They are kept in the predictor
/// file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// The encoder of problems.
    pub encoder: Encoder,
    /// The device and the precision of each row.
    pub rows: Vec<(String, String)>,
    /// The training answers. Names of layers are not kept, only which answers share one.
    pub memory: Memory,
    /// The encoder's coordinates that matter to distances, ascending; the memory has no others.
    pub kept: Vec<u32>,
    /// How far problems lie apart.
    pub metric: Metric,
    /// Mean and inverse deviation of every derived feature.
    pub scale: Vec<(f32, f32)>,
}

/// A problem as the models see it.
#[derive(Clone, Debug)]
pub struct EncodedProblem {
    /// Standardised numbers.
    pub numbers: Vec<f32>,
    /// Tokens of words and sizes.
    pub tokens: Vec<u16>,
    /// Its coordinates for distances.
    pub place: Vec<f32>,
    /// The row of its device and precision; the number of rows where training showed none like it.
    pub row: u16,
    /// The tuner space.
    pub candidates: Arc<Candidates>,
    /// What tuning found, as a place among the candidates.
    pub truth: Option<u32>,
    /// The nearest problems of training, for each channel.
    pub neighbours: [Vec<Neighbour>; CHANNELS],
    /// Its own place in the memory.
    pub own: Option<u32>,
    /// The number of its layer in the memory, if training has it.
    pub layer: Option<u32>,
    /// The share of its row's answers that are legal for it.
    pub legal_share: f32,
    /// For each knob, the values that still lead to a candidate after the truth's earlier values,
    /// as bits.
    pub allowed: Vec<u64>,
}

/// Some of a problem's candidates.
#[derive(Clone, Copy, Debug)]
pub struct Selection<'a> {
    /// Their places among all candidates, ascending; `None` stands for all of them.
    pub places: Option<&'a [u32]>,
    /// The positions of their values: `candidates x knobs`.
    pub table: &'a [u16],
}

impl<'a> Selection<'a> {
    /// All candidates.
    pub fn all(candidates: &'a Candidates) -> Selection<'a> {
        Selection { places: None, table: &candidates.table }
    }

    /// Where a candidate stands in the selection.
    fn find(&self, candidate: u32) -> Option<usize> {
        match self.places {
            _ if candidate == NOWHERE => None,
            None => Some(candidate as usize),
            Some(places) => places.binary_search(&candidate).ok(),
        }
    }
}

/// Features of a candidate beside the derived ones: for each channel two shares of whole answers
/// and one of single values, and how often its row gave it.
const VOTE_FEATURES: usize = 3 * CHANNELS + 1;

/// For each channel, the neighbours that vote and what they say.
pub type ChannelVotes = [(Vec<Neighbour>, Votes); CHANNELS];

/// The probability that a training step hides the answers of a problem's own layer, so that
/// networks learn to answer for layers that were never tuned.
const HIDE_LAYER: f64 = 0.25;

/// The row of a problem. A device that training never showed takes the row of its precision on a
/// known device, and BF16 that of FP16 where there is no other; without either, the result is the
/// number of rows.
fn row_of(rows: &[(String, String)], problem: &Problem) -> u16 {
    let precision = problem.word("precision").unwrap_or("");
    let find = |p: &str| rows.iter().position(|(d, q)| *d == problem.device && q == p);
    let any = |p: &str| rows.iter().position(|(_, q)| q == p);
    let half = if precision == "BF16" { "FP16" } else { precision };
    find(precision)
        .or_else(|| find(half))
        .or_else(|| any(precision))
        .or_else(|| any(half))
        .unwrap_or(rows.len()) as u16
}

/// The coordinates that are kept.
fn chosen(all: &[f32], kept: &[u32]) -> Vec<f32> {
    kept.iter().map(|&k| all[k as usize]).collect()
}

/// Mean and inverse deviation of the derived features, over some candidates of some problems.
fn feature_scale(family: &Family, problems: &[&Problem]) -> Result<Vec<(f32, f32)>, FamilyError> {
    let features = family.spec().features.len();
    let (mut sums, mut squares, mut count) =
        (vec![0.0f64; features], vec![0.0f64; features], 0.0f64);
    for p in problems.iter().step_by(problems.len() / 200 + 1) {
        let instance = family.instance(p)?;
        let candidates = instance.candidates();
        let table: Vec<u16> = (0..candidates.len())
            .step_by(candidates.len() / 100 + 1)
            .flat_map(|i| candidates.row(i).iter().copied())
            .collect();
        for row in instance.features(&table).chunks_exact(features.max(1)) {
            count += 1.0;
            for (i, x) in row.iter().enumerate() {
                let x = f64::from(squash(*x));
                sums[i] += x;
                squares[i] += x * x;
            }
        }
    }
    let scale = sums.iter().zip(&squares).map(|(s, q)| {
        let mean = s / count.max(1.0);
        let variance = q / count.max(1.0) - mean * mean;
        (mean as f32, if variance > 1e-6 { 1.0 / variance.sqrt() as f32 } else { 0.0 })
    });
    Ok(scale.collect())
}

impl Featurizer {
    /// Learns from training examples, all of which lie in their tuner space. The answers of
    /// `remembered` are kept in the memory after theirs. Distances are learned where `distances`
    /// says how, and fixed otherwise.
    pub fn learn(
        family: Arc<Family>,
        examples: &[&Example],
        remembered: &[&Example],
        distances: Option<Learning>,
    ) -> Result<Featurizer, FamilyError> {
        let problems: Vec<&Problem> = examples.iter().map(|e| &e.problem).collect();
        let encoder = Encoder::learn(&problems);
        let mut rows: Vec<(String, String)> = problems
            .iter()
            .map(|p| (p.device.clone(), p.word("precision").unwrap_or("").to_owned()))
            .collect();
        rows.sort_unstable();
        rows.dedup();
        let width = family.spec().knobs.len();
        let mut memory = Memory { width, ..Memory::default() };
        let mut layers: HashMap<&str, u32> = HashMap::new();
        for e in examples.iter().chain(remembered) {
            let place = encoder.place(&e.problem);
            let words = encoder.words(&e.problem);
            (memory.dimensions, memory.words) = (place.len(), words.len());
            memory.places.extend(place);
            memory.tokens.extend(words);
            memory.rows.push(row_of(&rows, &e.problem));
            let next = layers.len() as u32;
            memory.layers.push(*layers.entry(&e.problem.layer).or_insert(next));
            memory.answers.extend(family.positions(&e.values).unwrap_or_else(|| vec![0; width]));
        }
        memory.places = columns(&memory.places, memory.dimensions);
        memory.tokens = columns(&memory.tokens, memory.words);
        let all = || examples.iter().chain(remembered).map(|e| &e.problem);
        let sizes = encoder.size_names();
        let sizes = sizes.iter().flat_map(|n| all().map(|p| sizes_of(p)(n)));
        memory.sizes =
            sizes.map(|s| u32::try_from(s).ok()).collect::<Option<_>>().unwrap_or_default();
        let fixed = encoder.fixed_metric();
        let mut metric = match distances {
            Some(learning) => metric::learn(&memory, &fixed, examples.len(), learning),
            None => fixed.clone(),
        };
        let kept: Vec<u32> = (0..memory.dimensions as u32)
            .filter(|&k| metric.places[k as usize] > 0.0 || fixed.places[k as usize] > 0.0)
            .collect();
        memory.keep(&kept);
        metric.places = chosen(&metric.places, &kept);
        let scale = feature_scale(&family, &problems)?;
        let mut numbers: HashMap<(&str, &str), u32> = HashMap::new();
        let mut problems = Vec::with_capacity(examples.len() + remembered.len());
        for e in examples.iter().chain(remembered) {
            let next = numbers.len() as u32;
            problems.push(*numbers.entry((&e.problem.device, &e.problem.key)).or_insert(next));
        }
        let facts = Facts { encoder, rows, memory, kept, metric, scale };
        Ok(Featurizer { problems, ..Featurizer::new(family, facts) })
    }

    /// The featurizer of what a file holds.
    pub fn new(family: Arc<Family>, facts: Facts) -> Featurizer {
        let mut offsets = Vec::new();
        let mut values = 0;
        for k in &family.spec().knobs {
            offsets.push(values);
            values += k.values.len();
        }
        let rows = facts.rows.len();
        let mut counts: HashMap<Box<[u16]>, Vec<f32>, FixedState> = HashMap::default();
        let (mut totals, mut members) = (vec![0.0; rows + 1], vec![Vec::new(); rows + 1]);
        for i in 0..facts.memory.len() as u32 {
            let row = facts.memory.rows[i as usize] as usize;
            counts.entry(facts.memory.answer(i).into()).or_insert_with(|| vec![0.0; rows + 1])
                [row] += 1.0;
            totals[row] += 1.0;
            members[row].push(i);
        }
        let fixed = facts.encoder.fixed_metric();
        let fixed = Metric { places: chosen(&fixed.places, &facts.kept), ..fixed };
        let problems = Vec::new();
        Featurizer { family, offsets, values, facts, fixed, counts, totals, members, problems }
    }

    /// The number of a candidate's features.
    pub fn features(&self) -> usize {
        self.facts.scale.len() + VOTE_FEATURES
    }

    /// The number of a problem's inputs.
    pub fn inputs(&self) -> usize {
        self.facts.encoder.width() + CHANNELS * (self.values + 1)
    }

    /// Encodes a problem. `values` is what tuning found, where it is known; `own` is the problem's
    /// place in the memory, where it was learned from.
    pub fn encode(
        &self,
        problem: &Problem,
        values: Option<&[i64]>,
        own: Option<u32>,
        scratch: &mut Vec<f32>,
    ) -> Result<EncodedProblem, FamilyError> {
        let instance = self.family.instance(problem)?;
        let candidates = instance.candidates();
        let e = &self.facts.encoder;
        let place = chosen(&e.place(problem), &self.facts.kept);
        let words = e.words(problem);
        let row = row_of(&self.facts.rows, problem);
        let query = Query { place: &place, tokens: &words, row, own };
        let neighbours = self.nearest(&self.facts.metric, &query, &candidates, scratch);
        let positions = values.and_then(|v| self.family.positions(v));
        let truth = positions.and_then(|p| candidates.find(&p)).map(|t| t as u32);
        let allowed = truth.map(|t| allowed(&candidates, t as usize)).unwrap_or_default();
        Ok(EncodedProblem {
            numbers: e.numbers(problem),
            tokens: e.tokens(problem),
            place,
            row,
            truth,
            neighbours,
            own,
            layer: own.map(|i| self.facts.memory.layers[i as usize]),
            legal_share: 0.0,
            allowed,
            candidates,
        })
    }

    /// The nearest problems, and where their answers stand among the candidates.
    fn nearest(
        &self,
        metric: &Metric,
        query: &Query,
        candidates: &Candidates,
        scratch: &mut Vec<f32>,
    ) -> [Vec<Neighbour>; CHANNELS] {
        let mut all = self.facts.memory.nearest(metric, query, scratch);
        for n in all.iter_mut().flatten() {
            n.candidate =
                candidates.find(self.facts.memory.answer(n.index)).map_or(NOWHERE, |i| i as u32);
        }
        all
    }

    /// The votes of the nearest neighbours under distances that are not learned.
    pub fn fixed_votes(&self, encoded: &EncodedProblem, scratch: &mut Vec<f32>) -> ChannelVotes {
        let tokens = &encoded.tokens[..self.facts.encoder.word_count()];
        let query = Query { place: &encoded.place, tokens, row: encoded.row, own: encoded.own };
        self.nearest(&self.fixed, &query, &encoded.candidates, scratch).map(|all| self.counted(all))
    }

    /// Neighbours and their votes.
    fn counted(&self, all: Vec<Neighbour>) -> (Vec<Neighbour>, Votes) {
        let votes = Votes::count(&self.facts.memory, &all, &self.offsets, self.values);
        (all, votes)
    }

    /// The share of a row's answers that are candidates of a problem. The samples of training need
    /// it.
    pub fn legal_share(&self, encoded: &EncodedProblem) -> f32 {
        let row = encoded.row as usize;
        let given = self.counts.iter().filter(|(_, c)| c[row] > 0.0);
        let legal = given.filter(|(a, _)| encoded.candidates.find(a).is_some());
        legal.map(|(_, c)| c[row]).sum::<f32>() / self.totals[row].max(1.0)
    }

    /// The training answers of a row, as places in the memory.
    pub fn members(&self, row: u16) -> &[u32] {
        &self.members[row as usize]
    }

    /// How often a row gave an answer, relative to all its answers.
    pub fn frequency(&self, row: u16, answer: &[u16]) -> f32 {
        self.counts.get(answer).map_or(0.0, |c| c[row as usize])
            / self.totals[row as usize].max(1.0)
    }

    /// Log-probabilities of all candidates by how often training gave them, with a little for the
    /// others. A row that training never showed takes the answers of all rows together.
    pub fn by_frequency(&self, encoded: &EncodedProblem) -> Vec<f32> {
        let mut out = vec![1e-4f32; encoded.candidates.len()];
        let row = encoded.row as usize;
        for (answer, counts) in &self.counts {
            let count = if self.totals[row] > 0.0 { counts[row] } else { counts.iter().sum() };
            if count > 0.0
                && let Some(i) = encoded.candidates.find(answer)
            {
                out[i] += count;
            }
        }
        let total: f32 = out.iter().sum();
        out.iter().map(|c| (c / total).ln()).collect()
    }

    /// The votes of a problem's neighbours, for each channel, without those that `skip` names.
    fn votes(&self, encoded: &EncodedProblem, skip: &dyn Fn(u32) -> bool) -> ChannelVotes {
        let voters = |all: &[Neighbour]| all.iter().filter(|n| !skip(n.index)).copied().collect();
        [0, 1].map(|c| self.counted(voters(&encoded.neighbours[c])))
    }

    /// The votes of the neighbours of a problem that is to be predicted; writes the problem's
    /// inputs to `out`.
    pub fn prediction_inputs(&self, encoded: &EncodedProblem, out: &mut [f32]) -> ChannelVotes {
        let votes = self.votes(encoded, &|_| false);
        self.write_inputs(encoded, &votes, out);
        votes
    }

    /// The same for a problem that is learned from, without what other tunings of it answered.
    /// Where `training` says so, the answers of its own layer are hidden now and then.
    pub fn training_inputs(
        &self,
        encoded: &EncodedProblem,
        training: bool,
        rng: &mut impl Rng,
        out: &mut [f32],
    ) -> ChannelVotes {
        let hide = training && rng.random_bool(HIDE_LAYER);
        let layers = &self.facts.memory.layers;
        let problem = |index: u32| self.problems.get(index as usize);
        let own = encoded.own.and_then(problem);
        let votes = self.votes(encoded, &|index| {
            hide && Some(layers[index as usize]) == encoded.layer
                || own.is_some() && problem(index) == own
        });
        self.write_inputs(encoded, &votes, out);
        votes
    }

    /// Writes a problem's inputs: its numbers, then for each channel the shares of values and the
    /// distance of the nearest neighbour.
    fn write_inputs(&self, encoded: &EncodedProblem, votes: &ChannelVotes, out: &mut [f32]) {
        let (numbers, mut rest) = out.split_at_mut(encoded.numbers.len());
        numbers.copy_from_slice(&encoded.numbers);
        for (_, v) in votes {
            let (values, after) = rest.split_at_mut(self.values + 1);
            for (o, s) in values.iter_mut().zip(&v.values) {
                *o = 2.0 * s;
            }
            values[self.values] = (1.0 + v.nearest).ln();
            rest = after;
        }
    }

    /// Writes the features of some candidates of a problem; `out` is `candidates x features`.
    pub fn write_features(
        &self,
        encoded: &EncodedProblem,
        instance: &Instance,
        votes: &ChannelVotes,
        selection: Selection,
        out: &mut [f32],
    ) {
        self.write_derived(instance, selection.table, out);
        self.write_votes(votes, selection, out);
        self.write_frequencies(encoded, selection, out);
    }

    /// The derived features of candidates, scaled.
    fn write_derived(&self, instance: &Instance, table: &[u16], out: &mut [f32]) {
        let (derived, all) = (self.facts.scale.len(), self.features());
        if derived == 0 {
            return;
        }
        let raw = instance.features(table);
        wide(
            #[inline(always)]
            || {
                for (out, raw) in out.chunks_exact_mut(all).zip(raw.chunks_exact(derived)) {
                    for ((o, x), (mean, inverse)) in out.iter_mut().zip(raw).zip(&self.facts.scale)
                    {
                        *o = ((squash(*x) - mean) * inverse).clamp(-6.0, 6.0);
                    }
                }
            },
        );
    }

    /// What the neighbours of each channel say of candidates: two shares of whole answers, and the
    /// mean logarithm of the shares of their values.
    fn write_votes(&self, votes: &ChannelVotes, selection: Selection, out: &mut [f32]) {
        let (width, derived, all) = (self.offsets.len(), self.facts.scale.len(), self.features());
        for (c, (neighbours, v)) in votes.iter().enumerate() {
            let marginal: Vec<f32> =
                v.values.iter().map(|s| (0.02 + s).ln() / width as f32).collect();
            let at = derived + 3 * c;
            let rows = selection.table.chunks_exact(width);
            for (out, row) in out.chunks_exact_mut(all).zip(rows) {
                let logs = row.iter().zip(&self.offsets).map(|(&v, o)| marginal[o + v as usize]);
                out[at] = 0.0;
                out[at + 1] = 0.0;
                out[at + 2] = 2.0 + logs.sum::<f32>();
            }
            for (n, w) in neighbours.iter().zip(&v.weights) {
                if let Some(i) = selection.find(n.candidate) {
                    out[i * all + at] += w.0;
                    out[i * all + at + 1] += w.1;
                }
            }
            for out in out.chunks_exact_mut(all) {
                for o in &mut out[at..at + 2] {
                    *o = if *o > 0.0 { ((0.003 + *o).ln() + 5.81) / 3.0 } else { 0.0 };
                }
            }
        }
    }

    /// How often the problem's row gave each candidate, not counting the problem itself.
    fn write_frequencies(&self, encoded: &EncodedProblem, selection: Selection, out: &mut [f32]) {
        let (width, all) = (self.offsets.len(), self.features());
        let row = encoded.row as usize;
        let total = self.totals[row].max(1.0);
        let none = (0.3 / total).ln();
        out.chunks_exact_mut(all).for_each(|o| o[all - 1] = 0.0);
        let own = encoded.own.map(|i| self.facts.memory.answer(i));
        let mut write = |i: usize, answer: &[u16], counts: &[f32]| {
            let count = counts[row] - if own == Some(answer) { 1.0 } else { 0.0 };
            out[i * all + all - 1] = (((0.3 + count) / total).ln() - none) / 3.0;
        };
        if selection.places.is_some() {
            for (i, answer) in selection.table.chunks_exact(width).enumerate() {
                if let Some(counts) = self.counts.get(answer) {
                    write(i, answer, counts);
                }
            }
            return;
        }
        for (answer, counts) in &self.counts {
            if let Some(i) = encoded.candidates.find(answer) {
                write(i, answer, counts);
            }
        }
    }
}

/// A derived feature on a scale where counts and thousandths are alike: the logarithm of its size,
/// with its sign.
#[inline(always)]
fn squash(x: f32) -> f32 {
    // The exponent and the mantissa's straight line between powers of two: a logarithm good enough
    // for a feature, and cheap.
    let bits = (1.0 + x.abs()).to_bits() as f32;
    (bits / 8_388_608.0 - 127.0).copysign(x)
}

/// For each knob, the values that still lead to a candidate after the earlier values of candidate
/// `truth`, as bits. Values from the 64th on have no bit.
pub fn allowed(candidates: &Candidates, truth: usize) -> Vec<u64> {
    let width = candidates.width;
    let (mut low, mut high) = (0, candidates.len());
    let row = candidates.row(truth).to_vec();
    let mut out = Vec::with_capacity(width);
    for (k, &chosen) in row.iter().enumerate() {
        let mut bits = 0u64;
        let (mut first, mut last) = (high, high);
        for i in low..high {
            let v = candidates.table[i * width + k];
            if v < 64 {
                bits |= 1 << v;
            }
            if v == chosen {
                first = first.min(i);
                last = i + 1;
            }
        }
        (low, high) = (first, last);
        out.push(bits);
    }
    out
}
