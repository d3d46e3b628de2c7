//! How the kernels of a task are made: by rule from its expression, or from the user's own source.

use crate::input::Input;
use squall_compiler::{reference, sketches, untuned};
use squall_core::{Reference, Target, Task, Tunable};
use squall_frontend::OwnKernel;
use std::sync::Arc;

/// What makes a task's kernels.
pub(crate) struct Kit {
    /// Where candidates come from.
    pub tunables: Vec<Arc<dyn Tunable>>,
    /// What gains are counted from.
    pub plain: Arc<dyn Tunable>,
    own: Option<OwnKernel>,
}

impl Kit {
    /// Of a task that may be the user's own.
    pub fn new(task: &Task, own: &[OwnKernel], target: &Target) -> Kit {
        match own.iter().find(|k| k.task.id == task.id) {
            Some(k) => Kit { tunables: vec![k.tunable.clone()], plain: k.plain.clone(), own: Some(k.clone()) },
            // Its source is not at hand, and its expression means nothing.
            None if task.workload.foreign.is_some() => Kit::empty(task, target),
            None => Kit { tunables: sketches(&task.workload, target), plain: untuned(&task.workload, target), own: None },
        }
    }

    /// Of a task that has no turn: nothing is made for it.
    pub fn empty(task: &Task, target: &Target) -> Kit {
        Kit { tunables: Vec::new(), plain: untuned(&task.workload, target), own: None }
    }

    /// Of a task that is made by rule.
    pub fn generated(task: &Task, target: &Target) -> Kit {
        Kit::new(task, &[], target)
    }

    /// What the kernels must agree with.
    pub fn reference(&self, task: &Task, symbol: &str) -> Reference {
        match &self.own {
            Some(k) => k.reference(symbol),
            None => reference(&task.workload, symbol).into(),
        }
    }
}

impl Input {
    /// What makes the kernels of one of its tasks.
    pub(crate) fn kit(&self, task: &Task, target: &Target) -> Kit {
        Kit::new(task, &self.own, target)
    }
}
