//! The verb behind `squall advise`: says which kernel to use now for each task of an input, without
//! compiling or measuring anything. The answer is the store's winner, or else the winner of the
//! most similar task, the general predictor's first candidate, or plain loops. An untuned task is
//! left in the store as a wish, for a worker to tune later.

use crate::base::error::Error;
use crate::inference::wishes::{leave, wish};
use crate::input::input_request::InputRequest;
use crate::predict::choose::serving;
use crate::predict::general::{Effort, Predictors};
use crate::predict::transfer::{TransferSource, guesses, transfer_sources};
use crate::target::target_context::{Context, TargetContext};
use crate::target::target_request::TargetRequest;
use crate::task::task_kernels::TaskKernels;
use crate::task::task_state::{TaskState, name_of};
use squall_core::{Caches, Candidate, KernelSource, Nanos, Task};
use squall_frontend::UserKernel;
use squall_records::{Query, Store};
use std::path::PathBuf;
use std::time::Instant;

/// A question for advice.
#[derive(Clone, Debug, PartialEq)]
pub struct AdviseRequest {
    /// The tasks.
    pub input: InputRequest,
    /// The store that has winners and takes wishes.
    pub store: Option<PathBuf>,
    /// The device that kernels are for.
    pub target: TargetRequest,
    /// Threads that a kernel may use; of no meaning on a GPU.
    pub threads: usize,
    /// What the caches hold when a kernel is called.
    pub caches: Caches,
    /// Only tasks whose name or id matches.
    pub only: Option<String>,
    /// Whether what is not tuned leaves a wish in the store.
    pub wish: bool,
    /// Seconds that each task has taken since it was last asked for, if they are known.
    pub seconds: f64,
}

impl AdviseRequest {
    /// A request with one thread that leaves wishes.
    pub fn new(input: InputRequest, store: Option<PathBuf>) -> AdviseRequest {
        AdviseRequest {
            input,
            store,
            target: TargetRequest::Cpu,
            threads: 1,
            caches: Caches::Warm,
            only: None,
            wish: true,
            seconds: 0.0,
        }
    }
}

/// Where advice comes from, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdviceSource {
    /// The store's winner on this device with this toolchain.
    Tuned,
    /// The store's winner of this task on another device or with another toolchain.
    Elsewhere,
    /// It holds the most similar tuned task.
    Similar,
    /// The general predictor ranks it first. It was neither built nor checked here.
    Predicted,
    /// Plain loops: nothing better can be made.
    Plain,
}

impl AdviceSource {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            AdviceSource::Tuned => "tuned",
            AdviceSource::Elsewhere => "elsewhere",
            AdviceSource::Similar => "similar",
            AdviceSource::Predicted => "predicted",
            AdviceSource::Plain => "plain",
        }
    }
}

/// The kernel to use for a task now.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// The task.
    pub task: Task,
    /// The tunable.
    pub tunable: String,
    /// The configuration's text.
    pub configuration: String,
    /// The kernel.
    pub kernel: KernelSource,
    /// Where it comes from.
    pub source: AdviceSource,
    /// The time that the store has of it on this device.
    pub expected: Option<Nanos>,
    /// When that was measured, in seconds since 1970, UTC.
    pub measured: Option<f64>,
    /// Seconds that the advice took.
    pub seconds: f64,
}

/// Advice for all tasks of an input.
#[derive(Clone, Debug, PartialEq)]
pub struct Advised {
    /// The device.
    pub device: String,
    /// The toolchain.
    pub toolchain: String,
    /// Task by task.
    pub tasks: Vec<Advice>,
    /// Wishes that were left in the store.
    pub wishes: usize,
}

/// Says which kernel to use for each task now: the store's winner, else what holds the nearest
/// relative, else what the general predictor ranks first, and plain loops only where it says so.
/// Nothing is compiled or measured; a context that was used before answers in milliseconds. What is
/// not tuned leaves a wish in the store.
pub fn advise(context: &Context, request: &AdviseRequest) -> Result<Advised, Error> {
    let at = context.target(request.target, request.threads)?.with_caches(request.caches);
    let there = request.store.as_ref().filter(|p| p.exists());
    let store = there.map(Store::open_read_only).transpose()?;
    let input = request.input.load(request.target)?;
    let advisor = Advisor {
        at: &at,
        own: input.own(),
        predictors: Predictors::of(None)?,
        sources: match &store {
            Some(s) => transfer_sources(s, &at.place, &[])?,
            None => Vec::new(),
        },
        store: store.as_ref(),
    };
    let mut tasks = Vec::new();
    for task in input.select(request.only.as_deref())? {
        tasks.push(advisor.one(task)?);
    }
    drop(store);
    let is_wished =
        |a: &&Advice| a.source != AdviceSource::Tuned && a.task.workload.foreign.is_none();
    let wishes: Vec<_> = tasks
        .iter()
        .filter(is_wished)
        .map(|a| wish(&a.task, &at, a.task.count.max(1), request.seconds))
        .collect();
    let is_left = request.wish && leave(request.store.as_deref(), &wishes, &at);
    Ok(Advised {
        device: at.device_name(),
        toolchain: at.place.toolchain.clone(),
        tasks,
        wishes: if is_left { wishes.len() } else { 0 },
    })
}

struct Advisor<'a> {
    at: &'a TargetContext,
    own: &'a [UserKernel],
    store: Option<&'a Store>,
    predictors: Predictors,
    sources: Vec<TransferSource>,
}

impl Advisor<'_> {
    /// The kernels that may be advised. Where no record says anything, those suffice whose names
    /// hold similar tasks, beside Winograd's: opening the spaces of all would take longer than the
    /// answer may.
    fn kernels(&self, task: &Task) -> Result<TaskKernels, Error> {
        let target = &self.at.target;
        let is_known = match self.store {
            Some(s) => !s.summaries(&Query::task(task.id))?.is_empty(),
            None => false,
        };
        if !is_known
            && self.sources.is_empty()
            && task.workload.foreign.is_none()
            && let Some(general) = &self.predictors.general
        {
            let names = general.names(task, target);
            let is_winograd = |name: &str| name.contains("winograd");
            let wanted = |name: &str| is_winograd(name) || names.contains(&name);
            let kernels = TaskKernels::wanted(task, target, &wanted);
            // Similar tasks may have a border where this one has none: their tiles are no help.
            if kernels.tunables.iter().any(|t| !is_winograd(t.name())) {
                return Ok(kernels);
            }
        }
        TaskKernels::new(task, self.own, target)
    }

    /// What holds the most similar tuned task, else what the general predictor ranks first.
    fn first(&self, state: &TaskState) -> Option<(Candidate, AdviceSource)> {
        let similar = guesses(state, std::iter::empty(), &self.sources, 1).into_iter().next();
        if let Some(candidate) = similar {
            return Some((candidate, AdviceSource::Similar));
        }
        let (tunables, target) = (&state.kernels.tunables, &self.at.target);
        let general = self.predictors.general.as_ref()?;
        let found = general.ask(state.task, tunables, target, Effort::Least, 1);
        Some((found.into_iter().next()?, AdviceSource::Predicted))
    }

    fn one(&self, task: &Task) -> Result<Advice, Error> {
        let start = Instant::now();
        let mut state = TaskState::new(task, self.kernels(task)?);
        let advice = |tunable: &str, configuration: &str, kernel, source| Advice {
            task: task.clone(),
            tunable: tunable.into(),
            configuration: configuration.into(),
            kernel,
            source,
            expected: None,
            measured: None,
            seconds: start.elapsed().as_secs_f64(),
        };
        let stored = match self.store {
            Some(s) => serving(&state, s, self.at, &state.symbol, true)?,
            None => None,
        };
        if let Some((kernel, r, is_here)) = stored {
            let source = if is_here { AdviceSource::Tuned } else { AdviceSource::Elsewhere };
            let mut known = advice(&r.tunable, &r.configuration, kernel, source);
            (known.expected, known.measured) = (r.outcome.time(), Some(r.time));
            // A time of another machine is none of this one's.
            known.expected = known.expected.filter(|_| is_here);
            return Ok(known);
        }
        let mut first = self.first(&state);
        if first.is_none() {
            let all = TaskKernels::new(task, self.own, &self.at.target)?;
            state = TaskState::new(task, all);
            first = self.first(&state);
        }
        if let Some((candidate, source)) = first {
            let name = name_of(&candidate);
            if let Some(kernel) = state.source(&name) {
                return Ok(advice(&name.0, &name.1, kernel, source));
            }
        }
        let plain = &state.kernels.plain;
        let configuration = plain.space().nth(0);
        let kernel = plain
            .realize(&configuration, &state.symbol)
            .map_err(|e| Error::Nothing(format!("`{}` cannot be made untuned: {e}", task.name)))?;
        let text = configuration.to_string();
        Ok(advice(plain.name(), &text, kernel, AdviceSource::Plain))
    }
}
