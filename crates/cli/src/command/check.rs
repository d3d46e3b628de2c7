//! `squall check`: a model run layer by layer through its kernels, against known output.

use crate::failure::Failure;
use crate::option::{InputArgs, JsonArgs, KernelArgs, TargetArgs, ThreadArgs};
use crate::progress::listen;
use crate::terminal::say;
use serde_json::json;
use squall::{CheckRequest, Context, NetworkRequest};
use std::path::PathBuf;

/// Run a model through its kernels and compare with known output
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  squall check model.onnx --input x.npy --expect y.npy
  squall check model.onnx --input x.npy --expect y.npy --store tuned.squall --tolerance 1e-5

Kernels are the store's best where it knows them, else verified guesses, which are kept in
~/.cache/squall. They run in a process of their own. Exit code 1 means that the output differs.")]
pub struct Args {
    #[command(flatten)]
    model: InputArgs,
    /// What the model is given: a .npy file of float32
    #[arg(long = "input", value_name = "X.npy")]
    x: PathBuf,
    /// What it shall compute: a .npy file of float32
    #[arg(long, value_name = "Y.npy")]
    expect: PathBuf,
    #[command(flatten)]
    kernels: KernelArgs,
    /// How far an element may be off, absolutely, and relative to values above 1
    #[arg(long, value_name = "T", default_value_t = 1e-4, value_parser = tolerance)]
    tolerance: f64,
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
        target: a.target.target,
        threads: a.threads.threads.into(),
        keep: None,
    };
    let c = squall::check(
        &Context::new(),
        &CheckRequest {
            network,
            x: a.x.clone(),
            expected: a.expect.clone(),
            tolerance: a.tolerance,
        },
        &mut listen,
    )?;
    let good = c.wrong == 0;
    let counts = c.kernels;
    if a.json.json {
        say(json!({
            "right": good,
            "max_error": if c.max_error.is_finite() { Some(c.max_error) } else { None },
            "tolerance": a.tolerance,
            "wrong": c.wrong,
            "elements": c.elements,
            "calls": c.calls,
            "kernels": counts.kernels,
            "tuned": counts.tuned,
            "guessed": counts.guessed,
            "plain": counts.plain,
        }))?;
    } else {
        let verdict = if good { "right" } else { "WRONG" };
        say(format_args!(
            "{verdict}: largest error {:.2e} (tolerance {:.0e}), {} of {} elements off; {} calls \
             of {counts}",
            c.max_error, a.tolerance, c.wrong, c.elements, c.calls
        ))?;
    }
    Ok(u8::from(!good))
}
