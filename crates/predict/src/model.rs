//! The trained model of one solver: the default ensemble (`solver.rs`) or one of the baselines
//! (`rows.rs`), with the counts of its examples and its scores. Input: a problem; output: the k
//! most probable configurations. A predictor (`predictor.rs`) holds one model for each solver.

use crate::checkpoint::Checkpoint;
use crate::metrics::{Outcome, negative_log_likelihood, precision_at, rounded};
use crate::options::{Kind, Method};
use crate::rows::RowModels;
use crate::solver::{Scratch, Solver};
use crate::train::Epoch;
use crate::trainer::{Progress, Seen, Trainer, TrainingData};
use serde::{Deserialize, Serialize};
use squall_core::forecast::{Example, Family, FamilyError, Part, Problem};
use std::collections::BTreeMap;

/// The number of examples of a row: of one solver on one device in one precision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RowCount {
    /// The solver.
    pub solver: String,
    /// The device.
    pub device: String,
    /// FP32, FP16, BF16.
    pub precision: String,
    /// Examples that were learned from.
    pub train: usize,
    /// Examples for stopping and mixing; most networks of the default model learn them too.
    pub validation: usize,
    /// Examples that were held out.
    pub test: usize,
    /// Examples outside their tuner space, or of a problem that the family does not take; they
    /// were left out of training and validation.
    pub outside: usize,
}

/// Scores on a row's test problems.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Score {
    /// The solver.
    pub solver: String,
    /// The device.
    pub device: String,
    /// FP32, FP16, BF16.
    pub precision: String,
    /// Test problems.
    pub problems: usize,
    /// P@1, P@10, P@30, P@50, P@100: shares, 0 to 1.
    pub precision_at: Vec<(usize, f64)>,
    /// Mean negative log-likelihood.
    pub negative_log_likelihood: f64,
}

/// The trained model of one solver.
#[derive(Debug)]
pub enum Model {
    /// The default model.
    Pair(Box<Solver>),
    /// Another, one for each device and precision.
    Rows(RowModels),
}

impl Model {
    /// Trains on the caller's own division of the examples, for folds and experiments. `None` where
    /// `go_on` returned false.
    pub fn learn(
        data: &TrainingData,
        go_on: &mut dyn FnMut(&Progress) -> bool,
    ) -> Result<Option<Model>, FamilyError> {
        let begun = &Checkpoint::default();
        Model::train(data, &mut Trainer { begun, put: &mut |_, _, _| (), first: 0 }, go_on)
    }

    /// Trains from where the trainer has it. `None` where `go_on` returned false.
    pub(crate) fn train(
        data: &TrainingData,
        trainer: &mut Trainer,
        go_on: &mut dyn FnMut(&Progress) -> bool,
    ) -> Result<Option<Model>, FamilyError> {
        if data.options.model != Kind::Pair {
            return Ok(RowModels::train(data, trainer, go_on)?.map(Model::Rows));
        }
        let mut on = true;
        let mut ask = |p: &Progress| {
            on &= go_on(p);
            on
        };
        let solver = Solver::train(data, trainer, &mut ask)?;
        Ok(solver.filter(|_| on).map(|s| Model::Pair(Box::new(s))))
    }

    pub(crate) fn seen(&mut self) -> &mut Seen {
        match self {
            Model::Pair(s) => &mut s.seen,
            Model::Rows(r) => &mut r.seen,
        }
    }

    /// The name of the solver.
    pub fn solver(&self) -> &str {
        self.family().solver()
    }

    /// The family that it was trained with.
    pub fn family(&self) -> &Family {
        match self {
            Model::Pair(s) => s.family(),
            Model::Rows(r) => &r.family,
        }
    }

    /// Whether a problem was among its device's examples when it was trained, held out or not.
    /// Where a file of an earlier build does not say whose they were, any device's count.
    pub fn has_seen(&self, problem: &Problem) -> bool {
        match self {
            Model::Pair(s) => s.seen.has(problem),
            Model::Rows(r) => r.seen.has(problem),
        }
    }

    /// The epochs of each network, by what it is called.
    pub fn curves(&self) -> Vec<(String, &[Epoch])> {
        match self {
            Model::Pair(s) => {
                let all = [("ranker", &s.curves.ranker), ("chain", &s.curves.chain)];
                all.into_iter()
                    .flat_map(|(n, v)| {
                        v.iter().enumerate().map(move |(i, c)| (format!("{n} {}", i + 1), &c[..]))
                    })
                    .collect()
            }
            Model::Rows(r) => {
                let all = r.rows.iter().filter(|row| !row.model.curve().is_empty());
                all.map(|row| (format!("{} {}", row.device, row.precision), row.model.curve()))
                    .collect()
            }
        }
    }

    /// The k most probable configurations of a problem's tuner space, best first, with their
    /// probabilities; fewer where the space is smaller, none where nothing is legal. `method` is
    /// for the default model, which can answer in several ways.
    pub fn predict(
        &self,
        problem: &Problem,
        k: usize,
        method: Method,
        scratch: &mut Scratch,
    ) -> Result<Vec<(Vec<i64>, f64)>, FamilyError> {
        match self {
            Model::Pair(s) => s.predict(problem, k, method, scratch),
            Model::Rows(r) => r.predict(problem, k, method, scratch),
        }
    }

    /// What predictions for examples with known answers are worth, in their order.
    pub fn evaluate(
        &self,
        examples: &[&Example],
        method: Method,
        threads: usize,
    ) -> Result<Vec<Outcome>, FamilyError> {
        match self {
            Model::Pair(s) => s.evaluate(examples, method, threads),
            Model::Rows(r) => r.evaluate(examples, method, threads),
        }
    }
}

/// Names of a row: device and precision.
fn row(p: &Problem) -> (&str, &str) {
    (&p.device, p.word("precision").unwrap_or(""))
}

fn by_row<'a>(examples: &[&'a Example]) -> BTreeMap<(&'a str, &'a str), Vec<&'a Example>> {
    let mut out: BTreeMap<_, Vec<&Example>> = BTreeMap::new();
    for e in examples {
        out.entry(row(&e.problem)).or_default().push(e);
    }
    out
}

/// The number of examples of each row, by their use.
pub(crate) fn count(
    examples: &[&Example],
    inside: &[bool],
    part: &dyn Fn(&Problem) -> Part,
) -> Vec<RowCount> {
    let mut out: BTreeMap<(&str, &str), RowCount> = BTreeMap::new();
    for (e, inside) in examples.iter().zip(inside) {
        let (device, precision) = row(&e.problem);
        let c = out.entry((device, precision)).or_insert_with(|| RowCount {
            solver: e.problem.solver.clone(),
            device: device.into(),
            precision: precision.into(),
            ..RowCount::default()
        });
        match part(&e.problem) {
            Part::Test => c.test += 1,
            _ if !inside => c.outside += 1,
            Part::Train => c.train += 1,
            Part::Validation => c.validation += 1,
        }
    }
    out.into_values().collect()
}

pub(crate) fn scores(
    model: &Model,
    test: &[&Example],
    threads: usize,
) -> Result<Vec<Score>, FamilyError> {
    let one = |((device, precision), examples): (_, Vec<&Example>)| {
        let outcomes = model.evaluate(&examples, Method::Pair, threads)?;
        Ok(Score {
            solver: model.solver().into(),
            device: String::from(device),
            precision: String::from(precision),
            problems: outcomes.len(),
            precision_at: [1, 10, 30, 50, 100]
                .map(|k| (k, rounded(precision_at(k, &outcomes).value())))
                .to_vec(),
            negative_log_likelihood: rounded(negative_log_likelihood(&outcomes)),
        })
    };
    by_row(test).into_iter().map(one).collect()
}
