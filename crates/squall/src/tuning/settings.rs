//! The budget of a tuning session. Input: a [`BudgetRequest`] (trials, seconds) and the kind of
//! input; output: a [`Budget`] with limits per task and for all tasks. A model's tasks share the
//! budget; single kernels have the whole budget each. Parts of a model's seconds are kept for
//! timing the whole network.

use crate::input::user_input::InputKind;

/// How much may be spent; the first limit reached ends a task or the session. Trials are new
/// measurements: what the store knows already is not repeated and does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Budget {
    /// Trials of each task.
    pub task_trials: Option<u64>,
    /// Wall-clock seconds of each task.
    pub task_seconds: Option<f64>,
    /// Trials of all tasks together, shared out by expected gain.
    pub trials: Option<u64>,
    /// Wall-clock seconds of all tasks together, shared out by expected gain.
    pub seconds: Option<f64>,
}

/// The least seconds for a run-off of whole networks, which builds networks of close kernels and
/// runs them in turns.
pub(crate) const LEAST_RUN_OFF: f64 = 30.0;

/// The part of a model's seconds that is kept for the network as a whole: for its run-off, which
/// pays where there is time for many trials, and for timing inferences.
pub(crate) fn whole_network_seconds(seconds: f64) -> f64 {
    const RUN_OFF: (f64, f64) = (0.1, 60.0);
    const INFERENCE: (f64, f64) = (0.04, 5.0);
    let part = |(share, most): (f64, f64)| (seconds * share).min(most);
    if part(RUN_OFF) < LEAST_RUN_OFF + INFERENCE.1 { part(INFERENCE) } else { part(RUN_OFF) }
}

/// How much a user wants to spend. What that means depends on the input: see [`Budget::of`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BudgetRequest {
    /// Trials: of all tasks of a model together, of each of several kernels.
    pub trials: Option<u64>,
    /// Trials of each task, whatever the input.
    pub trials_per_task: Option<u64>,
    /// Seconds: for all tasks of a model together, for each of several kernels.
    pub seconds: Option<f64>,
}

impl Budget {
    /// What a request means for an input: the tasks of a model share a budget, each of several
    /// kernels has it for itself.
    pub fn of(request: BudgetRequest, kind: InputKind) -> Budget {
        let per_task = kind == InputKind::Kernels;
        Budget {
            task_trials: request.trials_per_task.or(request.trials.filter(|_| per_task)),
            trials: request.trials.filter(|_| !per_task),
            task_seconds: request.seconds.filter(|_| per_task),
            seconds: request.seconds.filter(|_| !per_task),
        }
    }

    /// The trials that each of `tasks` tasks may expect.
    pub fn expected_trials(&self, tasks: usize) -> usize {
        // Where time is the limit, half a second a trial is a fair guess.
        let seconds = self.task_seconds.or(self.seconds.map(|s| s / tasks as f64));
        let share = self.trials.map(|n| n.div_ceil(tasks as u64));
        self.task_trials.or(share).or(seconds.map(|s| (s * 2.0) as u64)).unwrap_or(1000).max(1)
            as usize
    }

    /// Whether tasks share a budget, so that it must be divided between them.
    pub fn is_shared(&self) -> bool {
        self.task_trials.is_none() && self.task_seconds.is_none()
    }
}
