//! Scores how well the general predictor chooses a task's algorithm (direct loops, Winograd, split
//! reductions, tensor cores) before anything was measured. Input: a store in which several
//! algorithms of a task have times; output: how often, and by which factor, each way of choosing
//! misses the fastest algorithm. Nothing is measured here. `squall evaluate` prints it.

use super::ask::{Effort, formula_outlook};
use super::file::GeneralPredictor;
use super::measure::tuned;
use crate::base::error::Error;
use crate::target::target_context::TargetContext;
use crate::task::task_kernels::TaskKernels;
use squall_core::{Nanos, TunableName, find_tunable};
use squall_records::Store;
use squall_search::strategy::Expectation;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// An algorithm counts only if at least this many of its candidates ran, since the best of fewer
/// says little of what it can do.
const LEAST_RAN: usize = 4;

/// A way to choose an algorithm before anything was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlgorithmWay {
    /// The general predictor.
    General,
    /// The cost formula.
    Formula,
    /// The algorithm that, over the whole store, is most often the fastest among the same
    /// alternatives.
    Usual,
}

impl AlgorithmWay {
    /// All of them.
    pub const ALL: [AlgorithmWay; 3] =
        [AlgorithmWay::General, AlgorithmWay::Formula, AlgorithmWay::Usual];

    /// Its name in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            AlgorithmWay::General => "general",
            AlgorithmWay::Formula => "formula",
            AlgorithmWay::Usual => "usual",
        }
    }
}

/// A task that has several algorithms, each of them tried.
#[derive(Clone, Debug, PartialEq)]
pub struct AlgorithmTried {
    /// The task.
    pub name: String,
    /// Trials that it had.
    pub trials: usize,
    /// The time of the fastest candidate of each algorithm, the fastest algorithm first.
    pub measured: Vec<(String, Nanos)>,
    /// The algorithms as the general predictor expects them, the fastest first.
    pub general: Vec<Expectation>,
    /// The algorithms as the cost formula expects them, the fastest first.
    pub formula: Vec<Expectation>,
}

impl AlgorithmTried {
    /// How much slower an algorithm's best is than the best of all, at least 1; `None` where it was
    /// not measured.
    pub fn loss(&self, algorithm: &str) -> Option<f64> {
        let time = self.measured.iter().find(|(a, _)| a == algorithm)?.1;
        Some(time.0 / self.measured.first()?.1.0)
    }

    /// The names of its algorithms, by which tasks are of one kind.
    fn kind(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.measured.iter().map(|m| m.0.as_str()).collect();
        names.sort_unstable();
        names
    }
}

/// The score of a way to choose, over all tasks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AlgorithmScore {
    /// The way.
    pub way: AlgorithmWay,
    /// The tasks for which it chooses: the general predictor knows no GPU.
    pub of: usize,
    /// The share of tasks whose fastest algorithm is chosen.
    pub right: f64,
    /// The share of tasks whose chosen algorithm is at most 5 % slower than the fastest.
    pub within_5: f64,
    /// The geometric mean of what the choice loses: 1 where it is always right.
    pub loss: f64,
}

/// The algorithm that a way chooses in each task.
fn choices(all: &[AlgorithmTried], way: AlgorithmWay) -> Vec<Option<&str>> {
    let mut usual: BTreeMap<Vec<&str>, BTreeMap<&str, usize>> = BTreeMap::new();
    for t in all {
        *usual.entry(t.kind()).or_default().entry(&t.measured[0].0).or_default() += 1;
    }
    let chosen = all.iter().map(|t| match way {
        AlgorithmWay::General => t.general.first().map(|e| e.algorithm.as_str()),
        AlgorithmWay::Formula => t.formula.first().map(|e| e.algorithm.as_str()),
        // Of two that are equally often the fastest, the first by name is taken.
        AlgorithmWay::Usual => usual[&t.kind()].iter().rev().max_by_key(|c| *c.1).map(|c| *c.0),
    });
    chosen.collect()
}

/// What each way is worth; those that choose for no task are left out. The usual algorithm is one
/// of the same tasks, so it is flattered.
pub fn algorithm_scores(all: &[AlgorithmTried]) -> Vec<AlgorithmScore> {
    let score = |way| -> Option<AlgorithmScore> {
        let losses: Vec<f64> =
            all.iter().zip(choices(all, way)).filter_map(|(t, chosen)| t.loss(chosen?)).collect();
        let of = losses.len();
        let share = |n: usize| n as f64 / of as f64;
        (of > 0).then(|| AlgorithmScore {
            way,
            of,
            right: share(losses.iter().filter(|l| **l <= 1.0).count()),
            within_5: share(losses.iter().filter(|l| **l <= 1.05).count()),
            loss: (losses.iter().map(|l| l.ln()).sum::<f64>() / of as f64).exp(),
        })
    };
    AlgorithmWay::ALL.into_iter().filter_map(score).collect()
}

/// Asks for all tasks of a store that were tuned here and in which at least two algorithms ran at
/// least four times; others say nothing.
///
/// # Errors
/// Where the store cannot be read, or holds no tuned task of this device.
pub fn try_algorithms(
    predictor: &GeneralPredictor,
    store: &Path,
    at: &TargetContext,
    stop: &AtomicBool,
) -> Result<Vec<AlgorithmTried>, Error> {
    let mut out = Vec::new();
    for t in tuned(&Store::open_read_only(store)?, at)? {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let tunables = TaskKernels::generated(&t.task, &at.target).tunables;
        // What the store holds of sketches that are not made any more is no choice.
        let mut ran: BTreeMap<String, (usize, Nanos)> = BTreeMap::new();
        for (name, time) in t.standings.ranking() {
            let Some(own) = find_tunable(&tunables, &name.0) else { continue };
            let algorithm = TunableName::parse(own.name()).algorithm;
            ran.entry(algorithm.into()).or_insert((0, time)).0 += 1;
        }
        let mut measured: Vec<(String, Nanos)> =
            ran.into_iter().filter(|r| r.1.0 >= LEAST_RAN).map(|(a, (_, t))| (a, t)).collect();
        if measured.len() < 2 {
            continue;
        }
        measured.sort_by(|a, b| a.1.0.total_cmp(&b.1.0));
        let known = |mut all: Vec<Expectation>| {
            all.retain(|e| measured.iter().any(|m| m.0 == e.algorithm));
            all
        };
        let general = predictor.outlook(&t.task, &tunables, &at.target, Effort::Little, 1);
        let formula = formula_outlook(&t.task, &tunables, Effort::Little, 1);
        out.push(AlgorithmTried {
            name: t.task.name.clone(),
            trials: t.trials,
            general: known(general.algorithms),
            formula: known(formula.algorithms),
            measured: measured.clone(),
        });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(names: &[&str]) -> Vec<Expectation> {
        let one = |(i, n): (usize, &&str)| Expectation {
            algorithm: n.to_string(),
            speed: 1.0 / (1.0 + i as f64),
        };
        names.iter().enumerate().map(one).collect()
    }

    fn tried(measured: &[(&str, f64)], general: &[&str], formula: &[&str]) -> AlgorithmTried {
        AlgorithmTried {
            name: "t".into(),
            trials: 9,
            measured: measured.iter().map(|(n, t)| (n.to_string(), Nanos(*t))).collect(),
            general: expected(general),
            formula: expected(formula),
        }
    }

    #[test]
    fn choices_are_scored_by_what_was_measured() {
        let all = [
            tried(&[("tile", 10.0), ("winograd", 20.0)], &["tile"], &[]),
            tried(&[("tile", 10.0), ("winograd", 10.4)], &["winograd", "tile"], &[]),
            tried(&[("winograd", 10.0), ("tile", 40.0)], &["winograd"], &[]),
            // Of another kind: the usual algorithm is counted apart.
            tried(&[("amx", 10.0), ("tile", 11.0)], &["amx"], &[]),
        ];
        let [general, usual] = &algorithm_scores(&all)[..] else { panic!("the formula is out") };
        assert_eq!((general.way, general.of), (AlgorithmWay::General, 4));
        assert_eq!((general.right, general.within_5), (0.75, 1.0));
        assert!((general.loss - 1.04f64.powf(0.25)).abs() < 1e-12);
        assert_eq!((usual.way, usual.right), (AlgorithmWay::Usual, 0.75));
        assert!((usual.loss - 4f64.powf(0.25)).abs() < 1e-12, "{}", usual.loss);
        assert_eq!(all[0].loss("split"), None);
        assert_eq!(algorithm_scores(&[]), []);
    }
}
