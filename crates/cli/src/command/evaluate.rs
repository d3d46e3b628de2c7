//! `squall evaluate`: scores a predictor's proposals. For MIOpen's solvers on rows that were held
//! out of training, beside published figures (`squall_study::forecast`); for Squall's own tasks by
//! measuring its candidates (`squall::forecast`). `evaluate/general.rs` and `evaluate_find.rs` have
//! the other kinds of predictors.

mod general;

use super::evaluate_find::{self, Asked as AskedOfChooser};
use super::train::split;
use crate::failure::Failure;
use crate::interrupt::interruptible;
use crate::option::{JsonArgs, StoreArgs, TargetArgs, ThreadArgs};
use crate::terminal::{Table, note, say, table, three};
use serde_json::json;
use squall::files::put;
use squall::forecast::{TRIED, Tried, Trying, WAYS, examples, load, mean_share, measure};
use squall::general::GeneralPredictor;
use squall::{Context, Nanos, PredictError, Split, TaskModel};
use squall_study::forecast::{
    AT, About, Asked, Evaluation, METHODS, MODELS, RowReport, Share, Study, Timing, compare,
    evaluate, page, pooled, published, time,
};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Score predictions on rows that were held out, beside the published figures
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  squall evaluate miopen.predictor --store miopen.squall --html forecast.html
  squall evaluate miopen.predictor --store miopen.squall --models all --time --json
  squall evaluate layers.predictor --store miopen.squall --split layer
  squall evaluate gfx900.predictor --store newer.squall --rows unseen
  squall evaluate gfx900.predictor --store miopen.squall --device gfx906_60
  squall evaluate convolutions.predictor --store others.squall --rounds 5 --against seeded.squall
  squall evaluate general.predictor --store tuned.squall --unmeasured
  squall evaluate held.chooser --store find.squall --tunanet tunanet --html choosers.html
  squall evaluate --models hybrid-2,random-forest --solver ConvAsm1x1U --store miopen.squall
  squall evaluate --models pair,neighbours --folds 5 --seeds 1,2,3 --store miopen.squall
  squall evaluate --models pair --learn-from gfx900_56 --device gfx906_60 --store miopen.squall

P@k is the share of problems whose tuned vector is among the first k predictions, with Wilson's
interval at 95 %. With a predictor, its rows are held out as when it was trained, or (--rows unseen)
are those of keys that its data lacked on their device. Without one, --models are trained here and
scored on what is held out. `paper` is Mahmood, Khan and Afzal at 1, 10 and 100, on databases that
are not public and hold other rows.

A predictor of tasks (`train --records`) is measured on the tasks of the store that it did not learn
from: its first 1, 5 and 10 candidates take turns with the task's winner, the best of the nearest
learned tasks and random candidates. The result is the share of the tuned speed that each reaches.
A general predictor (`train --records --general`) is measured in the same way on all tasks of the
store: its first and the best of its first four beside the cost formula's. How often the algorithm
that it would choose is the fastest in the store is said too; tune that store with --no-transfer.

A chooser (`train --find`) is asked for the layers and filter families that its --salt held out, and
for GPUs that it left out, beside rules, neighbours and TunaNet.\
")]
pub struct Args {
    /// A file that `squall train` wrote; without one, --models are trained here
    #[arg(value_name = "PREDICTOR")]
    predictor: Option<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,
    /// Which of the predictor's ways answer [default: pair]; without a predictor, which models; or
    /// all
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        value_parser = model_names(),
        required_unless_present = "predictor",
    )]
    models: Vec<String>,
    /// Which rows were held out
    #[arg(long, value_name = "SPLIT", default_value = "random", value_parser = ["random", "layer"])]
    split: String,
    /// Of a predictor: rows that its split held out, or of keys that its data lacked
    /// on their device
    #[arg(
        long,
        value_name = "ROWS",
        default_value = "held",
        value_parser = ["held", "unseen"],
        requires = "predictor",
    )]
    rows: String,
    /// Hold out each of so many parts once, instead of one; --split says whether problems or layers
    #[arg(
        long,
        value_name = "N",
        conflicts_with = "predictor",
        value_parser = clap::value_parser!(u64).range(2..=20),
    )]
    folds: Option<u64>,
    /// Only this solver
    #[arg(long, value_name = "S")]
    solver: Option<String>,
    /// Only rows of this device
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Learn from the rows of this device only
    #[arg(long, value_name = "DEVICE", conflicts_with = "predictor")]
    learn_from: Option<String>,
    /// Seeds of the models that are trained here, one training each [default: 1]
    #[arg(long, value_name = "K", value_delimiter = ',', conflicts_with = "predictor")]
    seeds: Vec<u64>,
    /// Passes over the data of the models that are trained here, at most
    #[arg(
        long,
        value_name = "N",
        conflicts_with = "predictor",
        value_parser = clap::value_parser!(u16).range(1..),
    )]
    epochs: Option<u16>,
    /// Time the predictor too: the best 100 for each row, three times, on one thread
    #[arg(long, requires = "predictor")]
    time: bool,
    /// Of a predictor of tasks: how often each candidate is measured; the median counts
    #[arg(
        long,
        value_name = "N",
        default_value_t = 3,
        value_parser = clap::value_parser!(u16).range(1..=99),
    )]
    rounds: u16,
    /// Of a general predictor: measure nothing, and say only how often the algorithm that it
    /// chooses (Winograd, direct tiles) is the one that is fastest in the store
    #[arg(long, requires = "predictor")]
    unmeasured: bool,
    /// Of a predictor of tasks: measure what holds the tasks in this store beside it
    #[arg(long, value_name = "FILE", requires = "predictor")]
    against: Option<PathBuf>,
    /// Of a chooser: the folder of the networks that MIOpen ships (*.tn.model), to stand beside it
    #[arg(long, value_name = "DIR", requires = "predictor")]
    tunanet: Option<PathBuf>,
    /// Of a chooser: at most so many problems of each part of a GPU [default: 20000]
    #[arg(long, value_name = "N", requires = "predictor")]
    most: Option<u32>,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    threads: ThreadArgs,
    /// Write a page with the paper's tables, learning curves and reliability
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    json: JsonArgs,
}

fn model_names() -> clap::builder::PossibleValuesParser {
    clap::builder::PossibleValuesParser::new(
        METHODS.iter().map(|(n, _)| *n).chain(MODELS.iter().map(|(n, _)| *n)).chain(["all"]),
    )
}

/// The names among `known` that are asked for.
fn asked(models: &[String], known: &[&'static str]) -> Result<Vec<&'static str>, Failure> {
    if models.is_empty() {
        return Ok(vec![known[0]]);
    }
    if let Some(odd) = models.iter().find(|m| *m != "all" && !known.contains(&m.as_str())) {
        let hint = format!("here there are {} and all", known.join(", "));
        return Err(Failure::usage(
            format!("`{odd}` is not among the models that this can evaluate"),
            hint,
        ));
    }
    Ok(known.iter().filter(|n| models.iter().any(|m| m == "all" || m == *n)).copied().collect())
}

/// Runs it.
pub fn run(a: &Args) -> Result<u8, Failure> {
    if let Some(path) = &a.predictor {
        if let Some(found) = GeneralPredictor::at(path)? {
            return general::run(a, &found);
        }
        if a.unmeasured {
            return Err(Failure::usage(
                format!("`{}` is no general predictor: it chooses no algorithms", path.display()),
                "leave --unmeasured out, or name a file of `squall train --records --general`",
            ));
        }
        if squall::find::is_chooser(path) {
            let asked = AskedOfChooser {
                store: &a.store.store,
                device: a.device.as_deref(),
                tunanet: a.tunanet.as_deref(),
                most: a.most,
                html: a.html.as_ref(),
                json: a.json.json,
            };
            return evaluate_find::run(&asked, path);
        }
        let predictor = load(path)?;
        if let Ok(model) = predictor.tasks() {
            return of_tasks(a, model);
        }
    }
    let methods: Vec<&str> = METHODS.iter().map(|(n, _)| *n).collect();
    // A page that cannot be written shows before the work, not after it.
    if let Some(f) = a
        .html
        .as_ref()
        .and_then(|p| p.parent())
        .filter(|f| !f.as_os_str().is_empty() && !f.is_dir())
    {
        return Err(Failure::usage(
            format!("there is no folder `{}` for the page", f.display()),
            "make it, or name another",
        ));
    }
    let (found, timings, about) = match &a.predictor {
        Some(path) => of_predictor(a, path, &asked(&a.models, &methods)?)?,
        None => {
            let all: Vec<&str> =
                methods.into_iter().chain(MODELS.iter().map(|(n, _)| *n)).collect();
            match trained_here(a, asked(&a.models, &all)?)? {
                Some(x) => x,
                None => return Ok(130),
            }
        }
    };
    if let Some(path) = &a.html {
        put(path, page(&about, &found, &timings).as_bytes())?;
        note(format_args!("page: {}", path.display()));
    }
    if a.json.json {
        let rows: Vec<_> = found.rows.iter().map(row).collect();
        let curves: Vec<_> =
            found.curves.iter().map(|(n, c)| json!({"network": n, "epochs": c})).collect();
        let times: Vec<_> = timings.iter().map(timing).collect();
        say(json!({
            "predictor": a.predictor,
            "split": a.split,
            "held": about.held,
            "seeds": about.seeds,
            "data": about.data,
            "rows": rows, "curves": curves, "time": times,
        }))?;
        return Ok(0);
    }
    show(&found, &timings)?;
    let seeds: Vec<String> = about.seeds.iter().map(u64::to_string).collect();
    note(format_args!("{}; seed {}; data {}", about.held, seeds.join(", "), about.data));
    Ok(0)
}

/// Measures what a predictor of tasks is worth.
fn of_tasks(a: &Args, model: &TaskModel) -> Result<u8, Failure> {
    if a.html.is_some() || a.time || !a.models.is_empty() || a.solver.is_some() {
        let hint = "leave out --html, --time, --models and --solver";
        return Err(Failure::usage(
            "this predictor is one of tasks: it is measured against the store's winners",
            hint,
        ));
    }
    let at = Context::new().target(a.target.request()?, a.threads.threads.into())?;
    let stop = interruptible()?;
    let trying = Trying {
        model,
        store: &a.store.store,
        against: a.against.as_deref(),
        rounds: a.rounds.into(),
        seed: 1,
    };
    let found = measure(&trying, &at, &stop, &mut |task| note(task))?;
    if a.json.json {
        say(tried_value(a, &at.device_name(), &found))?;
    } else {
        show_tried(&found, a.against.is_some())?;
    }
    Ok(if stop.load(Ordering::Relaxed) { 130 } else { 0 })
}

/// What a predictor of tasks is worth, as JSON.
fn tried_value(a: &Args, device: &str, found: &[Tried]) -> serde_json::Value {
    let shares = |of: &dyn Fn(usize) -> f64| -> Vec<_> {
        TRIED.iter().map(|&k| json!({"k": k, "share": of(k)})).collect()
    };
    let way = |t: &Tried, w: usize| {
        json!({
            "way": WAYS[w],
            "at": shares(&|k| t.share(w, k)),
            "times_ns": t.times[w],
        })
    };
    let task = |t: &Tried| {
        let ways: Vec<_> = (0..WAYS.len()).map(|w| way(t, w)).collect();
        json!({
            "task": t.name,
            "nearest": t.nearest,
            "trials": t.trials,
            "tuned_ns": t.tuned,
            "against_ns": t.rival,
            "ways": ways,
        })
    };
    let means: Vec<_> = (0..WAYS.len())
        .map(|w| json!({"way": WAYS[w], "at": shares(&|k| mean_share(found, w, k))}))
        .collect();
    let tasks: Vec<_> = found.iter().map(task).collect();
    json!({
        "predictor": a.predictor,
        "device": device,
        "rounds": a.rounds,
        "tasks": tasks,
        "mean": means,
    })
}

/// The same as a table.
fn show_tried(found: &[Tried], against: bool) -> Result<(), Failure> {
    let heads: Vec<String> =
        WAYS.iter().map(|w| format!("{w} at {}", TRIED.map(|k| k.to_string()).join("/"))).collect();
    let mut columns = vec!["task", "nearest learned", "tuned", "trials"];
    columns.extend(heads.iter().map(String::as_str));
    columns.extend(against.then_some("against"));
    let mut t = table(&columns);
    let cell = |share: &dyn Fn(usize) -> f64| {
        TRIED.iter().map(|&k| format!("{:.0}", 100.0 * share(k))).collect::<Vec<_>>().join("/")
    };
    for x in found {
        let mut row = vec![
            x.name.clone(),
            x.nearest.clone().unwrap_or_default(),
            Nanos(x.tuned).to_string(),
            x.trials.to_string(),
        ];
        row.extend((0..WAYS.len()).map(|w| cell(&|k| x.share(w, k))));
        row.extend(x.rival.map(|r| format!("{:.0}", 100.0 * x.tuned / r)));
        t.add_row(row);
    }
    let mut row = vec![
        format!("geometric mean of {}", found.len()),
        String::new(),
        String::new(),
        String::new(),
    ];
    row.extend((0..WAYS.len()).map(|w| cell(&|k| mean_share(found, w, k))));
    let rivals: Vec<f64> = found.iter().filter_map(|x| Some((x.tuned / x.rival?).ln())).collect();
    row.extend((!rivals.is_empty()).then(|| {
        format!("{:.0}", 100.0 * (rivals.iter().sum::<f64>() / rivals.len() as f64).exp())
    }));
    t.add_row(row);
    say(t)?;
    note("shares of the tuned speed in per cent; all candidates of a task were measured in turn");
    Ok(())
}

type Found = (Evaluation, Vec<Timing>, About);

fn of_predictor(
    a: &Args,
    path: &std::path::Path,
    methods: &[&'static str],
) -> Result<Found, Failure> {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let held = split(&a.split).unwrap_or(Split::Random);
    let (which, what) = match a.rows.as_str() {
        "unseen" => (Asked::Unseen, "rows of keys that the predictor's data lacked".to_string()),
        _ => (Asked::Held(held), format!("rows that the {} split holds out", a.split)),
    };
    let predictor = load(path)?;
    let all = examples(&a.store.store, a.solver.as_deref(), a.device.as_deref())?;
    let info = predictor.info();
    let about = About {
        title: path.display().to_string(),
        held: what,
        seeds: vec![info.options.seed],
        data: info.data.clone(),
    };
    let found = evaluate(&predictor, &all, which, methods, threads)?;
    let timings = if a.time { time(&predictor, &all, which, 100)? } else { Vec::new() };
    Ok((found, timings, about))
}

/// Trains the models and scores them; `None` where it was interrupted.
fn trained_here(a: &Args, models: Vec<&'static str>) -> Result<Option<Found>, Failure> {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    // Where one device is learned from and another asked for, both are read.
    let device = a.device.as_deref().filter(|_| a.learn_from.is_none());
    let all = examples(&a.store.store, a.solver.as_deref(), device)?;
    for d in a.learn_from.iter().chain(&a.device) {
        if !all.iter().any(|e| e.problem.device == *d) {
            return Err(Failure::usage(
                format!("no example is of the device `{d}`"),
                "squall import says which devices there are",
            ));
        }
    }
    let study = Study {
        models,
        split: split(&a.split).unwrap_or(Split::Random),
        folds: a.folds,
        seeds: if a.seeds.is_empty() { vec![1] } else { a.seeds.clone() },
        learn_from: a.learn_from.clone(),
        ask_for: a.device.clone(),
        epochs: a.epochs.map(usize::from),
        threads,
    };
    let stop = interruptible()?;
    let (began, mut last) = (Instant::now(), None::<Instant>);
    let found = compare(&all, &study, &mut |what| {
        if last.is_none_or(|t| t.elapsed() > Duration::from_secs(5)) {
            last = Some(Instant::now());
            note(format_args!("{:6.0} s  {what}", began.elapsed().as_secs_f64()));
        }
        !stop.load(Ordering::Relaxed)
    });
    let found = match found {
        Err(squall::Error::Predict(PredictError::Cancelled)) => {
            note("stopped");
            return Ok(None);
        }
        other => other?,
    };
    let held = match a.folds {
        Some(n) => format!("{n} folds of the {} split", a.split),
        None => format!("rows that the {} split holds out", a.split),
    };
    let from = a.learn_from.as_ref().map_or(String::new(), |d| format!("; learned from {d}"));
    let title = format!("Models trained on {}", a.store.store.display());
    Ok(Some((
        found,
        Vec::new(),
        About {
            title,
            held: held + &from,
            seeds: study.seeds,
            data: format!("{} examples", all.len()),
        },
    )))
}

fn show(found: &Evaluation, timings: &[Timing]) -> Result<(), Failure> {
    let mut models: Vec<&str> = Vec::new();
    found.rows.iter().for_each(|r| {
        if !models.contains(&r.method) {
            models.push(r.method)
        }
    });
    say(figures(found, &models))?;
    show_reliability(found, models.first().copied().unwrap_or_default())?;
    if timings.is_empty() { Ok(()) } else { show_timings(timings) }
}

/// The figures of each row, and their means by model.
fn figures(found: &Evaluation, models: &[&str]) -> Table {
    let mut t = table(&[
        "row",
        "model",
        "problems",
        "P@1",
        "95 %",
        "P@10",
        "95 %",
        "P@100",
        "95 %",
        "kernel at 1, 10",
        "NLL",
        "calibration",
        "paper",
    ]);
    for r in &found.rows {
        let mut cells = vec![
            format!("{} {} {}", r.solver, r.device, r.precision),
            r.method.into(),
            r.at[0].of.to_string(),
        ];
        for i in [0, 1, 4] {
            let (low, high) = r.at[i].interval();
            let spread =
                r.spread.as_ref().map_or(String::new(), |d| format!(" \u{b1} {:.1}", 100.0 * d[i]));
            cells.push(format!("{:.1}{spread}", 100.0 * r.at[i].value()));
            cells.push(format!("{:.0}-{:.0}", 100.0 * low, 100.0 * high));
        }
        cells.push(format!(
            "{:.1} {:.1}",
            100.0 * r.kernel_at[0].value(),
            100.0 * r.kernel_at[1].value()
        ));
        cells.extend([
            three(r.negative_log_likelihood),
            format!("{:.1} %", 100.0 * r.calibration_error),
        ]);
        let known = published(&r.solver, &r.precision);
        let three = |v: [f64; 3], digits: usize| v.map(|x| format!("{x:.digits$}")).join("/");
        cells.push(known.map_or(String::new(), |p| three(p.at(), 1)));
        t.add_row(cells);
    }
    for m in models {
        let rows: Vec<&RowReport> = found.rows.iter().filter(|r| r.method == *m).collect();
        if rows.len() > 1 {
            let mean = |i: usize| {
                format!(
                    "{:.1}",
                    100.0 * rows.iter().map(|r| r.at[i].value()).sum::<f64>() / rows.len() as f64
                )
            };
            let none = String::new;
            t.add_row([
                format!("mean of {} rows", rows.len()),
                m.to_string(),
                none(),
                mean(0),
                none(),
                mean(1),
                none(),
                mean(4),
            ]);
        }
    }
    t
}

/// How far the first predictions of a model can be trusted.
fn show_reliability(found: &Evaluation, first: &str) -> Result<(), Failure> {
    let mut t = table(&["probability given", "mean", "right", "95 %", "problems"]);
    for l in pooled(found.rows.iter().filter(|r| r.method == first)) {
        let (low, high) = l.observed.interval();
        t.add_row([
            format!("{:.0}-{:.0} %", 100.0 * l.from, 100.0 * l.to),
            format!("{:.1} %", 100.0 * l.predicted),
            format!("{:.1} %", 100.0 * l.observed.value()),
            format!("{:.0}-{:.0} %", 100.0 * low, 100.0 * high),
            l.observed.of.to_string(),
        ]);
    }
    say(format_args!("\nreliability of {first}, first predictions of all rows"))?;
    say(t)
}

fn show_timings(timings: &[Timing]) -> Result<(), Failure> {
    let mut t = table(&["solver", "problems", "median", "90 %", "worst"]);
    for x in timings {
        let ms = |v: f64| format!("{v:.2} ms");
        t.add_row([
            x.solver.clone(),
            x.problems.to_string(),
            ms(x.median),
            ms(x.ninety),
            ms(x.worst),
        ]);
    }
    say("\ntime of a prediction, best 100, one thread")?;
    say(t)
}

fn timing(t: &Timing) -> serde_json::Value {
    json!({
        "solver": t.solver,
        "problems": t.problems,
        "median_ms": t.median,
        "ninety_ms": t.ninety,
        "worst_ms": t.worst,
    })
}

fn row(r: &RowReport) -> serde_json::Value {
    let shares = |all: &[Share]| -> Vec<_> {
        all.iter()
            .zip(AT)
            .map(|(s, k)| json!({"k": k, "share": s.value(), "interval": s.interval()}))
            .collect()
    };
    let known = published(&r.solver, &r.precision);
    json!({
        "solver": r.solver,
        "device": r.device,
        "precision": r.precision,
        "model": r.method,
        "problems": r.at[0].of,
        "samples": r.samples,
        "at": shares(&r.at),
        "spread": r.spread,
        "kernel_at": shares(&r.kernel_at),
        "nll": r.negative_log_likelihood,
        "calibration_error": r.calibration_error, "reliability": r.reliability,
        "paper": known.map(|p| p.at()),
    })
}
