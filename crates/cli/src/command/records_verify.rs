//! `squall records verify`: measures stored winners against their runners-up again and prints which
//! still hold; with `--repeat` how often repeated run-offs agree, which says whether they can be
//! trusted on this machine (`squall::verify`).

use crate::failure::Failure;
use crate::interrupt::interruptible;
use crate::option::{JsonArgs, RunnerArgs, StoreArgs, TargetArgs, ThreadArgs};
use crate::terminal::{note, or_dash, percent, say, table};
use serde_json::{Value, json};
use squall::verify::{Choice, Contender, Round, Verification, WinnerStanding, verify};
use squall::{Store, TaskId, Verdict};

/// Measure stored winners against their runners-up again, side by side
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  squall records verify --store tuned.squall
  squall records verify --only 'resnet*' --threads 2 --json
  squall records verify --store tuned.squall --target cuda
  squall records verify --store tuned.squall --runner ssh://pi@board
  squall records verify --repeat 20 --json                     # can run-offs be trusted here?

Each winner of this device and toolchain meets the next best candidate within 50 % in interleaved
windows, in processes that ran nothing before, until a sequential test decides; where none comes
that close, it meets itself. What comes of it is stored as tuning does it: a runner-up that wins
holds the task from then on. With --repeat the two take turns as incumbent, and only the first
run-off counts for the store. Exit code 1 means that a winner was overtaken, does not run or cannot
be made any more (`gone`), or that run-offs of the same two name different winners.")]
pub struct Args {
    #[command(flatten)]
    store: StoreArgs,
    /// Only this task (its whole id)
    #[arg(
        long,
        value_name = "ID",
        value_parser = |s: &str| s.parse::<TaskId>(),
        conflicts_with = "only",
    )]
    task: Option<TaskId>,
    /// Only tasks whose name matches (`*` and `?` stand for anything) or whose id begins so
    #[arg(long, value_name = "PATTERN")]
    only: Option<String>,
    /// Hold each run-off so many times and say whether all agree
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=10_000),
    )]
    repeat: u32,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    runner: RunnerArgs,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    json: JsonArgs,
}

/// Runs it.
pub fn run(a: &Args) -> Result<u8, Failure> {
    // A store that is not there is an error here, not one to be made.
    drop(Store::open_read_only(&a.store.store)?);
    let store = Store::open(&a.store.store)?;
    let choice = Choice {
        task: a.task,
        only: a.only.clone(),
        target: a.target.request()?,
        threads: a.threads.threads as usize,
        rounds: a.repeat as usize,
    };
    let stop = interruptible()?;
    let v = verify(&a.runner.context(), &store, &choice, &stop, &mut |t| {
        note(format_args!("{}: {}", t.name, t.standing.name()))
    })?;
    if a.json.json {
        say(value(&v))?;
    } else {
        print(&v)?;
    }
    Ok(match (v.interrupted, v.has_fallen()) {
        (true, _) => 130,
        (_, fallen) => u8::from(fallen),
    })
}

fn count(v: &Verification, standing: WinnerStanding) -> usize {
    v.tasks.iter().filter(|t| t.standing == standing).count()
}

fn value(v: &Verification) -> Value {
    let contender = |c: &Contender| {
        json!({
            "tunable": c.tunable, "configuration": c.configuration,
            "stored_ns": c.stored.map(|t| t.0), "now_ns": c.now.map(|t| t.0),
        })
    };
    let round = |r: &Round| {
        json!({
            "challenger": if r.turned { "winner" } else { "runner_up" },
            "verdict": r.verdict.name(),
            "ratio": r.ratio,
            "confidence": r.confidence, "pairs": r.pairs,
        })
    };
    let tasks: Vec<Value> = v
        .tasks
        .iter()
        .map(|t| {
            json!({
                "id": t.task.to_string(),
                "name": t.name,
                "verdict": t.standing.name(),
                "winner": contender(&t.winner),
                "runner_up": t.runner_up.as_ref().map(contender),
                "rounds": t.rounds.iter().map(round).collect::<Vec<_>>(),
                "contradicted": t.is_contradicted(), "regretted": t.regretted(), "detail": t.detail,
            })
        })
        .collect();
    let all = [
        WinnerStanding::Holds,
        WinnerStanding::Tie,
        WinnerStanding::Overtaken,
        WinnerStanding::Broken,
        WinnerStanding::Gone,
        WinnerStanding::Own,
    ];
    let counts: serde_json::Map<String, Value> =
        all.iter().map(|s| (s.name().into(), count(v, *s).into())).collect();
    json!({
        "device": v.device,
        "toolchain": v.toolchain,
        "minimum_effect": v.effect,
        "interrupted": v.interrupted,
        "counts": counts, "tasks": tasks,
    })
}

fn print(v: &Verification) -> Result<(), Failure> {
    let mut t =
        table(&["task", "verdict", "stored", "now", "runner-up", "ratio", "confidence", "pairs"]);
    for k in &v.tasks {
        // Against itself only the time says something.
        let first = k.runner_up.as_ref().and(k.rounds.first());
        t.add_row([
            k.name.clone(),
            k.standing.name().into(),
            or_dash(k.winner.stored),
            or_dash(k.winner.now),
            or_dash(k.runner_up.as_ref().and_then(|r| r.now)),
            or_dash(first.map(|r| format!("{:.3}", r.ratio))),
            or_dash(first.map(|r| format!("{:.2} %", 100.0 * r.confidence))),
            k.rounds.first().map_or(0, |r| r.pairs).to_string(),
        ]);
    }
    say(t)?;
    for k in &v.tasks {
        if let Some(d) = &k.detail {
            say(format_args!("{}: {d}", k.name))?;
        }
        if let (WinnerStanding::Overtaken, Some(r)) = (k.standing, &k.runner_up) {
            say(format_args!(
                "{}: held from now on by {}: {}",
                k.name, r.tunable, r.configuration
            ))?;
        }
        if k.rounds.len() > 1 {
            let agree =
                if k.is_contradicted() { "which contradict each other" } else { "which agree" };
            let ties = k.rounds.iter().filter(|r| r.verdict == Verdict::Tie).count();
            let regretted = k.regretted();
            say(format_args!(
                "{}: {} run-offs, {ties} of them ties, {agree}; {regretted} accepted a slower one",
                k.name,
                k.rounds.len()
            ))?;
        }
    }
    let (holds, tie) = (count(v, WinnerStanding::Holds), count(v, WinnerStanding::Tie));
    let fallen = [WinnerStanding::Overtaken, WinnerStanding::Broken, WinnerStanding::Gone];
    let fallen: usize = fallen.into_iter().map(|s| count(v, s)).sum();
    let effect = percent(v.effect);
    say(format_args!(
        "{} winners: {holds} hold, {tie} tie (within {effect}), {fallen} fell",
        v.tasks.len()
    ))
}
