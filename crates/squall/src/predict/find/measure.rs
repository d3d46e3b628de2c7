//! How many of a chooser's first solvers are worth timing before one is kept. MIOpen calls each way
//! to compute a convolution a solver; the chooser ranks them by expected time. Input: the ranked
//! list and how often the convolution will run; output: how many of the first to time and what that
//! costs. Timing one more pays if its expected gain over all runs exceeds the cost of running it
//! once.

use squall_predict::find::Choice;

/// How many solvers to time, and the cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timings {
    /// The number of first solvers that are timed; at 0 the first is taken untimed.
    pub measure: usize,
    /// The cost in milliseconds of the GPU: each solver is run once.
    pub ms: f64,
}

/// How many of the first to time: `asked`, or as many as are worth it for `uses` runs. Timing
/// another solver costs its time once and gains its expected saving per run, times the runs.
pub fn timings(choices: &[Choice], asked: Option<usize>, uses: f64) -> Timings {
    let cost = |k: usize| choices[..k].iter().map(|c| c.ms).sum::<f64>();
    let of = |k: usize| match k {
        0 | 1 => Timings { measure: 0, ms: 0.0 },
        k => Timings { measure: k, ms: cost(k) },
    };
    if let Some(k) = asked {
        let k = k.min(choices.len());
        return Timings { measure: k, ms: cost(k) };
    }
    let Some(first) = choices.first() else { return of(0) };
    let (mut best, mut kept) = (0.0, 1);
    let mut gain = 0.0;
    for k in 2..=choices.len() {
        gain += choices[k - 1].probability * saving(first, &choices[k - 1]) * uses;
        let net = gain - cost(k);
        if net > best {
            (best, kept) = (net, k);
        }
    }
    of(kept)
}

/// How likely each of the errors below is, of the time of a solver: the quantiles of a Laplace
/// distribution of the logarithm, in units of the half of the range that holds 80 %. Times are
/// seldom far off, and then by much: most of what a wrong choice costs is there.
const ERRORS: [(f64, f64); 7] =
    [(0.02, -2.2), (0.08, -1.2), (0.2, -0.6), (0.4, 0.0), (0.2, 0.6), (0.08, 1.2), (0.02, 2.2)];

/// The share of the first one's time that a faster solver saves at least.
const LEAST_SAVING: f64 = 0.05;

/// Milliseconds that are saved by another solver where it is the faster one.
fn saving(first: &Choice, other: &Choice) -> f64 {
    let times = |c: &Choice| {
        let half = (c.range.1 / c.ms).max(1.0).ln();
        let ms = c.ms;
        ERRORS.map(|(share, off)| (share, ms * (off * half).exp()))
    };
    let (mut saved, mut faster) = (0.0, 0.0);
    for (a, first) in times(first) {
        for (b, other) in times(other) {
            if first > other {
                saved += a * b * (first - other);
                faster += a * b;
            }
        }
    }
    // Where even the greatest errors keep the order, a little is saved if it is wrong nevertheless.
    let little = LEAST_SAVING * first.ms;
    if faster > 0.0 { (saved / faster).max(little) } else { little }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_runs_are_worth_more_measurements() {
        let choice = |solver, ms: f64, probability| Choice {
            solver,
            ms,
            range: (ms / 1.2, ms * 1.2),
            workspace: 0,
            probability,
        };
        let all = [choice(0, 1.0, 0.7), choice(1, 1.1, 0.25), choice(2, 40.0, 0.05)];
        assert_eq!(timings(&all, None, 1.0).measure, 0);
        assert_eq!(timings(&all, None, 1000.0).measure, 2);
        assert_eq!(timings(&all, Some(3), 1.0), Timings { measure: 3, ms: 42.1 });
        assert_eq!(timings(&all, Some(9), 1.0).measure, 3);
        assert_eq!(timings(&[], None, 10.0), Timings { measure: 0, ms: 0.0 });
    }
}
