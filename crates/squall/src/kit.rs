//! How the kernels of a task are made: by rule from its expression, or from the user's own source.

use crate::error::Error;
use crate::input::Input;
use squall_compiler::{reference, sketches, untuned};
use squall_core::{Reference, Target, TargetKind, Task, Tunable};
use squall_frontend::UserKernel;
use std::sync::Arc;

/// What makes a task's kernels.
pub(crate) struct Kit {
    /// Where candidates come from.
    pub tunables: Vec<Arc<dyn Tunable>>,
    /// What gains are counted from.
    pub plain: Arc<dyn Tunable>,
    own: Option<UserKernel>,
}

impl Kit {
    /// Of a task that may be the user's own; an error where the target has no place for that.
    pub fn new(task: &Task, own: &[UserKernel], target: &Target) -> Result<Kit, Error> {
        Ok(match own.iter().find(|k| k.task.id == task.id) {
            Some(k) => {
                let k = on(k, target)?;
                Kit { tunables: vec![k.tunable.clone()], plain: k.plain.clone(), own: Some(k) }
            }
            // Its source is not at hand, and its expression means nothing.
            None if task.workload.foreign.is_some() => Kit::empty(task, target),
            None => Kit::generated(task, target),
        })
    }

    /// Of a task that has no turn: nothing is made for it.
    pub fn empty(task: &Task, target: &Target) -> Kit {
        Kit { tunables: Vec::new(), plain: untuned(&task.workload, target), own: None }
    }

    /// Of a task that is made by rule.
    pub fn generated(task: &Task, target: &Target) -> Kit {
        Kit {
            tunables: sketches(&task.workload, target),
            plain: untuned(&task.workload, target),
            own: None,
        }
    }

    /// Whether what the kernels must agree with runs on a GPU too.
    pub fn is_reference_cuda(&self) -> bool {
        self.own
            .as_ref()
            .and_then(|k| k.reference("r").kernel)
            .is_some_and(|k| k.language.is_launched())
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
    pub(crate) fn kit(&self, task: &Task, target: &Target) -> Result<Kit, Error> {
        Kit::new(task, &self.own, target)
    }
}
