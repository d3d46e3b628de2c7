//! `squall train`: trains a predictor and writes its file, from a store's examples (MIOpen's tuned
//! parameters) or its own records (`squall::forecast`). `train/general.rs` trains the general
//! predictor, `train_find.rs` a chooser of solvers.

mod general;

use super::train_find;
use crate::failure::Failure;
use crate::interrupt::interruptible;
use crate::option::{JsonArgs, STORE, TargetArgs, ThreadArgs};
use crate::terminal::{note, say, table, three};
use serde_json::json;
use squall::forecast::{all_examples, checkpoint, kinds, train, train_on_records};
use squall::{Context, Kind, Options, PredictError, Predictor, Split, TrainingProgress};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Learn to predict tuned parameters, from what was imported or from the store's own trials
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  squall train --store miopen.squall --out miopen.predictor
  squall train --store miopen.squall --solver ConvAsm1x1U --split layer --out 1x1u.predictor
  squall train --store miopen.squall --split none --out all.predictor
  squall train --store miopen.squall --model hybrid-2 --solver ConvAsmBwdWrW3x3 --out \
  hybrid.predictor
  squall train --store tuned.squall --records --out convolutions.predictor
  squall train --store find.squall --find --out find.chooser
  squall train --store find.squall --find --salt mine --out held.chooser
  squall train --records --general --store zen4.squall zen3.squall --machine \
  'AMD Ryzen 5 5600X=zen3.json' --without resnet18.onnx --out general.predictor

A tenth of the rows is held out and scored (--split random, or layer for whole layers); none learns
from all. Every epoch is kept in PREDICTOR.checkpoint: after Ctrl-C or a crash the same command
goes on from there, to the very same predictor.

With --records, what `squall tune` measured on this device is learned instead, in seconds: which
sketch and which knobs suit which sizes. `squall tune --predictor` begins with what such a
predictor foretells.

With --find, the store's find databases are learned: which solver serves a problem on which GPU, how
long it takes, with how much workspace. `squall choose` asks such a chooser. --epochs are the trees
of a forest then.

With --general too, the records of CPUs in several stores make one predictor for every task and
every CPU, as the one that Squall brings along and asks where no store helps. Its file says where it
comes from.")]
pub struct Args {
    /// The store to learn from; with --general one or several
    #[arg(
        long,
        value_name = "FILE",
        env = "SQUALL_STORE",
        default_value = STORE,
        num_args = 1..,
    )]
    store: Vec<PathBuf>,
    /// Learn from the store's trials on this device, not from imported examples
    #[arg(long, conflicts_with_all = ["solver", "device", "model", "split"])]
    records: bool,
    /// Learn which solver serves a problem, from the store's find databases
    #[arg(long, conflicts_with_all = ["records", "solver", "model", "split", "members"])]
    find: bool,
    /// With --find: hold out the layers and filter families that this salt chooses (18 % of the
    /// problems), for `squall evaluate`; without it all is learned
    #[arg(long, value_name = "SALT", requires = "find")]
    salt: Option<String>,
    /// With --find: GPUs of which nothing is learned
    #[arg(long, value_name = "DEVICE", value_delimiter = ',', requires = "find")]
    leave_out: Vec<String>,
    /// With --find: threads that train [default: all]
    #[arg(
        long,
        value_name = "T",
        requires = "find",
        value_parser = clap::value_parser!(u16).range(1..),
    )]
    trainers: Option<u16>,
    /// Learn one predictor for all tasks and CPUs, from all records of CPUs in the stores
    #[arg(long, requires = "records", conflicts_with_all = ["epochs", "members"])]
    general: bool,
    /// The machine model of a processor whose records are among them, as `squall doctor --json`
    /// printed it there; this machine's is known. May be repeated
    #[arg(long, value_name = "MODEL=FILE", requires = "general")]
    machine: Vec<String>,
    /// Leave the tasks of this input out, so that the predictor can be judged by them. May be
    /// repeated
    #[arg(long, value_name = "INPUT", requires = "general")]
    without: Vec<String>,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    threads: ThreadArgs,
    /// Only this solver
    #[arg(long, value_name = "S")]
    solver: Option<String>,
    /// Only examples of this device
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// What to train: pair (a ranker and a chain, the default), the nearest neighbours, or a model
    /// of the paper's or a classical one for each device and precision apart
    #[arg(long, value_name = "NAME", default_value = "pair", value_parser = names())]
    model: String,
    /// What is held out for the scores
    #[arg(
        long,
        value_name = "SPLIT",
        default_value = "random",
        value_parser = ["random", "layer", "none"],
    )]
    split: String,
    /// Seed of everything random
    #[arg(long, value_name = "K", default_value_t = 1)]
    seed: u64,
    /// Passes over the data, fewer than the default for a quick try
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    epochs: Option<u16>,
    /// Networks of each kind, averaged: more answer better and slower [default: 6, with --records
    /// 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=16))]
    members: Option<u16>,
    /// Where the predictor goes
    #[arg(long, value_name = "PREDICTOR")]
    out: PathBuf,
    #[command(flatten)]
    json: JsonArgs,
}

fn names() -> clap::builder::PossibleValuesParser {
    clap::builder::PossibleValuesParser::new(kinds().into_iter().map(|(n, _)| n))
}

/// The split that a name stands for.
pub fn split(name: &str) -> Option<Split> {
    match name {
        "random" => Some(Split::Random),
        "layer" => Some(Split::Layer),
        _ => None,
    }
}

/// Runs it.
pub fn run(a: &Args) -> Result<u8, Failure> {
    // A folder that is not there shows before the work, not after it.
    let folder = a.out.parent().filter(|f| !f.as_os_str().is_empty());
    if let Some(f) = folder.filter(|f| !f.is_dir()) {
        return Err(Failure::usage(
            format!("there is no folder `{}` for the predictor", f.display()),
            "make it, or name another",
        ));
    }
    if a.general {
        return general::run(a);
    }
    let [store] = a.store.as_slice() else {
        return Err(Failure::usage(
            format!("{} stores are given", a.store.len()),
            "name one, or say --records --general",
        ));
    };
    if a.find {
        return on_find(a, store);
    }
    if a.records {
        return on_records(a, store);
    }
    let all = all_examples(store, a.solver.as_deref(), a.device.as_deref())?;
    let stop = interruptible()?;
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let kind = kinds().into_iter().find(|(n, _)| *n == a.model).map(|(_, k)| k).unwrap_or_default();
    let mut options = Options { seed: a.seed, threads, ..Options::of(kind) };
    if let Some(n) = a.epochs {
        options.epochs = (n.into(), n.into());
    }
    if let Some(n) = a.members {
        if kind != Kind::Pair {
            return Err(Failure::usage(
                format!("`{}` is one network for each device and precision", a.model),
                "leave --members out",
            ));
        }
        options.members = (n.into(), n.into());
    }
    note(format_args!("{} examples, {threads} threads", all.len()));
    let began = Instant::now();
    let mut last: Option<Instant> = None;
    if checkpoint(&a.out).exists() {
        note(format_args!("goes on from {}", checkpoint(&a.out).display()));
    }
    let trained = train(&all, split(&a.split), &options, &a.out, &mut |p| {
        if p.within == 0.0 || last.is_none_or(|t| t.elapsed() > Duration::from_secs(10)) {
            last = Some(Instant::now());
            note(line(p, began.elapsed()));
        }
        !stop.load(Ordering::Relaxed)
    });
    let Some(predictor) = unless_stopped(trained, "stopped; the same command goes on from here")?
    else {
        return Ok(130);
    };
    let seconds = began.elapsed().as_secs_f64();
    let info = predictor.info();
    if a.json.json {
        let scores: Vec<_> = info.scores.iter().map(|s| json!(s)).collect();
        say(json!({
            "predictor": a.out,
            "seconds": seconds,
            "data": info.data,
            "rows": info.rows,
            "scores": scores,
        }))?;
        return Ok(0);
    }
    print(&predictor)?;
    say(format_args!("{} in {seconds:.0} s: {}", a.model, a.out.display()))?;
    Ok(0)
}

/// Learns from find databases.
fn on_find(a: &Args, store: &Path) -> Result<u8, Failure> {
    train_find::run(&train_find::Asked {
        store,
        device: a.device.as_deref(),
        salt: a.salt.as_deref(),
        leave_out: &a.leave_out,
        threads: a.trainers,
        rounds: a.epochs,
        seed: a.seed,
        out: &a.out,
        json: a.json.json,
    })
}

/// Learns from the store's own trials.
fn on_records(a: &Args, store: &Path) -> Result<u8, Failure> {
    let stop = interruptible()?;
    let at = Context::new().target(a.target.request()?, a.threads.threads.into())?;
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let mut options = Options { seed: a.seed, threads, ..Options::default() };
    options.epochs.0 = a.epochs.map_or(0, usize::from);
    options.members.0 = a.members.map_or(0, usize::from);
    let began = Instant::now();
    let trained = train_on_records(store, &at, &options, &a.out, &mut |p| {
        note(format_args!(
            "{:6.0} s  network {} of {}",
            began.elapsed().as_secs_f64(),
            p.member.0 + 1,
            p.member.1
        ));
        !stop.load(Ordering::Relaxed)
    });
    let Some(predictor) = unless_stopped(trained, "stopped; nothing was written")? else {
        return Ok(130);
    };
    let seconds = began.elapsed().as_secs_f64();
    let (info, facts) = (predictor.info(), predictor.tasks().map_err(squall::Error::from)?.facts());
    if a.json.json {
        let tasks: Vec<_> =
            facts.known.iter().map(|k| json!({"task": k.problem.key, "name": k.name})).collect();
        say(json!({
            "predictor": a.out,
            "seconds": seconds,
            "data": info.data,
            "rows": info.rows,
            "device": facts.device,
            "tasks": tasks,
            "held": facts.held,
        }))?;
        return Ok(0);
    }
    let held: Vec<String> =
        facts.held.iter().map(|h| format!("{:.0} % at {}", 100.0 * h.share, h.k)).collect();
    if !held.is_empty() {
        say(format_args!(
            "measured candidates of tasks held out, in the order of a network that never saw \
             them: {}",
            held.join(", ")
        ))?;
    }
    say(format_args!(
        "{} tasks of {} in {seconds:.0} s: {}",
        facts.known.len(),
        facts.device,
        a.out.display()
    ))?;
    Ok(0)
}

/// What was trained; nothing after Ctrl-C, where `then` is said.
fn unless_stopped(
    trained: Result<Predictor, squall::Error>,
    then: &str,
) -> Result<Option<Predictor>, Failure> {
    match trained {
        Err(squall::Error::Predict(PredictError::Cancelled)) => {
            note(then);
            Ok(None)
        }
        other => Ok(Some(other?)),
    }
}

fn line(p: &TrainingProgress, elapsed: Duration) -> String {
    let held = |v: f64| if v > 0.0 { format!(", of validation {v:.3}") } else { String::new() };
    let last =
        p.last.map_or(String::new(), |l| format!(", loss {:.3}{}", l.train, held(l.validation)));
    let done = p.epochs.0 as f64 + p.within;
    let (member, members) = (p.member.0 + 1, p.member.1);
    format!(
        "{:6.0} s  {} {} {member}/{members}, epoch {done:.1} of {}{last}",
        elapsed.as_secs_f64(),
        p.solver,
        p.network,
        p.epochs.1
    )
}

fn print(predictor: &Predictor) -> Result<(), Failure> {
    let scores = &predictor.info().scores;
    if scores.is_empty() {
        return Ok(());
    }
    let heads: Vec<String> = scores[0].precision_at.iter().map(|(k, _)| format!("P@{k}")).collect();
    let mut columns = vec!["solver", "device", "precision", "problems"];
    columns.extend(heads.iter().map(String::as_str));
    columns.push("NLL");
    let mut t = table(&columns);
    for s in scores {
        let mut row =
            vec![s.solver.clone(), s.device.clone(), s.precision.clone(), s.problems.to_string()];
        row.extend(s.precision_at.iter().map(|(_, p)| format!("{:.1}", 100.0 * p)));
        row.push(three(s.negative_log_likelihood));
        t.add_row(row);
    }
    say(t)
}
