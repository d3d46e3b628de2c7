//! The networks that rank the candidates of a task, and how they learn: some measured candidates of
//! each task are drawn, and the soft-max of their scores shall be that of their speeds (Cao et al.,
//! "Learning to rank: from pairwise approach to listwise approach", ICML 2007). Input: rows encoded
//! by `encode.rs`; output: scores in logarithms of speed.

use super::encode::Vocabulary;
use super::{TaskModel, TunedTask};
use crate::nn::{Adam, MlpInput, MlpScratch, cosine, sized};
use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Generator;

/// A candidate slower by this, in logarithms of time, is to be e times less likely the best.
pub(super) const SHARPNESS: f32 = 0.15;
/// The speed that a failed candidate is given: this far behind the best, in logarithms.
const FAILED: f64 = -3.0;
/// Candidates drawn from a task.
const DRAWN: usize = 32;
/// Tasks a step.
const TASKS: usize = 8;
/// Greatest step.
const RATE: f32 = 3e-3;
const DECAY: f32 = 0.03;

/// Steps after which about as many rows were drawn as there are.
pub(super) fn steps_of_a_pass(rows: usize) -> usize {
    rows.div_ceil(DRAWN * TASKS).max(1)
}

/// A task's measured candidates, ready for a network.
pub(super) struct TokenGroup {
    /// Rows of input, the fastest candidate's first.
    inputs: Vec<f32>,
    width: usize,
    /// Logarithms of the best time over each one's.
    speeds: Vec<f64>,
}

impl TokenGroup {
    pub fn new(v: &Vocabulary, l: &TunedTask) -> TokenGroup {
        let best = l.best();
        let mut rows: Vec<_> = l
            .rows
            .iter()
            .map(|r| (r, r.time.map_or(FAILED, |t| (best / t).ln().max(FAILED))))
            .collect();
        rows.retain(|(r, _)| r.features.len() == v.features());
        rows.sort_by(|a, b| {
            b.1.total_cmp(&a.1)
                .then_with(|| a.0.configuration.to_string().cmp(&b.0.configuration.to_string()))
        });
        let mut inputs = Vec::with_capacity(rows.len() * v.inputs());
        for (r, _) in &rows {
            v.push(&l.problem, &r.tunable, &r.configuration, &r.features, &mut inputs);
        }
        TokenGroup { inputs, width: v.inputs(), speeds: rows.into_iter().map(|(_, s)| s).collect() }
    }

    pub fn len(&self) -> usize {
        self.speeds.len()
    }

    pub fn inputs(&self) -> &[f32] {
        &self.inputs
    }

    /// The logarithm of the best time over that of row `i`.
    pub fn speed(&self, i: usize) -> f64 {
        self.speeds[i]
    }

    /// Draws rows without repetition: half of them among the fastest quarter.
    fn draw(&self, rng: &mut impl Rng, inputs: &mut Vec<f32>, speeds: &mut Vec<f32>) -> usize {
        let n = self.len().min(DRAWN);
        let mut chosen: Vec<usize> = Vec::with_capacity(n);
        if n == self.len() {
            chosen.extend(0..n);
        }
        let front = (self.len() / 4).max(n / 2);
        while chosen.len() < n {
            let i = rng.random_range(0..if chosen.len() < n / 2 { front } else { self.len() });
            if !chosen.contains(&i) {
                chosen.push(i);
            }
        }
        for i in chosen {
            inputs.extend_from_slice(&self.inputs[i * self.width..(i + 1) * self.width]);
            speeds.push(self.speeds[i] as f32);
        }
        n
    }
}

impl TaskModel {
    /// The parameters of a network that learned these tasks.
    pub(super) fn learn(&self, groups: &[&TokenGroup], steps: usize, seed: u64) -> Vec<f32> {
        let mut rng = Generator::seed_from_u64(seed);
        let mut p = self.layout.initial(&mut rng);
        let mut adam = Adam::new(p.len(), DECAY);
        let decays = self.layout.decays();
        let mut scratch = MlpScratch::default();
        let (mut inputs, mut speeds, mut scores, mut back, mut gradient) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for step in 0..steps {
            inputs.clear();
            speeds.clear();
            let counts: Vec<usize> = (0..TASKS.min(groups.len()))
                .map(|_| {
                    groups[rng.random_range(0..groups.len())].draw(
                        &mut rng,
                        &mut inputs,
                        &mut speeds,
                    )
                })
                .collect();
            let n = speeds.len();
            let input = MlpInput { numbers: &inputs, tokens: &[], n };
            self.body.forward(&p, input, Some(&mut rng), &mut scratch);
            self.last.forward(&p, &scratch.out, n, sized(&mut scores, n));
            let mut at = 0;
            for &count in &counts {
                softmax(&mut scores[at..at + count]);
                let wanted = &mut speeds[at..at + count];
                wanted.iter_mut().for_each(|s| *s /= SHARPNESS);
                softmax(wanted);
                for (s, w) in scores[at..at + count].iter_mut().zip(wanted) {
                    *s = (*s - *w) / counts.len() as f32;
                }
                at += count;
            }
            gradient.clear();
            gradient.resize(p.len(), 0.0);
            self.last.backward(&scratch.out, n, &scores, &mut gradient);
            let back = sized(&mut back, n * self.facts.width);
            self.last.backward_argument(&p, &scores, n, back, false);
            self.body.backward(&p, input, back, &mut scratch, &mut gradient);
            adam.step(&mut p, &gradient, &decays, RATE * cosine(step, steps));
        }
        p
    }

    /// Scores of rows of input by one network, in logarithms of speed from no fixed point.
    pub(super) fn scores(&self, member: usize, inputs: &[f32]) -> Vec<f32> {
        let n = inputs.len() / self.facts.vocabulary.inputs().max(1);
        let mut scratch = MlpScratch::default();
        let p = &self.members[member];
        let input = MlpInput { numbers: inputs, tokens: &[], n };
        self.body.forward(p, input, None::<&mut Generator>, &mut scratch);
        let mut out = vec![0.0; n];
        self.last.forward(p, &scratch.out, n, &mut out);
        out.iter_mut().for_each(|s| *s *= SHARPNESS);
        out
    }
}

fn softmax(scores: &mut [f32]) {
    crate::nn::vector::log_softmax(scores);
    scores.iter_mut().for_each(|s| *s = s.exp());
}
