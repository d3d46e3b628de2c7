//! Measures of how good predictions are: P@k, the share of problems whose tuned vector is among the
//! first k (the paper's Perfect Prediction); the same by kernel, where several vectors compile to
//! one; negative log-likelihood; calibration. `study/src/forecast` reports them.

use serde::{Deserialize, Serialize};

/// The result of a prediction for a problem with a known answer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The number of candidates before the truth; `None` where the tuner space lacks it.
    pub rank: Option<usize>,
    /// The number of candidates before the first that compiles to the truth's kernel.
    pub kernel_rank: Option<usize>,
    /// The log-probability of the truth.
    pub log_likelihood: f64,
    /// The probability given to the first candidate.
    pub confidence: f64,
}

impl Outcome {
    /// The outcome of a problem whose answer is none of the candidates that have a probability.
    pub fn missed(confidence: f64) -> Outcome {
        let log_likelihood = f64::NEG_INFINITY;
        Outcome { rank: None, kernel_rank: None, log_likelihood, confidence }
    }
}

/// A share of problems with its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// The number of problems that count, out of `of`.
    pub hits: usize,
    /// Problems.
    pub of: usize,
}

impl Share {
    /// The share, 0 to 1; 0 of nothing.
    pub fn value(&self) -> f64 {
        if self.of == 0 { 0.0 } else { self.hits as f64 / self.of as f64 }
    }

    /// Wilson's interval at 95 % (Wilson 1927).
    pub fn interval(&self) -> (f64, f64) {
        if self.of == 0 {
            return (0.0, 1.0);
        }
        let (n, p, z) = (self.of as f64, self.value(), 1.959_964);
        let middle = p + z * z / (2.0 * n);
        let half = z * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt();
        let scale = 1.0 + z * z / n;
        (((middle - half) / scale).max(0.0), ((middle + half) / scale).min(1.0))
    }
}

/// The share of outcomes whose truth is among the first `k`.
pub fn precision_at(k: usize, outcomes: &[Outcome]) -> Share {
    Share {
        hits: outcomes.iter().filter(|o| o.rank.is_some_and(|r| r < k)).count(),
        of: outcomes.len(),
    }
}

/// The share of outcomes with the truth's kernel among the first `k`.
pub fn kernel_precision_at(k: usize, outcomes: &[Outcome]) -> Share {
    Share {
        hits: outcomes.iter().filter(|o| o.kernel_rank.is_some_and(|r| r < k)).count(),
        of: outcomes.len(),
    }
}

/// Mean negative log-likelihood, of the problems whose truth is in the tuner space.
pub fn negative_log_likelihood(outcomes: &[Outcome]) -> f64 {
    let known: Vec<f64> =
        outcomes.iter().filter(|o| o.rank.is_some()).map(|o| -o.log_likelihood).collect();
    known.iter().sum::<f64>() / known.len().max(1) as f64
}

/// A number rounded to nine digits behind the point, which a JSON file gives back exactly.
pub(crate) fn rounded(x: f64) -> f64 {
    (x * 1e9).round() / 1e9
}

/// A line of the reliability table: problems whose first candidate got a probability in a range.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reliability {
    /// From this probability.
    pub from: f64,
    /// Up to this, without it.
    pub to: f64,
    /// Mean probability given.
    pub predicted: f64,
    /// How often it was right.
    pub observed: Share,
}

/// The reliability table of first candidates; lines without problems are left out.
pub fn reliability(outcomes: &[Outcome]) -> Vec<Reliability> {
    const EDGES: [f64; 8] = [0.0, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.000_001];
    EDGES
        .windows(2)
        .filter_map(|w| {
            let inside: Vec<&Outcome> =
                outcomes.iter().filter(|o| o.confidence >= w[0] && o.confidence < w[1]).collect();
            let hits = inside.iter().filter(|o| o.rank == Some(0)).count();
            (!inside.is_empty()).then(|| Reliability {
                from: w[0],
                to: w[1].min(1.0),
                predicted: inside.iter().map(|o| o.confidence).sum::<f64>() / inside.len() as f64,
                observed: Share { hits, of: inside.len() },
            })
        })
        .collect()
}

/// The mean difference between the probability of first candidates and how often they are right,
/// over the lines of the reliability table (expected calibration error).
pub fn calibration_error(outcomes: &[Outcome]) -> f64 {
    let lines = reliability(outcomes);
    lines
        .iter()
        .map(|l| l.observed.of as f64 * (l.predicted - l.observed.value()).abs())
        .sum::<f64>()
        / outcomes.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(rank: Option<usize>, confidence: f64) -> Outcome {
        Outcome { rank, kernel_rank: rank.map(|r| r / 2), log_likelihood: -1.0, confidence }
    }

    #[test]
    fn shares_and_their_intervals() {
        let all = [
            outcome(Some(0), 0.9),
            outcome(Some(3), 0.5),
            outcome(Some(12), 0.3),
            outcome(None, 0.2),
        ];
        assert_eq!([1, 4, 10, 13].map(|k| precision_at(k, &all).hits), [1, 2, 2, 3]);
        assert_eq!(kernel_precision_at(2, &all).hits, 2);
        // Wilson for 1 of 4, from the closed form.
        let (low, high) = precision_at(1, &all).interval();
        assert!((low - 0.0456).abs() < 1e-3 && (high - 0.6994).abs() < 1e-3, "{low} {high}");
        assert_eq!(Share { hits: 0, of: 0 }.interval(), (0.0, 1.0));
        assert_eq!(negative_log_likelihood(&all), 1.0);
    }

    #[test]
    fn a_table_of_honest_confidences_has_no_error() {
        let all: Vec<Outcome> =
            (0..100).map(|i| outcome(Some(usize::from(i % 4 != 0)), 0.25)).collect();
        assert!(calibration_error(&all) < 1e-9);
        assert_eq!(reliability(&all).len(), 1);
        assert!((calibration_error(&[outcome(Some(1), 0.75)]) - 0.75).abs() < 1e-9);
    }
}
