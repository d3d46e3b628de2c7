//! The laboratory: builders and one runner, and what makes of their answers an outcome.

use super::build::{Belt, Build, Builder, Built, Closing, Shelf, digest};
use super::folder::Folder;
use super::runner::{Reply, Runner};
use super::{Device, Prober, Toolchain};
use crate::MeasureError;
use crate::cuda::{Gpu, Nvrtc};
use crate::process::pin;
use crate::rematch::{Rematch, Sequential, Verdict};
use squall_core::{CpuCost, DType, FailStage, KernelSource, Measurement, Nanos, Outcome, Reference, TensorKind, Workload};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Where no core is left for building, builds and measuring take turns in portions of this size.
const PORTION: usize = 32;

/// The largest time that the pairs of a rematch shall take together, if its first look allows.
const REMATCH_NANOS: f64 = 4e9;

/// Builds kernels, runs them in a process of their own, checks and times them.
pub struct Lab {
    // First, because fields are dropped in order: the runner ends before its folder goes.
    runner: Option<Runner>,
    gpu: Option<Arc<(Gpu, Nvrtc)>>,
    folder: Folder,
    device: Device,
    toolchain: Toolchain,
    shelf: Shelf,
    tasks: HashMap<String, TaskState>,
    current: Option<String>,
    patience: Duration,
    build_patience: Duration,
    reject: f64,
    flush: u64,
    overhead: CpuCost,
}

/// A task that was set up in this laboratory before; its reference outputs lie in the folder.
#[derive(Clone)]
struct TaskState {
    /// The runner's command without the library: seed, file.
    head: String,
    /// Sizes.
    tail: String,
    tolerance: f64,
    reference_seconds: f64,
    /// The best time measured, for rejecting hopeless ones quickly.
    best: f64,
}

/// What the runner said about a kernel.
enum Said {
    Words(Vec<f64>),
    Failed { stage: FailStage, detail: String },
}

impl Lab {
    /// A laboratory in a folder of its own under the system's temporary folder.
    pub fn open(device: Device, toolchain: Toolchain) -> Result<Lab, MeasureError> {
        Lab::open_in(&std::env::temp_dir(), device, toolchain)
    }

    /// A laboratory whose kernels run on a GPU; references still run on the CPU.
    pub fn open_gpu(gpu: Gpu, device: Device, toolchain: Toolchain) -> Result<Lab, MeasureError> {
        Lab::set_up(&std::env::temp_dir(), device, toolchain, Some(gpu))
    }

    /// A laboratory in a folder of its own under `parent`.
    pub fn open_in(parent: &Path, device: Device, toolchain: Toolchain) -> Result<Lab, MeasureError> {
        Lab::set_up(parent, device, toolchain, None)
    }

    fn set_up(parent: &Path, mut device: Device, toolchain: Toolchain, gpu: Option<Gpu>) -> Result<Lab, MeasureError> {
        let folder = Folder::open(parent)?;
        // What a GPU does is not disturbed by compilers.
        if !device.spare.is_empty() && gpu.is_none() {
            device.spare = Prober::build(&device, &toolchain)?.undisturbing()?;
        }
        let mut overhead = CpuCost::default();
        overhead.build += toolchain.check(folder.path(), None)?;
        overhead.build += Runner::build(folder.path(), &toolchain, gpu.is_some())?;
        let runner = Runner::start(folder.path(), &device, gpu.as_ref().map(|g| g.ordinal))?;
        let gpu = gpu.map(|g| (g.clone(), Nvrtc::new(g.architecture()))).map(Arc::new);
        Ok(Lab {
            runner: Some(runner),
            gpu,
            folder,
            device,
            toolchain,
            shelf: Shelf::default(),
            tasks: HashMap::new(),
            current: None,
            patience: Duration::from_secs(10),
            build_patience: Duration::from_secs(30),
            reject: 5.0,
            flush: 0,
            overhead,
        })
    }

    /// The machine.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The compiler.
    pub fn toolchain(&self) -> &Toolchain {
        &self.toolchain
    }

    /// The temporary folder, there as long as the laboratory.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// How long a kernel's whole trial may take before it is killed, beside eight times its
    /// reference's time; 10 s at first.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// How long a compiler run may take; 30 s at first.
    pub fn set_build_patience(&mut self, patience: Duration) {
        self.build_patience = patience;
    }

    /// A kernel slower than the task's best by this factor is timed in two windows only; 5 at first,
    /// infinity for never.
    pub fn set_reject_factor(&mut self, factor: f64) {
        self.reject = factor;
    }

    /// Times single calls, before each of which this many bytes are walked through, so that the
    /// caches hold nothing of use; 0 (off) at first.
    pub fn set_cache_flush(&mut self, bytes: u64) {
        self.flush = bytes;
    }

    /// CPU time spent so far on what belongs to no trial: building and starting the runner,
    /// references, inputs.
    pub fn overhead(&self) -> CpuCost {
        self.overhead
    }

    /// Makes `workload` the task that kernels are for: fresh inputs from `seed`, and the outputs
    /// that `reference` computes from them. Returning to an earlier task costs little.
    pub fn set_task(&mut self, workload: &Workload, reference: &KernelSource, seed: u64) -> Result<(), MeasureError> {
        self.set_task_of(workload, &reference.clone().into(), seed)
    }

    /// As [`Lab::set_task`], with inputs and results that may be given instead of made.
    pub fn set_task_of(&mut self, workload: &Workload, reference: &Reference, seed: u64) -> Result<(), MeasureError> {
        // Kernels made here know f32 and the formats of 16 bits.
        let known = |d: DType| workload.foreign.is_some() || d == DType::F32 || d.is_half();
        if let Some(i) = workload.inputs.iter().find(|i| !known(i.dtype) || letter(i.dtype).is_none()) {
            return Err(MeasureError::Reference(format!("input `{}` is {}: this cannot be measured yet", i.name, i.dtype.name())));
        }
        let mut results = Vec::new();
        for o in workload.outputs() {
            let written = if workload.foreign.is_some() || o.dtype.is_half() { o.dtype } else { DType::F32 };
            let Some(letter) = letter(written) else {
                return Err(MeasureError::Reference(format!("the output is {}: this cannot be measured yet", written.name())));
            };
            results.push(format!("{letter},{}", o.elements()));
        }
        // What is given instead of made is part of the workload's digest.
        let key = format!("{seed} {} {workload}", reference.kernel.as_ref().map_or_else(String::new, digest));
        if self.current.as_ref() == Some(&key) {
            return Ok(());
        }
        self.current = None;
        if self.tasks.contains_key(&key) {
            self.current = Some(key);
            return self.restore_task();
        }
        let number = self.tasks.len();
        let put = |name: &str, parts: &[&[u8]]| {
            let path = self.folder.path().join(name);
            std::fs::write(&path, parts.concat()).map_err(|e| MeasureError::Folder { path, reason: e.to_string() })
        };
        let mut tail = format!("{} {}", results.join(";"), workload.inputs.len());
        for (k, i) in workload.inputs.iter().enumerate() {
            let kind = if i.kind == TensorKind::Data { 'd' } else { 'w' };
            let _ = write!(tail, " {kind}{},{}", letter(i.dtype).unwrap_or('f'), i.shape.iter().product::<i64>());
            if let Some((low, high)) = workload.foreign.as_ref().and_then(|f| f.ranges.get(k).copied().flatten()) {
                let _ = write!(tail, ",{low:?},{high:?}");
            }
            if let Some(bytes) = reference.inputs.get(k).and_then(Option::as_ref) {
                put(&format!("input-{number}-{k}"), &[bytes])?;
                let _ = write!(tail, ",@input-{number}-{k}");
            }
        }
        let head = format!("task {seed} reference-{number}");
        let tolerance = workload.tolerance();
        let Some(reference) = &reference.kernel else {
            // The same for both sets of inputs, of which at least those that decide are given.
            put(&format!("reference-{number}"), &[&reference.outputs, &reference.outputs])?;
            self.tasks.insert(key.clone(), TaskState { head, tail, tolerance, reference_seconds: 0.0, best: f64::INFINITY });
            self.current = Some(key);
            return self.restore_task().inspect_err(|_| self.current = None);
        };
        let library = match self.build(reference)? {
            (Built::Library(file), cpu) => {
                self.overhead.build += cpu;
                file
            }
            (Built::Refused(why), _) => return Err(MeasureError::Reference(format!("it does not compile: {why}"))),
        };
        let command = format!("{head} ./{library} {} {} {} {tail}", reference.symbol, reference.prepared.0, reference.workspace.0);
        let reference_seconds = self.tell_task(&command)?;
        self.tasks.insert(key.clone(), TaskState { head, tail, tolerance, reference_seconds, best: f64::INFINITY });
        self.current = Some(key);
        Ok(())
    }

    /// Starts the runner if it is dead, and lets it know the current task.
    fn restore_task(&mut self) -> Result<(), MeasureError> {
        let task = self.task()?;
        let command = format!("{} - - 0 0 {}", task.head, task.tail);
        self.tell_task(&command).map(|_| ())
    }

    fn tell_task(&mut self, command: &str) -> Result<f64, MeasureError> {
        // A reference is plain loops and may take long, but not for ever.
        match self.ask(command, Duration::from_secs(600))? {
            Reply::Answer(words, cpu) => {
                self.overhead.measure += cpu;
                match words.split_once(' ').unwrap_or((&words, "")) {
                    ("task", numbers) => Ok(numbers.split(' ').next().and_then(|s| s.parse().ok()).unwrap_or(0.0)),
                    ("failed", why) => match why.split_once(' ') {
                        Some(("file", message)) => Err(MeasureError::Folder { path: self.folder.path().into(), reason: message.into() }),
                        Some((_, message)) => Err(MeasureError::Reference(message.into())),
                        None => Err(MeasureError::Reference(why.into())),
                    },
                    _ => Err(MeasureError::Runner(format!("it answers `{words}`"))),
                }
            }
            Reply::Died(how, _) => {
                self.runner = None;
                Err(MeasureError::Reference(how))
            }
            Reply::Late(_) => {
                self.runner = None;
                Err(MeasureError::Reference("it did not end within 600 s".into()))
            }
        }
    }

    fn task(&self) -> Result<&TaskState, MeasureError> {
        let known = self.current.as_ref().and_then(|k| self.tasks.get(k));
        known.ok_or_else(|| MeasureError::Reference("no task was set, or setting it failed".into()))
    }

    /// A command to the runner, which is started if need be.
    fn ask(&mut self, command: &str, patience: Duration) -> Result<Reply, MeasureError> {
        if self.runner.is_none() {
            self.runner = Some(Runner::start(self.folder.path(), &self.device, self.gpu.as_ref().map(|g| g.0.ordinal))?);
        }
        match &mut self.runner {
            Some(runner) => runner.ask(command, patience),
            None => Err(MeasureError::Runner("it is not running".into())),
        }
    }

    /// Builds and measures `jobs`; `each` hears of every one, in their order, as soon as it is
    /// known. Builds run ahead on the spare cores. Once `stop` is set, the job being measured is
    /// finished and reported, the others are not.
    ///
    /// An error means that no job can be measured, and says what to mend; jobs reported before it
    /// are valid.
    pub fn run(
        &mut self,
        jobs: &[KernelSource],
        stop: &AtomicBool,
        each: &mut dyn FnMut(usize, Outcome, CpuCost),
    ) -> Result<(), MeasureError> {
        self.task()?;
        let apart = self.device.spare.is_empty();
        let portion = if apart { PORTION } else { jobs.len().max(1) };
        for (n, jobs) in jobs.chunks(portion).enumerate() {
            self.shelf.trim(self.folder.path());
            self.run_portion(jobs, apart, stop, &mut |i, outcome, cost| each(n * portion + i, outcome, cost))?;
        }
        Ok(())
    }

    fn run_portion(
        &mut self,
        jobs: &[KernelSource],
        apart: bool,
        stop: &AtomicBool,
        each: &mut dyn FnMut(usize, Outcome, CpuCost),
    ) -> Result<(), MeasureError> {
        let digests: Vec<String> = jobs.iter().map(digest).collect();
        // Equal sources build once: the later ones find the library on the shelf.
        let known = digests.iter().enumerate().map(|(i, d)| self.shelf.get(d).is_some() || digests[..i].contains(d)).collect();
        let builder_cores = if apart { &self.device.cores } else { &self.device.spare };
        let builders = builder_cores.len().min(jobs.len());
        let belt = Belt::new(jobs, known, if apart { jobs.len() } else { 2 * builders + 2 });
        let cancel = AtomicBool::new(false);
        let (toolchain, folder, cores) = (self.toolchain.clone(), self.folder.path().to_path_buf(), builder_cores.clone());
        let gpu = self.gpu.clone();
        let nvrtc = gpu.as_ref().map(|g| &g.1);
        let builder = Builder { toolchain: &toolchain, nvrtc, folder: &folder, patience: self.build_patience, cancel: &cancel };
        std::thread::scope(|scope| {
            let _closing = Closing(&belt, &cancel);
            for _ in 0..builders {
                scope.spawn(|| {
                    pin(&cores);
                    belt.work(&builder);
                });
            }
            if apart {
                belt.settle(stop);
            }
            for (i, job) in jobs.iter().enumerate() {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let mut cost = CpuCost::default();
                if let Some((built, cpu)) = belt.take(i, stop)? {
                    cost.build = cpu;
                    self.shelf.put(digests[i].clone(), built);
                }
                let Some(built) = self.shelf.get(&digests[i]).cloned() else { break };
                let outcome = self.measure(job, built, &mut cost)?;
                each(i, outcome, cost);
            }
            Ok(())
        })
    }

    /// Builds a kernel now, on the spare cores.
    fn build(&mut self, kernel: &KernelSource) -> Result<(Built, f64), MeasureError> {
        let key = digest(kernel);
        if let Some(built) = self.shelf.get(&key) {
            return Ok((built.clone(), 0.0));
        }
        let cancel = AtomicBool::new(false);
        let patience = self.build_patience.max(Duration::from_secs(30));
        let nvrtc = self.gpu.as_ref().map(|g| &g.1);
        let builder = Builder { toolchain: &self.toolchain, nvrtc, folder: self.folder.path(), patience, cancel: &cancel };
        let cores = if self.device.spare.is_empty() { &self.device.cores } else { &self.device.spare };
        // In a thread, because the compiler inherits its cores.
        let build: Build = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                pin(cores);
                builder.build(kernel)
            });
            thread.join().unwrap_or_else(|_| Err(MeasureError::Runner("a builder panicked".into())))
        });
        let (built, cpu) = build?.ok_or_else(|| MeasureError::Runner("a build was cancelled".into()))?;
        self.shelf.put(key, built.clone());
        Ok((built, cpu))
    }

    fn measure(&mut self, kernel: &KernelSource, built: Built, cost: &mut CpuCost) -> Result<Outcome, MeasureError> {
        let library = match built {
            Built::Library(file) => file,
            Built::Refused(detail) => return Ok(Outcome::Failed { stage: FailStage::Build, detail }),
        };
        let task = self.task()?;
        let limit = if task.best.is_finite() && self.reject.is_finite() { task.best * self.reject } else { 0.0 };
        let call = interface(&library, kernel);
        let command = format!("run {call} {} {limit:.0} {}", task.tolerance, self.flush);
        match self.try_kernel(&command, "measured", cost)? {
            Said::Failed { stage, detail } => Ok(Outcome::Failed { stage, detail }),
            Said::Words(numbers) => match numbers.as_slice() {
                [error, calls, samples @ ..] if !samples.is_empty() => {
                    let m = Measurement { samples: samples.iter().copied().map(Nanos).collect(), calls: *calls as u64, error: *error };
                    if let Some(task) = self.current.as_ref().and_then(|k| self.tasks.get_mut(k)) {
                        task.best = task.best.min(m.median().0);
                    }
                    Ok(Outcome::Measured(m))
                }
                _ => Err(MeasureError::Runner("its answer is too short".into())),
            },
        }
    }

    /// A command that runs kernels. A crash in a runner that ran others before is tried again in a
    /// fresh one: an earlier kernel may have damaged the process without showing it.
    fn try_kernel(&mut self, command: &str, verb: &str, cost: &mut CpuCost) -> Result<Said, MeasureError> {
        loop {
            if self.runner.is_none() {
                self.restore_task()?;
            }
            let fresh = self.runner.as_mut().is_none_or(|r| !std::mem::replace(&mut r.used, true));
            let patience = self.patience + Duration::from_secs_f64((8.0 * self.task()?.reference_seconds).min(1e6));
            match self.ask(command, patience)? {
                Reply::Answer(words, cpu) => {
                    cost.measure += cpu;
                    return self.understand(&words, verb);
                }
                Reply::Late(cpu) => {
                    cost.measure += cpu;
                    self.runner = None;
                    let detail = format!("did not end within {:.1} s", patience.as_secs_f64());
                    return Ok(Said::Failed { stage: FailStage::Timeout, detail });
                }
                Reply::Died(detail, cpu) => {
                    cost.measure += cpu;
                    self.runner = None;
                    if fresh {
                        return Ok(Said::Failed { stage: FailStage::Launch, detail });
                    }
                }
            }
        }
    }

    fn understand(&mut self, words: &str, verb: &str) -> Result<Said, MeasureError> {
        let strange = || MeasureError::Runner(format!("it answers `{words}`"));
        let (first, rest) = words.split_once(' ').ok_or_else(strange)?;
        if first == verb {
            let numbers: Result<Vec<f64>, _> = rest.split(' ').map(str::parse).collect();
            return Ok(Said::Words(numbers.map_err(|_| strange())?));
        }
        match (first, rest.split_once(' ')) {
            ("failed", Some((place, detail))) => {
                let stage = match place {
                    "damage" | "wrong" => FailStage::WrongAnswer,
                    _ => FailStage::Launch,
                };
                if place == "damage" || place == "fault" {
                    // Who wrote beside its buffers may have hit the runner's own memory; a fault of
                    // a GPU ends the process's context.
                    self.runner = None;
                }
                Ok(Said::Failed { stage, detail: detail.to_string() })
            }
            _ => Err(strange()),
        }
    }

    /// Measures the incumbent `a` and the challenger `b` in alternating windows, until a
    /// sequential test can tell whether `b` is faster. Both must have passed [`Lab::run`] before,
    /// here or elsewhere; if one fails now, that is [`MeasureError::Contender`].
    ///
    /// Where a process's buffers happen to lie can favour one of two equal kernels by more than
    /// the minimum effect. Each look of the test is therefore fed by two fresh processes, which
    /// ran no trials, and in which the two have changed places.
    pub fn rematch(&mut self, a: &KernelSource, b: &KernelSource) -> Result<Rematch, MeasureError> {
        let mut cost = CpuCost::default();
        let mut interfaces = Vec::new();
        for (kernel, challenger) in [(a, false), (b, true)] {
            let (built, cpu) = self.build(kernel)?;
            cost.build += cpu;
            match built {
                Built::Library(file) => interfaces.push(interface(&file, kernel)),
                Built::Refused(detail) => return Err(MeasureError::Contender { challenger, detail }),
            }
        }
        let mut sides = [(); 2].map(|()| Measurement { samples: Vec::new(), calls: 0, error: 0.0 });
        let mut test: Option<Sequential> = None;
        let mut swapped = false;
        let test = loop {
            let duel = self.begin_duel(&interfaces, swapped, &mut cost)?;
            let mut t = test.take().unwrap_or_else(|| Sequential::new((REMATCH_NANOS / duel.nanos.max(1.0)) as usize));
            let count = if swapped { t.wanted() } else { t.wanted().div_ceil(2) };
            for pair in self.pairs(&duel, count, &mut cost)? {
                t.give(pair[0], pair[1]);
                for (side, time) in sides.iter_mut().zip(pair) {
                    side.samples.push(Nanos(time));
                }
            }
            for (i, side) in sides.iter_mut().enumerate() {
                side.calls = duel.calls[i];
                side.error = side.error.max(duel.errors[i]);
            }
            if t.wanted() == 0 {
                break t;
            }
            swapped = !swapped;
            test = Some(t);
        };
        let [a, b] = sides;
        let verdict = test.verdict().unwrap_or(Verdict::Tie);
        Ok(Rematch { a, b, verdict, ratio: test.ratio(), confidence: test.confidence(), cost })
    }

    /// Loads and checks two kernels in a fresh process; with `swapped`, the challenger first.
    fn begin_duel(&mut self, interfaces: &[String], swapped: bool, cost: &mut CpuCost) -> Result<Duel, MeasureError> {
        self.runner = None;
        let tolerance = self.task()?.tolerance;
        let mut order: Vec<&str> = interfaces.iter().map(String::as_str).collect();
        if swapped {
            order.reverse();
        }
        let command = format!("duel {tolerance} {}", order.join(" "));
        let numbers = lost(self.try_kernel(&command, "duel", cost)?, swapped)?;
        let &[e0, e1, c0, c1, t0, t1] = numbers.as_slice() else {
            return Err(MeasureError::Runner("its answer is too short".into()));
        };
        let nanos = t0 * c0 + t1 * c1;
        let (errors, calls) = if swapped { ([e1, e0], [c1, c0]) } else { ([e0, e1], [c0, c1]) };
        Ok(Duel { swapped, errors, calls: calls.map(|c| c as u64), nanos })
    }

    /// So many more pairs of windows of a duel, each the incumbent's time and the challenger's.
    fn pairs(&mut self, duel: &Duel, count: usize, cost: &mut CpuCost) -> Result<Vec<[f64; 2]>, MeasureError> {
        let patience = self.patience + Duration::from_secs_f64(20e-9 * duel.nanos * count as f64);
        let said = match self.ask(&format!("pairs {count}"), patience)? {
            Reply::Answer(words, cpu) => {
                cost.measure += cpu;
                self.understand(&words, "pairs")?
            }
            Reply::Died(detail, _) => {
                self.runner = None;
                Said::Failed { stage: FailStage::Launch, detail }
            }
            Reply::Late(_) => {
                self.runner = None;
                Said::Failed { stage: FailStage::Timeout, detail: "did not end in time".into() }
            }
        };
        let times = lost(said, duel.swapped)?;
        if times.len() != 2 * count {
            return Err(MeasureError::Runner("its answer has the wrong length".into()));
        }
        Ok(times.chunks_exact(2).map(|t| if duel.swapped { [t[1], t[0]] } else { [t[0], t[1]] }).collect())
    }
}

/// Two kernels that stand ready in one process; the incumbent's figures first.
struct Duel {
    /// Whether the runner calls the challenger `a`.
    swapped: bool,
    errors: [f64; 2],
    calls: [u64; 2],
    /// What a pair of windows takes.
    nanos: f64,
}

/// A duel's answer, or which of the two failed. Where it is not said, the challenger.
fn lost(said: Said, swapped: bool) -> Result<Vec<f64>, MeasureError> {
    match said {
        Said::Words(numbers) => Ok(numbers),
        Said::Failed { detail, .. } => {
            let (challenger, what) = match detail.split_once(' ') {
                Some(("a", what)) => (swapped, what.to_string()),
                Some(("b", what)) => (!swapped, what.to_string()),
                _ => (true, detail),
            };
            Err(MeasureError::Contender { challenger, detail: what })
        }
    }
}

/// The runner's letter for a type; none where it does not know it.
pub fn letter(d: DType) -> Option<char> {
    match d {
        DType::F32 => Some('f'),
        DType::F64 => Some('d'),
        DType::I8 => Some('b'),
        DType::U8 => Some('u'),
        DType::I32 => Some('i'),
        DType::I64 => Some('l'),
        DType::F16 => Some('h'),
        DType::Bf16 => Some('B'),
        DType::Tf32 => None,
    }
}

/// What the runner needs to call a kernel.
fn interface(library: &str, kernel: &KernelSource) -> String {
    format!("./{library} {} {} {}", kernel.symbol, kernel.prepared.0, kernel.workspace.0)
}
