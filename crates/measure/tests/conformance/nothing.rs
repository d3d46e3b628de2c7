//! The smallest possible measurer, which finds every candidate infeasible: it shows what adding a
//! measurer takes.

use squall_core::{
    CpuCost, Job, JobResult, Measurer, MeasurerError, MeasurerIdentity, Outcome, Rematch, TaskSetup,
};
use std::sync::atomic::AtomicBool;

/// Finds every candidate impossible.
pub struct Nothing(pub MeasurerIdentity);

impl Measurer for Nothing {
    fn identity(&self) -> &MeasurerIdentity {
        &self.0
    }

    fn set_task(&mut self, _: &TaskSetup) -> Result<(), MeasurerError> {
        Ok(())
    }

    fn run(
        &mut self,
        jobs: &[Job],
        _: &AtomicBool,
        each: &mut dyn FnMut(JobResult),
    ) -> Result<(), MeasurerError> {
        let no = || Outcome::Infeasible("nothing runs here".into());
        (0..jobs.len()).for_each(|i| each(JobResult::new(i, no(), CpuCost::default())));
        Ok(())
    }

    fn rematch(&mut self, _: &Job, _: &Job) -> Result<Rematch, MeasurerError> {
        Err(MeasurerError::Contender { challenger: true, detail: "nothing runs here".into() })
    }

    fn overhead(&self) -> CpuCost {
        CpuCost::default()
    }
}
