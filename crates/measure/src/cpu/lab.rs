//! The laboratory: builders and one runner, and what makes of their answers an outcome.

use super::build::{Belt, Build, Builder, Built, Closing, Shelf, digest};
use super::folder::Folder;
use super::runner::{Reply, Runner};
use super::seat::{Rules, Said, Seat, TaskState, interface};
use super::work::Work;
use super::{Device, Prober, Toolchain};
use crate::MeasureError;
use crate::cuda::{Gpu, Nvrtc};
use crate::process::pin;
use crate::rematch::{Rematch, Sequential, Verdict};
use squall_core::{CpuCost, DType, FailStage, KernelSource, Measurement, Nanos, Outcome, Reference, TensorKind, Workload};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Where no core is left for building, builds and measuring take turns in portions of this size.
const PORTION: usize = 32;

/// The largest time that the pairs of a rematch shall take together, if its first look allows.
const REMATCH_NANOS: f64 = 4e9;

/// Builds kernels, runs them in a process of their own, checks and times them.
pub struct Lab {
    // First, because fields are dropped in order: runners end before their folder goes.
    seats: Vec<Seat>,
    nvrtc: Option<Arc<Nvrtc>>,
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

impl Lab {
    /// A laboratory in a folder of its own under the system's temporary folder.
    pub fn open(device: Device, toolchain: Toolchain) -> Result<Lab, MeasureError> {
        Lab::open_in(&std::env::temp_dir(), device, toolchain)
    }

    /// A laboratory whose kernels run on GPUs of one model, side by side where there are several;
    /// references in C still run on the CPU.
    pub fn open_gpus(gpus: &[Gpu], device: Device, toolchain: Toolchain) -> Result<Lab, MeasureError> {
        Lab::set_up(&std::env::temp_dir(), device, toolchain, gpus)
    }

    /// A laboratory in a folder of its own under `parent`.
    pub fn open_in(parent: &Path, device: Device, toolchain: Toolchain) -> Result<Lab, MeasureError> {
        Lab::set_up(parent, device, toolchain, &[])
    }

    fn set_up(parent: &Path, mut device: Device, toolchain: Toolchain, gpus: &[Gpu]) -> Result<Lab, MeasureError> {
        let folder = Folder::open(parent)?;
        // What a GPU does is not disturbed by compilers.
        if !device.spare.is_empty() && gpus.is_empty() {
            device.spare = Prober::build(&device, &toolchain)?.undisturbing()?;
        }
        let mut overhead = CpuCost::default();
        overhead.build += toolchain.check(folder.path(), None)?;
        overhead.build += Runner::build(folder.path(), &toolchain, !gpus.is_empty())?;
        let places: Vec<Option<u32>> = if gpus.is_empty() { vec![None] } else { gpus.iter().map(|g| Some(g.ordinal)).collect() };
        let mut seats = Vec::new();
        for gpu in places {
            let mut at = device.clone();
            // Results are compared on a core, of which each GPU's process has its own where there are enough.
            if !seats.is_empty() && device.spare.len() > 1 {
                at.cores = device.spare.pop().into_iter().collect();
            }
            seats.push(Seat::take(folder.path(), at, gpu)?);
        }
        let nvrtc = gpus.first().map(|g| Arc::new(Nvrtc::new(g.architecture())));
        Ok(Lab {
            seats,
            nvrtc,
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
        // Kernels made here compute in f32 whatever their tensors are said to be.
        if let Some(i) = workload.inputs.iter().find(|i| i.dtype != DType::F32 && workload.foreign.is_none() || letter(i.dtype).is_none()) {
            return Err(MeasureError::Reference(format!("input `{}` is {}: this cannot be measured yet", i.name, i.dtype.name())));
        }
        let mut results = Vec::new();
        for o in workload.outputs() {
            let written = if workload.foreign.is_some() { o.dtype } else { DType::F32 };
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
        let tolerance = workload.tolerance();
        let head = format!("task {seed} reference-{number}");
        let state = |seconds| TaskState::new(number, head.clone(), tail.clone(), tolerance, seconds);
        let Some(reference) = &reference.kernel else {
            // The same for both sets of inputs, of which at least those that decide are given.
            put(&format!("reference-{number}"), &[&reference.outputs, &reference.outputs])?;
            self.tasks.insert(key.clone(), state(0.0));
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
        let mut task = state(0.0);
        let (seconds, cpu) = self.on_first_seat(|seat, rules| seat.set(rules, &task, Some(&interface(&library, reference))))?;
        self.overhead.measure += cpu;
        task.reference_seconds = seconds;
        self.tasks.insert(key.clone(), task);
        self.current = Some(key);
        Ok(())
    }

    /// Lets the first process know the current task; the others hear of it when they need it.
    fn restore_task(&mut self) -> Result<(), MeasureError> {
        let task = self.task()?.clone();
        let (_, cpu) = self.on_first_seat(|seat, rules| seat.set(rules, &task, None))?;
        self.overhead.measure += cpu;
        Ok(())
    }

    fn on_first_seat<T>(&mut self, f: impl FnOnce(&mut Seat, &Rules) -> Result<T, MeasureError>) -> Result<T, MeasureError> {
        let rules = rules(&self.folder, self.patience, self.reject, self.flush);
        f(&mut self.seats[0], &rules)
    }

    fn task(&self) -> Result<&TaskState, MeasureError> {
        let known = self.current.as_ref().and_then(|k| self.tasks.get(k));
        known.ok_or_else(|| MeasureError::Reference("no task was set, or setting it failed".into()))
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
        let nvrtc = self.nvrtc.clone();
        let builder =
            Builder { toolchain: &toolchain, nvrtc: nvrtc.as_deref(), folder: &folder, patience: self.build_patience, cancel: &cancel };
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
            let task = self.task()?.clone();
            let rules = rules(&self.folder, self.patience, self.reject, self.flush);
            let shelf = Mutex::new(&mut self.shelf);
            let work = Work { jobs, digests: &digests, belt: &belt, shelf: &shelf, task: &task, rules: &rules, stop };
            match self.seats.as_mut_slice() {
                [seat] => (0..jobs.len()).try_for_each(|i| {
                    if let Some((outcome, cost)) = work.one(seat, i)? {
                        each(i, outcome, cost);
                    }
                    Ok(())
                }),
                seats => work.shared(seats, each),
            }
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
        let nvrtc = self.nvrtc.as_deref();
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
        let mut sides = [(); 2].map(|()| Measurement { samples: Vec::new(), calls: 0, error: 0.0, gpu: None });
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
        self.seats[0].renew();
        let task = self.task()?.clone();
        let mut order: Vec<&str> = interfaces.iter().map(String::as_str).collect();
        if swapped {
            order.reverse();
        }
        let command = format!("duel {} {} {}", task.tolerance, self.flush, order.join(" "));
        let said = self.on_first_seat(|seat, rules| seat.try_kernel(rules, &task, &command, "duel", cost))?;
        let numbers = lost(said, swapped)?;
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
        let said = self.on_first_seat(|seat, rules| match seat.ask(rules, &format!("pairs {count}"), patience)? {
            Reply::Answer(words, cpu) => {
                cost.measure += cpu;
                seat.understand(&words, "pairs")
            }
            Reply::Died(detail, _) => {
                seat.renew();
                Ok(Said::Failed { stage: FailStage::Launch, detail })
            }
            Reply::Late(_) => {
                seat.renew();
                Ok(Said::Failed { stage: FailStage::Timeout, detail: "did not end in time".into() })
            }
        })?;
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
        DType::F16 | DType::Bf16 => None,
    }
}

fn rules(folder: &Folder, patience: Duration, reject: f64, flush: u64) -> Rules<'_> {
    Rules { folder: folder.path(), patience, reject, flush }
}
