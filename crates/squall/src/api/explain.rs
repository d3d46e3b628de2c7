//! The verb behind `squall explain`: prints one stage between an input and its kernels. For a model
//! these are the graph's stages (`crate::stage`); for a task they are the compiler's: expression,
//! sketches, space, schedule, loop nest, source. Input: an [`ExplainRequest`]; output: a text.

use crate::base::error::Error;
use crate::input::input_request::InputRequest;
use crate::input::stage::GRAPH_STAGES;
use crate::target::target_context::{Context, TargetContext};
use crate::target::target_request::TargetRequest;
use crate::task::task_kernels::TaskKernels;
use squall_compiler as compiler;
use squall_core::{Record, Task, TaskId};
use squall_records::{Entry, Query, Store};
use std::path::PathBuf;

/// An input and the stage to show.
#[derive(Clone, Debug, PartialEq)]
pub struct ExplainRequest {
    /// The input that has the task.
    pub input: InputRequest,
    /// The task: its id, the beginning of it, or a name pattern; not needed where there is one.
    pub task: Option<String>,
    /// Which stage: one of [`crate::GRAPH_STAGES`] or [`crate::STAGES`].
    pub stage: String,
    /// The sketch, where the stage needs one; the first if none.
    pub tunable: Option<String>,
    /// The configuration; the sketch's first if none.
    pub configuration: Option<String>,
    /// The store whose best candidate is shown instead.
    pub best_of: Option<PathBuf>,
    /// The device that kernels are for.
    pub target: TargetRequest,
    /// Threads that a kernel may use on a CPU.
    pub threads: usize,
}

/// A model or a task at a stage.
#[derive(Clone, Debug, PartialEq)]
pub struct Explained {
    /// The task, where the stage is one of a task.
    pub task: Option<TaskId>,
    /// Its name, or the model's.
    pub name: String,
    /// The stage as text.
    pub text: String,
}

/// Shows a model or a task at a stage.
pub fn explain(context: &Context, request: &ExplainRequest) -> Result<Explained, Error> {
    // The store's best is what is run; else it is what would be tuned.
    let store = request.best_of.as_ref().map(Store::open_read_only).transpose()?;
    let (target, threads) = (request.target, request.threads);
    let input = match &store {
        Some(s) => request.input.load_tuned(context, Some(s), target, threads)?,
        None => request.input.load(target)?,
    };
    if GRAPH_STAGES.contains(&request.stage.as_str()) {
        let text = input.graph_stage(&request.stage)?;
        return Ok(Explained { task: None, name: input.name().into(), text });
    }
    let task = the_one(&input.select(request.task.as_deref())?)?;
    if task.workload.foreign.is_some() {
        return Err(Error::Input {
            place: task.name.clone(),
            message: "it is a kernel of your own: no expression stands behind it".into(),
            hint: "`squall tune` and `squall export` take it; its source says the rest".into(),
        });
    }
    let at = context.target(target, threads)?;
    let best = store.as_ref().map(|s| best(s, task, &at)).transpose()?;
    let candidate = match (&best, &request.tunable) {
        (Some(r), _) => Some((r.tunable.as_str(), r.configuration.as_str())),
        (None, Some(t)) => Some((t.as_str(), request.configuration.as_deref().unwrap_or(""))),
        (None, None) => None,
    };
    let text = compiler::explain(&task.workload, &at.target, &request.stage, candidate).map_err(
        |message| Error::Build {
            message,
            hint: "`--stage space` lists the sketches with their knobs and values".into(),
        },
    )?;
    Ok(Explained { task: Some(task.id), name: task.name.clone(), text })
}

/// The task that is meant, where it is one.
fn the_one<'t>(tasks: &[&'t Task]) -> Result<&'t Task, Error> {
    match tasks {
        [one] => Ok(one),
        several => {
            let names: Vec<String> =
                several.iter().take(8).map(|t| format!("{} {}", t.id, t.name)).collect();
            Err(Error::Usage {
                message: format!("{} tasks are meant; choose one with --task", several.len()),
                hint: format!("for instance {}", names.join(", ")),
            })
        }
    }
}

/// The record that serves a task on this machine.
fn best(store: &Store, task: &Task, at: &TargetContext) -> Result<Record, Error> {
    let kernels = TaskKernels::generated(task, &at.target);
    let mut accept = |e: Entry<'_>| kernels.accepts(&e.candidate.0, &e.candidate.1, e.time);
    let serving = store.serving_of(&Query::task(task.id), &at.place, &mut accept)?;
    let here = serving.into_iter().find(|(nearness, _)| nearness.is_here());
    here.map(|(_, r)| r).ok_or_else(|| Error::Build {
        message: format!(
            "the store knows no kernel of {} for this device and toolchain",
            task.name
        ),
        hint: "tune it first, or name a candidate with --tunable and --configuration".into(),
    })
}
