//! `squall explain`: prints one stage between an input and its kernels: of a model the graph, its
//! candidates, assignment and plan; of a task the expression, sketches, space, schedule, loop nest
//! and source (`squall::explain`).

use crate::failure::Failure;
use crate::option::{InputArgs, JsonArgs, TargetArgs, ThreadArgs};
use crate::terminal::say;
use serde_json::json;
use squall::{Context, ExplainRequest, Explained, GRAPH_STAGES, STAGES};
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
    #[arg(long, value_name = "STAGE", value_parser = stages())]
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

fn stages() -> clap::builder::PossibleValuesParser {
    clap::builder::PossibleValuesParser::new(GRAPH_STAGES.iter().chain(STAGES).copied())
}

/// Runs it.
pub fn run(a: &Args) -> Result<u8, Failure> {
    let request = ExplainRequest {
        input: a.input.request(),
        task: a.task.clone(),
        stage: a.stage.clone(),
        tunable: a.tunable.clone(),
        configuration: a.configuration.clone(),
        best_of: a.best.then(|| a.store.clone()),
        target: a.target.request()?,
        threads: a.threads.threads.into(),
    };
    let Explained { task, name, text } = squall::explain(&Context::new(), &request)?;
    if a.json.json {
        let mut value = json!({"name": name, "stage": a.stage, "text": text});
        if let Some(task) = task {
            value["task"] = task.to_string().into();
        }
        say(value)?;
    } else {
        say(text.trim_end())?;
    }
    Ok(0)
}
