//! `squall replay`: compares search strategies on recordings (spaces of which every configuration
//! was measured), without building or running a kernel, and prints scores, a page or traces
//! (`squall::replay`).

use crate::failure::Failure;
use crate::interrupt::interruptible;
use crate::option::JsonArgs;
use crate::terminal::{note, say, table};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use squall::ReplayRequest;
use squall::files::put;
use squall::replay::{RecordedSpace, Run, Score, budgets, page, score};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

/// Replay searches on spaces that were measured exhaustively: no kernel is built or run
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  squall replay convolution-A100.json.gz
  squall replay spaces/*.json.gz --strategy all --seeds 50
  squall replay spaces/*.json.gz --strategy evolution+droplet --traces traces.jsonl --json
  squall replay results_T4.json --seconds 600

FILE is a Kernel Tuner cache file or T4 results, plain or gzipped. A score of 0 is chance (even
draws without repetition), 1 the optimum at once; a run is read at 25, 50, 100, 200 and 400 trials.
Ctrl-C ends with the strategies that ended all their runs.")]
pub struct Args {
    /// Measured spaces
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// A strategy, or `all`; may be repeated [default: evolution+droplet]
    #[arg(long = "strategy", value_name = "NAME")]
    strategies: Vec<String>,
    /// Runs of each strategy on each space
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10,
        value_parser = clap::value_parser!(u64).range(1..=100_000),
    )]
    seeds: u64,
    /// Trials of a run
    #[arg(
        long,
        value_name = "M",
        default_value_t = 400,
        value_parser = clap::value_parser!(u32).range(1..),
    )]
    evaluations: u32,
    /// End a run once its trials have cost so many seconds, as recorded
    #[arg(long, value_name = "S", value_parser = super::tune::seconds)]
    seconds: Option<f64>,
    /// Write what each run tried as JSON lines
    #[arg(long, value_name = "FILE")]
    traces: Option<PathBuf>,
    /// Where the page with the curves goes
    #[arg(long, value_name = "FILE", default_value = "replay.html")]
    report: PathBuf,
    #[command(flatten)]
    json: JsonArgs,
}

/// Runs it.
pub fn run(a: &Args) -> Result<u8, Failure> {
    let request = ReplayRequest {
        files: a.files.clone(),
        strategies: a.strategies.clone(),
        seeds: a.seeds,
        evaluations: a.evaluations as usize,
        seconds: a.seconds,
    };
    let stop = interruptible()?;
    let bar = std::io::stderr().is_terminal().then(|| {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(8));
        let style =
            ProgressStyle::with_template("{wide_bar:.cyan/dim} {pos}/{len} runs, {eta} left");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar
    });
    let done = squall::replay(&request, &stop, &|all| {
        if let Some(b) = &bar {
            b.set_length(all);
            b.inc(1);
        }
    })?;
    if let Some(b) = bar {
        b.finish_and_clear();
    }
    for s in &done.spaces {
        if let Some(what) = &s.recording.note {
            note(format_args!("warning: {}: {what}", s.name));
        }
    }
    let (replay, runs, wall) = (done.replay(), &done.runs, done.seconds);
    let (spaces, strategies) = (&done.spaces, &done.strategies);
    if let Some(path) = &a.traces {
        let lines: Vec<String> = runs.iter().map(|r| replay.line(r) + "\n").collect();
        put(path, lines.concat().as_bytes())?;
    }
    let shown = replay.complete(runs);
    let budgets = budgets(request.evaluations);
    let trials: usize = runs.iter().map(|r| r.trace.len()).sum();
    let mut reports = Vec::new();
    for &i in &shown {
        let scores: Vec<Score> =
            (0..spaces.len()).map(|c| score(&spaces[c], &of(runs, i, c), &budgets)).collect();
        let mine = || runs.iter().filter(|r| r.strategy == i);
        let proposed: usize = mine().map(|r| r.trace.len()).sum();
        let milliseconds = mine().map(|r| r.seconds).sum::<f64>() * 1e3 / proposed.max(1) as f64;
        reports.push(Report { name: strategies[i].name, scores, milliseconds });
    }
    if a.json.json {
        for r in &reports {
            say(r.json(spaces, &budgets))?;
        }
    } else {
        print(&reports, spaces, &budgets)?;
    }
    if !shown.is_empty() {
        put(&a.report, page(&replay, runs, &shown, &budgets).as_bytes())?;
        note(format_args!("page: {}", a.report.display()));
    }
    if shown.len() < strategies.len() {
        let left: Vec<&str> = (0..strategies.len())
            .filter(|i| !shown.contains(i))
            .map(|i| strategies[i].name)
            .collect();
        note(format_args!(
            "ended early; left out, because not all of their runs ended: {}",
            left.join(", ")
        ));
    }
    note(format_args!(
        "{} runs, {trials} trials in {wall:.1} s on {} threads: {:.0} a second",
        runs.len(),
        done.threads,
        trials as f64 / wall
    ));
    Ok(if stop.load(Ordering::Relaxed) { 130 } else { 0 })
}

fn of(runs: &[Run], strategy: usize, space: usize) -> Vec<&Run> {
    runs.iter().filter(|r| r.strategy == strategy && r.space == space).collect()
}

struct Report {
    name: &'static str,
    /// One for each space.
    scores: Vec<Score>,
    /// What a proposal costs.
    milliseconds: f64,
}

impl Report {
    fn at(&self, budget: usize) -> f64 {
        self.scores.iter().map(|s| s.score[budget]).sum::<f64>() / self.scores.len() as f64
    }

    fn all(&self) -> f64 {
        self.scores.iter().map(Score::mean).sum::<f64>() / self.scores.len() as f64
    }

    fn json(&self, spaces: &[RecordedSpace], budgets: &[usize]) -> serde_json::Value {
        let spaces = spaces.iter().zip(&self.scores).map(|(c, s)| {
            (
                c.name.clone(),
                json!({
                    "configurations": c.recording.rows.len(),
                    "value": s.value,
                    "median": s.median,
                    "score": s.score,
                }),
            )
        });
        json!({
            "strategy": self.name, "budgets": budgets, "score": self.all(),
            "score_by_budget": (0..budgets.len()).map(|b| self.at(b)).collect::<Vec<_>>(),
            "ms_per_trial": self.milliseconds, "spaces": spaces.collect::<serde_json::Map<_, _>>(),
        })
    }
}

fn print(reports: &[Report], spaces: &[RecordedSpace], budgets: &[usize]) -> Result<(), Failure> {
    let numbers: Vec<String> = budgets.iter().map(|b| format!("at {b}")).collect();
    let signed = |x: f64| format!("{x:+.3}");
    let header = |first: &'static str, last: &'static str| {
        let mut h = vec![first, "score"];
        h.extend(numbers.iter().map(String::as_str));
        h.push(last);
        table(&h)
    };
    let mut t = header("strategy", "ms/trial");
    for r in reports {
        let mut row = vec![r.name.to_string(), signed(r.all())];
        row.extend((0..budgets.len()).map(|b| signed(r.at(b))));
        row.push(format!("{:.3}", r.milliseconds));
        t.add_row(row);
    }
    say(t)?;
    if let [r] = reports {
        let mut t = header("space", "best/optimum");
        for (c, s) in spaces.iter().zip(&r.scores) {
            let mut row = vec![c.name.clone(), signed(s.mean())];
            row.extend(s.score.iter().map(|x| signed(*x)));
            row.push(s.value.last().map_or("-".into(), |v| format!("{:.1} %", v * 100.0)));
            t.add_row(row);
        }
        say(format_args!("\n{t}"))?;
    }
    Ok(())
}
