//! The check behind `--locked`: a request may use only kernels that were tuned on this device with
//! this toolchain, never guesses. Input: the request's tasks and its store; output: nothing, or an
//! error that names the tasks without a winner and the `squall tune` command that tunes them.
//! `run`, `export` and the other verbs that use kernels call it first.

use crate::base::error::Error;
use crate::input::input_request::InputRequest;
use crate::predict::choose::serving;
use crate::target::target_context::TargetContext;
use crate::task::task_kernels::TaskKernels;
use crate::task::task_state::TaskState;
use squall_core::Task;
use squall_frontend::UserKernel;
use squall_records::Store;

/// The most tasks that the error names; it counts the others.
const NAMED: usize = 5;

/// An error where any of the tasks has no winner of this device and toolchain.
pub(crate) fn refuse_misses(
    input: &InputRequest,
    tasks: &[&Task],
    own: &[UserKernel],
    store: Option<&Store>,
    at: &TargetContext,
) -> Result<(), Error> {
    let mut missed = Vec::new();
    for task in tasks {
        let state = TaskState::new(task, TaskKernels::new(task, own, &at.target)?);
        let is_searched = !state.kernels.tunables.is_empty();
        let found = match store {
            Some(s) => serving(&state, s, at, &state.symbol, is_searched)?,
            None => None,
        };
        // A task without a space to search has no winner that could be missing.
        if is_searched && !found.is_some_and(|(.., is_here)| is_here) {
            missed.push(task.name.as_str());
        }
    }
    if missed.is_empty() {
        return Ok(());
    }
    let more = missed.len().saturating_sub(NAMED);
    let named: Vec<&str> = missed.iter().take(NAMED).copied().collect();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let store = store.map_or("tuned.squall".into(), |s| s.path().display().to_string());
    Err(Error::Usage {
        message: format!(
            "{} of {} kernels have no winner on this device with this toolchain ({}; {}): {}{more}",
            missed.len(),
            tasks.len(),
            at.device_name(),
            at.place.toolchain,
            named.join(", ")
        ),
        hint: format!(
            "`squall tune '{}' --trials-per-task 64 --store '{store}'` tunes them, with the same \
             --target, --isa, --threads and --dim; without --locked they are guessed",
            input.source
        ),
    })
}
