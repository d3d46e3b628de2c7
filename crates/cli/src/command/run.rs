//! `squall run`: a model run as a whole on an input.

use crate::failure::Failure;
use crate::option::{InputArgs, JsonArgs, NetworkArgs};
use crate::progress::listen;
use crate::terminal::say;
use serde_json::json;
use squall::{Context, RunRequest};
use std::path::PathBuf;

/// Run a model through its kernels and write its output
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  squall run model.onnx --input x.npy --output y.npy --store tuned.squall
  squall run model.onnx --input x.npy --output y.npy --dim N=1 --threads 2

Kernels are the store's best where it knows them, else verified guesses, which are kept in
~/.cache/squall. They run in a process of their own, over one region of memory. Weights that the
file does not hold are random, the same in every run.")]
pub struct Args {
    #[command(flatten)]
    model: InputArgs,
    #[command(flatten)]
    network: NetworkArgs,
    /// What the model is given: a .npy file of float32
    #[arg(long = "input", value_name = "X.npy")]
    x: PathBuf,
    /// Where its first output is written: a .npy file of float32
    #[arg(long, value_name = "Y.npy")]
    output: PathBuf,
    #[command(flatten)]
    json: JsonArgs,
}

/// Runs it.
pub fn run(a: &Args) -> Result<u8, Failure> {
    let request = RunRequest {
        network: a.network.request(&a.model),
        x: a.x.clone(),
        output: a.output.clone(),
    };
    let (network, y) = squall::run(&Context::new(), &request, &mut listen)?;
    let counts = network.counts();
    if a.json.json {
        let arena = network.arena_bytes();
        say(json!({
            "output": a.output,
            "shape": y.shape,
            "kernels": counts.kernels,
            "tuned": counts.tuned,
            "guessed": counts.guessed,
            "plain": counts.plain,
            "arena_bytes": arena,
        }))?;
    } else {
        let (file, shape) = (a.output.display(), &y.shape);
        say(format_args!("{file}: {shape:?}, by {counts}"))?;
    }
    Ok(0)
}
