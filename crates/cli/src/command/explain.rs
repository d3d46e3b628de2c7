//! `squall explain`: what stands between a model and its kernels, and between an expression and its
//! kernel.

use crate::failure::Failure;
use crate::option::{InputArgs, JsonArgs, TargetArgs, ThreadArgs};
use crate::terminal::say;
use serde_json::json;
use squall::compiler::{STAGES, explain};
use squall::{Aimed, GRAPH_STAGES, Input, Query, Store};
use std::path::PathBuf;

/// Show a model or a task at a stage: model, candidates, assignment, plan; expression, sketches,
/// space, schedule, loop nest, C source
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  squall explain model.onnx --stage assignment
  squall explain 'matmul m=64 n=64 k=64' --stage sketches
  squall explain model.onnx --task 1f2e3d --stage space
  squall explain 'matmul m=64 n=64 k=64' --stage source --target cuda
  squall explain model.onnx --task 1f2e3d --stage source --best --store tuned.squall
  squall explain 'matmul m=64 n=64 k=64' --stage nest --tunable NAME --configuration \
  'knob=value,..'")]
pub struct Args {
    #[command(flatten)]
    input: InputArgs,
    /// The task: its id, the beginning of it, or a name pattern; not needed where there is one task
    #[arg(long, value_name = "ID")]
    task: Option<String>,
    /// Which stage
    #[arg(long, value_name = "STAGE", value_parser = clap::builder::PossibleValuesParser::new(GRAPH_STAGES.iter().chain(STAGES).copied()))]
    stage: String,
    /// The sketch, where the stage needs one [default: the first]
    #[arg(long, value_name = "NAME")]
    tunable: Option<String>,
    /// The configuration [default: the sketch's first]
    #[arg(long, value_name = "TEXT", requires = "tunable")]
    configuration: Option<String>,
    /// The store's best candidate
    #[arg(long, conflicts_with = "tunable")]
    best: bool,
    /// The store of records
    #[arg(long, value_name = "FILE", env = "SQUALL_STORE", default_value = "tuned.squall")]
    store: PathBuf,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    json: JsonArgs,
}

/// Runs it.
pub fn run(a: &Args) -> Result<u8, Failure> {
    // The store's best is what is run; else it is what would be tuned.
    let store = a.best.then(|| Store::open_read_only(&a.store)).transpose()?;
    let input = match &store {
        Some(s) => a.input.load_tuned(Some(s), a.target.target, a.threads.threads)?,
        None => a.input.load(a.target.target)?,
    };
    if GRAPH_STAGES.contains(&a.stage.as_str()) {
        let text = input.graph_stage(&a.stage)?;
        return print(a, json!({"name": input.name, "stage": a.stage, "text": text}), &text);
    }
    explain_task(a, &input, store.as_ref())
}

/// Prints a stage's text, alone or as JSON.
fn print(a: &Args, json: serde_json::Value, text: &str) -> Result<u8, Failure> {
    if a.json.json {
        say(json)?
    } else {
        say(text.trim_end())?
    }
    Ok(0)
}

/// The stages of one task.
fn explain_task(a: &Args, input: &Input, store: Option<&Store>) -> Result<u8, Failure> {
    let tasks = input.select(a.task.as_deref())?;
    let task = match tasks.as_slice() {
        [one] => *one,
        several => {
            let names: Vec<String> =
                several.iter().take(8).map(|t| format!("{} {}", t.id, t.name)).collect();
            return Err(Failure::usage(
                format!("{} tasks are meant; choose one with --task", several.len()),
                format!("for instance {}", names.join(", ")),
            ));
        }
    };
    if task.workload.foreign.is_some() {
        return Err(Failure::new(
            format!("{} is a kernel of your own: no expression stands behind it", task.name),
            Some("`squall tune` and `squall export` take it; its source says the rest".into()),
        ));
    }
    let aimed = Aimed::at(a.target.target, a.threads.threads as usize)?;
    let best = if let Some(store) = store {
        let query = Query { toolchain: Some(aimed.tools.clone()), ..Query::task(task.id) };
        let known = store.best(&query)?.into_iter().filter(|r| aimed.distance(&r.device) < 2);
        let record = known.min_by_key(|r| aimed.distance(&r.device));
        let none = || {
            let hint = "tune it first, or name a candidate with --tunable and --configuration";
            Failure::new(
                format!("the store knows no kernel of {} for this device and toolchain", task.name),
                Some(hint.into()),
            )
        };
        Some(record.ok_or_else(none)?)
    } else {
        None
    };
    let candidate = match (&best, &a.tunable) {
        (Some(r), _) => Some((r.tunable.as_str(), r.configuration.as_str())),
        (None, Some(t)) => Some((t.as_str(), a.configuration.as_deref().unwrap_or(""))),
        (None, None) => None,
    };
    let text = explain(&task.workload, &aimed.target, &a.stage, candidate).map_err(|e| {
        Failure::new(
            e,
            Some("`--stage space` lists the sketches with their knobs and values".into()),
        )
    })?;
    let id = task.id.to_string();
    let json = json!({"task": id, "name": task.name, "stage": a.stage, "text": text});
    print(a, json, &text)
}
