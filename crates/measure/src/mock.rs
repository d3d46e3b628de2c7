//! A measurer for tests: a function stands for the device. Input: jobs (kernels with their
//! candidates); output: the outcome that the function returns for each, or its error. The trial
//! loop's tests and the conformance suite use it.

use crate::rematch::of_outcomes;
use squall_core::{
    CpuCost, Job, JobResult, Measurer, MeasurerError, MeasurerIdentity, Outcome, Rematch, TaskSetup,
};
use std::sync::atomic::{AtomicBool, Ordering};

/// The function that gives a job's outcome and cost, or an error where nothing can be measured.
type Trial = Box<dyn FnMut(&TaskSetup, &Job) -> Result<(Outcome, CpuCost), MeasurerError> + Send>;

/// The function that says whether a task can be set.
type Check = Box<dyn FnMut(&TaskSetup) -> Result<(), MeasurerError> + Send>;

/// Asks a function for outcomes.
pub struct MockMeasurer {
    identity: MeasurerIdentity,
    trial: Trial,
    check: Check,
    needs_source: bool,
    task: Option<TaskSetup>,
}

impl MockMeasurer {
    /// A device of which `trial` says what becomes of a job, or why nothing can be measured.
    pub fn new(
        identity: MeasurerIdentity,
        trial: impl FnMut(&TaskSetup, &Job) -> Result<(Outcome, CpuCost), MeasurerError>
        + Send
        + 'static,
    ) -> MockMeasurer {
        MockMeasurer {
            identity,
            trial: Box::new(trial),
            check: Box::new(|_| Ok(())),
            needs_source: true,
            task: None,
        }
    }

    /// The same, where `check` says which tasks can be set.
    pub fn with_tasks(
        self,
        check: impl FnMut(&TaskSetup) -> Result<(), MeasurerError> + Send + 'static,
    ) -> MockMeasurer {
        MockMeasurer { check: Box::new(check), ..self }
    }

    /// The same, of jobs that need no sources.
    pub fn without_sources(self) -> MockMeasurer {
        MockMeasurer { needs_source: false, ..self }
    }

    fn trial(&mut self, job: &Job) -> Result<(Outcome, CpuCost), MeasurerError> {
        let task = self.task.as_ref().ok_or_else(MeasurerError::no_task)?;
        if self.needs_source {
            job.required_source()?;
        }
        (self.trial)(task, job)
    }
}

impl Measurer for MockMeasurer {
    fn identity(&self) -> &MeasurerIdentity {
        &self.identity
    }

    fn needs_source(&self) -> bool {
        self.needs_source
    }

    fn set_task(&mut self, task: &TaskSetup) -> Result<(), MeasurerError> {
        self.task = None;
        (self.check)(task)?;
        self.task = Some(task.clone());
        Ok(())
    }

    fn run(
        &mut self,
        jobs: &[Job],
        stop: &AtomicBool,
        each: &mut dyn FnMut(JobResult),
    ) -> Result<(), MeasurerError> {
        self.task.as_ref().ok_or_else(MeasurerError::no_task)?;
        for (i, job) in jobs.iter().enumerate() {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let (outcome, cost) = self.trial(job)?;
            each(JobResult::new(i, outcome, cost));
        }
        Ok(())
    }

    /// The samples of both kernels' outcomes are compared.
    fn rematch(&mut self, incumbent: &Job, challenger: &Job) -> Result<Rematch, MeasurerError> {
        of_outcomes(self.trial(incumbent)?.0, self.trial(challenger)?.0)
    }

    fn overhead(&self) -> CpuCost {
        CpuCost::default()
    }
}
