//! What predictions are worth on examples that were held out, beside what was published.

use crate::error::Error;
use squall_core::forecast::{Example, Part, Problem, Split};
use squall_predict::classical::{self, Classical};
use squall_predict::metrics::{
    Outcome, Reliability, Share, calibration_error, kernel_precision_at, negative_log_likelihood, precision_at, reliability,
};
use squall_predict::paper::{self, PaperModel, PaperOptions};
use squall_predict::{Epoch, Method, PredictError, Predictor};
use std::collections::BTreeMap;

/// The ways in which a predictor can answer, by name; the first is the default.
pub const METHODS: [(&str, Method); 5] = [
    ("pair", Method::Pair),
    ("ranker", Method::Ranker),
    ("chain", Method::Chain),
    ("neighbours", Method::Neighbours),
    ("frequency", Method::Frequency),
];

/// A model that is trained for one row alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Model {
    /// One of the paper's.
    Paper(PaperModel),
    /// One that it compares with.
    Classical(Classical),
}

/// The models of the paper and those that it compares with, by name.
pub const MODELS: [(&str, Model); 9] = [
    ("encoder-decoder", Model::Paper(PaperModel::EncoderDecoder)),
    ("attention", Model::Paper(PaperModel::Attention)),
    ("attention-2", Model::Paper(PaperModel::Attention2)),
    ("hybrid", Model::Paper(PaperModel::Hybrid)),
    ("hybrid-2", Model::Paper(PaperModel::Hybrid2)),
    ("decision-tree", Model::Classical(Classical::DecisionTree)),
    ("random-forest", Model::Classical(Classical::RandomForest)),
    ("naive-bayes", Model::Classical(Classical::NaiveBayes)),
    ("svm", Model::Classical(Classical::Svm)),
];

/// How many candidates P@k looks at.
pub const AT: [usize; 5] = [1, 10, 30, 50, 100];

/// A row of "Optimal Kernel Tuning Parameter Prediction using Deep Sequence Models" (Mahmood, Khan,
/// Afzal): the share of problems whose tuned vector is predicted, in percent. Its databases were not
/// published; its rows are not those of any public version of MIOpen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Published {
    /// Table III, Hybrid-2: the single best.
    pub top_1: f64,
    /// Table IV: among the best 10 and 100 of the constrained beam search (of the plain one for
    /// ConvAsmBwdWrW3x3, where it reports no other).
    pub top_10: f64,
    /// As before.
    pub top_100: f64,
}

/// What the paper reports for a solver and a precision.
pub fn published(solver: &str, precision: &str) -> Option<Published> {
    let (top_1, top_10, top_100) = match (solver, precision) {
        ("ConvAsm1x1U", "FP32") => (6.5, 19.9, 40.9),
        ("ConvAsm1x1U", "FP16") => (31.5, 68.5, 87.3),
        ("ConvOclDirectFwd1x1", "FP32") => (18.9, 72.5, 95.8),
        ("ConvOclDirectFwd1x1", "FP16") => (31.3, 79.7, 91.6),
        ("ConvAsmBwdWrW1x1", "FP32") => (10.0, 36.5, 71.4),
        ("ConvAsmBwdWrW1x1", "FP16") => (13.7, 44.1, 73.3),
        ("ConvAsmBwdWrW3x3", "FP32") => (15.4, 58.6, 91.4),
        ("ConvAsmBwdWrW3x3", "FP16") => (22.2, 77.8, 95.6),
        _ => return None,
    };
    Some(Published { top_1, top_10, top_100 })
}

/// How a predictor does on the test problems of a solver, a device and a precision.
#[derive(Clone, Debug, PartialEq)]
pub struct RowReport {
    /// Whose.
    pub solver: String,
    /// On what.
    pub device: String,
    /// FP32, FP16, BF16.
    pub precision: String,
    /// How it was asked.
    pub method: &'static str,
    /// Shares of problems whose tuned vector is among the first [`AT`].
    pub at: Vec<Share>,
    /// The same by kernel: vectors that compile to the same code count as one.
    pub kernel_at: Vec<Share>,
    /// Mean negative log-likelihood.
    pub negative_log_likelihood: f64,
    /// Mean difference between the probability given and the share that was right.
    pub calibration_error: f64,
    /// The reliability table.
    pub reliability: Vec<Reliability>,
}

/// Asks a predictor for the test rows of a split. `methods` are names of [`METHODS`]. An error where
/// the predictor learned from some of these rows.
pub fn evaluate(
    predictor: &Predictor,
    examples: &[Example],
    split: Split,
    methods: &[&'static str],
    threads: usize,
) -> Result<Vec<RowReport>, Error> {
    if predictor.info().split != Some(split) {
        let held = match predictor.info().split {
            Some(Split::Random) => "random",
            Some(Split::Layer) => "layer",
            None => "none",
        };
        let message =
            format!("the predictor was trained with the split `{held}`: it learned from test rows of the split that is asked for");
        let hint = "evaluate with the split of training, or train again: squall train --split random|layer".into();
        return Err(Error::Input { place: "--split".into(), message, hint });
    }
    let takes = |p: &Problem| {
        let solver = predictor.solvers().iter().find(|s| s.solver() == p.solver);
        solver.is_some_and(|s| s.family().instance(p).is_ok())
    };
    let mut out = Vec::new();
    for ((solver, device, precision), all) in rows(examples) {
        let test: Vec<&Example> = all.into_iter().filter(|e| split.part(&e.problem) == Part::Test && takes(&e.problem)).collect();
        for (name, method) in METHODS.iter().filter(|(n, _)| methods.contains(n) && !test.is_empty()) {
            let outcomes = predictor.evaluate(solver, &test, *method, threads)?;
            out.push(RowReport::new((solver, device, precision), name, &outcomes));
        }
    }
    if out.is_empty() {
        return Err(Error::Nothing("the store has no test row of this predictor's solvers".into()));
    }
    Ok(out)
}

/// Trains models of the paper and classical ones on each row of their own, as the paper does, and
/// scores them on its test rows. `models` are names of [`MODELS`]; `epochs` bounds the training of the
/// paper's. `go_on` hears which model is at which row, again and again, and ends all by saying no.
pub fn compare(
    examples: &[Example],
    split: Split,
    models: &[&'static str],
    options: PaperOptions,
    go_on: &mut dyn FnMut(&str, &str) -> bool,
) -> Result<Vec<RowReport>, Error> {
    let families = super::families(examples).map_err(PredictError::from)?;
    let mut out = Vec::new();
    for ((solver, device, precision), all) in rows(examples) {
        let Some(family) = families.iter().find(|f| f.solver() == solver) else { continue };
        let inside = |e: &&Example| {
            let candidates = family.instance(&e.problem).ok().map(|i| i.candidates());
            candidates.is_some_and(|c| family.positions(&e.values).is_some_and(|p| c.find(&p).is_some()))
        };
        let part = |p: &Problem| split.part(p);
        let learned: Vec<&Example> = all.iter().filter(|e| part(&e.problem) != Part::Test).filter(|e| inside(e)).copied().collect();
        let test: Vec<&Example> =
            all.iter().filter(|e| part(&e.problem) == Part::Test && family.instance(&e.problem).is_ok()).copied().collect();
        if test.is_empty() || !learned.iter().any(|e| part(&e.problem) == Part::Train) {
            continue;
        }
        let row = format!("{solver} {device} {precision}");
        for (name, model) in MODELS.iter().filter(|(n, _)| models.contains(n)) {
            let mut ended = !go_on(name, &row);
            let outcomes = match model {
                _ if ended => return Err(PredictError::Cancelled.into()),
                Model::Paper(kind) => {
                    let mut ask = |_: &[Epoch], _: f64| {
                        ended |= !go_on(name, &row);
                        !ended
                    };
                    let trained = paper::Trained::train(family.clone(), &learned, &part, *kind, &options, &mut ask);
                    if ended {
                        return Err(PredictError::Cancelled.into());
                    }
                    trained.and_then(|t| t.evaluate(&test, options.threads))
                }
                Model::Classical(kind) => {
                    let trained = classical::Trained::train(family.clone(), &learned, &part, *kind, options.seed, options.threads);
                    trained.and_then(|t| t.evaluate(&test, options.threads))
                }
            };
            out.push(RowReport::new((solver, device, precision), name, &outcomes.map_err(PredictError::from)?));
        }
    }
    if out.is_empty() {
        return Err(Error::Nothing("the store has no row with both training and test problems".into()));
    }
    Ok(out)
}

/// A row: solver, device, precision.
type Row<'a> = (&'a str, &'a str, &'a str);

/// Examples by row.
fn rows(examples: &[Example]) -> BTreeMap<Row<'_>, Vec<&Example>> {
    let mut rows: BTreeMap<Row, Vec<&Example>> = BTreeMap::new();
    for e in examples {
        let p = &e.problem;
        rows.entry((p.solver.as_str(), p.device.as_str(), p.word("precision").unwrap_or(""))).or_default().push(e);
    }
    rows
}

impl RowReport {
    fn new((solver, device, precision): Row, method: &'static str, outcomes: &[Outcome]) -> RowReport {
        RowReport {
            solver: solver.into(),
            device: device.into(),
            precision: precision.into(),
            method,
            at: AT.iter().map(|&k| precision_at(k, outcomes)).collect(),
            kernel_at: AT.iter().map(|&k| kernel_precision_at(k, outcomes)).collect(),
            negative_log_likelihood: negative_log_likelihood(outcomes),
            calibration_error: calibration_error(outcomes),
            reliability: reliability(outcomes),
        }
    }
}
