//! Problems of one solver, ready for the models: encoded, with their candidates, their neighbours
//! among the training answers, and what all of that says about single candidates.

use crate::encode::Encoder;
use crate::memory::{Asker, CHANNELS, Memory, Metric, NOWHERE, Neighbour, Votes, columns};
use crate::metric::{self, Learning};
use crate::nn::vector::wide;
use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};
use squall_core::forecast::{Candidates, Example, Family, FamilyError, Instance, Problem};
use std::collections::HashMap;
use std::sync::Arc;

/// What is known of a solver before any model: its family, how problems are encoded, the answers
/// of training, how often each occurs.
#[derive(Debug)]
pub struct Ground {
    /// The kernel family.
    pub family: Arc<Family>,
    /// Where each knob's values begin when all are laid one after another.
    pub offsets: Vec<usize>,
    /// How many values all knobs have together.
    pub values: usize,
    /// What training learned of the data.
    pub facts: Facts,
    /// Distances that nobody learned.
    plain: Metric,
    /// For each distinct answer, how often each row gave it.
    counts: HashMap<Box<[u16]>, Vec<f32>>,
    /// Answers of each row.
    totals: Vec<f32>,
    /// For each row, its answers in the memory.
    members: Vec<Vec<u32>>,
}

/// What training learned of the data, apart from networks: goes into the predictor file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// How problems are encoded.
    pub encoder: Encoder,
    /// Device and precision of each row.
    pub rows: Vec<(String, String)>,
    /// Names of layers are not kept, only which answers share one.
    pub memory: Memory,
    /// Which of the encoder's coordinates matter to distances, ascending; the memory has no others.
    pub kept: Vec<u32>,
    /// How far problems lie apart.
    pub metric: Metric,
    /// Mean and inverse deviation of every derived feature.
    pub scale: Vec<(f32, f32)>,
}

/// A problem, ready for the models.
#[derive(Clone, Debug)]
pub struct Case {
    /// Standardised numbers.
    pub numbers: Vec<f32>,
    /// Tokens of words and sizes.
    pub tokens: Vec<u16>,
    /// Where it lies.
    pub place: Vec<f32>,
    /// Device and precision; one that training never showed is the number of rows.
    pub row: u16,
    /// The tuner space.
    pub candidates: Arc<Candidates>,
    /// What tuning found, as a place among the candidates.
    pub truth: Option<u32>,
    /// The nearest problems of training, for each channel.
    pub neighbours: [Vec<Neighbour>; CHANNELS],
    /// Its own place in the memory.
    pub own: Option<u32>,
    /// Its layer in the memory's numbering, if training has it.
    pub layer: Option<u32>,
    /// The share of its row's answers that are legal for it.
    pub legal_share: f32,
    /// For each knob, the values that lead on from the truth's prefix, as bits.
    pub allowed: Vec<u64>,
}

/// Features of a candidate beside the derived ones: per channel two shares of whole answers and
/// one of single values; how often its row gave it.
const VOTED: usize = 3 * CHANNELS + 1;

/// For each channel, the neighbours that vote and what they say.
pub type Votings = [(Vec<Neighbour>, Votes); CHANNELS];

/// The chance that a problem learns without the answers of its own layer, as it would for a layer
/// that nobody tuned.
const STRANGER: f64 = 0.25;

/// Row number for words that training never showed.
fn row_of(rows: &[(String, String)], problem: &Problem) -> u16 {
    let precision = problem.word("precision").unwrap_or("");
    let find = |p: &str| rows.iter().position(|(d, q)| *d == problem.device && q == p);
    let any = |p: &str| rows.iter().position(|(_, q)| q == p);
    let half = if precision == "BF16" { "FP16" } else { precision };
    // A device that training never showed asks as the known one of its precision would.
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

impl Ground {
    /// Learns from training examples, all of them in their tuner space; `remembered` are further
    /// examples whose answers are remembered after theirs. Distances are learned, too, where
    /// somebody says how.
    pub fn learn(
        family: Arc<Family>,
        examples: &[&Example],
        remembered: &[&Example],
        distances: Option<Learning>,
    ) -> Result<Ground, FamilyError> {
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
        let plain = encoder.plain();
        let mut metric = match distances {
            Some(learning) => metric::learn(&memory, &plain, examples.len(), learning),
            None => plain.clone(),
        };
        let kept: Vec<u32> = (0..memory.dimensions as u32)
            .filter(|&k| metric.places[k as usize] > 0.0 || plain.places[k as usize] > 0.0)
            .collect();
        memory.keep(&kept);
        metric.places = chosen(&metric.places, &kept);
        // The scale of derived features, from some candidates of some problems.
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
        let facts = Facts { encoder, rows, memory, kept, metric, scale: scale.collect() };
        Ok(Ground::new(family, facts))
    }

    /// From what a file holds.
    pub fn new(family: Arc<Family>, facts: Facts) -> Ground {
        let mut offsets = Vec::new();
        let mut values = 0;
        for k in &family.spec().knobs {
            offsets.push(values);
            values += k.values.len();
        }
        let rows = facts.rows.len();
        let mut counts: HashMap<Box<[u16]>, Vec<f32>> = HashMap::new();
        let (mut totals, mut members) = (vec![0.0; rows + 1], vec![Vec::new(); rows + 1]);
        for i in 0..facts.memory.len() as u32 {
            let row = facts.memory.rows[i as usize] as usize;
            counts.entry(facts.memory.answer(i).into()).or_insert_with(|| vec![0.0; rows + 1])
                [row] += 1.0;
            totals[row] += 1.0;
            members[row].push(i);
        }
        let plain = facts.encoder.plain();
        let plain = Metric { places: chosen(&plain.places, &facts.kept), ..plain };
        Ground { family, offsets, values, facts, plain, counts, totals, members }
    }

    /// The number of a candidate's features.
    pub fn features(&self) -> usize {
        self.facts.scale.len() + VOTED
    }

    /// The number of a problem's inputs.
    pub fn inputs(&self) -> usize {
        self.facts.encoder.width() + CHANNELS * (self.values + 1)
    }

    /// Prepares a problem. `own` is its place in the memory, where it was learned from.
    pub fn case(
        &self,
        problem: &Problem,
        values: Option<&[i64]>,
        own: Option<u32>,
        room: &mut Vec<f32>,
    ) -> Result<Case, FamilyError> {
        let instance = self.family.instance(problem)?;
        let candidates = instance.candidates();
        let e = &self.facts.encoder;
        let place = chosen(&e.place(problem), &self.facts.kept);
        let words = e.words(problem);
        let row = row_of(&self.facts.rows, problem);
        let asker = Asker { place: &place, tokens: &words, row, own };
        let neighbours = self.nearest(&self.facts.metric, &asker, &candidates, room);
        let positions = values.and_then(|v| self.family.positions(v));
        let truth = positions.and_then(|p| candidates.find(&p)).map(|t| t as u32);
        let allowed = truth.map(|t| allowed(&candidates, t as usize)).unwrap_or_default();
        Ok(Case {
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

    /// The nearest problems, and where their answers stand among the asker's candidates.
    fn nearest(
        &self,
        metric: &Metric,
        asker: &Asker,
        candidates: &Candidates,
        room: &mut Vec<f32>,
    ) -> [Vec<Neighbour>; CHANNELS] {
        let mut all = self.facts.memory.nearest(metric, asker, room);
        for n in all.iter_mut().flatten() {
            n.candidate =
                candidates.find(self.facts.memory.answer(n.index)).map_or(NOWHERE, |i| i as u32);
        }
        all
    }

    /// What the nearest say by distances that nobody learned.
    pub fn plain_votes(&self, case: &Case, room: &mut Vec<f32>) -> Votings {
        let words = &case.tokens[..self.facts.encoder.word_count()];
        let asker = Asker { place: &case.place, tokens: words, row: case.row, own: case.own };
        self.nearest(&self.plain, &asker, &case.candidates, room).map(|all| self.counted(all))
    }

    /// Neighbours and what they say.
    fn counted(&self, all: Vec<Neighbour>) -> (Vec<Neighbour>, Votes) {
        let votes = Votes::count(&self.facts.memory, &all, &self.offsets, self.values);
        (all, votes)
    }

    /// The share of a row's answers that are candidates of a case; training's samples need it.
    pub fn legal_share(&self, case: &Case) -> f32 {
        let row = case.row as usize;
        let legal =
            self.counts.iter().filter(|(a, c)| c[row] > 0.0 && case.candidates.find(a).is_some());
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
    /// others. A row that training never showed takes all rows together.
    pub fn by_frequency(&self, case: &Case) -> Vec<f32> {
        let mut out = vec![1e-4f32; case.candidates.len()];
        let row = case.row as usize;
        for (answer, counts) in &self.counts {
            let count = if self.totals[row] > 0.0 { counts[row] } else { counts.iter().sum() };
            if count > 0.0
                && let Some(i) = case.candidates.find(answer)
            {
                out[i] += count;
            }
        }
        let total: f32 = out.iter().sum();
        out.iter().map(|c| (c / total).ln()).collect()
    }

    /// What the neighbours of a case say, for each channel; those that `skip` says are left out.
    pub fn votes(&self, case: &Case, skip: &dyn Fn(u32) -> bool) -> Votings {
        [0, 1].map(|c| {
            self.counted(case.neighbours[c].iter().filter(|n| !skip(n.index)).copied().collect())
        })
    }

    /// What the neighbours say of a problem that somebody asks about; writes its inputs.
    pub fn ask(&self, case: &Case, out: &mut [f32]) -> Votings {
        let votes = self.votes(case, &|_| false);
        self.write_inputs(case, &votes, out);
        votes
    }

    /// The same of a problem that is learned: in some lessons it does without the answers of its
    /// own layer.
    pub fn read(
        &self,
        case: &Case,
        is_lesson: bool,
        rng: &mut impl Rng,
        out: &mut [f32],
    ) -> Votings {
        let strange = is_lesson && rng.random_bool(STRANGER);
        let layers = &self.facts.memory.layers;
        let votes =
            self.votes(case, &|index| strange && Some(layers[index as usize]) == case.layer);
        self.write_inputs(case, &votes, out);
        votes
    }

    /// Writes a problem's inputs: its numbers, then for each channel the shares of values and how
    /// far the nearest is.
    pub fn write_inputs(&self, case: &Case, votes: &Votings, out: &mut [f32]) {
        let (numbers, mut rest) = out.split_at_mut(case.numbers.len());
        numbers.copy_from_slice(&case.numbers);
        for (_, v) in votes {
            let (values, after) = rest.split_at_mut(self.values + 1);
            for (o, s) in values.iter_mut().zip(&v.values) {
                *o = 2.0 * s;
            }
            values[self.values] = (1.0 + v.nearest).ln();
            rest = after;
        }
    }

    /// Writes the features of candidates: `rows` are places among the case's candidates, ascending;
    /// `table` their positions; `out` is `rows x features`.
    pub fn write_features(
        &self,
        case: &Case,
        instance: &Instance,
        votes: &Votings,
        rows: Rows,
        table: &[u16],
        out: &mut [f32],
    ) {
        let (width, derived, all) = (self.offsets.len(), self.facts.scale.len(), self.features());
        if derived > 0 {
            let raw = instance.features(table);
            wide(
                #[inline(always)]
                || {
                    for (out, raw) in out.chunks_exact_mut(all).zip(raw.chunks_exact(derived)) {
                        for ((o, x), (mean, inverse)) in
                            out.iter_mut().zip(raw).zip(&self.facts.scale)
                        {
                            *o = ((squash(*x) - mean) * inverse).clamp(-6.0, 6.0);
                        }
                    }
                },
            );
        }
        for (c, (neighbours, v)) in votes.iter().enumerate() {
            let marginal: Vec<f32> =
                v.values.iter().map(|s| (0.02 + s).ln() / width as f32).collect();
            let at = derived + 3 * c;
            for (out, row) in out.chunks_exact_mut(all).zip(table.chunks_exact(width)) {
                out[at] = 0.0;
                out[at + 1] = 0.0;
                out[at + 2] = 2.0
                    + row
                        .iter()
                        .zip(&self.offsets)
                        .map(|(&v, o)| marginal[o + v as usize])
                        .sum::<f32>();
            }
            for (n, w) in neighbours.iter().zip(&v.weights) {
                if let Some(i) = rows.find(n.candidate) {
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
        // How often the row gave it, itself apart.
        let row = case.row as usize;
        let total = self.totals[row].max(1.0);
        let none = (0.3 / total).ln();
        out.chunks_exact_mut(all).for_each(|o| o[all - 1] = 0.0);
        let own = case.own.map(|i| self.facts.memory.answer(i));
        let mut write = |i: usize, answer: &[u16], counts: &[f32]| {
            let count = counts[row] - if own == Some(answer) { 1.0 } else { 0.0 };
            out[i * all + all - 1] = (((0.3 + count) / total).ln() - none) / 3.0;
        };
        match rows {
            Rows::All => {
                for (answer, counts) in &self.counts {
                    if let Some(i) = case.candidates.find(answer) {
                        write(i, answer, counts);
                    }
                }
            }
            Rows::Some(_) => {
                for (i, answer) in table.chunks_exact(width).enumerate() {
                    if let Some(counts) = self.counts.get(answer) {
                        write(i, answer, counts);
                    }
                }
            }
        }
    }
}

/// Which candidates of a case.
#[derive(Clone, Copy, Debug)]
pub enum Rows<'a> {
    /// Every one, in order.
    All,
    /// These places, ascending.
    Some(&'a [u32]),
}

impl Rows<'_> {
    fn find(&self, candidate: u32) -> Option<usize> {
        match self {
            _ if candidate == NOWHERE => None,
            Rows::All => Some(candidate as usize),
            Rows::Some(rows) => rows.binary_search(&candidate).ok(),
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

/// The values of each knob that lead on from a candidate's prefix, as bits; values from the 64th on
/// have none.
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
