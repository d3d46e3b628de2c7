//! How the kernels of a task are made: by rule from its expression, or from the user's source.

use crate::error::Error;
use crate::input::Input;
use squall_compiler::{reference, sketches, untuned};
use squall_core::{
    Candidate, Reference, Target, TargetKind, Task, TaskSetup, Tunable, find_candidate,
};
use squall_frontend::UserKernel;
use std::sync::Arc;

/// What makes a task's kernels.
pub struct TaskKernels {
    /// Where candidates come from.
    pub tunables: Vec<Arc<dyn Tunable>>,
    /// What gains are counted from.
    pub plain: Arc<dyn Tunable>,
    own: Option<UserKernel>,
}

impl TaskKernels {
    /// Those of a task that may be a user kernel; an error where the target cannot run it.
    pub fn new(task: &Task, own: &[UserKernel], target: &Target) -> Result<TaskKernels, Error> {
        Ok(match own.iter().find(|k| k.task.id == task.id) {
            Some(k) => {
                let k = on(k, target)?;
                TaskKernels {
                    tunables: vec![k.tunable.clone()],
                    plain: k.plain.clone(),
                    own: Some(k),
                }
            }
            // The source of a user kernel that is not in the input is not at hand.
            None if task.workload.foreign.is_some() => TaskKernels::empty(task, target),
            None => TaskKernels::generated(task, target),
        })
    }

    /// Those of a task that is not searched: only its baseline.
    pub fn empty(task: &Task, target: &Target) -> TaskKernels {
        TaskKernels { tunables: Vec::new(), plain: untuned(&task.workload, target), own: None }
    }

    /// Those of a task that is made by rule.
    pub fn generated(task: &Task, target: &Target) -> TaskKernels {
        TaskKernels {
            tunables: sketches(&task.workload, target),
            plain: untuned(&task.workload, target),
            own: None,
        }
    }

    /// The candidate of these names, if it can be made.
    pub fn candidate(&self, tunable: &str, configuration: &str) -> Option<Candidate> {
        find_candidate(&self.tunables, tunable, configuration)
    }

    /// Whether what the kernels must agree with runs on a GPU too.
    pub fn is_reference_cuda(&self) -> bool {
        self.own
            .as_ref()
            .and_then(|k| k.reference("r").kernel)
            .is_some_and(|k| k.language.is_launched())
    }

    /// What a measurer needs to know of the task, with inputs from `seed`.
    pub fn setup(&self, task: &Task, seed: u64) -> TaskSetup {
        let reference = self.reference(task, "squall_reference");
        TaskSetup::new(task.workload.clone(), reference, seed)
    }

    /// What the kernels must agree with.
    pub fn reference(&self, task: &Task, symbol: &str) -> Reference {
        match &self.own {
            Some(k) => k.reference(symbol),
            None => reference(&task.workload, symbol).into(),
        }
    }
}

/// A user's kernel where it shall run.
fn on(k: &UserKernel, target: &Target) -> Result<UserKernel, Error> {
    let fault = |message: String, hint: &str| Error::Input {
        place: k.task.name.clone(),
        message,
        hint: hint.into(),
    };
    match target.kind {
        TargetKind::Cuda(gpu) if k.is_cuda() => {
            let hint = "the constraints may name the device's limits: max_threads, max_shared, \
                        multiprocessors";
            k.on(&gpu).map_err(|e| fault(e, hint))
        }
        TargetKind::Cuda(_) => Err(fault(
            "it is a kernel in C, which no GPU runs".into(),
            "leave out --target, or say `--target cpu`",
        )),
        TargetKind::Cpu if k.is_cuda() => {
            Err(fault("it is a kernel in CUDA, which no CPU runs".into(), "say `--target cuda`"))
        }
        TargetKind::Cpu => Ok(k.clone()),
    }
}

impl Input {
    /// What makes the kernels of one of its tasks.
    pub fn task_kernels(&self, task: &Task, target: &Target) -> Result<TaskKernels, Error> {
        TaskKernels::new(task, &self.own, target)
    }
}
