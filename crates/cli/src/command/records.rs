//! `squall records`: looks into a store of trials (list, show, best, wishes), exports its records
//! as lines or in Kernel Tuner's formats, and merges other stores into it. `records_verify.rs` has
//! `squall records verify`.

use crate::command::records_verify;
use crate::failure::Failure;
use crate::option::{JsonArgs, StoreArgs};
use crate::terminal::{left_out, note, or_dash, say, table, three};
use clap::Subcommand;
use serde_json::{Value, json};
use squall::exchange;
use squall::files::{self, put};
use squall::report::html::utc;
use squall::{Format, Outcome, Query, Record, RecordKind, Store, StoreError, Taken, TaskId, Wish};
use std::io::{self, BufReader, BufWriter, Read};
use std::path::{Path, PathBuf};

/// Look into a store, take records out of it or into it
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  squall records list --store tuned.squall
  squall records show --name 'conv*' --limit 20
  squall records best --json
  squall records verify --only 'conv*'
  squall records wishes --store tuned.squall
  squall records export --output trials.jsonl
  squall records export --format kernel-tuner --task 1f2e3d4c5b6a7988 --output cache.json
  squall records merge other.squall trials.jsonl --store tuned.squall")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// One line for each task, device and toolchain
    List(Chosen),
    /// The records themselves, oldest first
    Show(Chosen),
    /// The record that holds each task
    Best(Chosen),
    Verify(records_verify::Args),
    /// What was used untuned: the tasks that a polite worker would tune, the most costly first
    Wishes {
        #[command(flatten)]
        store: StoreArgs,
        /// Only of this device (its whole name)
        #[arg(long, value_name = "NAME")]
        device: Option<String>,
        #[command(flatten)]
        json: JsonArgs,
    },
    /// The records as lines of JSON, or the trials of one task in a form that others read
    Export {
        #[command(flatten)]
        chosen: Chosen,
        /// Lines of JSON hold every record; T4 results and Kernel Tuner's cache files the trials of
        /// one space
        #[arg(
            long,
            value_name = "FORM",
            default_value = "lines",
            value_parser = ["lines", "t4", "kernel-tuner"],
        )]
        format: String,
        /// Only of this toolchain (its whole name)
        #[arg(long, value_name = "NAME")]
        toolchain: Option<String>,
        /// Only of this sketch; not for lines
        #[arg(long, value_name = "NAME")]
        tunable: Option<String>,
        /// Where to, gzipped where it ends in .gz and the form is not lines [default: stdout]
        #[arg(long, value_name = "FILE", alias = "out")]
        output: Option<PathBuf>,
    },
    /// Take over the records of other stores or of exported lines
    Merge {
        /// Stores, folders of records, or files of lines
        #[arg(value_name = "FILE", required = true)]
        files: Vec<PathBuf>,
        #[command(flatten)]
        store: StoreArgs,
        #[command(flatten)]
        json: JsonArgs,
    },
}

#[derive(clap::Args)]
struct Chosen {
    #[command(flatten)]
    store: StoreArgs,
    /// Only of this task (its whole id)
    #[arg(long, value_name = "ID", value_parser = |s: &str| s.parse::<TaskId>())]
    task: Option<TaskId>,
    /// Only of tasks whose name matches (`*` and `?` stand for anything)
    #[arg(long, value_name = "PATTERN")]
    name: Option<String>,
    /// Only of this kind
    #[arg(long, value_name = "KIND", value_parser = kind)]
    kind: Option<RecordKind>,
    /// Only of this device (its whole name)
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Only those that ran and were right
    #[arg(long)]
    verified: bool,
    /// Only the newest so many
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    #[command(flatten)]
    json: JsonArgs,
}

fn kind(text: &str) -> Result<RecordKind, String> {
    let all = [RecordKind::Trial, RecordKind::Untuned, RecordKind::Rematch, RecordKind::Network];
    all.into_iter()
        .find(|k| k.name() == text)
        .ok_or_else(|| "kinds are trial, untuned, rematch, network".into())
}

impl Chosen {
    fn open(&self) -> Result<(Store, Query), Failure> {
        let query = Query {
            task: self.task,
            name: self.name.clone(),
            kind: self.kind,
            device: self.device.clone(),
            toolchain: None,
            verified: self.verified,
            limit: self.limit,
        };
        Ok((Store::open_read_only(&self.store.store)?, query))
    }
}

/// Runs it.
pub fn run(a: &Args) -> Result<u8, Failure> {
    match &a.action {
        Action::List(c) => list(c)?,
        Action::Show(c) => show(c)?,
        Action::Best(c) => best(c)?,
        Action::Verify(v) => return records_verify::run(v),
        Action::Wishes { store, device, json } => wishes(store, device.as_deref(), json.json)?,
        Action::Export { chosen, format, toolchain, tunable, output } => {
            let (store, mut query) = chosen.open()?;
            query.toolchain.clone_from(toolchain);
            match format.as_str() {
                "lines" if tunable.is_some() => {
                    return Err(Failure::usage(
                        "--tunable is for the forms t4 and kernel-tuner",
                        "lines say the tunable themselves",
                    ));
                }
                "lines" => lines(&store, &query, output.as_deref())?,
                "t4" => give(&store, &query, tunable.as_deref(), Format::T4, output.as_deref())?,
                _ => give(
                    &store,
                    &query,
                    tunable.as_deref(),
                    Format::KernelTuner,
                    output.as_deref(),
                )?,
            }
        }
        Action::Merge { files, store, json } => merge(files, &store.store, json.json)?,
    }
    Ok(0)
}

/// What was used untuned.
fn wishes(store: &StoreArgs, device: Option<&str>, is_json: bool) -> Result<(), Failure> {
    let all = Store::open_read_only(&store.store)?.wishes(device)?;
    if is_json {
        let value = |w: &Wish| {
            json!({
                "id": w.task.to_string(), "name": w.name, "device": w.device, "uses": w.uses,
                "seconds": w.seconds, "last": w.last, "workload": w.workload,
            })
        };
        return say(json!({"wishes": all.iter().map(value).collect::<Vec<_>>()}));
    }
    let mut t = table(&["task", "uses", "seconds", "last", "device"]);
    t.align_left(4);
    for w in &all {
        let seconds = three(w.seconds);
        t.add_row([w.name.clone(), w.uses.to_string(), seconds, utc(w.last), w.device.clone()]);
    }
    say(t)
}

fn list(c: &Chosen) -> Result<(), Failure> {
    let (store, query) = c.open()?;
    let all = store.summaries(&query)?;
    if c.json.json {
        let tasks: Vec<Value> = all
            .iter()
            .map(|s| {
                json!({
                    "id": s.task.to_string(),
                    "name": s.name,
                    "device": s.device,
                    "toolchain": s.toolchain,
                    "trials": s.trials,
                    "failed": s.failed,
                    "best_ns": s.best.map(|b| b.0),
                    "untuned_ns": s.untuned.map(|u| u.0),
                    "last": s.last,
                })
            })
            .collect();
        return say(json!({
            "store": store.path().to_string_lossy(),
            "records": store.len()?,
            "tasks": tasks,
        }));
    }
    let mut t = table(&["task", "id", "best", "untuned", "trials", "failed", "last", "device"]);
    for s in &all {
        t.add_row([
            s.name.clone(),
            s.task.to_string(),
            or_dash(s.best),
            or_dash(s.untuned),
            s.trials.to_string(),
            s.failed.to_string(),
            utc(s.last),
            s.device.clone(),
        ]);
    }
    say(t)?;
    say(format_args!("{} records in {}", store.len()?, store.path().display()))
}

fn values(records: &[Record]) -> Result<Vec<Value>, Failure> {
    let value = |r: &Record| {
        let mut v: Value =
            serde_json::from_str(&squall::encode_record(r)?).map_err(|e| e.to_string())?;
        v["identity"] = r.identity().into();
        v["time_ns"] = r.outcome.time().map(|t| t.0).into();
        Ok(v)
    };
    records.iter().map(|r| value(r).map_err(|e: String| Failure::new(e, None))).collect()
}

fn rows(records: &[Record]) -> Result<(), Failure> {
    let mut t = table(&["task", "kind", "time", "candidate"]);
    t.align_left(3);
    for r in records {
        let outcome = match &r.outcome {
            Outcome::Measured(m) => m.median().to_string(),
            Outcome::Right { .. } => "right".into(),
            Outcome::Infeasible(_) => "infeasible".into(),
            Outcome::Failed { stage, .. } => stage.name().into(),
        };
        let candidate = if r.configuration.is_empty() {
            r.tunable.clone()
        } else {
            format!("{}: {}", r.tunable, r.configuration)
        };
        t.add_row([r.name.clone(), r.kind.name().into(), outcome, candidate]);
    }
    say(t)
}

fn show(c: &Chosen) -> Result<(), Failure> {
    let (store, query) = c.open()?;
    let records = store.query(&query)?;
    if c.json.json { say(json!({"records": values(&records)?})) } else { rows(&records) }
}

fn best(c: &Chosen) -> Result<(), Failure> {
    let (store, query) = c.open()?;
    let records = store.best(&query)?;
    if c.json.json { say(json!({"best": values(&records)?})) } else { rows(&records) }
}

/// The trials of one space as others read them.
fn give(
    store: &Store,
    query: &Query,
    tunable: Option<&str>,
    format: Format,
    output: Option<&Path>,
) -> Result<(), Failure> {
    let recording = exchange::recorded(store, query, tunable)?;
    match output {
        None => say(exchange::text(&recording, format))?,
        Some(path) => exchange::write(&recording, format, path)?,
    }
    note(format_args!(
        "{} trials of {}, {} of them ran",
        recording.rows.len(),
        recording.kernel,
        exchange::ran(&recording)
    ));
    Ok(())
}

fn lines(store: &Store, query: &Query, out: Option<&Path>) -> Result<(), Failure> {
    let n = match out {
        None => store.export(query, &mut BufWriter::new(io::stdout().lock()))?,
        Some(path) => {
            let mut bytes = Vec::new();
            let n = store.export(query, &mut bytes)?;
            put(path, &bytes)?;
            n
        }
    };
    note(format_args!("{n} records"));
    Ok(())
}

/// Whether a file holds lines of records; other files and folders are stores.
fn has_lines(path: &Path) -> Result<bool, squall::Error> {
    if path.is_dir() {
        return Ok(false);
    }
    let fail = |source: io::Error| squall::Error::Read { path: path.into(), source };
    let mut head = Vec::new();
    files::open(path)?.take(1).read_to_end(&mut head).map_err(fail)?;
    Ok(head == b"{")
}

fn merge(paths: &[PathBuf], into: &Path, json: bool) -> Result<(), Failure> {
    let store = Store::open(into)?;
    let mut all = Taken::default();
    for path in paths {
        let taken = if has_lines(path)? {
            let again = files::open(path)?;
            store.import(&mut BufReader::new(again)).map_err(|e| match squall::Error::from(e) {
                squall::Error::Store(e @ StoreError::Line { .. }) => {
                    Failure::new(format!("{}: {e}", path.display()), Some(e.remedy()))
                }
                e => e.into(),
            })?
        } else {
            store.merge(&Store::open_read_only(path)?)?
        };
        note(format_args!("{}: {} new, {} known", path.display(), taken.new, taken.known));
        left_out(&path.display(), taken.refused, &taken.reasons);
        all.add(taken);
    }
    let Taken { new, known, refused, reasons } = all;
    if json {
        say(json!({
            "new": new, "known": known, "left_out": refused, "reasons": reasons,
            "records": store.len()?,
        }))
    } else if refused > 0 {
        say(format_args!("{new} new records, {known} known, {refused} left out"))
    } else {
        say(format_args!("{new} new records, {known} known"))
    }
}
