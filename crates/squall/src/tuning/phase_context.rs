//! What a phase of a session knows and counts while its measurer is busy: the budget, the clock,
//! the listener.

use crate::base::error::Error;
use crate::target::roof::Roof;
use crate::task::event::{Event, Listen, Progress};
use crate::task::task_state::{TaskState, name_of};
use crate::task::trials::TrialRecorder;
use crate::tuning::runoff::Met;
use crate::tuning::session_context::SessionContext;
use crate::tuning::settings::Budget;
use crate::tuning::task_search::{Tally, count_trial};
use squall_core::{Candidate, CandidateText, CpuCost, RecordKind, Trial, Verdict};
use std::time::Instant;

/// After so many trials of a task without a single time, the user is told.
const TROUBLE: u64 = 32;

/// What is needed while the measurer is busy.
pub(crate) struct PhaseContext<'p> {
    pub session: &'p SessionContext<'p>,
    pub budget: Budget,
    pub roof: Option<Roof>,
    /// How many tasks there are.
    pub tasks: usize,
    /// Of all that is random in the search.
    pub seed: u64,
    pub start: Instant,
    /// When the first trials were asked for: what came before says nothing of their rate.
    pub searching: Option<Instant>,
    /// When no further trial is asked for.
    pub deadline: Option<Instant>,
    /// Trials made so far.
    pub made: u64,
    /// What opening the measurer cost; the first task pays.
    pub opening: CpuCost,
    pub listen: &'p mut Listen<'p>,
}

impl PhaseContext<'_> {
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
pub(crate) struct PhaseRecorder<'r, 't, 'p> {
    pub context: &'r mut PhaseContext<'p>,
    pub state: &'r mut TaskState<'t>,
    pub tally: &'r mut Tally,
}

impl TrialRecorder for PhaseRecorder<'_, '_, '_> {
    fn begin(&mut self, candidates: &[Candidate]) {
        let texts: Vec<String> =
            candidates.iter().map(|c| CandidateText::from(c).to_string()).collect();
        (self.context.listen)(Event::Batch { candidates: &texts });
    }

    fn record(&mut self, mut trial: Trial, search: f64) -> Result<Trial, Error> {
        trial.cost.search = search;
        let name = name_of(&trial.candidate);
        let record = self.context.session.recorder.keep(
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
