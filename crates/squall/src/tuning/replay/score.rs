//! Scores of replayed searches, relative to the exact expectation of random search without
//! repetition.
//!
//! The value of a run after k trials is `optimum / best so far`, 0 while nothing ran. The score at
//! k is `(mean value - R) / (1 - R)`, where R is the value of random search: 0 is chance, 1 the
//! optimum at once.

use super::{RecordedSpace, Run};

/// The numbers of trials at which the tuning community reads runs.
pub const BUDGETS: [usize; 5] = [25, 50, 100, 200, 400];

/// The budgets up to a number of trials, that number if it is below the first of them.
pub fn budgets(evaluations: usize) -> Vec<usize> {
    let fit: Vec<usize> = BUDGETS.into_iter().filter(|&b| b <= evaluations).collect();
    if fit.is_empty() { vec![evaluations] } else { fit }
}

/// How a strategy did on one space.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// Mean of optimum / best at each budget.
    pub value: Vec<f64>,
    /// Median of optimum / best at each budget.
    pub median: Vec<f64>,
    /// Score at each budget, from -1 to 1.
    pub score: Vec<f64>,
}

impl Score {
    /// Over all budgets.
    pub fn mean(&self) -> f64 {
        self.score.iter().sum::<f64>() / self.score.len().max(1) as f64
    }
}

/// Optimum / time of every configuration, 0 where it failed.
fn values(space: &RecordedSpace) -> Vec<f64> {
    let optimum = space.recording.optimum().map_or(0.0, |o| o.0);
    space.recording.rows.iter().map(|r| r.outcome.time().map_or(0.0, |t| optimum / t.0)).collect()
}

/// The expected best of `k` random draws without repetition; `values` are in descending order.
fn chance(values: &[f64], k: usize) -> f64 {
    let n = values.len();
    let (mut total, mut alive) = (0.0, 1.0);
    for (i, v) in values.iter().enumerate() {
        // None of the i + 1 best is drawn.
        let next = alive * (n - i).saturating_sub(k) as f64 / (n - i) as f64;
        total += (alive - next) * v;
        alive = next;
        if alive <= 1e-15 {
            break;
        }
    }
    total
}

/// The value that even draws are expected to have at each budget, exactly.
pub fn even(space: &RecordedSpace, budgets: &[usize]) -> Vec<f64> {
    let mut sorted = values(space);
    sorted.sort_by(|a, b| b.total_cmp(a));
    budgets.iter().map(|&k| chance(&sorted, k)).collect()
}

/// Scores the runs of one strategy on one space. Runs that ended early keep their best.
pub fn score(space: &RecordedSpace, runs: &[&Run], budgets: &[usize]) -> Score {
    let values = values(space);
    let mut sorted = values.clone();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let best =
        |r: &Run, k: usize| r.trace.iter().take(k).map(|&c| values[c as usize]).fold(0.0, f64::max);
    let value: Vec<f64> = budgets
        .iter()
        .map(|&k| runs.iter().map(|r| best(r, k)).sum::<f64>() / runs.len().max(1) as f64)
        .collect();
    let against = |(v, &k): (&f64, &usize)| {
        let r = chance(&sorted, k);
        if r < 1.0 { ((v - r) / (1.0 - r)).clamp(-1.0, 1.0) } else { 0.0 }
    };
    let middle = |&k: &usize| squall_core::median(runs.iter().map(|r| best(r, k)));
    Score {
        median: budgets.iter().map(middle).collect(),
        score: value.iter().zip(budgets).map(against).collect(),
        value,
    }
}
