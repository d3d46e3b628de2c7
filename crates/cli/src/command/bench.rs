//! `squall bench`: times a model as a whole and prints the slowest layers, on request beside other
//! libraries (`squall::bench`). Its subcommand `squall bench search` is `bench_search.rs`.

use crate::command::bench_search;
use crate::failure::Failure;
use crate::option::{ArrayArgs, BesideArgs, InputArgs, JsonArgs, NetworkArgs, OutputArgs, context};
use crate::progress::listen;
use crate::terminal::{percent, plain_json, say, say_plain, table};
use clap::Subcommand;
use serde_json::json;
use squall::network::{Layer, Times, plain_shares};
use squall::report::json;
use squall::{BenchRequest, Bytes, Nanos, write_outputs};

/// The slowest layers that the table shows.
const SHOWN: usize = 20;

/// Time whole inferences of a model
#[derive(clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
Examples:
  squall bench model.onnx --store tuned.squall --threads 2 --seconds 5
  squall bench model.onnx --store tuned.squall --input x.npy --output y.npy --json
  squall bench model.onnx --store tuned.squall --target cuda
  squall bench search --help                                   # search strategies, on kernels

One inference goes from the copy of its input to the copy of its output. Three of four are timed as
a whole, the fourth layer by layer. On a GPU (--target cuda) all launches of an inference are one
graph: the device time of its replays is given, the time from the host's memory to the host's
memory, and each layer's in a graph of its own. Inputs without --input are random, the same in every
run: floats between -1 and 1, whole numbers 0 or 1, and indices below the extent that they index."
)]
pub struct Args {
    #[command(subcommand)]
    part: Option<BenchCommand>,
    // None only where a part is named.
    #[command(flatten)]
    model: Option<InputArgs>,
    #[command(flatten)]
    network: NetworkArgs,
    #[command(flatten)]
    given: ArrayArgs,
    #[command(flatten)]
    outputs: OutputArgs,
    /// How long inferences are repeated
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = seconds)]
    seconds: f64,
    #[command(flatten)]
    beside: BesideArgs,
    #[command(flatten)]
    json: JsonArgs,
}

#[derive(Subcommand)]
enum BenchCommand {
    Search(bench_search::Args),
}

fn seconds(text: &str) -> Result<f64, String> {
    text.parse::<f64>()
        .ok()
        .filter(|t| *t > 0.0 && *t <= 1e6)
        .ok_or_else(|| "expected a number of seconds above 0".into())
}

/// Runs it.
pub fn run(a: &Args) -> Result<u8, Failure> {
    let model = match (&a.part, &a.model) {
        (Some(BenchCommand::Search(s)), _) => return bench_search::run(s),
        (None, Some(m)) => m,
        (None, None) => {
            return Err(Failure::usage("nothing to time", "name a model: squall bench model.onnx"));
        }
    };
    let request = a.network.request(model)?;
    let request = BenchRequest {
        network: request,
        inputs: a.given.inputs.clone(),
        seconds: a.seconds,
        beside: a.beside.beside.clone(),
    };
    let done = squall::bench(&context(), &request, &mut listen)?;
    let (network, times) = (&done.network, &done.times);
    write_outputs(network, &model.input, &done.outputs, &a.outputs.outputs)?;
    let plain = plain_shares(&times.layers);
    let counts = network.counts();
    if a.json.json {
        let total: u64 = times.layers.iter().map(|l| l.best_ns).sum();
        let layer = |l: &Layer| {
            json!({
                "share": l.best_ns as f64 / total.max(1) as f64,
                "name": l.name,
                "node": l.node,
                "by": l.kind.name(),
                "task": l.task.map(|t| t.to_string()),
                "best_ns": l.best_ns,
                "in_place_ns": l.in_place_ns,
            })
        };
        say(json!({
            "best_ns": times.best_ns,
            "median_ns": times.median_ns,
            "output": a.outputs.outputs.first().map(|f| &f.path),
            "inferences": times.inferences,
            "device": times.host.map(|_| json!({
                "best_ns": times.best_ns,
                "median_ns": times.median_ns,
                "inferences": times.inferences,
            })),
            "host_to_host": times.host.map(|h| json!({
                "best_ns": h.best_ns,
                "median_ns": h.median_ns,
                "inferences": h.inferences,
            })),
            "arena_bytes": network.arena_bytes(),
            "precision": network.precision().name(),
            "kernels": counts.kernels,
            "tuned": counts.tuned,
            "guessed": counts.guessed,
            "plain": counts.plain,
            "plain_operators": plain.iter().map(plain_json).collect::<Vec<_>>(),
            "fallbacks": network.fallbacks(),
            "beside": json::beside(&done.inference),
            "layers": times.layers.iter().map(layer).collect::<Vec<_>>(),
        }))?;
        return Ok(0);
    }
    layers(times)?;
    let (best, median) = (Nanos(times.best_ns as f64), Nanos(times.median_ns as f64));
    let arena = Bytes(network.arena_bytes() as u64);
    let what = if times.host.is_some() { "device time of a replayed graph: " } else { "" };
    say(format_args!(
        "{what}best {best}, median {median} of {} inferences; {counts}; arena {arena}",
        times.inferences
    ))?;
    if let Some(h) = times.host {
        let (best, median) = (Nanos(h.best_ns as f64), Nanos(h.median_ns as f64));
        say(format_args!(
            "host to host: best {best}, median {median} of {} inferences",
            h.inferences
        ))?;
    }
    say_plain(&plain)?;
    Ok(0)
}

fn layers(times: &Times) -> Result<(), Failure> {
    let total: u64 = times.layers.iter().map(|l| l.best_ns).sum();
    let mut slowest: Vec<&Layer> = times.layers.iter().collect();
    slowest.sort_by_key(|l| std::cmp::Reverse(l.best_ns));
    let mut t = table(&["layer", "time", "share", "node"]);
    for l in slowest.iter().take(SHOWN) {
        let share = percent(l.best_ns as f64 / total.max(1) as f64);
        t.add_row([l.name.clone(), Nanos(l.best_ns as f64).to_string(), share, l.node.clone()]);
    }
    say(t)?;
    if slowest.len() > SHOWN {
        let rest: u64 = slowest[SHOWN..].iter().map(|l| l.best_ns).sum();
        say(format_args!("and {} more, {} together", slowest.len() - SHOWN, Nanos(rest as f64)))?;
    }
    Ok(())
}
