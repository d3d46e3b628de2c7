//! `squall choose`: prints which of MIOpen's solvers (ways to compute a convolution) serves a
//! problem on an AMD GPU and how long it takes, from a trained chooser (`squall::choose`); with
//! `--find-modes`, what finding costs under each of MIOpen's modes.

use crate::failure::Failure;
use crate::option::JsonArgs;
use crate::terminal::{note, percent, say, table};
use serde_json::{Value, json};
use squall::find::modes::{MODES, ModeCosts, RUNS};
use squall::{ChooseRequest, Chosen, ModesRequest, Problems};
use std::path::PathBuf;

/// Choose a solver for problems, with its time, before anything was measured
#[derive(clap::Args)]
#[command(
    group = clap::ArgGroup::new("asked").required(true).args(["problems", "line"]),
    after_help = "\
Examples:
  squall choose find.chooser 256-56-56-1x1-128-56-56-64-0x0-1x1-1x1-0-NCHW-FP16-F --device \
  gfx942_304
  squall choose find.chooser './bin/MIOpenDriver convfp16 -n 64 -c 256 -H 56 -W 56 -k 128 -y 1 -x \
  1' --device gfx942_304
  squall choose find.chooser --problems model.log --device gfx942_304 --write-user-db \
  gfx942130.HIP.ufdb.txt
  squall choose find.chooser --problems keys.txt --device gfx90a_104 --workspace 0 --json
  squall choose find.chooser --problems keys.txt --device gfx942_304 --find-modes find.squall \
  --html modes.html

A problem is a key of MIOpen's databases or a MIOpenDriver line as logs hold it. With --json each
line of output is {\"problem\": .., \"solutions\": [{\"solver\": .., \"time_ms\": ..}, ..]}, best
first; four of five times lie between low_ms and high_ms, and probability is that of being the
fastest. A problem that was measured on the device is answered by its measurement (source:
database), any other by trees (model). `measure` says how many of the first to time before one is
kept, where the runs that --uses promises pay for it.

--write-user-db adds the answers to a user find database, which MIOpen reads before its own: its
immediate, fast and hybrid modes take them without a search. Problems that the file has stay as they
are.

--find-modes takes the measured times of a store as the truth and says what finding and running cost
under MIOpen's modes and under ours.")]
pub struct Args {
    /// A file that `squall train --find` wrote
    #[arg(value_name = "CHOOSER")]
    chooser: PathBuf,
    /// One MIOpenDriver line or one database key
    #[arg(value_name = "LINE")]
    line: Option<String>,
    /// Problems, one a line; `-` reads them from stdin
    #[arg(long, value_name = "FILE")]
    problems: Option<PathBuf>,
    /// The GPU: gfx942_304, its architecture and its number of compute units
    #[arg(long, value_name = "DEVICE")]
    device: String,
    /// Bytes of workspace that there are [default: as many as are asked for]
    #[arg(long, value_name = "BYTES")]
    workspace: Option<u64>,
    /// Solvers that may not be taken
    #[arg(long, value_name = "S", value_delimiter = ',')]
    without: Vec<String>,
    /// How many of the first are to be timed before one is kept: a number, or as many as are worth
    /// it
    #[arg(long, value_name = "auto|K", default_value = "auto", value_parser = measure)]
    measure: Measure,
    /// How often each problem will be run
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1000,
        value_parser = clap::value_parser!(u64).range(1..),
    )]
    uses: u64,
    /// Solvers of each answer, at most
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u16).range(1..))]
    top: Option<u16>,
    /// A predictor of tuned parameters (`squall train`), which fills `parameters`
    #[arg(long, value_name = "PREDICTOR")]
    predictor: Option<PathBuf>,
    /// Do not answer by measured times of the problem itself
    #[arg(long)]
    no_recall: bool,
    /// Add the answers to a user find database of MIOpen's (.ufdb.txt)
    #[arg(long, value_name = "FILE")]
    write_user_db: Option<PathBuf>,
    /// Simulate MIOpen's find modes and ours on the times that this store has of the problems
    #[arg(long, value_name = "STORE", conflicts_with = "write_user_db")]
    find_modes: Option<PathBuf>,
    /// With --find-modes: write a page with the plot
    #[arg(long, value_name = "FILE", requires = "find_modes")]
    html: Option<PathBuf>,
    #[command(flatten)]
    json: JsonArgs,
}

/// How many to time.
#[derive(Clone, Copy)]
struct Measure(Option<usize>);

fn measure(text: &str) -> Result<Measure, String> {
    match text {
        "auto" => Ok(Measure(None)),
        n => n.parse().map(|n| Measure(Some(n))).map_err(|_| "a number, or auto".into()),
    }
}

/// Runs it.
pub fn run(a: &Args) -> Result<u8, Failure> {
    let problems = match (&a.problems, &a.line) {
        (Some(path), _) if path.as_os_str() == "-" => {
            Problems::Text("stdin".into(), std::io::read_to_string(std::io::stdin())?)
        }
        (Some(path), _) => Problems::File(path.clone()),
        (None, line) => Problems::Line(line.clone().unwrap_or_default()),
    };
    if let Some(store) = &a.find_modes {
        return modes(a, problems, store.clone());
    }
    let request = ChooseRequest {
        chooser: a.chooser.clone(),
        problems,
        device: a.device.clone(),
        workspace: a.workspace,
        without: a.without.clone(),
        measure: a.measure.0,
        uses: a.uses as f64,
        predictor: a.predictor.clone(),
        user_database: a.write_user_db.clone(),
        recall: !a.no_recall,
    };
    let mut t = table(&["problem", "solver", "ms", "80 %", "workspace", "fastest", "from"]);
    let top = a.top.map_or(usize::MAX, usize::from);
    let mut failed = None;
    let notes = squall::choose(&request, &mut |x| {
        if a.json.json {
            if failed.is_none() {
                failed = say(x.json(top)).err();
            }
        } else {
            rows(&mut t, x, top);
        }
        Ok(())
    })?;
    if let Some(e) = failed {
        return Err(e);
    }
    if !a.json.json {
        say(t)?;
    }
    for n in &notes.notes {
        note(format_args!("note: {n}"));
    }
    if let (Some(path), Some((added, kept))) = (&a.write_user_db, notes.written) {
        note(format_args!(
            "{}: {added} problems added, {kept} that it had or that nothing serves left as they \
             are",
            path.display()
        ));
    }
    Ok(0)
}

fn rows(t: &mut crate::terminal::Table, x: &Chosen, top: usize) {
    let source = json!(x.answer.source);
    for (i, s) in x.solutions.iter().take(top).enumerate() {
        let (low, high) = s.choice.range;
        t.add_row([
            if i == 0 { x.convolution.key() } else { String::new() },
            s.solver.name.clone(),
            digits(s.choice.ms),
            format!("{} - {}", digits(low), digits(high)),
            s.choice.workspace.to_string(),
            percent(s.choice.probability),
            if i == 0 { source.as_str().unwrap_or("").to_string() } else { String::new() },
        ]);
    }
    if x.solutions.is_empty() {
        t.add_row([x.convolution.key(), "-".into()]);
    }
}

/// Three digits, for times from nanoseconds to seconds.
fn digits(ms: f64) -> String {
    let places = (2 - ms.max(1e-9).log10().floor() as i32).clamp(0, 9) as usize;
    format!("{ms:.places$}")
}

/// Simulates find modes.
fn modes(a: &Args, problems: Problems, store: PathBuf) -> Result<u8, Failure> {
    let request = ModesRequest {
        chooser: a.chooser.clone(),
        problems,
        device: a.device.clone(),
        store,
        page: a.html.clone(),
    };
    let costs = squall::find_modes(&request)?;
    if a.json.json {
        say(modes_json(&costs))?;
    } else {
        let names: Vec<String> = RUNS.iter().map(|r| format!("{r:.0} runs")).collect();
        let mut columns = vec!["milliseconds of finding and running"];
        columns.extend(names.iter().map(String::as_str));
        let mut t = table(&columns);
        for (m, (_, name)) in MODES.iter().enumerate() {
            let cells = costs.ms[m].iter().map(|ms| digits(*ms));
            t.add_row(std::iter::once(name.to_string()).chain(cells));
        }
        say(t)?;
        let (normal, ours) = (&costs.ms[0], &costs.ms[MODES.len() - 1]);
        let saved: Vec<String> = RUNS
            .iter()
            .enumerate()
            .map(|(r, runs)| format!("{runs:.0} runs {}", percent(1.0 - ours[r] / normal[r])))
            .collect();
        say(format_args!("saved against normal mode: {}", saved.join(", ")))?;
    }
    note(format_args!(
        "{} problems measured on {}; {} others left out",
        costs.problems.0, a.device, costs.problems.1
    ));
    if let Some(page) = &a.html {
        note(format_args!("page: {}", page.display()));
    }
    Ok(0)
}

fn modes_json(costs: &ModeCosts) -> Value {
    let mode = |(m, (_, name)): (usize, &(_, &str))| {
        let (ms, finding) = (&costs.ms[m], &costs.finding[m]);
        json!({"mode": name, "ms": ms, "finding_ms": finding})
    };
    let all: Vec<Value> = MODES.iter().enumerate().map(mode).collect();
    let (problems, left_out) = costs.problems;
    json!({"runs": RUNS, "problems": problems, "left_out": left_out, "modes": all})
}
