//! `squall bench`: times a model as a whole and prints its slowest layers and a table of the steps
//! that still run as plain C, on request beside other libraries (`squall::bench`). Its subcommand
//! `squall bench search` is `bench_search.rs`.

use crate::command::bench_search;
use crate::failure::Failure;
use crate::option::{ArrayArgs, BesideArgs, InputArgs, JsonArgs, NetworkArgs, OutputArgs, context};
use crate::progress::listen;
use crate::terminal::{or_dash, percent, plain_json, say, table, three};
use clap::Subcommand;
use serde_json::{Value, json};
use squall::network::{Layer, PlainSteps, PlainTime, Times, plain_shares};
use squall::report::json;
use squall::{BenchRequest, Benched, Bytes, Nanos, Roof, write_outputs};

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
run: floats between -1 and 1, whole numbers 0 or 1, and indices below the extent that they index.

The last table names what no tuned kernel makes: plain operators (`plain`), moves of data (`move`)
and kernels that are plain loops (`loops`), with the bound, which is the least time by the machine's
measured roof. Equal nodes share a row; rows below 0.5 % of the time are summed in the last one."
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
    write_outputs(&done.network, &model.input, &done.outputs, &a.outputs.outputs)?;
    if a.json.json {
        say(as_json(a, &done))?
    } else {
        print(&done)?
    }
    Ok(0)
}

/// The times as one value.
fn as_json(a: &Args, done: &Benched) -> Value {
    let (network, times) = (&done.network, &done.times);
    let plain = plain_shares(&times.layers);
    let counts = network.counts();
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
    json!({
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
        "plain_steps": json::plain_steps(&done.inference.plain, done.roof.as_ref()),
        "roof": done.roof.as_ref().map(json::roof),
        "fallbacks": network.fallbacks(),
        "beside": json::beside(&done.inference),
        "layers": times.layers.iter().map(layer).collect::<Vec<_>>(),
    })
}

/// The times for people: the slowest layers, the whole inference, and the steps of plain C.
fn print(done: &Benched) -> Result<(), Failure> {
    let (network, times) = (&done.network, &done.times);
    let counts = network.counts();
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
    plain_steps(&done.inference.plain, done.roof.as_ref())
}

/// A table of the steps that run as plain C, with their bounds.
fn plain_steps(steps: &PlainSteps, roof: Option<&Roof>) -> Result<(), Failure> {
    if steps.is_empty() {
        return Ok(());
    }
    let whole = steps.whole();
    let nodes = if whole.nodes == 1 { "node runs" } else { "nodes run" };
    let by = roof.map_or(String::new(), |r| {
        format!(
            "; bound: by {} GFLOP/s and the bandwidth of the caches and memory ({} GB/s) that can \
             hold the data",
            three(r.peak_gflops),
            three(r.memory_gbs)
        )
    });
    say(format_args!(
        "{} {nodes} as plain C, {} of the time{by}",
        whole.nodes,
        tenths(whole.share)
    ))?;
    let mut t =
        table(&["operator", "by", "nodes", "time", "share", "bound", "times its bound", "node"]);
    t.align_left(1);
    t.align_left(7);
    let cells = |time: &PlainTime| {
        [
            time.nodes.to_string(),
            Nanos(time.best_ns as f64).to_string(),
            tenths(time.share),
            or_dash(roof.and_then(|r| time.bound(r))),
            or_dash(roof.and_then(|r| time.times_bound(r)).map(|x| three(x) + "x")),
        ]
    };
    for row in &steps.rows {
        let named = [row.op.clone(), row.by.to_string()];
        t.add_row(named.into_iter().chain(cells(&row.time)).chain([row.node.clone()]));
    }
    if let Some(rest) = &steps.rest {
        let named = ["others".to_string(), String::new()];
        t.add_row(named.into_iter().chain(cells(rest)).chain([String::new()]));
    }
    say(t)
}

/// A share in percent, with tenths.
fn tenths(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
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
