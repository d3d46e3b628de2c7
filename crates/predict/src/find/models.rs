//! The gradient-boosted trees that answer for a chooser: which solver is the fastest, how long each
//! takes, and how far off that time may be. Input: the features of candidates; output: an order,
//! times and ranges. There are two forests for each question, each of which leaves out a fifth of
//! the problems (or, where other GPUs answer, a GPU); their errors on the part left out calibrate
//! the answers.

use super::candidates::{FIRST_FACT, FIRST_SHARED, TimesFrom, VOTED, WIDTH};
use super::trees::{Binned, Bins, Forest, Goal, TreeSettings, fit, median};
use crate::parallel;

/// The question that a forest answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Predicted {
    /// Predicts which candidate is the best, from the problem alone.
    BestByProblem,
    /// Predicts which candidate is the best, from neighbours too.
    BestByNeighbours,
    /// The time against [`TimesFrom`].
    Time,
}

/// All predictions, in the order in which files hold their forests.
pub const PREDICTED: [Predicted; 3] =
    [Predicted::BestByProblem, Predicted::BestByNeighbours, Predicted::Time];

/// The number of forests for each question; each leaves out the part of its own number.
pub const FORESTS: usize = 2;
/// The number of parts into which problems are divided.
pub const PARTS: u64 = 5;
/// A solver that loses this much is as likely the best as e^-1 of one that loses nothing.
const TOLERANCE: f32 = 0.05;
/// Parts of the time in the order that are tried on problems that were left out.
const TIME_PARTS: [f32; 9] = [0.0, 0.25, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0];
/// The parts of the time and of what neighbours lost in the order for a GPU that was not measured:
/// what was lost on another GPU counts most. Forests that are judged by two of the GPUs choose
/// worse; these were chosen with the MI300X and with the Vega 10 left out whole.
const FOREIGN_PARTS: [f32; 2] = [0.5, 16.0];
/// The factor from the order to losses, where it rests on times and scores alone.
const ORDER_SCALE: f32 = 0.4;
/// The part of one forest's times that a range is to hold; of the mean of two it holds 80 %.
const HELD: f64 = 0.78;
/// Ranges are never narrower than this, as a logarithm.
const LEAST_SPREAD: f32 = 0.015;

/// The standing of a candidate in its problem's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelStanding {
    /// Listed.
    Listed,
    /// A cut list lacks it.
    Behind,
    /// The solver did not apply.
    Out,
}

/// Candidates of problems to learn from; those of one problem stand together.
#[derive(Default)]
pub struct Lessons {
    /// Where the candidates of each problem begin, and the number of candidates.
    pub starts: Vec<u32>,
    /// The part that each problem is in.
    pub parts: Vec<u8>,
    /// Whether each problem has three dimensions.
    pub deep: Vec<bool>,
    /// Of each candidate: the loss, with [`ModelStanding::Behind`] that of the last one.
    pub losses: Vec<f32>,
    /// For each candidate its standing.
    pub standings: Vec<ModelStanding>,
    /// Of each candidate: what [`TimesFrom`] tells, as a logarithm.
    pub told: Vec<f32>,
    /// Of each candidate that is listed: the logarithm of the time less what is told.
    pub residuals: Vec<f32>,
}

/// What the trees say of a candidate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Said {
    /// Orders candidates, the least first: the loss that is to be expected.
    pub order: f32,
    /// The probability that it is the best.
    pub best: f32,
    /// The logarithm of the time.
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
    /// The parts of the time and of what neighbours lost in the order, in two dimensions and in
    /// three.
    pub order_parts: [[f32; 2]; 2],
    /// The share of the ratio of two GPUs' roofs that times follow.
    pub roof_share: f32,
    /// What times are foretold from.
    pub times_from: TimesFrom,
}

/// How much is trained.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Trees of a forest.
    pub rounds: usize,
    /// Threads.
    pub threads: usize,
    /// The seed of every random choice.
    pub seed: u64,
}

/// Whether a forest sees nothing of neighbours.
fn is_alone(predicted: Predicted, from: TimesFrom) -> bool {
    match predicted {
        Predicted::BestByProblem => true,
        Predicted::BestByNeighbours => false,
        Predicted::Time => from == TimesFrom::Problem,
    }
}

fn settings(predicted: Predicted, from: TimesFrom, e: &Effort, out: usize) -> TreeSettings {
    let alone = is_alone(predicted, from);
    let is_time = predicted == Predicted::Time;
    TreeSettings {
        rounds: if is_time && alone { 2 * e.rounds } else { e.rounds },
        rate: 0.1,
        leaves: match (alone, is_time) {
            (true, true) => 255,
            (true, false) => 200,
            _ => 63,
        },
        least: if is_time { 20.0 } else { 3.0 },
        row_share: 0.6,
        column_share: if alone { 0.6 } else { 0.45 },
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

/// What neighbours say, which the problem alone does not tell.
const OF_NEIGHBOURS: std::ops::Range<usize> = 1..FIRST_SHARED;

/// The features of GPUs that trees may not see. Those that answer for a GPU which is in no lesson
/// would know the few of the lessons by their facts, and learn each by heart.
fn facts(from: TimesFrom) -> std::ops::Range<usize> {
    match from {
        TimesFrom::Problem => 0..0,
        TimesFrom::Neighbours => FIRST_FACT..WIDTH,
    }
}

/// Trains all forests. `rows` are the bins of the candidates' features, candidate after candidate.
pub fn train(
    bins: Bins,
    rows: &[u8],
    lessons: &Lessons,
    times_from: TimesFrom,
    e: &Effort,
    go_on: &(dyn Fn() -> bool + Sync),
) -> Models {
    let targets = lessons.targets();
    let jobs: Vec<(Predicted, usize)> =
        PREDICTED.iter().flat_map(|&a| (0..FORESTS).map(move |h| (a, h))).collect();
    let data = Binned { width: WIDTH, bins: rows, hidden: &[0..0, facts(times_from)] };
    let by_problem = Binned { hidden: &[OF_NEIGHBOURS, facts(times_from)], ..data };
    let run = |&(predicted, left_out): &(Predicted, usize)| {
        let picked = lessons.picked(predicted, left_out);
        let s = settings(predicted, times_from, e, left_out);
        let data = if is_alone(predicted, times_from) { by_problem } else { data };
        if predicted == Predicted::Time {
            let base = median(picked.iter().map(|&r| lessons.residuals[r as usize]));
            return fit(data, &picked, &s, base, Goal::Median(&lessons.residuals), go_on);
        }
        let mut slopes = |scores: &[f32], out: &mut [[f32; 2]]| {
            lessons.slopes_of_best(left_out, &targets, scores, out);
        };
        fit(data, &picked, &s, 0.0, Goal::Loss(&mut slopes), go_on)
    };
    // As many at once as there are threads; each holds the scores of all candidates.
    let mut done: Vec<(Forest, Vec<f32>)> = Vec::new();
    for part in jobs.chunks(e.threads.max(1)) {
        done.extend(parallel::each(part, run));
    }
    let mut m = Models { times_from, ..Models::default() };
    calibrate(&mut m, lessons, &targets, &done);
    let off = Blind { lessons, done: &done }.time_errors();
    let picked: Vec<u32> = off.iter().map(|x| x.0).collect();
    let mut wanted = vec![0.0; lessons.losses.len()];
    off.iter().for_each(|&(r, x)| wanted[r as usize] = x);
    let few = Effort { rounds: e.rounds.min(120), ..*e };
    let s = settings(Predicted::Time, TimesFrom::Neighbours, &few, FORESTS);
    let mut slopes = |scores: &[f32], out: &mut [[f32; 2]]| {
        for &r in &picked {
            let r = r as usize;
            out[r] = [scores[r] - wanted[r].min(1.0), 1.0];
        }
    };
    let (spread, scores) = fit(data, &picked, &s, 0.1, Goal::Loss(&mut slopes), go_on);
    m.range = range(&picked, &wanted, &scores);
    m.spread = spread;
    let mut done = done.into_iter().map(|d| d.0);
    m.forests = PREDICTED.iter().map(|_| done.by_ref().take(FORESTS).collect()).collect();
    m.bins = bins;
    m
}

/// What each forest says of the problems that it left out.
struct Blind<'a> {
    lessons: &'a Lessons,
    done: &'a [(Forest, Vec<f32>)],
}

impl Blind<'_> {
    /// The problems that a forest left out.
    fn problems(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.lessons.parts.len()).filter(|&p| usize::from(self.lessons.parts[p]) < FORESTS)
    }

    fn said(&self, predicted: Predicted, problem: usize, row: usize) -> f32 {
        let left_out = usize::from(self.lessons.parts[problem]);
        self.done[predicted as usize * FORESTS + left_out].1[row]
    }

    fn score(&self, problem: usize, row: usize) -> f32 {
        self.said(Predicted::BestByProblem, problem, row)
            + self.said(Predicted::BestByNeighbours, problem, row)
    }

    fn time(&self, problem: usize, row: usize) -> f32 {
        self.lessons.told[row] + self.said(Predicted::Time, problem, row)
    }

    /// How far the times of candidates are off.
    fn time_errors(&self) -> Vec<(u32, f32)> {
        let listed = |r: &usize| self.lessons.standings[*r] == ModelStanding::Listed;
        let of = |p: usize| self.lessons.rows(p).filter(listed).map(move |r| (p, r));
        let off = |(p, r): (usize, usize)| {
            (r as u32, (self.lessons.residuals[r] - self.said(Predicted::Time, p, r)).abs())
        };
        self.problems().flat_map(of).map(off).collect()
    }

    /// The sum of what the first candidates lose with a part of the time in the order, in problems
    /// of two or of three dimensions.
    fn loss(&self, deep: bool, part: f32) -> f64 {
        let mut sum = 0.0;
        for p in self.problems().filter(|&p| self.lessons.deep[p] == deep) {
            // One that did not apply costs nothing: the next is taken.
            let applied =
                self.lessons.rows(p).filter(|&r| self.lessons.standings[r] != ModelStanding::Out);
            let order = |r: &usize| part * self.time(p, *r) - 0.5 * self.score(p, *r);
            let first = applied.min_by(|a, b| order(a).total_cmp(&order(b)));
            sum += first.map_or(0.0, |r| f64::from(self.lessons.losses[r]));
        }
        sum
    }
}

/// Makes probabilities honest, and orders by what lost the least.
fn calibrate(m: &mut Models, lessons: &Lessons, targets: &[f32], done: &[(Forest, Vec<f32>)]) {
    let blind = Blind { lessons, done };
    let problems: Vec<usize> = blind.problems().collect();
    m.sharpness = sharpness(lessons, &problems, targets, &|p, r| blind.score(p, r));
    m.order_parts = [false, true].map(|deep| {
        if m.times_from == TimesFrom::Neighbours {
            return FOREIGN_PARTS;
        }
        // Without such problems all are alike, and the usual part stands.
        let tried = [1.0].into_iter().chain(TIME_PARTS).map(|part| (part, blind.loss(deep, part)));
        [tried.min_by(|a, b| a.1.total_cmp(&b.1)).map_or(1.0, |x| x.0), 0.0]
    });
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
    lessons: &Lessons,
    blind: &[usize],
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
    /// What the trees say of the candidates of a problem in two dimensions or in three, whose
    /// features stand one after another. `told` are the logarithms of their times by
    /// [`TimesFrom`].
    pub fn say(&self, deep: bool, told: &[f32], features: &[f32]) -> Vec<Said> {
        let bins = |numbers: &[f32]| {
            let mut row = [0u8; WIDTH];
            for (f, (b, &x)) in row.iter_mut().zip(numbers).enumerate() {
                *b = self.bins.of(f, x);
            }
            row[facts(self.times_from)].fill(0);
            row
        };
        let rows: Vec<[u8; WIDTH]> =
            features.chunks_exact(WIDTH).take(told.len()).map(bins).collect();
        let mut alone = rows.clone();
        alone.iter_mut().for_each(|row| row[OF_NEIGHBOURS].fill(0));
        let mean = |predicted: Predicted| -> Vec<f32> {
            let rows = if is_alone(predicted, self.times_from) { &alone } else { &rows };
            let mut sums = vec![0.0; rows.len()];
            for forest in &self.forests[predicted as usize] {
                sums.iter_mut().zip(forest.answers(rows)).for_each(|(s, x)| *s += x);
            }
            sums.iter().map(|s| s / FORESTS as f32).collect()
        };
        let sum = |(a, b): (f32, f32)| a + b;
        let best = mean(Predicted::BestByProblem).into_iter();
        let scores: Vec<f32> = best.zip(mean(Predicted::BestByNeighbours)).map(sum).collect();
        let times = mean(Predicted::Time).into_iter().zip(told).map(|(off, told)| told + off);
        let spreads = self.spread.answers(&rows);
        let all = times.zip(spreads).map(|(time, spread)| Said {
            order: 0.0,
            best: 0.0,
            time,
            spread: spread.max(LEAST_SPREAD) * self.range,
        });
        let mut said: Vec<Said> = all.collect();
        let mut p = Vec::new();
        shares(&scores, self.sharpness, &mut p);
        let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let least = said.iter().map(|s| s.time).fold(f32::INFINITY, f32::min);
        let [time, vote] = self.order_parts[usize::from(deep)];
        for (i, (s, row)) in said.iter_mut().zip(features.chunks_exact(WIDTH)).enumerate() {
            s.best = p[i];
            let order = time * (s.time - least) + vote * row[VOTED] + 0.5 * (most - scores[i]);
            s.order = order * if vote > 0.0 { 1.0 / vote } else { ORDER_SCALE };
        }
        said
    }
}
