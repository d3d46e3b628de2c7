//! What all phases of a session share: how it searches, the device, the store, the predictors.

use crate::base::error::Error;
use crate::base::recorder::Recorder;
use crate::predict::general::GeneralPredictor;
use crate::target::roof::Roof;
use crate::target::target_context::TargetContext;
use crate::task::task_kernels::TaskKernels;
use crate::task::task_state::TaskState;
use crate::task::trials::BATCH;
use crate::tuning::report::StopReason;
use crate::tuning::task_search::{Found, Tally};
use squall_core::{Record, Task};
use squall_predict::Predictor;
use squall_predict::task::TaskModel;
use squall_search::StrategyInfo;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Kernels of a batch for each GPU, where all cores but one compile: two for each of 16 cores, so
/// that no core waits for the slowest kernel.
const BATCH_MOST: usize = 32;

/// How a session searches, whatever its phases are given.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionRequest<'a> {
    /// Of everything random.
    pub seed: u64,
    /// Threads that a kernel may use, as the report says it.
    pub threads: usize,
    /// The strategy's name; the usual one if none.
    pub strategy: Option<&'a str>,
    /// Only sketches whose name matches, where any does.
    pub sketch: Option<&'a str>,
    /// Whether similar tasks and the general predictor say what is tried first.
    pub transfer: bool,
    /// A predictor trained on records.
    pub predictor: Option<&'a Path>,
    /// Whether the machine's roof is measured first.
    pub roof: bool,
}

/// What all phases of a session share.
pub(crate) struct SessionContext<'a> {
    pub request: SessionRequest<'a>,
    pub at: &'a TargetContext,
    pub recorder: Recorder<'a>,
    pub stop: &'a AtomicBool,
    pub strategy: &'static StrategyInfo,
    /// A predictor of this device's tasks.
    pub learned: Option<Predictor>,
    /// What is asked where there is no such predictor.
    pub general: Option<Arc<GeneralPredictor>>,
}

impl SessionContext<'_> {
    /// What the predictor of this device learned of tasks.
    pub fn model(&self) -> Result<Option<&TaskModel>, Error> {
        Ok(self.learned.as_ref().map(Predictor::tasks).transpose()?)
    }

    /// Trials between two decisions.
    pub fn batch(&self) -> usize {
        let gpus = self.at.gpus.len();
        if gpus == 0 { BATCH } else { BATCH_MOST * gpus }
    }

    /// What the store knows of a task here.
    pub fn known(&self, task: &Task) -> Result<Vec<Record>, Error> {
        let place = &self.at.place;
        let device = place.device.to_string();
        Ok(self.recorder.store.trials(task.id, &device, &place.toolchain)?)
    }

    /// What the store says of a task that had no turn; `stop` says why it had none.
    pub fn recall(
        &self,
        task: &Task,
        roof: Option<&Roof>,
        stop: StopReason,
    ) -> Result<Found, Error> {
        // Reporting needs no sketches, and those of a large model take minutes.
        let target = &self.at.target;
        let kernels = TaskKernels::empty(task, target).with_roof(task, target, roof);
        let mut state = TaskState::new(task, kernels);
        let mut tally = Tally::default();
        tally.learn(&state.learn(self.known(task)?));
        Ok(Found::new(&state, tally, stop))
    }
}
