//! The laboratory: builders and one runner, and what makes of their answers an outcome.

use super::build::{Belt, Build, Builder, Built, Closing, Idle, Shelf, digest};
use super::folder::Folder;
use super::runner::Runner;
use super::seat::{Rules, Seat, TaskState, interface};
use super::work::Work;
use super::{Device, Prober, Toolchain};
use crate::MeasureError;
use crate::cuda::{Gpu, Nvrtc};
use crate::process::{pin, pinned};
use squall_core::{CpuCost, DType, KernelSource, Outcome, Reference, TensorKind, Workload};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Where no core is left for building, builds and measuring take turns in portions of this size.
const PORTION: usize = 32;

/// Builds kernels, runs them in a process of their own, checks and times them.
pub struct Lab {
    // First, because fields are dropped in order: runners end before their folder goes.
    pub(super) seats: Vec<Seat>,
    nvrtc: Option<Arc<Nvrtc>>,
    folder: Folder,
    device: Device,
    toolchain: Toolchain,
    shelf: Shelf,
    tasks: HashMap<String, TaskState>,
    current: Option<String>,
    pub(super) patience: Duration,
    build_patience: Duration,
    reject: f64,
    pub(super) flush: u64,
    overhead: CpuCost,
}

impl Lab {
    /// A laboratory in a folder of its own under the system's temporary folder.
    pub fn open(device: Device, toolchain: Toolchain) -> Result<Lab, MeasureError> {
        Lab::open_in(&std::env::temp_dir(), device, toolchain)
    }

    /// A laboratory whose kernels run on GPUs of one model, side by side where there are several;
    /// references in C still run on the CPU.
    pub fn open_gpus(
        gpus: &[Gpu],
        device: Device,
        toolchain: Toolchain,
    ) -> Result<Lab, MeasureError> {
        Lab::set_up(&std::env::temp_dir(), device, toolchain, gpus)
    }

    /// A laboratory in a folder of its own under `parent`.
    pub fn open_in(
        parent: &Path,
        device: Device,
        toolchain: Toolchain,
    ) -> Result<Lab, MeasureError> {
        Lab::set_up(parent, device, toolchain, &[])
    }

    fn set_up(
        parent: &Path,
        mut device: Device,
        toolchain: Toolchain,
        gpus: &[Gpu],
    ) -> Result<Lab, MeasureError> {
        let folder = Folder::open(parent)?;
        // What a GPU does is not disturbed by compilers.
        if !device.spare.is_empty() && gpus.is_empty() {
            let kept = Prober::build(&device, &toolchain)?.undisturbing()?;
            let (spare, disturbing): (Vec<usize>, _) =
                device.spare.iter().partition(|c| kept.contains(c));
            device.spare = spare;
            device.siblings.extend(disturbing);
        }
        let mut overhead = CpuCost::default();
        overhead.build += toolchain.check(folder.path(), None)?;
        overhead.build += Runner::build(folder.path(), &toolchain, !gpus.is_empty())?;
        let places: Vec<Option<u32>> = if gpus.is_empty() {
            vec![None]
        } else {
            gpus.iter().map(|g| Some(g.ordinal)).collect()
        };
        let mut seats = Vec::new();
        for gpu in places {
            let mut at = device.clone();
            // Results are compared on a core, of which each GPU's process has its own where there
            // are enough.
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

    /// A kernel slower than the task's best by this factor is timed in two windows only; 5 at
    /// first, infinity for never.
    pub fn set_reject_factor(&mut self, factor: f64) {
        self.reject = factor;
    }

    /// Times single calls, before each of which this many bytes are walked through, so that the
    /// caches hold nothing of use but, on a CPU, the data inputs; 0 (off) at first.
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
    pub fn set_task(
        &mut self,
        workload: &Workload,
        reference: &KernelSource,
        seed: u64,
    ) -> Result<(), MeasureError> {
        self.set_task_of(workload, &reference.clone().into(), seed)
    }

    /// As [`Lab::set_task`], with inputs and results that may be given instead of made.
    pub fn set_task_of(
        &mut self,
        workload: &Workload,
        reference: &Reference,
        seed: u64,
    ) -> Result<(), MeasureError> {
        // Kernels made here know f32 and the formats of 16 bits.
        let known = |d: DType| workload.foreign.is_some() || d == DType::F32 || d.is_half();
        if let Some(i) =
            workload.inputs.iter().find(|i| !known(i.dtype) || letter(i.dtype).is_none())
        {
            return Err(MeasureError::Reference(format!(
                "input `{}` is {}: this cannot be measured yet",
                i.name,
                i.dtype.name()
            )));
        }
        let mut results = Vec::new();
        for o in workload.outputs() {
            let written =
                if workload.foreign.is_some() || o.dtype.is_half() { o.dtype } else { DType::F32 };
            let Some(letter) = letter(written) else {
                return Err(MeasureError::Reference(format!(
                    "the output is {}: this cannot be measured yet",
                    written.name()
                )));
            };
            results.push(format!("{letter},{}", o.elements()));
        }
        // What is given instead of made is part of the workload's digest.
        let key = format!(
            "{seed} {} {workload}",
            reference.kernel.as_ref().map_or_else(String::new, digest)
        );
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
            std::fs::write(&path, parts.concat())
                .map_err(|e| MeasureError::Folder { path, reason: e.to_string() })
        };
        let mut tail = format!("{} {}", results.join(";"), workload.inputs.len());
        for (k, i) in workload.inputs.iter().enumerate() {
            let kind = if i.kind == TensorKind::Data { 'd' } else { 'w' };
            let _ = write!(
                tail,
                " {kind}{},{}",
                letter(i.dtype).unwrap_or('f'),
                i.shape.iter().product::<i64>()
            );
            if let Some((low, high)) =
                workload.foreign.as_ref().and_then(|f| f.ranges.get(k).copied().flatten())
            {
                let _ = write!(tail, ",{low:?},{high:?}");
            }
            if let Some(bytes) = reference.inputs.get(k).and_then(Option::as_ref) {
                put(&format!("input-{number}-{k}"), &[bytes])?;
                let _ = write!(tail, ",@input-{number}-{k}");
            }
        }
        let tolerance = workload.tolerance();
        let head = format!("task {seed} reference-{number}");
        let state =
            |seconds| TaskState::new(number, head.clone(), tail.clone(), tolerance, seconds);
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
            (Built::Refused(why), _) => {
                return Err(MeasureError::Reference(format!("it does not compile: {why}")));
            }
        };
        let mut task = state(0.0);
        let (seconds, cpu) = self.on_first_seat(|seat, rules| {
            seat.set(rules, &task, Some(&interface(&library, reference)))
        })?;
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

    pub(super) fn on_first_seat<T>(
        &mut self,
        f: impl FnOnce(&mut Seat, &Rules) -> Result<T, MeasureError>,
    ) -> Result<T, MeasureError> {
        let rules = rules(&self.folder, self.patience, self.reject, self.flush);
        f(&mut self.seats[0], &rules)
    }

    pub(super) fn task(&self) -> Result<&TaskState, MeasureError> {
        let known = self.current.as_ref().and_then(|k| self.tasks.get(k));
        known.ok_or_else(|| MeasureError::Reference("no task was set, or setting it failed".into()))
    }

    /// Builds and measures `jobs`; `each` hears of every one, in their order, as soon as it is
    /// known. Builds run ahead on the spare cores. Once `stop` is set, the job being measured is
    /// finished, and what was measured is reported, the others are not.
    ///
    /// On a CPU jobs near the best are measured again a moment later, since machines are shared:
    /// both looks count where a pacemaker ran beside them, else the faster one.
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
            self.run_portion(jobs, apart, stop, &mut |i, outcome, cost| {
                each(n * portion + i, outcome, cost)
            })?;
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
        let known = digests
            .iter()
            .enumerate()
            .map(|(i, d)| self.shelf.get(d).is_some() || digests[..i].contains(d))
            .collect();
        // While nothing is measured, builds disturb nobody.
        let resting = [&self.device.cores[..], &self.device.siblings].concat();
        let cores = if apart { resting.clone() } else { self.device.spare.clone() };
        let builders = cores.len().min(jobs.len());
        let cancel = AtomicBool::new(false);
        let (toolchain, folder) = (self.toolchain.clone(), self.folder.path().to_path_buf());
        let nvrtc = self.nvrtc.clone();
        let builder = Builder {
            toolchain: &toolchain,
            nvrtc: nvrtc.as_deref(),
            folder: &folder,
            patience: self.build_patience,
            cancel: &cancel,
        };
        // Who measures looks after `stop` himself: what he builds ends with it.
        let idle = (!apart && nvrtc.is_none())
            .then_some(Idle { builder: Builder { cancel: stop, ..builder }, cores: &resting });
        let belt = Belt::new(jobs, known, if apart { jobs.len() } else { 2 * builders + 6 }, idle);
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
            let work = Work {
                jobs,
                digests: &digests,
                belt: &belt,
                shelf: &shelf,
                task: &task,
                rules: &rules,
                stop,
            };
            match self.seats.as_mut_slice() {
                [seat] if apart || nvrtc.is_none() => work.twice(seat, each),
                seats => work.shared(seats, each),
            }
        })
    }

    /// Builds a kernel now, on the spare cores.
    pub(super) fn build(&mut self, kernel: &KernelSource) -> Result<(Built, f64), MeasureError> {
        let key = digest(kernel);
        if let Some(built) = self.shelf.get(&key) {
            return Ok((built.clone(), 0.0));
        }
        let cancel = AtomicBool::new(false);
        let patience = self.build_patience.max(Duration::from_secs(30));
        let nvrtc = self.nvrtc.as_deref();
        let builder = Builder {
            toolchain: &self.toolchain,
            nvrtc,
            folder: self.folder.path(),
            patience,
            cancel: &cancel,
        };
        let cores =
            if self.device.spare.is_empty() { &self.device.cores } else { &self.device.spare };
        let build: Build = pinned(cores, || builder.build(kernel))
            .unwrap_or_else(|_| Err(MeasureError::Runner("a builder panicked".into())));
        let (built, cpu) =
            build?.ok_or_else(|| MeasureError::Runner("a build was cancelled".into()))?;
        self.shelf.put(key, built.clone());
        Ok((built, cpu))
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
        _ => None,
    }
}

fn rules(folder: &Folder, patience: Duration, reject: f64, flush: u64) -> Rules<'_> {
    Rules { folder: folder.path(), patience, reject, flush }
}
