//! Models that are trained for each device and precision apart (a row), as in the paper: its own
//! five, the classical ones that it compares with, and the nearest neighbours. Input: examples of a
//! solver; output: [`RowModels`], which answer for a problem by the model of its row. The default
//! model, `solver.rs`, is one for all rows instead.

use crate::classical;
use crate::features::{EncodedProblem, Featurizer};
use crate::metrics::Outcome;
use crate::options::{Kind, Method};
use crate::paper;
use crate::parallel;
use crate::ranking::{best, by_neighbours, outcome};
use crate::solver::Scratch;
use crate::train::Epoch;
use crate::trainer::{Progress, Seen, Trainer, TrainingData};
use squall_core::forecast::{Example, Family, FamilyError, Part, Problem};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A solver's models, one for each device and precision.
#[derive(Debug)]
pub struct RowModels {
    pub(crate) family: Arc<Family>,
    pub(crate) kind: Kind,
    pub(crate) rows: Vec<Row>,
    pub(crate) seen: Seen,
}

/// The model of a device and a precision.
#[derive(Debug)]
pub(crate) struct Row {
    pub device: String,
    pub precision: String,
    pub model: RowModel,
}

#[derive(Debug)]
pub(crate) enum RowModel {
    Neighbours(Box<Featurizer>),
    Paper(Box<paper::Trained>),
    Classical(Box<classical::Trained>),
}

impl RowModel {
    /// Trains on the examples of a row; `None` where `go_on` returned false.
    fn train(
        m: &TrainingData,
        trainer: &mut Trainer,
        go_on: &mut dyn FnMut(&Progress) -> bool,
    ) -> Result<Option<RowModel>, FamilyError> {
        let mut say =
            |network: &'static str, epochs: (usize, usize), within: f64, last: Option<Epoch>| {
                go_on(&Progress {
                    solver: m.family.solver(),
                    network,
                    member: (0, 1),
                    epochs,
                    within,
                    last,
                })
            };
        Ok(match m.options.model {
            Kind::Paper(kind) => {
                let mut on = true;
                let mut ask = |curve: &[Epoch], within: f64| {
                    on = say(
                        "sequence model",
                        (curve.len(), m.options.epochs.1),
                        within,
                        curve.last().copied(),
                    );
                    on
                };
                let trained = paper::Trained::train(m, kind, trainer, &mut ask)?;
                on.then(|| RowModel::Paper(Box::new(trained)))
            }
            Kind::Classical(kind) => {
                if !say("classifiers", (0, 1), 0.0, None) {
                    return Ok(None);
                }
                Some(RowModel::Classical(Box::new(classical::Trained::train(m, kind)?)))
            }
            Kind::Neighbours | Kind::Pair => {
                Some(RowModel::Neighbours(Box::new(Featurizer::learn(
                    m.family.clone(),
                    &m.of(Part::Train),
                    &m.of(Part::Validation),
                    None,
                )?)))
            }
        })
    }

    pub fn featurizer(&self) -> &Featurizer {
        match self {
            RowModel::Neighbours(g) => g,
            RowModel::Paper(t) => t.featurizer(),
            RowModel::Classical(t) => t.featurizer(),
        }
    }

    pub fn curve(&self) -> &[Epoch] {
        match self {
            RowModel::Paper(t) => &t.curve,
            _ => &[],
        }
    }
}

impl RowModels {
    /// Trains a model for each device and precision that has examples for training. `None` where
    /// `go_on` returned false.
    pub(crate) fn train(
        m: &TrainingData,
        trainer: &mut Trainer,
        go_on: &mut dyn FnMut(&Progress) -> bool,
    ) -> Result<Option<RowModels>, FamilyError> {
        let mut by_row: BTreeMap<(&str, &str), Vec<&Example>> = BTreeMap::new();
        for e in m.examples {
            by_row
                .entry((&e.problem.device, e.problem.word("precision").unwrap_or("")))
                .or_default()
                .push(e);
        }
        let mut rows = Vec::new();
        for ((device, precision), examples) in by_row {
            let m = TrainingData { examples: &examples, ..m.clone() };
            if m.of(Part::Train).is_empty() {
                continue;
            }
            let Some(model) = RowModel::train(&m, trainer, go_on)? else { return Ok(None) };
            rows.push(Row { device: device.into(), precision: precision.into(), model });
            trainer.first += 1;
        }
        Ok(Some(RowModels {
            family: m.family.clone(),
            kind: m.options.model,
            rows,
            seen: Seen::of(m.examples),
        }))
    }

    /// The model that answers a problem: that of its device and precision; else one of another
    /// device or of the other format of 16 bits; else the first.
    fn of(&self, problem: &Problem) -> Option<&RowModel> {
        let precision = problem.word("precision").unwrap_or("");
        let half = if precision == "BF16" { "FP16" } else { precision };
        let find = |device: Option<&str>, p: &str| {
            self.rows.iter().find(|r| r.precision == p && device.is_none_or(|d| d == r.device))
        };
        let own = Some(problem.device.as_str());
        let row = find(own, precision)
            .or_else(|| find(own, half))
            .or_else(|| find(None, precision))
            .or_else(|| find(None, half));
        row.or(self.rows.first()).map(|r| &r.model)
    }

    /// As [`Solver::predict`](crate::Solver::predict); the nearest neighbours can answer by
    /// frequency too.
    pub fn predict(
        &self,
        problem: &Problem,
        k: usize,
        method: Method,
        scratch: &mut Scratch,
    ) -> Result<Vec<(Vec<i64>, f64)>, FamilyError> {
        let Some(model) = self.of(problem) else { return Ok(Vec::new()) };
        let encoded = model.featurizer().encode(problem, None, None, &mut scratch.near)?;
        Ok(best(&self.family, &encoded, &scores(model, &encoded, method, scratch), k))
    }

    /// As [`Solver::evaluate`](crate::Solver::evaluate).
    pub fn evaluate(
        &self,
        examples: &[&Example],
        method: Method,
        threads: usize,
    ) -> Result<Vec<Outcome>, FamilyError> {
        let outcomes = parallel::map(threads, examples, |e, scratch: &mut Scratch| {
            let Some(model) = self.of(&e.problem) else { return Ok(Outcome::missed(0.0)) };
            let featurizer = model.featurizer();
            let values = Some(&e.values[..]);
            let encoded = featurizer.encode(&e.problem, values, None, &mut scratch.near)?;
            let scores = scores(model, &encoded, method, scratch);
            outcome(featurizer, &encoded, &e.problem, &scores)
        });
        outcomes.into_iter().collect()
    }
}

/// Log-probabilities of a problem's candidates. Each model answers in its own way; of the methods
/// only the frequency is another one, which the neighbours' model can answer by too.
fn scores(
    model: &RowModel,
    encoded: &EncodedProblem,
    method: Method,
    scratch: &mut Scratch,
) -> Vec<f32> {
    match model {
        RowModel::Neighbours(g) if method == Method::Frequency => g.by_frequency(encoded),
        RowModel::Neighbours(g) => by_neighbours(g, encoded, &mut scratch.near),
        RowModel::Paper(t) => t.score(encoded),
        RowModel::Classical(t) => t.score(encoded),
    }
}
