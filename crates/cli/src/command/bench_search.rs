//! `squall bench search`: compares search strategies on real kernels with equal numbers of trials,
//! and prints a table, JSON or a page. The study itself is `squall_study::strategies`.

use crate::failure::Failure;
use crate::interrupt::interruptible;
use crate::option::{JsonArgs, TargetArgs, ThreadArgs};
use crate::terminal::{note, say, table};
use serde_json::{Value, json};
use squall::{Context, Input, InputRequest, Store, beside};
use squall_study::strategies::{Ablation, BUILT_IN, Compared, Comparison, Run, ablate, page};
use std::path::PathBuf;

/// Compare search strategies on real kernels, with equal trials
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  squall bench search                                          ten built-in kernels; takes hours
  squall bench search --trials 64 --seeds 2 --strategies random,evolution
  squall bench search 'matmul m=256 n=256 k=256' --trials 32,64 --json
  squall bench search layers.ops --trials 64,200 --seeds 2 --target cuda

Every run of (kernel, strategy, seed, budget) searches afresh. A candidate that several runs propose
is measured once and kept in the store, where the next comparison finds it too: all strategies see
the same times, and each pays its trial. The twelve best of every run are measured again, all runs'
together in turns, and more where these had only been lucky; the figure is the best time that came
out over the run's own, geometric mean over kernels and seeds. evolution-nomodel and
evolution+droplet-nomodel rank by chance.
Ctrl-C ends with what all strategies ended; the same command again goes on from the store.")]
pub struct Args {
    /// A list.ops of operator lines, a model.onnx, a kernel.toml, or one operator line in quotes
    /// [default: ten built-in kernels]
    #[arg(value_name = "INPUT")]
    input: Option<String>,
    /// Budgets, each compared by itself
    #[arg(
        long,
        value_name = "N,..",
        value_delimiter = ',',
        default_value = "64,128,300",
        value_parser = clap::value_parser!(u32).range(1..=100_000),
    )]
    trials: Vec<u32>,
    /// Seeds of each kernel and strategy
    #[arg(
        long,
        value_name = "K",
        default_value_t = 3,
        value_parser = clap::value_parser!(u64).range(1..=1000),
    )]
    seeds: u64,
    /// Which strategies
    #[arg(
        long,
        value_name = "NAME,..",
        value_delimiter = ',',
        default_value = "random,evolution-nomodel,droplet,evolution,evolution+droplet"
    )]
    strategies: Vec<String>,
    /// The store that outcomes are shared through; not the one that is tuned into
    #[arg(long, value_name = "FILE", default_value = "search.squall")]
    store: PathBuf,
    /// Measure every trial of every run, even if its outcome is known
    #[arg(long)]
    no_cache: bool,
    /// Where the page with the plot goes [default: search.html beside the store]
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    json: JsonArgs,
}

/// Runs it.
pub fn run(a: &Args) -> Result<u8, Failure> {
    let input = match &a.input {
        Some(text) => InputRequest::new(text).load(a.target.request()?)?,
        None => Input::lines(BUILT_IN, "built-in")?,
    };
    let mut trials: Vec<usize> = a.trials.iter().map(|n| *n as usize).collect();
    trials.sort_unstable();
    trials.dedup();
    let mut strategies: Vec<String> = Vec::new();
    for s in &a.strategies {
        if !strategies.contains(s) {
            strategies.push(s.clone());
        }
    }
    let comparison = Comparison {
        strategies,
        trials,
        seeds: a.seeds,
        target: a.target.request()?,
        threads: a.threads.threads as usize,
        cache: !a.no_cache,
    };
    let store = Store::open(&a.store)?;
    let stop = interruptible()?;
    let done = ablate(&Context::new(), &input, &comparison, &store, &stop, &mut |line| note(line))?;
    let path = a.report.clone().unwrap_or_else(|| beside(&a.store, "search.html"));
    let written = squall::files::put(&path, page(&done).as_bytes());
    if a.json.json {
        say(value(&done))?;
    } else {
        print(&done)?;
    }
    match written {
        Ok(()) => note(format_args!("plot: {}", path.display())),
        Err(e) => note(format_args!("warning: cannot write the plot `{}`: {e}", path.display())),
    }
    Ok(if done.interrupted { 130 } else { 0 })
}

fn value(a: &Ablation) -> Value {
    let mut scores = Vec::new();
    for (i, strategy) in a.comparison.strategies.iter().enumerate() {
        for &trials in &a.comparison.trials {
            let s = a.score(i, trials);
            scores.push(json!({
                "strategy": strategy,
                "trials": trials,
                "kernels": a.compared(trials),
                "geomean": s.map(|s| s.mean),
                "worst_seed": s.map(|s| s.worst_seed), "best_seed": s.map(|s| s.best_seed),
                "search_seconds_per_trial": s.map(|s| s.search_seconds),
            }));
        }
    }
    let run = |r: &Run| {
        json!({
            "task": a.tasks[r.task].name,
            "strategy": a.comparison.strategies[r.strategy],
            "seed": r.seed,
            "budget": r.budget,
            "trials": r.made,
            "measured": r.measured,
            "share": a.share(r),
            "best_ns": r.steps.last().map(|s| s.1.0),
            "settled_ns": r.settled.map(|t| t.0),
            "curve": r.steps.iter().map(|s| json!([s.0, s.1.0])).collect::<Vec<_>>(),
            "search_seconds": r.search_seconds,
        })
    };
    let task = |t: &Compared| {
        json!({
            "id": t.id.to_string(),
            "name": t.name,
            "best_known_ns": t.best.map(|b| b.0),
            "settled_ns": t.settled.map(|b| b.0),
        })
    };
    json!({
        "device": a.device,
        "toolchain": a.toolchain,
        "seeds": a.comparison.seeds,
        "cache": a.comparison.cache,
        "interrupted": a.interrupted,
        "scores": scores,
        "tasks": a.tasks.iter().map(task).collect::<Vec<_>>(),
        "runs": a.runs.iter().map(run).collect::<Vec<_>>(),
    })
}

fn print(a: &Ablation) -> Result<(), Failure> {
    let mut columns = vec!["strategy".to_string()];
    columns
        .extend(a.comparison.trials.iter().flat_map(|n| [format!("{n} trials"), "by seed".into()]));
    columns.push("search a trial".into());
    let mut t = table(&columns.iter().map(String::as_str).collect::<Vec<_>>());
    for (i, name) in a.comparison.strategies.iter().enumerate() {
        let scores: Vec<_> = a.comparison.trials.iter().map(|&n| a.score(i, n)).collect();
        let cells = scores.iter().flat_map(|s| match s {
            Some(s) => {
                [format!("{:.3}", s.mean), format!("{:.3}..{:.3}", s.worst_seed, s.best_seed)]
            }
            None => ["-".into(), "-".into()],
        });
        let search = scores
            .iter()
            .flatten()
            .last()
            .map_or("-".into(), |s| format!("{:.1} ms", 1e3 * s.search_seconds));
        t.add_row([name.clone()].into_iter().chain(cells).chain([search]));
    }
    say(t)?;
    let counts: Vec<String> =
        a.comparison.trials.iter().map(|n| format!("{} with {n} trials", a.compared(*n))).collect();
    say(format_args!(
        "best settled time / the run's, geometric mean over kernels ({}) and {} seeds",
        counts.join(", "),
        a.comparison.seeds
    ))
}
