//! `squall check`: runs a model through its kernels and compares the outputs with expected arrays,
//! ONNX test data, or its own operators computed by plain loops (`squall::check`). The exit code
//! says whether they agree.

use crate::failure::Failure;
use crate::option::{
    ArrayArgs, InputArgs, JsonArgs, KernelArgs, TargetArgs, ThreadArgs, array_file, context,
};
use crate::progress::listen;
use crate::terminal::{note, plain_json, say, say_plain, three};
use serde_json::json;
use squall::arrays::ArrayFile;
use squall::check::{Checked, Tolerance};
use squall::{CheckData, CheckRequest, NetworkRequest};
use std::path::PathBuf;

/// Run a model through its kernels and compare with known output, or with its operators one by one
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  squall check model.onnx                                     against its own operators
  squall check model.onnx --input x.npy --expect y.npy
  squall check model.onnx --input x.npy --expect y.npy --store tuned.squall --tolerance 1e-5
  squall check model.onnx --input ids=ids.npy --input mask=mask.npy --expect logits=y.npy
  squall check model.onnx --test-data test_data_set_0 --rtol 1e-3 --atol 1e-5
  squall check model.onnx --target cuda --precision bf16      what bf16 loses, on random inputs

Kernels are the store's best where it knows them, else verified guesses, which are kept in
~/.cache/squall. They run in a process of their own. Exit code 1 means that an output differs: in
type or shape, or in an element, of floats beyond the tolerance. NaN equals NaN.

Without --expect and --test-data the model is held against its own operators, one by one, by plain
loops in double precision on this machine: on random inputs in the place of those that are not
given, and on these with NaN, infinities, zeros of both signs, denormal and large numbers among
them. --tolerance is relative to an output's largest value there, --rtol to each element's. With
another --precision than f32 it is run in f32 instead, and what the format loses is
said.")]
pub struct Args {
    #[command(flatten)]
    model: InputArgs,
    #[command(flatten)]
    given: ArrayArgs,
    /// What it shall compute: a .npy or .pb file; of several outputs those that are named, as
    /// NAME=Y.npy
    #[arg(long, visible_alias = "output", value_name = "[NAME=]Y.npy", value_parser = array_file)]
    expect: Vec<ArrayFile>,
    /// A folder in ONNX's own form: input_0.pb, .. and output_0.pb, .. in the graph's order, or
    /// with folders test_data_set_0, .. of these
    #[arg(long, value_name = "DIR", conflicts_with_all = ["expect", "inputs"])]
    test_data: Option<PathBuf>,
    #[command(flatten)]
    kernels: KernelArgs,
    /// How far an element may be off, absolutely, and relative to values above 1 [default: 1e-4, of
    /// tf32 and f16 0.02, of bf16 0.1; of a model whose file computes in these likewise]
    #[arg(long, value_name = "T", value_parser = tolerance)]
    tolerance: Option<f64>,
    /// How far it may be off relative to its value, in place of --tolerance
    #[arg(long, value_name = "R", value_parser = tolerance, conflicts_with = "tolerance")]
    rtol: Option<f64>,
    /// What is added to that [default: 0]
    #[arg(long, value_name = "A", value_parser = tolerance, conflicts_with = "tolerance")]
    atol: Option<f64>,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    json: JsonArgs,
}

fn tolerance(text: &str) -> Result<f64, String> {
    text.parse::<f64>()
        .ok()
        .filter(|t| *t >= 0.0 && t.is_finite())
        .ok_or_else(|| "expected a number of at least 0".into())
}

/// Runs it.
pub fn run(a: &Args) -> Result<u8, Failure> {
    let network = NetworkRequest {
        input: a.model.request(),
        store: a.kernels.store(),
        guess: a.kernels.guess(),
        target: a.target.request()?,
        threads: a.threads.threads.into(),
        keep: None,
    };
    let data = match &a.test_data {
        Some(folder) => CheckData::Folder(folder.clone()),
        None => CheckData::Files { inputs: a.given.inputs.clone(), expected: a.expect.clone() },
    };
    let tolerance = match (a.rtol, a.atol) {
        (None, None) => a.tolerance.map(Tolerance::Scaled),
        (r, b) => Some(Tolerance::Sum { relative: r.unwrap_or(0.0), absolute: b.unwrap_or(0.0) }),
    };
    let request = CheckRequest { network, data, tolerance };
    let c = squall::check(&context(), &request, &mut listen)?;
    let good = c.is_right();
    let (counts, precision) = (c.kernels, c.precision);
    if a.json.json {
        say(as_json(a, &c))?;
        return Ok(u8::from(!good));
    }
    for d in &c.differences {
        note(format_args!("error: types or shapes differ: {d}"));
    }
    let verdict = if good { "right" } else { "WRONG" };
    let allowed = match c.tolerance {
        None => "nothing was compared".into(),
        Some(Tolerance::Scaled(t)) => format!("tolerance {t:.0e}"),
        Some(Tolerance::Sum { relative, absolute }) => {
            format!("rtol {relative:.0e}, atol {absolute:.0e}")
        }
    };
    let against = match c.is_literal {
        true if c.runs > 1 => " against plain loops on ordinary and on hard inputs",
        true => " against plain loops",
        false => "",
    };
    say(format_args!(
        "{verdict}{against}: largest error {:.2e} ({allowed}), {} of {} elements off; {} calls of \
         {counts}",
        c.max_error, c.wrong, c.elements, c.calls
    ))?;
    if let Some(l) = &c.loss {
        say(format_args!(
            "{} loses against f32: largest error {:.2e} of values up to {}, {:.2e} of all by root \
             mean square",
            precision.name(),
            l.max_error,
            three(l.largest),
            l.relative
        ))?;
    }
    say_plain(&c.plain)?;
    Ok(u8::from(!good))
}

/// The findings, for programs.
fn as_json(a: &Args, c: &Checked) -> serde_json::Value {
    let (counts, precision) = (c.kernels, c.precision);
    json!({
        "right": c.is_right(),
        "against": if c.is_literal { "plain loops" } else { "given outputs" },
        "runs": c.runs,
        "precision": precision.name(),
        "max_error": if c.max_error.is_finite() { Some(c.max_error) } else { None },
        "tolerance": if let Some(Tolerance::Scaled(t)) = c.tolerance { Some(t) } else { None },
        "loss": c.loss.map(|l| json!({
            "precision": precision.name(),
            "max_error": l.max_error.is_finite().then_some(l.max_error),
            "largest": l.largest,
            "relative": l.relative.is_finite().then_some(l.relative),
            "elements": l.elements,
        })),
        "rtol": a.rtol,
        "atol": a.atol,
        "wrong": c.wrong,
        "elements": c.elements,
        "differences": c.differences,
        "calls": c.calls,
        "kernels": counts.kernels,
        "tuned": counts.tuned,
        "guessed": counts.guessed,
        "plain": counts.plain,
        "plain_operators": c.plain.iter().map(plain_json).collect::<Vec<_>>(),
        "fallbacks": c.fallbacks,
    })
}
