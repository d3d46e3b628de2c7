//! What predictions are worth on examples that were held out, beside what was published.

use crate::error::Error;
use squall_core::forecast::{Example, Part, Split};
use squall_predict::metrics::{
    Reliability, Share, calibration_error, kernel_precision_at, negative_log_likelihood, precision_at, reliability,
};
use squall_predict::{Method, Predictor};
use std::collections::BTreeMap;

/// The ways in which a predictor can answer, by name; the first is the default.
pub const METHODS: [(&str, Method); 5] = [
    ("pair", Method::Pair),
    ("ranker", Method::Ranker),
    ("chain", Method::Chain),
    ("neighbours", Method::Neighbours),
    ("frequency", Method::Frequency),
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
    let mut rows: BTreeMap<(&str, &str, &str), Vec<&Example>> = BTreeMap::new();
    for e in examples.iter().filter(|e| split.part(&e.problem) == Part::Test) {
        let p = &e.problem;
        let solver = predictor.solvers().iter().find(|s| s.solver() == p.solver);
        if solver.is_some_and(|s| s.family().instance(p).is_ok()) {
            rows.entry((&p.solver, &p.device, p.word("precision").unwrap_or("")).to_owned()).or_default().push(e);
        }
    }
    let mut out = Vec::new();
    for ((solver, device, precision), test) in rows {
        for (name, method) in METHODS.iter().filter(|(n, _)| methods.contains(n)) {
            let outcomes = predictor.evaluate(solver, &test, *method, threads)?;
            out.push(RowReport {
                solver: solver.into(),
                device: device.into(),
                precision: precision.into(),
                method: name,
                at: AT.iter().map(|&k| precision_at(k, &outcomes)).collect(),
                kernel_at: AT.iter().map(|&k| kernel_precision_at(k, &outcomes)).collect(),
                negative_log_likelihood: negative_log_likelihood(&outcomes),
                calibration_error: calibration_error(&outcomes),
                reliability: reliability(&outcomes),
            });
        }
    }
    if out.is_empty() {
        return Err(Error::Nothing("the store has no test row of this predictor's solvers".into()));
    }
    Ok(out)
}
