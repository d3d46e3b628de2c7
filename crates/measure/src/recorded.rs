//! A measurer over a recording (a space of which every configuration was measured): outcomes are
//! looked up by the candidate's text, and no kernel is built or run. `squall replay` compares
//! search strategies on it.

use crate::rematch::of_outcomes;
use squall_core::{
    CandidateText, CpuCost, Job, JobResult, Measurer, MeasurerError, MeasurerIdentity, Outcome,
    Rematch, TaskSetup,
};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Looks outcomes up by the candidates' texts.
pub struct RecordedMeasurer {
    identity: MeasurerIdentity,
    trials: Arc<HashMap<CandidateText, (Outcome, CpuCost)>>,
    has_task: bool,
}

impl RecordedMeasurer {
    /// A recording of one task. Many measurers may share it.
    pub fn new(
        identity: MeasurerIdentity,
        trials: Arc<HashMap<CandidateText, (Outcome, CpuCost)>>,
    ) -> RecordedMeasurer {
        RecordedMeasurer { identity, trials, has_task: false }
    }

    /// What the recording says of a candidate. One that it lacks was never tried, which is no
    /// failure of the kernel.
    fn trial(&self, job: &Job) -> (Outcome, CpuCost) {
        self.trials.get(&job.candidate).cloned().unwrap_or_else(|| {
            (Outcome::Infeasible("the recording lacks it".into()), CpuCost::default())
        })
    }

    fn check(&self) -> Result<(), MeasurerError> {
        if self.has_task { Ok(()) } else { Err(MeasurerError::no_task()) }
    }
}

impl Measurer for RecordedMeasurer {
    fn identity(&self) -> &MeasurerIdentity {
        &self.identity
    }

    fn needs_source(&self) -> bool {
        false
    }

    /// The recording is of one task, which the caller names.
    fn set_task(&mut self, _: &TaskSetup) -> Result<(), MeasurerError> {
        self.has_task = true;
        Ok(())
    }

    fn run(
        &mut self,
        jobs: &[Job],
        stop: &AtomicBool,
        each: &mut dyn FnMut(JobResult),
    ) -> Result<(), MeasurerError> {
        self.check()?;
        for (i, job) in jobs.iter().enumerate() {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let (outcome, cost) = self.trial(job);
            each(JobResult::new(i, outcome, cost));
        }
        Ok(())
    }

    /// Both kernels' recorded samples are compared.
    fn rematch(&mut self, incumbent: &Job, challenger: &Job) -> Result<Rematch, MeasurerError> {
        self.check()?;
        of_outcomes(self.trial(incumbent).0, self.trial(challenger).0)
    }

    fn overhead(&self) -> CpuCost {
        CpuCost::default()
    }
}
