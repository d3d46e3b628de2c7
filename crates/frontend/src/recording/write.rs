//! Writes recordings (measured spaces) as files that other tools read: Kernel Tuner's cache files
//! and T4 results.
//!
//! A file reads back as the recording that it was written from: numbers are chosen so that the
//! conversion to nanoseconds gives back exactly the same time. Kernel Tuner has no words for a
//! timeout or a wrong answer; its `ErrorConfig` stands for them, and T4's word is written beside
//! it.

use super::{Recording, Row, json_of};
use flate2::{Compression, write::GzEncoder};
use serde_json::{Value as Json, json};
use squall_core::{Configuration, FailStage, Outcome};
use std::io::Write as _;

/// A form of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// T4 results.
    T4,
    /// A cache file of Kernel Tuner.
    KernelTuner,
}

/// The file of a recording.
pub fn write(recording: &Recording, format: Format) -> String {
    match format {
        Format::T4 => results(recording),
        Format::KernelTuner => cache(recording),
    }
}

/// Packs a file.
pub fn gzip(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut out = GzEncoder::new(Vec::new(), Compression::default());
    out.write_all(bytes)?;
    out.finish()
}

/// A number near `guess` that becomes `wanted`, or else `guess`.
fn exactly(guess: f64, wanted: f64, becomes: impl Fn(f64) -> f64) -> f64 {
    let near = [
        guess,
        guess.next_up(),
        guess.next_down(),
        guess.next_up().next_up(),
        guess.next_down().next_down(),
    ];
    near.into_iter().find(|x| becomes(*x) == wanted).unwrap_or(guess)
}

/// The objective's value for a time in nanoseconds.
fn value(nanos: f64, maximised: bool) -> f64 {
    match maximised {
        true => exactly(1e9 / nanos, nanos, |v| 1e9 / v),
        false => exactly(nanos / 1e6, nanos, |v| v * 1e6),
    }
}

/// Seconds in milliseconds.
fn milliseconds(seconds: f64) -> f64 {
    exactly(seconds * 1e3, seconds, |m| m / 1e3)
}

/// Single runs in milliseconds.
fn runs(row: &Row) -> Vec<f64> {
    match &row.outcome {
        Outcome::Measured(m) => m.samples.iter().map(|s| s.0 / 1e6).collect(),
        _ => Vec::new(),
    }
}

/// T4's word for an outcome, and Kernel Tuner's.
fn words(outcome: &Outcome) -> (&'static str, &'static str) {
    match outcome {
        Outcome::Measured(_) | Outcome::Right { .. } => ("correct", ""),
        Outcome::Infeasible(_) => ("constraints", "InvalidConfig"),
        Outcome::Failed { stage: FailStage::Build, .. } => ("compile", "CompilationFailedConfig"),
        Outcome::Failed { stage: FailStage::Launch, .. } => ("runtime", "RuntimeFailedConfig"),
        Outcome::Failed { stage: FailStage::Timeout, .. } => ("timeout", "ErrorConfig"),
        Outcome::Failed { stage: FailStage::WrongAnswer, .. } => ("correctness", "ErrorConfig"),
    }
}

/// `"a": 1, "b": 2` in the order of the parameters, which a JSON object would not keep.
fn values(c: &Configuration) -> String {
    let pair = |(k, v): (&squall_core::space::Knob, &squall_core::space::Value)| {
        format!("{}: {}", quoted(&k.name), json_of(v))
    };
    c.iter().map(pair).collect::<Vec<_>>().join(", ")
}

fn quoted(text: &str) -> Json {
    text.into()
}

/// A cache file. Kernel Tuner takes a file for complete only if it ends in just these characters.
fn cache(r: &Recording) -> String {
    let knobs = r.space.knobs();
    let keys: Vec<&str> = knobs.iter().map(|k| k.name.as_str()).collect();
    let parameter = |k: &squall_core::space::Knob| {
        format!(
            "{}: {}",
            quoted(&k.name),
            Json::from(k.values.iter().map(json_of).collect::<Vec<_>>())
        )
    };
    // Kernel Tuner requires a size; 1 stands for an unknown one.
    let problem = if r.problem == "null" { "[1]" } else { &r.problem };
    let mut out = format!(
        "{{\n\"device_name\": {},\n\"kernel_name\": {},\n\"problem_size\": {problem},\n\
         \"tune_params_keys\": {},\n\"tune_params\": {{{}}},\n\"objective\": {},\n\"cache\": {{",
        quoted(&r.device),
        quoted(&r.kernel),
        Json::from(keys),
        knobs.iter().map(parameter).collect::<Vec<_>>().join(", "),
        quoted(&r.objective)
    );
    for (i, (c, row)) in r.space.iter().zip(&r.rows).enumerate() {
        let (invalidity, word) = words(&row.outcome);
        let mut rest = json!({
            "compile_time": milliseconds(row.cost.build), "verification_time": 0,
            "benchmark_time": milliseconds(row.cost.measure),
            "strategy_time": milliseconds(row.cost.search), "framework_time": 0,
            "times": runs(row),
        });
        match row.outcome.time() {
            Some(t) => rest[&r.objective] = value(t.0, r.maximised).into(),
            None => {
                rest[&r.objective] = word.into();
                rest["invalidity"] = invalidity.into();
            }
        }
        let rest = rest.to_string();
        let between = if i > 0 { "," } else { "" };
        out += &format!("{between}\n{}: {{{}, {}", quoted(&row.key), values(&c), &rest[1..]);
    }
    out + "}\n}"
}

/// T4 results.
fn results(r: &Recording) -> String {
    let metadata = json!({"timeunit": "milliseconds", "kernel": r.kernel, "device": r.device});
    let mut out =
        format!("{{\n\"metadata\": {metadata},\n\"schema_version\": \"1.0.0\",\n\"results\": [");
    for (i, (c, row)) in r.space.iter().zip(&r.rows).enumerate() {
        let runs = runs(row);
        // The time beyond the runs was spent on checking them.
        let validation = (milliseconds(row.cost.measure) - runs.iter().sum::<f64>()).max(0.0);
        let measured = match &row.outcome {
            Outcome::Measured(m) => value(m.median().0, r.maximised).into(),
            Outcome::Right { .. } => Json::Null,
            Outcome::Infeasible(why) => Json::from(why.as_str()),
            Outcome::Failed { detail, .. } => Json::from(detail.as_str()),
        };
        let unit = if r.maximised { "" } else { "ms" };
        let rest = json!({
            "times": {
                "compilation": milliseconds(row.cost.build), "framework": 0,
                "search_algorithm": milliseconds(row.cost.search),
                "validation": validation, "runtimes": runs,
            },
            "invalidity": words(&row.outcome).0,
            "correctness": u8::from(row.outcome.time().is_some()),
            "measurements": [{"name": r.objective, "value": measured, "unit": unit}],
            "objectives": [r.objective],
        });
        let rest = rest.to_string();
        let between = if i > 0 { "," } else { "" };
        out += &format!("{between}\n{{\"configuration\": {{{}}}, {}", values(&c), &rest[1..]);
    }
    out + "\n]\n}\n"
}
