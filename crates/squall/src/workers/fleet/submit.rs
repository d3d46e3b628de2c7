//! Submits a job to a fleet: the tasks of an input (a model or operator lines), with trials for
//! each, to be tuned on one class of devices. Input: a [`SubmitRequest`]; output: what the server
//! took. Workers then lease slices of the job (`work.rs`). A user's own kernels are refused, since
//! their source would run on other machines.

use super::class::class_of;
use super::{Fleet, FleetError};
use crate::base::error::Error;
use crate::input::input_request::InputRequest;
use crate::input::user_input::name_matches;
use crate::target::target_context::Context;
use crate::target::target_request::TargetRequest;
use crate::tuning::shard::weight;
use squall_core::{Caches, Task};
use squall_fleet::{ClassStatus, Submitted, TaskOrder};

/// What to tune, and on which machines.
#[derive(Clone, Debug)]
pub struct SubmitRequest {
    /// The server's address.
    pub server: String,
    /// The model or kernels that are tuned.
    pub input: InputRequest,
    /// Only tasks whose name or id matches.
    pub only: Option<String>,
    /// Trials of each task.
    pub trials_per_task: Option<u64>,
    /// Trials of all tasks together.
    pub trials: Option<u64>,
    /// Trials of a lease.
    pub slice: u64,
    /// The class: its number, or a pattern that matches the name of one class's device. The class
    /// of this machine if none.
    pub class: Option<String>,
    /// The device of this machine whose class it is, and for which a model is read.
    pub target: TargetRequest,
    /// Threads of a kernel.
    pub threads: usize,
    /// What the caches hold when a call is timed.
    pub caches: Caches,
}

/// Puts a job in.
///
/// # Errors
/// Where the input has no task, is a kernel of the user's own, or no class is meant.
pub fn submit(context: &Context, request: &SubmitRequest) -> Result<Submitted, Error> {
    let input = request.input.load(request.target)?;
    if !input.own().is_empty() {
        return Err(Error::Usage {
            message: format!("`{}` is a kernel of your own, which is code", request.input.source),
            hint: "a fleet's workers take what Squall generates; tune it where it runs, or by \
                   --shard"
                .into(),
        });
    }
    let tasks = input.select(request.only.as_deref())?;
    let mut fleet = Fleet::connect(&request.server)?;
    let class = match &request.class {
        Some(wanted) => chosen(&fleet.classes()?, wanted)?,
        None => {
            let at = context.target(request.target, request.threads)?.with_caches(request.caches);
            class_of(&mut fleet, &at)?
        }
    };
    let all = request.trials.map(|n| n.div_ceil(tasks.len() as u64));
    let trials = request.trials_per_task.or(all).unwrap_or(64).max(1);
    let weight = |t: &Task| weight(t).expected_time();
    let sum: f64 = tasks.iter().map(|t| weight(t)).sum();
    let orders: Vec<TaskOrder> = tasks
        .into_iter()
        .map(|t| TaskOrder { task: t.clone(), trials, weight: weight(t) / sum.max(1.0) })
        .collect();
    Ok(fleet.submit(input.name(), class, request.slice.max(1), &orders)?)
}

/// The class that a user means.
fn chosen(classes: &[ClassStatus], wanted: &str) -> Result<i32, Error> {
    let number = wanted.parse::<i32>().ok();
    let is_meant =
        |c: &&ClassStatus| number.map_or_else(|| name_matches(wanted, &c.device), |n| c.id == n);
    let found: Vec<&ClassStatus> = classes.iter().filter(is_meant).collect();
    match found[..] {
        [class] => Ok(class.id),
        [] => Err(FleetError::Nothing(format!("the fleet has no class `{wanted}`")).into()),
        _ => {
            let names: Vec<String> =
                found.iter().map(|c| format!("{} ({})", c.id, c.device)).collect();
            Err(Error::Usage {
                message: format!("`{wanted}` means several classes: {}", names.join(", ")),
                hint: "name one by its number".into(),
            })
        }
    }
}
