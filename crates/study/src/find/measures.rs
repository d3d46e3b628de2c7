//! The measures of an answer of a chooser of solvers: the time that is lost by taking its first
//! solver or the faster of its first two, how often the first is the best, and how far predicted
//! times are off. Input: a find table (measured times) and an order of solvers; output:
//! [`Outcome`]s, [`Scores`] and [`Times`].

use squall_core::find::{FindTable, ListEnd};
use squall_predict::find::Choice;

/// The result of one answer. Losses are logarithms.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Whether any solver of the answer is listed.
    pub covered: bool,
    /// The first solver that is listed.
    pub walk: f64,
    /// The strict loss: where a cut list lacks the first solver, the time of its last counts.
    pub strict: f64,
    /// The faster of the first two that are listed.
    pub two: f64,
    /// Whether the first that is listed is the best.
    pub best: bool,
}

/// The outcome of an answer, whose solvers are numbered as in the table.
pub fn outcome(table: &FindTable, problem: usize, order: &[u16]) -> Outcome {
    let rows = table.rows_of(problem);
    let loss = |ms: f32| f64::from(ms / rows[0].ms).ln();
    let time = |s: &u16| rows.iter().find(|r| r.solver == *s).map(|r| r.ms);
    let listed: Vec<f32> = order.iter().filter_map(time).take(2).collect();
    let Some(&first) = listed.first() else { return Outcome::default() };
    let is_cut = table.ends[problem] == ListEnd::Cut && rows.len() >= 4;
    let strict = match order.first().and_then(time) {
        None if is_cut => rows[rows.len() - 1].ms,
        _ => first,
    };
    Outcome {
        covered: true,
        walk: loss(first),
        strict: loss(strict),
        two: loss(listed.iter().copied().fold(f32::INFINITY, f32::min)),
        best: first <= rows[0].ms,
    }
}

/// Outcomes of many problems.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct Scores {
    /// Problems.
    pub problems: usize,
    /// Share with any listed solver in the answer.
    pub coverage: f64,
    /// Share whose first listed solver is the best.
    pub top1: f64,
    /// Geometric mean of the loss, strictly.
    pub strict: f64,
    /// Its interval at 95 %.
    pub interval: (f64, f64),
    /// 95th percentile of it.
    pub p95: f64,
    /// Share within 5 % of the best, strictly.
    pub within5: f64,
    /// Geometric mean of the loss of the walk.
    pub walk: f64,
    /// Geometric mean of the loss of the faster of the first two.
    pub two: f64,
    /// Share of these within 5 %.
    pub two_within5: f64,
}

impl Scores {
    /// The scores of outcomes.
    pub fn of<'a>(all: impl Iterator<Item = &'a Outcome>) -> Scores {
        let all: Vec<&Outcome> = all.collect();
        let covered: Vec<&&Outcome> = all.iter().filter(|o| o.covered).collect();
        let n = covered.len().max(1) as f64;
        let share =
            |is: &dyn Fn(&Outcome) -> bool| covered.iter().filter(|o| is(o)).count() as f64 / n;
        let mean = |of: &dyn Fn(&Outcome) -> f64| covered.iter().map(|o| of(o)).sum::<f64>() / n;
        let strict = mean(&|o| o.strict);
        let deviation = mean(&|o| (o.strict - strict).powi(2)).sqrt() / n.sqrt();
        let mut sorted: Vec<f64> = covered.iter().map(|o| o.strict).collect();
        sorted.sort_by(f64::total_cmp);
        let near = 1.05f64.ln();
        Scores {
            problems: all.len(),
            coverage: covered.len() as f64 / all.len().max(1) as f64,
            top1: share(&|o| o.best),
            strict: strict.exp(),
            interval: ((strict - 1.96 * deviation).exp(), (strict + 1.96 * deviation).exp()),
            p95: sorted.get((0.95 * n) as usize).copied().unwrap_or(0.0).exp(),
            within5: share(&|o| o.strict <= near),
            walk: mean(&|o| o.walk).exp(),
            two: mean(&|o| o.two).exp(),
            two_within5: share(&|o| o.two <= near),
        }
    }
}

/// How far times are off, summed over rows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    rows: usize,
    off: f64,
    inside: usize,
    best: usize,
    best_off: f64,
    /// Foretold probability of the first, and whether it was the best.
    claimed: f64,
    right: usize,
    problems: usize,
}

impl Times {
    /// The errors of one answer's times.
    pub fn of(table: &FindTable, problem: usize, order: &[u16], choices: &[Choice]) -> Times {
        let rows = table.rows_of(problem);
        let mut out = Times { problems: 1, ..Times::default() };
        for (s, c) in order.iter().zip(choices) {
            let Some(row) = rows.iter().find(|r| r.solver == *s) else { continue };
            let ms = f64::from(row.ms);
            let off = (c.ms / ms).ln().abs();
            out.rows += 1;
            out.off += off;
            out.inside += usize::from(c.range.0 <= ms && ms <= c.range.1);
            if row.solver == rows[0].solver {
                out.best += 1;
                out.best_off += off;
            }
        }
        if let (Some(first), Some(s)) = (choices.first(), order.first()) {
            out.claimed = first.probability;
            out.right = usize::from(*s == rows[0].solver);
        }
        out
    }

    /// The sum of the errors of many answers.
    pub fn sum<'a>(all: impl Iterator<Item = &'a Times>) -> Times {
        all.fold(Times::default(), |a, b| Times {
            rows: a.rows + b.rows,
            off: a.off + b.off,
            inside: a.inside + b.inside,
            best: a.best + b.best,
            best_off: a.best_off + b.best_off,
            claimed: a.claimed + b.claimed,
            right: a.right + b.right,
            problems: a.problems + b.problems,
        })
    }

    /// The exponential of the mean absolute logarithm, over all listed solvers.
    pub fn error(&self) -> f64 {
        (self.off / self.rows.max(1) as f64).exp()
    }

    /// The same of the best solver alone.
    pub fn best_error(&self) -> f64 {
        (self.best_off / self.best.max(1) as f64).exp()
    }

    /// Share of times inside of their ranges.
    pub fn inside(&self) -> f64 {
        self.inside as f64 / self.rows.max(1) as f64
    }

    /// The probability that firsts were said to be the best, and the share that were.
    pub fn calibration(&self) -> (f64, f64) {
        let n = self.problems.max(1) as f64;
        (self.claimed / n, self.right as f64 / n)
    }
}
