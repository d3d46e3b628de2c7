//! The state that a session uses while its measurer is busy: device, recorder, budget, counts,
//! clock and listener. [`SessionRecorder`] is its side of the trial loop: it writes each trial to
//! the store, updates the task's state and tells the listener (progress display).

use crate::base::error::Error;
use crate::base::recorder::Recorder;
use crate::target::roof::Roof;
use crate::target::target_context::TargetContext;
use crate::task::event::{Event, Listen, Progress};
use crate::task::task_state::{TaskState, name_of};
use crate::task::trials::TrialRecorder;
use crate::tuning::runoff::Met;
use crate::tuning::settings::Budget;
use crate::tuning::task_search::{Tally, count_trial};
use squall_core::{Candidate, CandidateText, CpuCost, RecordKind, Trial, Verdict};
use squall_search::StrategyInfo;
use std::time::Instant;

/// The number of a task's trials without a single time after which the user is warned.
const TROUBLE: u64 = 32;

/// What a session knows while the measurer is busy.
pub(crate) struct SessionContext<'l, 'e> {
    pub at: TargetContext,
    pub recorder: Recorder<'l>,
    pub budget: Budget,
    pub roof: Option<Roof>,
    pub strategy: &'static StrategyInfo,
    /// How many tasks there are.
    pub tasks: usize,
    /// The seed of everything random in the search.
    pub seed: u64,
    /// Trials between two decisions.
    pub batch: usize,
    pub start: Instant,
    /// When the first trials were asked for: what came before says nothing of their rate.
    pub searching: Option<Instant>,
    pub deadline: Option<Instant>,
    /// Trials made so far.
    pub made: u64,
    /// The cost of opening the measurer, which is counted to the first task.
    pub opening: CpuCost,
    pub listen: &'l mut Listen<'e>,
}

impl SessionContext<'_, '_> {
    /// How a task stands among all.
    fn progress(&self, state: &TaskState, tally: &Tally) -> Progress {
        let b = &self.budget;
        let elapsed = self.start.elapsed().as_secs_f64();
        let searching = self.searching.map_or(0.0, |s| s.elapsed().as_secs_f64());
        let rate = self.made as f64 / searching.max(1e-3);
        let planned = b.trials.or(b.task_trials.map(|n| n * self.tasks as u64));
        let by_trials = planned.map(|p| p.saturating_sub(self.made) as f64 / rate.max(1e-9));
        let all_seconds = b.seconds.or(b.task_seconds.map(|s| s * self.tasks as f64));
        let by_time = all_seconds.map(|s| (s - elapsed).max(0.0));
        let operations = state
            .standings
            .winner()
            .map_or_else(|| state.task.workload.flop(), |w| state.operations(w.0));
        let workload = &state.task.workload;
        let share = |roof: &Roof| Some(roof.bound_of(workload, operations).0 / tally.best?.0);
        Progress {
            name: state.task.name.clone(),
            best: tally.best,
            gflops: tally.best.filter(|_| operations > 0).map(|t| t.giga_rate(operations as f64)),
            share: self.roof.as_ref().and_then(share),
            trials: (self.made, planned),
            rate,
            left: by_trials.into_iter().chain(by_time).reduce(f64::min),
        }
    }

    /// Counts a meeting with the incumbent and lets it be known.
    pub fn meeting(&mut self, state: &TaskState, tally: &mut Tally, met: &Met) {
        match met {
            Met::Measured(m) => {
                tally.cost += m.cost;
                (self.listen)(Event::Rematch {
                    task: state.task,
                    challenger: m.challenger.median(),
                    incumbent: m.incumbent.median(),
                    faster: m.verdict == Verdict::Faster,
                });
            }
            Met::Failed { outcome, .. } => tally.failures.add(outcome),
            Met::Gone => {}
        }
    }
}

/// Appends each trial of a task to the store, then counts it and lets it be known.
pub(crate) struct SessionRecorder<'r, 't, 'l, 'e> {
    pub context: &'r mut SessionContext<'l, 'e>,
    pub state: &'r mut TaskState<'t>,
    pub tally: &'r mut Tally,
}

impl TrialRecorder for SessionRecorder<'_, '_, '_, '_> {
    fn begin(&mut self, candidates: &[Candidate]) {
        let texts: Vec<String> =
            candidates.iter().map(|c| CandidateText::from(c).to_string()).collect();
        (self.context.listen)(Event::Batch { candidates: &texts });
    }

    fn record(&mut self, mut trial: Trial, search: f64) -> Result<Trial, Error> {
        trial.cost.search = search;
        let name = name_of(&trial.candidate);
        let record = self.context.recorder.keep(
            self.state.task,
            RecordKind::Trial,
            &name,
            trial.outcome.clone(),
            trial.cost,
        )?;
        self.context.made += 1;
        count_trial(self.state, self.tally, &trial);
        if self.tally.trials == TROUBLE && self.tally.failed == TROUBLE {
            let classes: Vec<String> = self
                .tally
                .failures
                .top(3)
                .iter()
                .map(|c| format!("{} ({}x): {}", c.stage, c.count, c.detail))
                .collect();
            (self.context.listen)(Event::Trouble(format!(
                "the first {TROUBLE} trials of {} all failed; {}",
                self.state.task.name,
                classes.join("; ")
            )));
        }
        let progress = self.context.progress(self.state, self.tally);
        (self.context.listen)(Event::Trial { record: &record, progress: &progress });
        Ok(trial)
    }
}
