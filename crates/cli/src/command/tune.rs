//! `squall tune`: searches the fastest kernels of an input within a budget of trials or seconds.
//! Fills in a `squall::TuneRequest`, shows progress, and prints the report as a table, JSON and an
//! HTML page.

use crate::failure::Failure;
use crate::interrupt::interruptible;
use crate::option::{
    BesideArgs, InputArgs, JsonArgs, RunnerArgs, StoreArgs, TargetArgs, ThreadArgs, guess,
};
use crate::progress::Shown;
use crate::terminal::{note, or_dash, percent, say, table, three};
use squall::report::{html, json};
use squall::{
    BudgetRequest, Caches, InferenceRequest, Report, Shard, StopReason, TuneRequest, beside,
};
use std::path::PathBuf;

/// Search the fastest kernels of an input; every trial is kept
#[derive(clap::Args)]
#[command(
    group = clap::ArgGroup::new("budget")
        .required(true)
        .multiple(true)
        .args(["trials", "trials_per_task", "seconds"]),
    after_help = "\
Examples:
  squall tune model.onnx --seconds 120                 two minutes, shared out by expected gain
  squall tune model.onnx --trials-per-task 64          64 trials of every task
  squall tune model.onnx --seconds 300 --beside onnxruntime   onnxruntime's time next to ours
  squall tune kernels.ops --trials 200 --threads 2
  squall tune 'matmul m=512 n=512 k=512' --trials 100 --store mm.squall --json
  squall tune model.onnx --trials 2000 --shard 3/16 --store results/   the third of 16 processes
  squall tune kernels.ops --trials 100 --predictor convolutions.predictor   what it foretells is \
  tried first
  squall tune kernels.ops --trials 500 --target cuda   on the first NVIDIA GPU
  squall tune kernel.toml --trials 200 --target cuda:all   on all of them, side by side
  squall tune kernels.ops --trials 200 --runner ssh://pi@board   on a board, compiled here
  squall tune kernels.ops --trials 20 --isa armv8-a --runner qemu   right or wrong, no times

A budget is for the whole model with .onnx and for each task with operator lines. It counts new
trials: what the store knows of this device and toolchain is never repeated, so the same command
again goes on where the last one ended. Ctrl-C ends with what was found (exit 130), a second
Ctrl-C at once; the store is complete either way.

At the end of a long run kernels of a model that come close to each other meet in the whole
network. It is timed then, by the kernels that the store holds. Shares of a bound count the
operations of the algorithm that runs: Winograd's does fewer.

With --json, each trial is a line {\"trial\": ..} once it stands in the store; the last line is
the report."
)]
pub struct Args {
    #[command(flatten)]
    input: InputArgs,
    /// Trials: of all tasks together for a model, of each task for operator lines
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    trials: Option<u64>,
    /// Trials of each task, whatever the input
    #[arg(
        long,
        value_name = "N",
        conflicts_with = "trials",
        value_parser = clap::value_parser!(u64).range(1..),
    )]
    trials_per_task: Option<u64>,
    /// Seconds: for all tasks together for a model, for each task for operator lines
    #[arg(long, value_name = "S", value_parser = seconds)]
    seconds: Option<f64>,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    runner: RunnerArgs,
    #[command(flatten)]
    threads: ThreadArgs,
    /// Seed of everything random
    #[arg(long, value_name = "K", default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    store: StoreArgs,
    /// Only tasks whose name matches (`*` and `?` stand for anything) or whose id begins so
    #[arg(long, value_name = "PATTERN")]
    only: Option<String>,
    /// Tune only the I-th of N parts, for N processes or machines that tune together without a
    /// server: each has some of the tasks, or where there are fewer, some of the trials of one.
    /// `--trials` and `--trials-per-task` are those of all together, seconds each process's own.
    /// `auto` asks Slurm's or MPI's variables. Let --store be a folder, or merge the stores
    /// (docs/fleet.md)
    #[arg(long, value_name = "I/N", value_parser = shard)]
    shard: Option<Shard>,
    /// Only sketches whose name matches, where a task has any such (`tile*` leaves out Winograd)
    #[arg(long, value_name = "PATTERN")]
    sketch: Option<String>,
    /// Do not begin with what holds similar tasks, of this input or of the store, nor with what the
    /// general predictor inside squall ranks first
    #[arg(long)]
    no_transfer: bool,
    /// Try first what this predictor foretells (`squall train --records` writes one): a sixth of a
    /// task's trials, from 4 to 16; of a general predictor the first four
    /// [default: the general predictor inside squall]
    #[arg(long, value_name = "FILE")]
    predictor: Option<PathBuf>,
    /// What the caches hold when a call is timed: `warm` what the call before left, `cold` no more
    /// than a layer before would leave; times of the two kinds are kept apart
    #[arg(long, value_name = "STATE", default_value = "warm")]
    caches: Caches,
    /// How candidates are chosen
    #[arg(long, value_name = "NAME", value_parser = strategy_names())]
    strategy: Option<String>,
    /// Where the HTML report goes [default: INPUT.html beside the store]
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    #[command(flatten)]
    beside: BesideArgs,
    #[command(flatten)]
    json: JsonArgs,
}

pub(super) fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if s > 0.0 && s <= 1e8 => Ok(s),
        _ => Err("expected a number of seconds above 0".into()),
    }
}

fn shard(text: &str) -> Result<Shard, String> {
    if text == "auto" {
        return Shard::of_environment(&|name| std::env::var(name).ok()).map_err(|e| e.to_string());
    }
    text.parse()
}

fn strategy_names() -> clap::builder::PossibleValuesParser {
    let values = squall::strategies().iter().map(|s| {
        clap::builder::PossibleValue::new(s.name).aliases(s.aliases.iter().copied()).help(s.summary)
    });
    clap::builder::PossibleValuesParser::new(values)
}

/// Runs it.
pub fn run(a: &Args) -> Result<u8, Failure> {
    let request = TuneRequest {
        input: a.input.request(),
        store: a.store.store.clone(),
        budget: BudgetRequest {
            trials: a.trials,
            trials_per_task: a.trials_per_task,
            seconds: a.seconds,
        },
        target: a.target.request()?,
        threads: a.threads.threads.into(),
        caches: a.caches,
        seed: a.seed,
        strategy: a.strategy.clone(),
        only: a.only.clone(),
        shard: a.shard,
        sketch: a.sketch.clone(),
        transfer: !a.no_transfer,
        predictor: a.predictor.clone(),
        roof: true,
        inference: Some(InferenceRequest {
            guess: guess(a.predictor.clone()),
            beside: a.beside.beside.clone(),
        }),
        judge: None,
    };
    let stop = interruptible()?;
    let mut shown = Shown::new(a.json.json, &stop);
    let tuned =
        squall::tune(&a.runner.context(), &request, &stop, &mut |event| shown.event(&event));
    let report = shown.finish(tuned)?;
    let page = a
        .report
        .clone()
        .unwrap_or_else(|| beside(&a.store.store, &format!("{}.html", report.input)));
    let written = squall::files::put(&page, html::page(&report).as_bytes());
    if a.json.json {
        say(json::report(&report))?;
    } else {
        print(&report)?;
    }
    match written {
        Ok(()) => note(format_args!("report: {}", page.display())),
        // What was asked for and is not there is a failure; the store is complete all the same.
        Err(e) if a.report.is_some() => return Err(e.into()),
        Err(e) => note(format_args!("warning: no report: {e}")),
    }
    if report.stop == StopReason::Interrupted {
        return Ok(130);
    }
    if report.tasks.iter().all(|t| t.best.is_none() && t.right == 0) {
        return Err(nothing_ran(&report));
    }
    if let Some(wrong) = report.wrong() {
        return Err(wrong_somewhere(&wrong));
    }
    Ok(0)
}

/// The failure of a session that found nothing.
fn nothing_ran(report: &Report) -> Failure {
    let classes: Vec<String> = report
        .tasks
        .iter()
        .flat_map(|t| &t.failures)
        .take(3)
        .map(|f| format!("{} ({}x): {}", f.stage, f.count, f.detail))
        .collect();
    let why = if classes.is_empty() { "nothing could be tried".into() } else { classes.join("; ") };
    let hint = "`squall doctor` checks compiler and machine; `squall records show` lists the \
                trials";
    Failure::new(format!("no kernel ran; {why}"), Some(hint.into()))
}

/// The failure of a session under an emulator that found a wrong kernel.
fn wrong_somewhere(wrong: &str) -> Failure {
    let hint = "`squall records show --json` has each of them with what it should have given";
    Failure::new(format!("kernels are wrong under the emulator: {wrong}"), Some(hint.into()))
}

/// What was right and wrong, task by task, where there are no times.
fn print_checked(r: &Report) -> Result<(), Failure> {
    let mut t = table(&["task", "trials", "right", "failed"]);
    for k in &r.tasks {
        t.add_row([
            k.name.clone(),
            k.trials.to_string(),
            k.right.to_string(),
            k.failed.to_string(),
        ]);
    }
    say(t)?;
    say(format_args!(
        "{} of {} kernels were right on {}; an emulator's times say nothing, and none was kept; \
         ended: {}",
        r.tasks.iter().map(|k| k.right).sum::<u64>(),
        r.trials().0,
        r.device,
        r.stop.name()
    ))?;
    print_failures(r)
}

fn print(r: &Report) -> Result<(), Failure> {
    if r.tasks.iter().any(|k| k.right > 0) {
        return print_checked(r);
    }
    let gains = r.has_alternative();
    let mut head = vec!["task", "count", "best", "GFLOP/s", "of bound"];
    if gains {
        head.extend([r.baseline(), "gain"]);
    }
    head.extend(["trials", "failed"]);
    let mut t = table(&head);
    for k in &r.tasks {
        let limited = |roof| Some(format!("{} ({})", percent(k.share(roof)?), k.limit(roof)));
        let mut row = vec![
            k.name.clone(),
            k.count.to_string(),
            or_dash(k.best),
            or_dash(k.gflops().filter(|_| k.flop > 0).map(three)),
            or_dash(r.roof.as_ref().and_then(limited)),
        ];
        if gains {
            row.extend([or_dash(k.untuned), or_dash(k.gain().map(|g| three(g) + "x"))]);
        }
        let tried = k.trials.to_string();
        row.push(if k.known > 0 { format!("{}+{tried}", k.known) } else { tried });
        row.push(k.failed.to_string());
        t.add_row(row);
    }
    say(t)?;
    let (best, untuned) = r.totals();
    let (trials, failed) = r.trials();
    if let (Some(gain), true) = (r.gain(), gains && r.tasks.len() > 1) {
        say(format_args!(
            "{}: {best} by count, {} {untuned}: {}x",
            r.input,
            r.baseline(),
            three(gain)
        ))?;
    }
    let c = r.cost();
    let each = if trials > 0 { c.total() / trials as f64 } else { 0.0 };
    say(format_args!(
        "{trials} trials ({failed} failed) in {}, {} CPU-seconds a trial (build {:.1} s, measure \
         {:.1} s, search {:.1} s); ended: {}",
        html::duration(r.seconds),
        three(each),
        c.build,
        c.measure,
        c.search,
        r.stop.name()
    ))?;
    if let Some(text) = r.budget_note() {
        say(text)?;
    }
    let predicted: u64 = r.tasks.iter().map(|k| k.predicted).sum();
    if predicted > 0 {
        say(format_args!("{predicted} trials were the predictor's"))?;
    }
    for k in r.tasks.iter().filter(|k| k.throttled.0 > 0) {
        let (count, reasons) = &k.throttled;
        say(format_args!(
            "{}: {count} of {} trials were timed while the GPU was slowed down: {}",
            k.name,
            k.trials,
            reasons.join(", ")
        ))?;
    }
    print_failures(r)?;
    r.headline().into_iter().try_for_each(say)
}

/// The tasks of which most trials failed.
fn print_failures(r: &Report) -> Result<(), Failure> {
    for k in &r.tasks {
        if let Some(f) = k.failures.first().filter(|_| k.failed * 2 > k.trials) {
            say(format_args!(
                "{}: {} of {} trials failed; most: {} ({}x): {}",
                k.name, k.failed, k.trials, f.stage, f.count, f.detail
            ))?;
        }
    }
    Ok(())
}
