//! `squall advise`: prints which kernel to use now for each task of an input, without compiling or
//! measuring (a task is one kernel to tune). A thin layer over `squall::advise`: options in, a
//! table or JSON out.

use crate::failure::Failure;
use crate::option::{InputArgs, JsonArgs, STORE, TargetArgs, ThreadArgs, context};
use crate::terminal::{note, or_dash, say, table};
use serde_json::json;
use squall::{Advice, AdviseRequest, Caches, Nanos, advise};
use std::path::PathBuf;

/// Say which kernel to use now, without building or measuring anything
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  squall advise 'matmul m=512 n=512 k=512' --store tuned.squall
  squall advise model.onnx --json                   of every task the kernel, as C
  squall advise kernels.ops --no-wish               ask, and leave no wish

The answer is the store's winner, else what holds the most similar tuned task, else what the
general predictor ranks first, else plain loops; `source` says which. What is not tuned leaves a
wish in a store that is there: `squall worker --polite` tunes wishes while the machine is idle.")]
pub struct Args {
    #[command(flatten)]
    input: InputArgs,
    /// The store that knows winners and takes wishes [default: tuned.squall, where it is there]
    #[arg(long, value_name = "FILE", env = "SQUALL_STORE")]
    store: Option<PathBuf>,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    threads: ThreadArgs,
    /// What the caches hold when a kernel is called: `warm` or `cold`
    #[arg(long, value_name = "STATE", default_value = "warm")]
    caches: Caches,
    /// Only tasks whose name matches (`*` and `?` stand for anything) or whose id begins so
    #[arg(long, value_name = "PATTERN")]
    only: Option<String>,
    /// Leave no wish
    #[arg(long)]
    no_wish: bool,
    #[command(flatten)]
    json: JsonArgs,
}

/// Runs it.
pub fn run(a: &Args) -> Result<u8, Failure> {
    let request = AdviseRequest {
        input: a.input.request(),
        store: a.store.clone().or_else(|| Some(STORE.into()).filter(|p: &PathBuf| p.exists())),
        target: a.target.request()?,
        threads: a.threads.threads.into(),
        caches: a.caches,
        only: a.only.clone(),
        wish: !a.no_wish,
        seconds: 0.0,
    };
    let done = advise(&context(), &request)?;
    if a.json.json {
        say(json!({
            "device": done.device,
            "toolchain": done.toolchain,
            "wishes": done.wishes,
            "tasks": done.tasks.iter().map(value).collect::<Vec<_>>(),
        }))?;
        return Ok(0);
    }
    let mut t = table(&["task", "source", "time", "took", "candidate"]);
    t.align_left(4);
    for k in &done.tasks {
        t.add_row([
            k.task.name.clone(),
            k.source.name().into(),
            or_dash(k.expected),
            Nanos(k.seconds * 1e9).to_string(),
            format!("{}: {}", k.tunable, k.configuration),
        ]);
    }
    say(t)?;
    if done.wishes > 0 {
        note(format_args!(
            "{} wishes were left in the store; `squall worker --polite` serves them",
            done.wishes
        ));
    }
    Ok(0)
}

fn value(k: &Advice) -> serde_json::Value {
    json!({
        "id": k.task.id.to_string(),
        "name": k.task.name,
        "source": k.source.name(),
        "tunable": k.tunable,
        "configuration": k.configuration,
        "expected_ns": k.expected.map(|t| t.0),
        "measured": k.measured,
        "seconds": k.seconds,
        "symbol": k.kernel.symbol,
        "kernel": k.kernel.source,
    })
}
