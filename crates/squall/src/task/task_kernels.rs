//! The tunables of a task: everything that can make a kernel for it. (A tunable is a space of
//! configurations and a function from a configuration to a kernel source.) For a tensor expression
//! they are sketches that the compiler derives by rule; for a user's kernel they come from its
//! kernel.toml. Also the task's untuned loops, from which gains are counted, and its reference,
//! with which results must agree.

use crate::base::error::Error;
use crate::input::user_input::Input;
use crate::target::belief::least_time;
use crate::target::roof::Roof;
use squall_compiler::{Wanted, reference, sketches, sketches_wanted, untuned};
use squall_core::{
    Candidate, Nanos, Reference, Target, TargetKind, Task, TaskSetup, Tunable, Workload,
    find_candidate, is_untuned,
};
use squall_frontend::UserKernel;
use std::sync::Arc;

/// The tunables of one task.
pub struct TaskKernels {
    /// The tunables whose configurations are candidates.
    pub tunables: Vec<Arc<dyn Tunable>>,
    /// The untuned loops, from which gains are counted.
    pub plain: Arc<dyn Tunable>,
    own: Option<UserKernel>,
    /// Tunables of the task that this session does not search.
    unsearched: Vec<Arc<dyn Tunable>>,
    /// Whether all tunables of the task are known, so that a stored candidate of another tunable is
    /// of no use.
    is_complete: bool,
    /// A stored time below this is not believed.
    pub(crate) least: Nanos,
}

impl TaskKernels {
    /// The tunables of a task that may be a user kernel; an error where the target cannot run it.
    pub fn new(task: &Task, own: &[UserKernel], target: &Target) -> Result<TaskKernels, Error> {
        Ok(match own.iter().find(|k| k.task.id == task.id) {
            Some(k) => {
                let k = on(k, target)?;
                TaskKernels {
                    tunables: vec![k.tunable.clone()],
                    plain: k.plain.clone(),
                    own: Some(k),
                    unsearched: Vec::new(),
                    is_complete: true,
                    least: least_time(&task.workload, target, None),
                }
            }
            // The source of a user kernel that is not in the input is not at hand.
            None if task.workload.foreign.is_some() => TaskKernels::empty(task, target),
            None => TaskKernels::generated(task, target),
        })
    }

    /// The tunables of a task that is not searched: only its baseline.
    pub fn empty(task: &Task, target: &Target) -> TaskKernels {
        TaskKernels {
            tunables: Vec::new(),
            plain: untuned(&task.workload, target),
            own: None,
            unsearched: Vec::new(),
            is_complete: false,
            least: least_time(&task.workload, target, None),
        }
    }

    /// The tunables of a task whose kernels are derived by rule.
    pub fn generated(task: &Task, target: &Target) -> TaskKernels {
        TaskKernels {
            tunables: sketches(&task.workload, target),
            is_complete: true,
            ..TaskKernels::empty(task, target)
        }
    }

    /// Like `generated`, but only the tunables whose names are wanted, if there are any.
    pub fn wanted(task: &Task, target: &Target, wanted: &Wanted<'_>) -> TaskKernels {
        TaskKernels {
            tunables: sketches_wanted(&task.workload, target, wanted),
            ..TaskKernels::empty(task, target)
        }
    }

    /// Believes no stored time that lies far above a measured roof.
    pub fn with_roof(mut self, task: &Task, target: &Target, roof: Option<&Roof>) -> TaskKernels {
        self.least = least_time(&task.workload, target, roof);
        self
    }

    /// Searches only the tunables that `keep` chooses; the others still hold what they won.
    pub fn search_only(&mut self, keep: &dyn Fn(&str) -> bool) {
        let all = std::mem::take(&mut self.tunables);
        let (kept, others) = all.into_iter().partition(|t| keep(t.name()));
        self.tunables = kept;
        self.unsearched.extend::<Vec<_>>(others);
    }

    /// Whether a stored candidate can be made here, as far as that is known.
    pub fn makes(&self, tunable: &str, configuration: &str) -> bool {
        !self.is_complete
            || is_untuned(tunable)
            || self.candidate(tunable, configuration).is_some()
            || find_candidate(&self.unsearched, tunable, configuration).is_some()
    }

    /// Whether a stored candidate may hold the task: it can be made, and its time can be.
    pub fn accepts(&self, tunable: &str, configuration: &str, time: Option<Nanos>) -> bool {
        time.is_none_or(|t| t.0 >= self.least.0) && self.makes(tunable, configuration)
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

    /// The facts of the task that a measurer needs, with inputs from `seed`.
    pub fn setup(&self, task: &Task, seed: u64) -> TaskSetup {
        let reference = self.reference(task, &format!("{}_reference", symbol_of(task)));
        TaskSetup::new(task.workload.clone(), reference, seed)
    }

    /// The reference that kernels must agree with.
    pub fn reference(&self, task: &Task, symbol: &str) -> Reference {
        match &self.own {
            Some(k) => k.reference(symbol),
            None => reference(&task.workload, symbol).into(),
        }
    }
}

/// The baseline of expressions.
pub(crate) const PLAIN: &str = "plain loops";

/// The name of the baseline, from which gains are counted: plain loops made from the expression,
/// or a user's kernel with its default configuration.
pub fn baseline(workload: &Workload) -> &'static str {
    if workload.foreign.is_some() { "knobs' defaults" } else { PLAIN }
}

/// A C name for a task: readable, and unique through the id.
pub fn symbol_of(task: &Task) -> String {
    let clean: String = task
        .name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' })
        .take(60)
        .collect();
    let id = task.id.to_string();
    format!("squall_{}_{}", clean.trim_matches('_'), &id[..8])
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
    /// The tunables of one of its tasks.
    pub fn task_kernels(&self, task: &Task, target: &Target) -> Result<TaskKernels, Error> {
        TaskKernels::new(task, self.own(), target)
    }
}
