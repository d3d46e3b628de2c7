//! Whole models as programs. Input: an input's assignment of operators to kernels, and a chosen
//! kernel for each task; output: a [`Network`], which can be run on arrays, timed layer by layer,
//! or exported as a library. The network runs in a program of its own, built from the kernels and
//! the C runtime (`runtime/host`), so that no kernel can harm this process. Its kernels run one
//! after the other over one region of memory; all that does not depend on the input is computed
//! ahead. `program.rs` and `device.rs` build, `files.rs` writes the plan, `trust/` verifies
//! generated code that was not tuned.

pub mod arena;
mod branches;
mod device;
mod files;
mod launch;
mod layout;
mod operands;
mod packed;
mod parts;
mod plain;
mod plain_steps;
mod ports;
mod program;
mod step_work;
mod trust;
mod units;
mod values;
pub mod varying;

use crate::base::error::Error;
use crate::inference::kernel_graph::{GraphKernel, KernelGraph};
use crate::input::arrays::NamedArray;
use crate::input::precision::Precision;
use crate::input::user_input::{Input, ModelInput};
use crate::input::weights::weights_but;
use crate::predict::choose::Chosen;
use crate::predict::counts::KernelCounts;
use crate::target::target_context::TargetContext;
use files::Places;
use layout::FileLayout;
pub use plain::Packing;
use plain::PlainOperators;
use program::{LinkedSource, Site};
use squall_core::graph::deciding_inputs;
use squall_core::{DType, KernelSource, Task, TaskId, TensorKind, Workload};
use squall_frontend::npy::Array;
use squall_graph::Assignment;
use squall_graph::assignment::flow::FlowStep;
use squall_graph::plan::{Plan, PlanStep, Work};
use squall_measure::cpu::{Device, Execution};
use squall_measure::{TemporaryFolder, end_with_us};
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use trust::MovesBuild;
use values::{ends, fitting};

pub use crate::input::weights::weights;
pub(crate) use parts::Kernel;
pub use plain_steps::{PlainRow, PlainSteps, PlainTime};
pub use step_work::StepWork;
pub use values::NetworkValue;

/// What chooses the kernels of tasks.
pub type MakeKernels<'a> = dyn FnMut(&[&Task]) -> Result<Vec<Chosen>, Error> + 'a;

/// The kind of code that makes a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerKind {
    /// A kernel: tuned, guessed, or plain loops where no better can be made.
    Kernel,
    /// A move of data.
    Move,
    /// A plain operator: C that is generated for a node without a kernel.
    Plain,
}

impl LayerKind {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            LayerKind::Kernel => "kernel",
            LayerKind::Move => "move",
            LayerKind::Plain => "plain",
        }
    }
}

/// A step with its time.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// The node; of a kernel the first of its nodes.
    pub node: String,
    /// The task's name, or the operator of a node without a kernel.
    pub name: String,
    /// The kind of code that makes it.
    pub kind: LayerKind,
    /// The task, of kernels.
    pub task: Option<TaskId>,
    /// The fastest of those inferences that were timed step by step; on a GPU, of the step repeated
    /// alone.
    pub best_ns: u64,
    /// The step between its neighbours, with their data in the caches; on a CPU it is the same. On
    /// a GPU a median, and 0 where the network ran once or the driver cannot tell.
    pub in_place_ns: u64,
}

/// The plain operators of one kind in a network, and their time.
#[derive(Clone, Debug, PartialEq)]
pub struct PlainShare {
    /// The operator.
    pub op: String,
    /// How many nodes.
    pub nodes: usize,
    /// Their time together.
    pub best_ns: u64,
    /// Of the time of all steps, from 0 to 1.
    pub share: f64,
}

/// The plain operators among layers, the slowest first.
pub fn plain_shares(layers: &[Layer]) -> Vec<PlainShare> {
    let total: u64 = layers.iter().map(|l| l.best_ns).sum();
    let mut list: Vec<PlainShare> = Vec::new();
    for l in layers.iter().filter(|l| l.kind == LayerKind::Plain) {
        let at = list.iter().position(|s| s.op == l.name).unwrap_or_else(|| {
            list.push(PlainShare { op: l.name.clone(), nodes: 0, best_ns: 0, share: 0.0 });
            list.len() - 1
        });
        list[at].nodes += 1;
        list[at].best_ns += l.best_ns;
    }
    for s in &mut list {
        s.share = s.best_ns as f64 / total.max(1) as f64;
    }
    list.sort_by_key(|s| std::cmp::Reverse(s.best_ns));
    list
}

/// Times of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct Times {
    /// The fastest inference, from the input's copy to the output's; on a GPU the device time of
    /// the replayed graph of all its steps.
    pub best_ns: u64,
    /// The median.
    pub median_ns: u64,
    /// How many were timed.
    pub inferences: u64,
    /// On a GPU, inferences from the host's memory to the host's memory.
    pub host: Option<HostTimes>,
    /// In order of execution.
    pub layers: Vec<Layer>,
}

/// Times of inferences on a GPU as the host sees them: input and output are copied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostTimes {
    /// The fastest.
    pub best_ns: u64,
    /// The median.
    pub median_ns: u64,
    /// How many were timed.
    pub inferences: u64,
}

/// A model that was built and can be run.
#[derive(Debug)]
pub struct Network {
    /// The model's name, for messages.
    name: String,
    folder: PathBuf,
    /// Removes the folder at the end, unless the caller keeps it.
    _temporary: Option<TemporaryFolder>,
    graph: Assignment,
    plan: Plan,
    inputs: Vec<NetworkValue>,
    outputs: Vec<NetworkValue>,
    /// Values to which it was specialised.
    bound: Vec<NamedArray>,
    /// In which format of 16 bits its file computes, if it does.
    half: Option<DType>,
    /// In which its kernels work.
    precision: Precision,
    kernels: Vec<Chosen>,
    plain: PlainOperators,
    device: Device,
    /// The driver's number of the GPU that it runs on.
    gpu: Option<u32>,
    arena_bytes: usize,
    /// Steps of the program ahead of the plan's.
    leading: usize,
    /// The file of the user's cache in which prepared weights stay, if they do.
    packed: Option<PathBuf>,
    /// Notes for the user about plain operators that run by another build.
    fallbacks: Vec<String>,
}

/// Names the tasks that were made anew in another format.
fn name_remade(plan: &mut Plan, model: &ModelInput) {
    for step in &mut plan.steps {
        if let Work::Kernel { task, .. } = &mut step.work
            && let Some(made) = model.remade.get(task)
        {
            *task = *made;
        }
    }
}

/// Why a model's shapes are not known, and what to give.
fn undecided(graph: &Assignment) -> Option<(String, String)> {
    let deciding: Vec<&str> = deciding_inputs(graph.model())
        .into_iter()
        .map(|id| graph.model().values[id].name.as_str())
        .collect();
    let first = deciding.first()?;
    let message = format!("shapes depend on the values of its input {}", deciding.join(", "));
    Some((message, format!("give them: --input {first}=X.npy")))
}

/// Refuses a device on which no program of a whole model runs.
fn runs_here(at: &TargetContext) -> Result<(), Error> {
    if let Execution::Board(board) = &at.device.execution {
        return Err(Error::Usage {
            message: format!("whole models run on this machine, not on {}", board.address()),
            hint: "leave the runner out; a model's kernels are tuned there".into(),
        });
    }
    if at.gpus.is_empty() {
        at.device.can_run()?;
    }
    Ok(())
}

fn fault(model: &ModelInput, message: String, hint: &str) -> Error {
    Error::Input { place: model.name.clone(), message, hint: hint.into() }
}

/// The plain operators and generated kernels of steps that no task makes.
fn untasked(plan: &Plan, at: &TargetContext, packing: Packing) -> Result<PlainOperators, String> {
    if !at.gpus.is_empty() {
        return device::generated(plan);
    }
    let on_threads = at.device.cores.len() > 1 && at.toolchain.openmp();
    PlainOperators::of(plan, on_threads, &at.toolchain.plain_flags(), packing)
}

/// Builds the program of a network in its folder.
fn compiled(
    site: Site<'_>,
    kernels: &[Chosen],
    plain: &PlainOperators,
    moves: &MovesBuild,
    at: &TargetContext,
) -> Result<(), Error> {
    if let Some(gpu) = at.gpus.first() {
        let sources: Vec<&KernelSource> =
            kernels.iter().map(|k| &k.source).chain(&plain.sources).collect();
        return device::build(site, &sources, at, gpu);
    }
    let parts = plain.functions().map(LinkedSource::plain);
    let parts: Vec<LinkedSource> = kernels.iter().map(LinkedSource::of).chain(parts).collect();
    program::build(site, &parts, moves, at)
}

impl Network {
    /// Builds a model of the kernels that `make` gives for its tasks. `keep` is a folder for the
    /// program and what it reads; kernels that did not change since it was written there are not
    /// compiled again.
    pub fn build(
        input: &Input,
        keep: Option<&Path>,
        at: &TargetContext,
        make: &mut MakeKernels<'_>,
    ) -> Result<Network, Error> {
        Network::build_packing(input, keep, at, Packing::Ahead, make)
    }

    /// Builds a network as `build` does; `packing` says when its plain operators pack constants.
    pub fn build_packing(
        input: &Input,
        keep: Option<&Path>,
        at: &TargetContext,
        packing: Packing,
        make: &mut MakeKernels<'_>,
    ) -> Result<Network, Error> {
        runs_here(at)?;
        let model = input.model_or("it is no model that can be run")?;
        let fault = |message, hint: &str| fault(model, message, hint);
        let graph = &model.graph;
        if let Some((message, hint)) = undecided(graph) {
            return Err(fault(message, &hint));
        }
        let [inputs, outputs] = ends(graph).map_err(|e| fault(e, UNTUNED_HINT))?;
        let gpu = at.gpus.first();
        // Devices are given copies, and other formats are made here.
        let stays = gpu.is_none() && model.remade.is_empty();
        let mut stay = if stays { graph.read_by_kernels_alone() } else { HashSet::new() };
        model.bound.iter().for_each(|(name, _)| _ = stay.remove(name));
        let mut read = weights_but(model, &stay)?;
        model.bound.iter().for_each(|(name, _)| _ = read.weights.remove(name));
        let plan = graph.plan_over(read.weights, &read.placed);
        let mut plan = plan.map_err(|e| fault(e, UNTUNED_HINT))?;
        name_remade(&mut plan, model);
        if !model.remade.is_empty() {
            let all: HashMap<TaskId, &Workload> =
                model.tasks.iter().map(|t| (t.id, &t.workload)).collect();
            plan.in_formats(&all).map_err(|e| fault(e, UNTUNED_HINT))?;
        }
        let hint = if gpu.is_some() { ON_CPU_HINT } else { UNTUNED_HINT };
        let mut plain = untasked(&plan, at, packing).map_err(|e| fault(e, hint))?;
        let tasks: Vec<&Task> = model.tasks.iter().collect();
        let ((made, mut fallbacks), moves) = program::with_runtime_ahead(at, || {
            (make(&tasks), if gpu.is_none() { trust::settle(&mut plain, at) } else { Vec::new() })
        });
        fallbacks.extend(moves.fallback.clone());
        let mut kernels = made?;
        if let Some(gpu) = gpu {
            let sources = kernels.iter_mut().map(|k| &mut k.source);
            sources.chain(&mut plain.sources).for_each(|s| device::awaiting(s, gpu));
            fallbacks.extend(trust::settle_on_gpu(&plan, &mut plain, at, gpu));
        }
        let layout = match gpu {
            Some(_) => FileLayout::parted(&plan, &kernels, &plain, device::ALIGNMENT),
            None => FileLayout::new(&plan, &kernels, &plain),
        };
        let (folder, temporary) = folder(keep)?;
        let places = Places { list: &read.places, is_copied: keep.is_some() };
        let described = files::describe(&plan, &places, &layout, &kernels, &plain)?;
        files::write(&folder, &plan, &places, &described)?;
        drop(described);
        // They are in the file now.
        plan.constants = Vec::new();
        let is_kept = keep.is_some();
        compiled(Site { folder: &folder, is_kept }, &kernels, &plain, &moves, at)?;
        let (name, graph, device) = (model.name.clone(), graph.clone(), at.device.clone());
        Ok(Network {
            name,
            folder,
            _temporary: temporary,
            graph,
            plan,
            inputs,
            outputs,
            bound: model.bound.clone(),
            half: model.halves.as_ref().map(|h| h.format),
            precision: model.precision,
            kernels,
            plain,
            device,
            gpu: gpu.map(|g| g.ordinal),
            arena_bytes: layout.bytes,
            leading: 0,
            packed: None,
            fallbacks,
        })
    }

    /// Plain operators and moves of data of which the compiler makes a wrong program, whether they
    /// run by another build or as they are, and those whose comparison failed: a sentence for
    /// each, for the user.
    pub fn fallbacks(&self) -> &[String] {
        &self.fallbacks
    }

    /// Whether it runs on a GPU.
    pub fn is_on_gpu(&self) -> bool {
        self.gpu.is_some()
    }

    /// The format of 16 bits in which the model's file computes, if it does.
    pub fn half(&self) -> Option<DType> {
        self.half
    }

    /// The format in which its kernels work, but for those of parts that the model's file has in
    /// 32-bit floats.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Bytes of the region that activations and scratch memory share.
    pub fn arena_bytes(&self) -> usize {
        self.arena_bytes
    }

    /// Weights that the file does not hold: they are random.
    pub fn random_weights(&self) -> &[String] {
        &self.plan.random
    }

    /// Its kernels.
    pub fn kernels(&self) -> &[Chosen] {
        &self.kernels
    }

    /// How many of its kernels were tuned, and how many not.
    pub fn counts(&self) -> KernelCounts {
        KernelCounts::of(&self.kernels)
    }

    /// Whether what is no number may spread to neighbours in one of its kernels, which multiply it
    /// by what lies beside: see [`Workload::hard_inputs`].
    pub fn spreads_hard_values(&self) -> bool {
        self.kernels.iter().any(|k| {
            let (w, hard) = (&k.task.workload, k.task.workload.hard_inputs());
            w.inputs.iter().zip(hard).any(|(i, h)| i.kind == TensorKind::Data && h.is_none())
        })
    }

    /// Its inputs, in the model's order.
    pub fn inputs(&self) -> &[NetworkValue] {
        &self.inputs
    }

    /// Its outputs, in the model's order.
    pub fn outputs(&self) -> &[NetworkValue] {
        &self.outputs
    }

    /// Values of inputs on which shapes depend: the network is for these only.
    pub fn bound(&self) -> &[NamedArray] {
        &self.bound
    }

    /// The inputs that the user does not give: the same numbers in every run, floats between -1 and
    /// 1, whole numbers 0 or 1, and indices below the extent that they index.
    pub fn random_inputs(&self, given: &[NamedArray]) -> Vec<NamedArray> {
        let absent = |v: &NetworkValue| given.iter().all(|(n, _)| *n != v.name);
        let inputs = self.inputs.iter().enumerate().filter(|(_, v)| absent(v));
        inputs
            .filter_map(|(i, v)| {
                let bytes = self.graph.random_constant(i).bytes(v.dtype)?;
                let array = Array { dtype: v.dtype, shape: v.shape.clone(), bytes };
                Some((v.name.clone(), array))
            })
            .collect()
    }

    /// Runs it once on arrays by name; gives all outputs, and the time that each step took.
    pub fn run(&self, inputs: &[NamedArray]) -> Result<(Vec<NamedArray>, Vec<Layer>), Error> {
        let (outputs, said) = self.execute(inputs, 0.0)?;
        Ok((outputs, self.layers(&said)))
    }

    /// Runs it for `seconds`; returns all outputs, and times.
    pub fn time(
        &self,
        inputs: &[NamedArray],
        seconds: f64,
    ) -> Result<(Vec<NamedArray>, Times), Error> {
        if self.gpu.is_none() {
            self.device.can_time()?;
        }
        let (outputs, said) = self.execute(inputs, seconds)?;
        Ok((outputs, self.times(&said)?))
    }

    /// Runs the program on inputs: the outputs, and what was printed.
    fn execute(
        &self,
        inputs: &[NamedArray],
        seconds: f64,
    ) -> Result<(Vec<NamedArray>, String), Error> {
        let inputs = fitting(&self.name, &self.inputs, &self.bound, inputs)?;
        for (i, x) in inputs.into_iter().enumerate() {
            let file = self.folder.join(format!("input_{i}.bin"));
            std::fs::write(&file, &x.bytes)
                .map_err(|source| Error::Write { path: file, source })?;
        }
        let (seconds, ordinal) = (seconds.to_string(), self.gpu.map(|n| n.to_string()));
        let texts = std::iter::once(&seconds).chain(&ordinal);
        let mut arguments: Vec<&OsStr> = texts.map(|s: &String| OsStr::new(s)).collect();
        // Times are of weights in memory of the program's own.
        let is_once = seconds == "0";
        arguments.extend(self.packed.iter().filter(|_| is_once).map(|p| p.as_os_str()));
        let said = self.launch(&arguments)?;
        let mut raw = Vec::new();
        for i in 0..self.outputs.len() + self.plan.bounded.len() {
            let file = self.folder.join(format!("output_{i}.bin"));
            raw.push(std::fs::read(&file).map_err(|source| Error::Read { path: file, source })?);
        }
        let outputs = values::outputs(&self.plan, &self.outputs, &raw).map_err(Error::Nothing)?;
        Ok((outputs, said))
    }

    fn launch(&self, arguments: &[&OsStr]) -> Result<String, Error> {
        let mut command = self.device.command(&self.folder.join(program::NAME));
        command.args(arguments).current_dir(&self.folder).stdin(Stdio::null());
        launch::on_cores(&mut command, &self.device);
        let fail = |message: String| Error::Build {
            message,
            hint: "an operand may have an illegal value, such as an index out of range; else \
                   please report this"
                .into(),
        };
        let done = launch::output(end_with_us(&mut command))
            .map_err(|e| fail(format!("the network's program does not start: {e}")))?;
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr);
            return Err(fail(format!(
                "the network's program failed ({}): {}",
                done.status,
                said.trim()
            )));
        }
        Ok(String::from_utf8_lossy(&done.stdout).into_owned())
    }

    /// Reads the times that the program prints.
    fn times(&self, said: &str) -> Result<Times, Error> {
        let numbers = |what: &str| -> Vec<u64> {
            let line = said.lines().find_map(|l| l.strip_prefix(what));
            line.unwrap_or("").split(' ').filter_map(|w| w.parse().ok()).collect()
        };
        let [inferences, best_ns, median_ns] = numbers("inferences ")[..] else {
            return Err(Error::Nothing("the network's program printed no times".into()));
        };
        let host = match numbers("host ")[..] {
            [inferences, best_ns, median_ns] => Some(HostTimes { best_ns, median_ns, inferences }),
            _ => None,
        };
        Ok(Times { best_ns, median_ns, inferences, host, layers: self.layers(said) })
    }

    /// Which operators became which kernels, with the times of these layers.
    pub fn kernel_graph(&self, layers: &[Layer]) -> KernelGraph {
        let flow = self.graph.flow();
        // A node without a kernel may be several moves.
        let kernel = |step: FlowStep| {
            let first = step.nodes.first().map_or("", |(name, _)| name.as_str());
            let own: Vec<&Layer> = layers.iter().filter(|l| l.node == first).collect();
            let kind = own.first().map_or(LayerKind::Move, |l| l.kind);
            let name = own.first().map_or_else(String::new, |l| l.name.clone());
            let nanos = own.iter().map(|l| l.best_ns as f64).sum();
            GraphKernel { name, kind: kind.name(), nodes: step.nodes, nanos, from: step.from }
        };
        KernelGraph { kernels: flow.into_iter().map(kernel).collect() }
    }

    /// The steps with the times that the program prints.
    fn layers(&self, said: &str) -> Vec<Layer> {
        let numbers = |word: &str| {
            let mut all = vec![0; self.plan.steps.len()];
            for line in said.lines().filter_map(|l| l.strip_prefix(word)) {
                let numbers: Vec<u64> = line.split(' ').filter_map(|w| w.parse().ok()).collect();
                let [i, ns] = numbers[..] else { continue };
                let at = (i as usize).checked_sub(self.leading);
                at.and_then(|i| all.get_mut(i)).into_iter().for_each(|n| *n = ns);
            }
            all
        };
        let best = numbers("step ");
        let in_place = if self.is_on_gpu() { numbers("place ") } else { best.clone() };
        let layer = |(s, (best_ns, in_place_ns)): (&PlanStep, (u64, u64))| {
            let (task, kind) = match s.work {
                Work::Kernel { task, .. } => (Some(task), LayerKind::Kernel),
                Work::Plain { .. } => (None, LayerKind::Plain),
                _ => (None, LayerKind::Move),
            };
            let name = self
                .kernels
                .iter()
                .find(|k| Some(k.task.id) == task)
                .map_or(s.op.clone(), |k| k.task.name.clone());
            Layer { node: s.node.clone(), name, kind, task, best_ns, in_place_ns }
        };
        self.plan.steps.iter().zip(best.into_iter().zip(in_place)).map(layer).collect()
    }
}

/// Whether a model can be run on arrays, which need not be all that it takes: what is wrong, before
/// anything is built.
pub fn accepts(input: &Input, given: &[NamedArray]) -> Result<(), Error> {
    let Some(graph) = input.graph() else { return Ok(()) };
    let Ok([inputs, _]) = ends(graph) else { return Ok(()) };
    let named = |v: &NetworkValue| given.iter().any(|(n, _)| *n == v.name);
    let inputs: Vec<NetworkValue> = inputs.into_iter().filter(named).collect();
    fitting(input.name(), &inputs, &[], given).map(|_| ())
}

/// The hint where a model cannot be run.
const UNTUNED_HINT: &str = "such models can be tuned, but not run";
/// The same, where a GPU has no kernel for one of its nodes.
const ON_CPU_HINT: &str = "CPUs run more operators: leave out --target";

fn folder(keep: Option<&Path>) -> Result<(PathBuf, Option<TemporaryFolder>), Error> {
    if let Some(path) = keep {
        let path = std::path::absolute(path)
            .map_err(|source| Error::Write { path: path.into(), source })?;
        std::fs::create_dir_all(&path)
            .map_err(|source| Error::Write { path: path.clone(), source })?;
        return Ok((path, None));
    }
    let made = TemporaryFolder::new("network")?;
    Ok((made.path().into(), Some(made)))
}
