//! Models that are trained on each device and precision apart, as the paper does: its own five, the
//! classical ones that it compares with, and the nearest neighbours.

use crate::case::{Case, Ground};
use crate::classical::{self, Classical};
use crate::metrics::Outcome;
use crate::paper::{self, PaperModel};
use crate::parallel;
use crate::solver::{
    Keeper, Material, Method, Progress, Room, best, by_neighbours, hashes, outcome,
};
use crate::train::Epoch;
use serde::{Deserialize, Serialize};
use squall_core::forecast::{Example, Family, FamilyError, Part, Problem};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is trained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Ranker and chain, of all devices and precisions together: the default.
    #[default]
    Pair,
    /// The nearest neighbours' votes: nothing is trained.
    Neighbours,
    /// One of the paper's, of each device and precision apart.
    Paper(PaperModel),
    /// A classifier a knob, of each device and precision apart.
    Classical(Classical),
}

/// A solver's models, one for each device and precision.
#[derive(Debug)]
pub struct Rows {
    pub(crate) family: Arc<Family>,
    pub(crate) kind: Kind,
    pub(crate) rows: Vec<Row>,
    pub(crate) keys: Vec<u64>,
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
    Neighbours(Box<Ground>),
    Paper(Box<paper::Trained>),
    Classical(Box<classical::Trained>),
}

impl RowModel {
    /// Trains on the examples of a row; `None` where `go_on` said no.
    fn train(
        m: &Material,
        keeper: &mut Keeper,
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
                let trained = paper::Trained::train(m, kind, keeper, &mut ask)?;
                on.then(|| RowModel::Paper(Box::new(trained)))
            }
            Kind::Classical(kind) => {
                if !say("classifiers", (0, 1), 0.0, None) {
                    return Ok(None);
                }
                Some(RowModel::Classical(Box::new(classical::Trained::train(m, kind)?)))
            }
            Kind::Neighbours | Kind::Pair => Some(RowModel::Neighbours(Box::new(Ground::learn(
                m.family.clone(),
                &m.of(Part::Train),
                &m.of(Part::Validation),
                None,
            )?))),
        })
    }

    pub fn ground(&self) -> &Ground {
        match self {
            RowModel::Neighbours(g) => g,
            RowModel::Paper(t) => t.ground(),
            RowModel::Classical(t) => t.ground(),
        }
    }

    pub fn curve(&self) -> &[Epoch] {
        match self {
            RowModel::Paper(t) => &t.curve,
            _ => &[],
        }
    }
}

impl Rows {
    /// Trains a model for each device and precision that has examples for training. `None` where
    /// `go_on` said no.
    pub(crate) fn train(
        m: &Material,
        keeper: &mut Keeper,
        go_on: &mut dyn FnMut(&Progress) -> bool,
    ) -> Result<Option<Rows>, FamilyError> {
        let mut by_row: BTreeMap<(&str, &str), Vec<&Example>> = BTreeMap::new();
        for e in m.examples {
            by_row
                .entry((&e.problem.device, e.problem.word("precision").unwrap_or("")))
                .or_default()
                .push(e);
        }
        let mut rows = Vec::new();
        for ((device, precision), examples) in by_row {
            let m = Material { examples: &examples, ..m.clone() };
            if m.of(Part::Train).is_empty() {
                continue;
            }
            let Some(model) = RowModel::train(&m, keeper, go_on)? else { return Ok(None) };
            rows.push(Row { device: device.into(), precision: precision.into(), model });
            keeper.first += 1;
        }
        Ok(Some(Rows {
            family: m.family.clone(),
            kind: m.options.model,
            rows,
            keys: hashes(m.examples),
        }))
    }

    /// The model that answers a problem: of its device and precision; of another device, or of the
    /// other format of 16 bits; else the first.
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
        room: &mut Room,
    ) -> Result<Vec<(Vec<i64>, f64)>, FamilyError> {
        let Some(model) = self.of(problem) else { return Ok(Vec::new()) };
        let case = model.ground().case(problem, None, None, &mut room.near)?;
        Ok(best(&self.family, &case, &scores(model, &case, method, room), k))
    }

    /// As [`Solver::evaluate`](crate::Solver::evaluate).
    pub fn evaluate(
        &self,
        examples: &[&Example],
        method: Method,
        threads: usize,
    ) -> Result<Vec<Outcome>, FamilyError> {
        let outcomes = parallel::map(threads, examples, |e, room: &mut Room| {
            let lost = Outcome {
                rank: None,
                kernel_rank: None,
                log_likelihood: f64::NEG_INFINITY,
                confidence: 0.0,
            };
            let Some(model) = self.of(&e.problem) else { return Ok(lost) };
            let case = model.ground().case(&e.problem, Some(&e.values), None, &mut room.near)?;
            outcome(model.ground(), &case, &e.problem, &scores(model, &case, method, room))
        });
        outcomes.into_iter().collect()
    }
}

/// Log-probabilities of a case's candidates; of all methods only the frequency is another's.
fn scores(model: &RowModel, case: &Case, method: Method, room: &mut Room) -> Vec<f32> {
    match model {
        RowModel::Neighbours(g) if method == Method::Frequency => g.by_frequency(case),
        RowModel::Neighbours(g) => by_neighbours(g, case, &mut room.near),
        RowModel::Paper(t) => t.score(case),
        RowModel::Classical(t) => t.score(case),
    }
}
