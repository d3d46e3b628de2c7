//! Tuning from Python, and the answers that follow from it: tuning, tasks, records, predictions,
//! choices of solvers. Each function takes a plain request as JSON-like values, calls the crate
//! `squall`, and gives JSON.

use crate::interrupt::{Callers, Message, beside};
use crate::raised;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde_json::{Value, json};
use squall::{
    BudgetRequest, ChooseRequest, Context, Error, Event, InputRequest, Judge, Precision,
    PredictRequest, Problems, Query, Report, Store, Symbol, TargetRequest, TuneRequest,
    encode_record,
};
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};

/// The options of [`tune`], as keyword arguments of Python's side.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct TuneOptions {
    source: String,
    store: PathBuf,
    dims: Vec<(String, String)>,
    seconds: Option<f64>,
    trials: Option<u64>,
    trials_per_task: Option<u64>,
    target: String,
    precision: Option<String>,
    threads: usize,
    seed: u64,
    strategy: Option<String>,
    only: Option<String>,
    predictor: Option<PathBuf>,
}

/// Dimensions of one extent, and those that are ranges.
type Dimensions = (Vec<(String, i64)>, Vec<Symbol>);

/// Dimensions from the texts that the command line takes.
pub fn dimensions(texts: &[(String, String)]) -> PyResult<Dimensions> {
    let (mut dims, mut ranges) = Dimensions::default();
    for (name, text) in texts {
        let fail = |e: String| PyValueError::new_err(format!("dims[{name:?}]: {e}"));
        match text.parse() {
            Ok(n) if n >= 1 => dims.push((name.clone(), n)),
            Ok(n) => return Err(fail(format!("{n} is no extent"))),
            Err(_) => ranges.push(Symbol::parse(name, text).map_err(fail)?),
        }
    }
    Ok((dims, ranges))
}

/// The target of this name.
pub fn target(name: &str) -> PyResult<TargetRequest> {
    name.parse().map_err(|e| PyValueError::new_err(format!("target `{name}`: {e}")))
}

/// The precision of this name; none where none is named.
pub fn precision(name: Option<&str>) -> PyResult<Option<Precision>> {
    let Some(name) = name else { return Ok(None) };
    let known = Precision::ALL.iter().find(|(_, n)| *n == name).map(|(p, _)| *p);
    known.map(Some).ok_or_else(|| {
        let names: Vec<&str> = Precision::ALL.iter().map(|(_, n)| *n).collect();
        PyValueError::new_err(format!("precision `{name}`: there are {}", names.join(", ")))
    })
}

impl TuneOptions {
    fn request(self) -> PyResult<TuneRequest> {
        let precision = precision(self.precision.as_deref())?;
        let (dims, ranges) = dimensions(&self.dims)?;
        let input = InputRequest { dims, ranges, precision, ..InputRequest::new(self.source) };
        let (trials, trials_per_task, seconds) = (self.trials, self.trials_per_task, self.seconds);
        let budget = BudgetRequest { trials, trials_per_task, seconds };
        Ok(TuneRequest {
            target: target(&self.target)?,
            threads: self.threads,
            seed: self.seed,
            strategy: self.strategy,
            only: self.only,
            predictor: self.predictor,
            ..TuneRequest::new(input, self.store, budget)
        })
    }
}

/// Tunes. `listener` is called with a line of JSON per event, `judge` with the bytes of all outputs
/// of a kernel of one's own, in place of a comparison: it gives None, or why they are wrong. Gives
/// the report as JSON, its page as HTML, and the exception that ended it early, if any.
#[pyfunction]
#[pyo3(signature = (options, listener, judge=None))]
pub fn tune(
    py: Python<'_>,
    options: TuneOptions,
    listener: Option<Bound<'_, PyAny>>,
    judge: Option<Bound<'_, PyAny>>,
) -> PyResult<(String, String, Option<PyErr>)> {
    let mut request = options.request()?;
    let (wants_events, judges) = (listener.is_some(), judge.is_some());
    let callers = Callers { listener: listener.as_ref(), judge: judge.as_ref() };
    let (tuned, ended) = beside(py, callers, move |stop, send| {
        request.judge = judges.then(|| asking(send.clone()));
        let mut listen = |event: Event<'_>| {
            if wants_events && let Some(line) = line(&event) {
                // The other end listens until this thread ends.
                let _ = send.send(Message::Event(line.to_string()));
            }
        };
        squall::tune(&Context::with_user_cache(), &request, stop, &mut listen)
    })?;
    let report: Report = tuned.map_err(|e| raised(py, &e))?;
    let page = squall::report::html::page(&report);
    Ok((squall::report::json::report(&report).to_string(), page, ended))
}

/// A judge that asks at the other end of a channel.
fn asking(send: Sender<Message>) -> Judge {
    Judge::new(move |outputs| {
        let (answer, found) = channel();
        let ended = |_| "the run was ended".to_string();
        send.send(Message::Look(outputs.to_vec(), answer)).map_err(|_| ended(()))?;
        found.recv().map_err(|_| ended(()))?
    })
}

/// An event as JSON; none of events that say what the report says.
pub fn line(event: &Event<'_>) -> Option<Value> {
    Some(match event {
        Event::Opened { device, toolchain, .. } => {
            json!({ "event": "opened", "device": device, "toolchain": toolchain })
        }
        Event::Task { task, known, .. } => {
            json!({ "event": "task", "task": task.name, "known": known })
        }
        Event::Trial { progress: p, .. } => json!({
            "event": "trial", "task": p.name, "best_ns": p.best.map(|n| n.0),
            "trials": p.trials.0, "planned": p.trials.1, "seconds_left": p.left,
        }),
        Event::Note(text) => json!({ "event": "note", "text": text }),
        Event::Trouble(text) => json!({ "event": "trouble", "text": text }),
        _ => return None,
    })
}

/// The tasks of an input, and the operators that are not tuned, as JSON.
#[pyfunction]
pub fn tasks(
    py: Python<'_>,
    source: String,
    dims: Vec<(String, String)>,
    target_name: &str,
) -> PyResult<String> {
    let target = target(target_name)?;
    let (dims, ranges) = dimensions(&dims)?;
    let request = InputRequest { dims, ranges, ..InputRequest::new(source) };
    let listed = py.detach(|| Ok(request.load(target)?.json().to_string()));
    listed.map_err(|e: Error| raised(py, &e))
}

/// The records of a store, oldest first, a line of JSON each.
#[pyfunction]
pub fn trials(py: Python<'_>, store: PathBuf, name: Option<String>) -> PyResult<Vec<String>> {
    let lines = py.detach(|| -> Result<Vec<String>, Error> {
        let query = Query { name, ..Query::default() };
        let records = Store::open_read_only(&store)?.query(&query)?;
        records.iter().map(|r| encode_record(r).map_err(Error::Nothing)).collect()
    });
    lines.map_err(|e| raised(py, &e))
}

/// What a caller of [`predict`] can say, as keyword arguments of Python's side.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct PredictOptions {
    predictor: PathBuf,
    problems: String,
    solver: Option<String>,
    device: Option<String>,
    target: String,
    top: usize,
}

/// What a predictor says of problems, as JSON: a list with one entry a problem and solver or task.
#[pyfunction]
pub fn predict(py: Python<'_>, options: PredictOptions) -> PyResult<String> {
    let request = PredictRequest {
        predictor: options.predictor,
        problems: Problems::Text("problems".into(), options.problems),
        solver: options.solver,
        device: options.device,
        user_database: None,
        target: target(&options.target)?,
        threads: 1,
        top: options.top,
    };
    let said = py.detach(|| squall::predict(&Context::with_user_cache(), &request));
    said.map(|p| Value::Array(p.json()).to_string()).map_err(|e| raised(py, &e))
}

/// What a caller of [`choose`] can say, as keyword arguments of Python's side.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct ChooseOptions {
    chooser: PathBuf,
    problems: String,
    device: String,
    workspace: Option<u64>,
    without: Vec<String>,
    measure: Option<usize>,
    uses: f64,
    predictor: Option<PathBuf>,
    recall: bool,
    top: Option<usize>,
}

/// Which solver serves each problem, a line of JSON each, and what the user should know.
#[pyfunction]
pub fn choose(py: Python<'_>, options: ChooseOptions) -> PyResult<(Vec<String>, Vec<String>)> {
    let top = options.top.unwrap_or(usize::MAX);
    let request = ChooseRequest {
        chooser: options.chooser,
        problems: Problems::Text("problems".into(), options.problems),
        device: options.device,
        workspace: options.workspace,
        without: options.without,
        measure: options.measure,
        uses: options.uses,
        predictor: options.predictor,
        user_database: None,
        recall: options.recall,
    };
    let mut lines = Vec::new();
    let said = py.detach(|| {
        squall::choose(&request, &mut |chosen| {
            lines.push(chosen.json(top).to_string());
            Ok(())
        })
    });
    said.map(|notes| (lines, notes.notes)).map_err(|e| raised(py, &e))
}
