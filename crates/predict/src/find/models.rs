//! The trees that answer: what is lost by a solver, which is the best, how long it takes, and how
//! far off that time may be. Of each there are two, which leave out a fifth of the problems each,
//! so that what they say of it calibrates them.

use super::candidates::{FIRST_SHARED, WIDTH};
use super::trees::{Binned, Bins, Forest, TreeSettings, fit};
use crate::parallel;

/// What a forest is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Predicted {
    /// Which candidate is the best, from the problem alone.
    BestByProblem,
    /// Which candidate is the best, from neighbours too.
    BestByNeighbours,
    /// How much is lost.
    Loss,
    /// The time against what neighbours tell.
    Time,
}

/// All predictions, in the order in which files hold their forests.
pub const PREDICTED: [Predicted; 4] =
    [Predicted::BestByProblem, Predicted::BestByNeighbours, Predicted::Loss, Predicted::Time];

/// Forests of each; each leaves the part of its number out.
pub const FORESTS: usize = 2;
/// Parts of the problems.
pub const PARTS: u64 = 5;
/// A solver that loses this much is as likely the best as e^-1 of one that loses nothing.
const TOLERANCE: f32 = 0.05;
/// Residuals of times count at most as this.
const MOST_RESIDUAL: f32 = 0.5;
/// The part of times that a range is to hold.
const HELD: f64 = 0.80;
/// Ranges are never narrower than this, as a logarithm.
const LEAST_SPREAD: f32 = 0.015;

/// How a candidate's list says that it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelStanding {
    /// Listed.
    Listed,
    /// A cut list lacks it.
    Behind,
    /// It did not apply.
    Out,
}

/// Candidates of problems to learn from; those of one problem stand together.
#[derive(Default)]
pub struct Lessons {
    /// Where the candidates of each problem begin, and the number of candidates.
    pub starts: Vec<u32>,
    /// The part that each problem is in.
    pub parts: Vec<u8>,
    /// Of each candidate: the loss, with [`ModelStanding::Behind`] that of the last one.
    pub losses: Vec<f32>,
    /// Of each candidate.
    pub standings: Vec<ModelStanding>,
    /// Of each candidate that is listed: the logarithm of the time less that which neighbours tell.
    pub residuals: Vec<f32>,
}

/// What the trees say of a candidate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Said {
    /// Orders candidates, the least first: the loss that is to be expected.
    pub order: f32,
    /// The probability that it is the best.
    pub best: f32,
    /// Added to the logarithm of the time that neighbours tell.
    pub time: f32,
    /// The logarithm of the time may be off by this much either way.
    pub spread: f32,
}

/// The trees of one way of asking.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Models {
    /// Bins of features.
    pub bins: Bins,
    /// By what is predicted, then by the part that is left out.
    pub forests: Vec<Vec<Forest>>,
    /// How far times are off.
    pub spread: Forest,
    /// Scores are multiplied by it to be logarithms of probabilities.
    pub sharpness: f32,
    /// Spreads are multiplied by it.
    pub range: f32,
    /// The part of the probability's logarithm in the order.
    pub mix: f32,
}

/// How much is trained.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Trees of a forest.
    pub rounds: usize,
    /// Threads.
    pub threads: usize,
    /// Of everything random.
    pub seed: u64,
}

fn settings(predicted: Predicted, e: &Effort, out: usize) -> TreeSettings {
    let by_problem = predicted == Predicted::BestByProblem;
    TreeSettings {
        rounds: e.rounds,
        rate: 0.1,
        leaves: if by_problem { 200 } else { 63 },
        least: if matches!(predicted, Predicted::BestByProblem | Predicted::BestByNeighbours) {
            3.0
        } else {
            20.0
        },
        row_share: 0.6,
        column_share: if by_problem { 0.6 } else { 0.45 },
        ridge: 1.0,
        seed: e.seed.wrapping_mul(31).wrapping_add((out * 8 + predicted as usize) as u64),
    }
}

/// Softmax of the scores of one problem's candidates.
fn shares(scores: &[f32], sharpness: f32, out: &mut Vec<f32>) {
    let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    out.clear();
    out.extend(scores.iter().map(|s| ((s - most) * sharpness).exp()));
    let sum: f32 = out.iter().sum();
    out.iter_mut().for_each(|x| *x /= sum);
}

impl Lessons {
    fn rows(&self, problem: usize) -> std::ops::Range<usize> {
        self.starts[problem] as usize..self.starts[problem + 1] as usize
    }

    /// The candidates that a forest learns from.
    fn picked(&self, predicted: Predicted, out: usize) -> Vec<u32> {
        let of = |p: &usize| usize::from(self.parts[*p]) != out;
        let rows = (0..self.parts.len()).filter(of).flat_map(|p| self.rows(p));
        let counts = |r: &usize| match predicted {
            Predicted::Loss => self.standings[*r] != ModelStanding::Out,
            Predicted::Time => self.standings[*r] == ModelStanding::Listed,
            _ => true,
        };
        rows.filter(counts).map(|r| r as u32).collect()
    }

    /// Each candidate's share of being the best, as its list tells.
    fn targets(&self) -> Vec<f32> {
        let mut out = vec![0.0; self.losses.len()];
        for p in 0..self.parts.len() {
            let rows = self.rows(p);
            for r in rows.clone() {
                let part = match self.standings[r] {
                    ModelStanding::Listed => 1.0,
                    ModelStanding::Behind => 0.8,
                    ModelStanding::Out => 0.0,
                };
                out[r] = part * (-self.losses[r] / TOLERANCE).exp();
            }
            let sum: f32 = out[rows.clone()].iter().sum();
            if sum > 0.0 {
                out[rows].iter_mut().for_each(|x| *x /= sum);
            }
        }
        out
    }

    /// Gradients of the cross entropy between the targets and the softmax of the scores.
    fn slopes_of_best(&self, without: usize, targets: &[f32], s: &[f32], out: &mut [[f32; 2]]) {
        let mut p = Vec::new();
        for i in (0..self.parts.len()).filter(|&i| usize::from(self.parts[i]) != without) {
            let rows = self.rows(i);
            shares(&s[rows.clone()], 1.0, &mut p);
            for (r, p) in rows.zip(&p) {
                out[r] = [p - targets[r], (p * (1.0 - p)).max(1e-3)];
            }
        }
    }
}

/// The features that a prediction may look at.
fn seen(predicted: Predicted, data: &[Vec<u8>]) -> Binned {
    let hidden = |f: usize| predicted == Predicted::BestByProblem && f != 0 && f < FIRST_SHARED;
    // A column without numbers is never split.
    let column = |(f, c): (usize, &Vec<u8>)| if hidden(f) { vec![0; c.len()] } else { c.clone() };
    Binned { columns: data.iter().enumerate().map(column).collect() }
}

/// Trains all forests. `columns` are the bins of the candidates' features.
pub fn train(
    bins: Bins,
    columns: Vec<Vec<u8>>,
    lessons: &Lessons,
    e: &Effort,
    go_on: &(dyn Fn() -> bool + Sync),
) -> Models {
    let targets = lessons.targets();
    let jobs: Vec<(Predicted, usize)> =
        PREDICTED.iter().flat_map(|&a| (0..FORESTS).map(move |h| (a, h))).collect();
    let data = Binned { columns };
    let by_problem = seen(Predicted::BestByProblem, &data.columns);
    let run = |&(predicted, left_out): &(Predicted, usize)| {
        let picked = lessons.picked(predicted, left_out);
        let s = settings(predicted, e, left_out);
        let mut slopes = |scores: &[f32], out: &mut [[f32; 2]]| match predicted {
            Predicted::Loss => picked.iter().for_each(|&r| {
                let r = r as usize;
                out[r] = [scores[r] - lessons.losses[r], 1.0];
            }),
            Predicted::Time => picked.iter().for_each(|&r| {
                let r = r as usize;
                let off = scores[r] - lessons.residuals[r];
                out[r] = [off.clamp(-MOST_RESIDUAL, MOST_RESIDUAL), 1.0];
            }),
            _ => lessons.slopes_of_best(left_out, &targets, scores, out),
        };
        let data = if predicted == Predicted::BestByProblem { &by_problem } else { &data };
        fit(data, &picked, &s, 0.0, &mut slopes, go_on)
    };
    // As many at once as there are threads; each holds the scores of all candidates.
    let mut done: Vec<(Forest, Vec<f32>)> = Vec::new();
    for part in jobs.chunks(e.threads.max(1)) {
        done.extend(parallel::each(part, run));
    }
    let of = |predicted: usize, left_out: usize| &done[predicted * FORESTS + left_out];
    // What the forests say of problems that they left out.
    let blind: Vec<usize> =
        (0..lessons.parts.len()).filter(|&p| usize::from(lessons.parts[p]) < FORESTS).collect();
    let other = |predicted: usize, p: usize| &of(predicted, usize::from(lessons.parts[p])).1;
    let mut m = Models { mix: 0.2, ..Models::default() };
    m.sharpness = sharpness((lessons, &blind), &targets, &|p, r| other(0, p)[r] + other(1, p)[r]);
    let mut off = vec![0.0; lessons.losses.len()];
    let mut picked: Vec<u32> = Vec::new();
    for &p in &blind {
        for r in lessons.rows(p).filter(|&r| lessons.standings[r] == ModelStanding::Listed) {
            off[r] = (lessons.residuals[r] - other(3, p)[r]).abs();
            picked.push(r as u32);
        }
    }
    let s = TreeSettings { rounds: e.rounds.min(120), ..settings(Predicted::Time, e, FORESTS) };
    let mut slopes = |scores: &[f32], out: &mut [[f32; 2]]| {
        for &r in &picked {
            let r = r as usize;
            out[r] = [scores[r] - off[r].min(1.0), 1.0];
        }
    };
    let (spread, scores) = fit(&data, &picked, &s, 0.1, &mut slopes, go_on);
    m.range = range(&picked, &off, &scores);
    m.spread = spread;
    m.forests = Vec::new();
    let mut done = done.into_iter().map(|d| d.0);
    for _ in PREDICTED {
        m.forests.push(done.by_ref().take(FORESTS).collect());
    }
    m.bins = bins;
    m
}

/// The factor on spreads that lets the ranges hold [`HELD`] of the times.
fn range(picked: &[u32], off: &[f32], spreads: &[f32]) -> f32 {
    let ratio = |&r: &u32| off[r as usize] / spreads[r as usize].max(LEAST_SPREAD);
    let mut all: Vec<f32> = picked.iter().map(ratio).collect();
    all.sort_by(f32::total_cmp);
    all.get((all.len() as f64 * HELD) as usize).copied().unwrap_or(2.0)
}

/// The sharpness at which the best candidates of the problems were most probable.
fn sharpness(
    (lessons, blind): (&Lessons, &[usize]),
    targets: &[f32],
    score: &dyn Fn(usize, usize) -> f32,
) -> f32 {
    let step = (blind.len() / 20_000).max(1);
    let loss = |sharp: f32| -> f64 {
        let (mut sum, mut p) = (0.0, Vec::new());
        for &i in blind.iter().step_by(step) {
            let rows = lessons.rows(i);
            let scores: Vec<f32> = rows.clone().map(|r| score(i, r)).collect();
            shares(&scores, sharp, &mut p);
            // The best candidate, not those that are near.
            let best = rows
                .clone()
                .filter(|&r| targets[r] > 0.0 && lessons.standings[r] == ModelStanding::Listed)
                .min_by(|&a, &b| lessons.losses[a].total_cmp(&lessons.losses[b]));
            if let Some(b) = best.filter(|&b| lessons.losses[b] <= 0.0) {
                sum -= f64::from(p[b - rows.start].max(1e-6).ln());
            }
        }
        sum
    };
    let tried = (1..=20).map(|i| 0.1 * i as f32);
    tried.min_by(|&a, &b| loss(a).total_cmp(&loss(b))).unwrap_or(0.5)
}

impl Models {
    /// What the trees say of so many candidates of a problem, whose features stand one after
    /// another.
    pub fn say(&self, all: usize, features: &[f32]) -> Vec<Said> {
        let mut row = [0u8; WIDTH];
        let mut said = Vec::with_capacity(all);
        let mut scores = Vec::with_capacity(all);
        for numbers in features.chunks_exact(WIDTH).take(all) {
            for (f, (b, &x)) in row.iter_mut().zip(numbers).enumerate() {
                *b = self.bins.of(f, x);
            }
            let sum = |predicted: Predicted, row: &[u8]| -> f32 {
                self.forests[predicted as usize].iter().map(|f| f.answer(row)).sum::<f32>()
            };
            let mean = |predicted: Predicted, row: &[u8]| sum(predicted, row) / FORESTS as f32;
            let mut blind = row;
            blind[1..FIRST_SHARED].fill(0);
            scores.push(
                mean(Predicted::BestByProblem, &blind) + mean(Predicted::BestByNeighbours, &row),
            );
            said.push(Said {
                order: mean(Predicted::Loss, &row),
                best: 0.0,
                time: mean(Predicted::Time, &row),
                spread: self.spread.answer(&row).max(LEAST_SPREAD) * self.range,
            });
        }
        let mut p = Vec::new();
        shares(&scores, self.sharpness, &mut p);
        for (i, s) in said.iter_mut().enumerate() {
            s.best = p[i];
            s.order -= self.mix * scores[i];
        }
        said
    }
}
