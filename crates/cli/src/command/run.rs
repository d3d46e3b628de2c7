//! `squall run`: runs a whole model on input files through its kernels and writes the outputs
//! (`squall::run`). Kernels come from a store, or are verified guesses.

use crate::failure::Failure;
use crate::option::{ArrayArgs, InputArgs, JsonArgs, NetworkArgs, OutputArgs, context};
use crate::progress::listen;
use crate::terminal::{plain_json, say, say_plain};
use serde_json::json;
use squall::RunRequest;
use squall::arrays::{ArrayFile, NamedArray};
use squall::network::plain_shares;

/// Run a model through its kernels and write its output
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  squall run model.onnx --input x.npy --output y.npy --store tuned.squall
  squall run model.onnx --input x.npy --output y.npy --dim N=1 --threads 2

  squall run bert.onnx --input input_ids=ids.npy --input mask=mask.npy --output last=y.npy

  squall run model.onnx --input x.npy --output y.npy --target cuda

Kernels are the store's best where it knows them, else verified guesses, which are kept in
~/.cache/squall. A node that no kernel is made for runs by plain C that is generated for it. All
run in a process of their own, over one region of memory. Dimensions that the model leaves open are
the given arrays'. Inputs whose values decide shapes become constants. Weights that the file does
not hold are random, the same in every run.")]
pub struct Args {
    #[command(flatten)]
    model: InputArgs,
    #[command(flatten)]
    network: NetworkArgs,
    #[command(flatten)]
    given: ArrayArgs,
    #[command(flatten)]
    outputs: OutputArgs,
    #[command(flatten)]
    json: JsonArgs,
}

/// Runs it.
pub fn run(a: &Args) -> Result<u8, Failure> {
    let request = RunRequest {
        network: a.network.request(&a.model)?,
        inputs: a.given.inputs.clone(),
        outputs: a.outputs.outputs.clone(),
    };
    let ran = squall::run(&context(), &request, &mut listen)?;
    let counts = ran.network.counts();
    let plain = plain_shares(&ran.layers);
    let file = |name: &str| {
        let named = |f: &&ArrayFile| f.name.as_deref().is_none_or(|n| n == name);
        a.outputs.outputs.iter().find(named).map(|f| f.path.display().to_string())
    };
    if a.json.json {
        let output = |(name, y): &NamedArray| {
            json!({
                "name": name,
                "type": y.dtype.name(),
                "shape": y.shape,
                "file": file(name),
            })
        };
        let first = ran.outputs.first();
        say(json!({
            "output": first.and_then(|(name, _)| file(name)),
            "shape": first.map(|(_, y)| &y.shape),
            "outputs": ran.outputs.iter().map(output).collect::<Vec<_>>(),
            "precision": ran.network.precision().name(),
            "kernels": counts.kernels,
            "tuned": counts.tuned,
            "guessed": counts.guessed,
            "plain": counts.plain,
            "plain_operators": plain.iter().map(plain_json).collect::<Vec<_>>(),
            "fallbacks": ran.network.fallbacks(),
            "arena_bytes": ran.network.arena_bytes(),
        }))?;
        return Ok(0);
    }
    for (name, y) in &ran.outputs {
        let (file, of) = (file(name).unwrap_or_else(|| name.clone()), y.dtype.name());
        say(format_args!("{file}: {of} {:?}", y.shape))?;
    }
    say(format_args!("by {counts}"))?;
    say_plain(&plain)?;
    Ok(0)
}
