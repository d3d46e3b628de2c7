//! The measurer of this machine. Input: a task with its reference, then jobs (kernel sources);
//! output: an outcome for each, as it is made. Kernels are built on spare cores (`queue.rs`), run
//! in a child process ([`worker`]), checked against the reference on random inputs, and timed
//! beside a pacemaker kernel (`pace.rs`). The kind of device is a [`Backend`](backend::Backend).

mod backend;
mod batch;
mod cpu;
mod cuda;
mod pace;
mod queue;
mod rematch;
mod task;
mod worker;

use self::backend::{Backend, Host};
use self::batch::Batch;
use self::cpu::Cpu;
use self::cuda::Cuda;
use self::queue::{BuildQueue, Builder, CloseOnDrop, Idle};
use self::task::LocalTask;
use self::worker::{RunLimits, RunOptions, Worker};
use crate::artifact::{ArtifactCache, BuildSite, Built, digest};
use crate::cpu::{Device, Execution, NEVER, Runner, SharedSource, Toolchain};
use crate::cuda::Gpu;
use crate::folder::TemporaryFolder;
use crate::process::{pin, pinned};
use squall_core::{
    Caches, CpuCost, Job, JobResult, KernelSource, Measurer, MeasurerError, MeasurerIdentity,
    Rematch, TaskSetup,
};
use squall_runtime::HostPlan;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The number of kernels that are built at a time where no core is left for building, so that
/// builds and measuring take turns.
const PORTION: usize = 32;

/// Measures kernels on this machine's CPU or GPUs.
pub struct LocalMeasurer {
    // First, because fields are dropped in order: processes end before their folder is removed.
    workers: Vec<Worker>,
    backend: Box<dyn Backend>,
    folder: TemporaryFolder,
    host: Host,
    identity: MeasurerIdentity,
    cache: ArtifactCache,
    tasks: HashMap<String, LocalTask>,
    current: Option<String>,
    limits: RunLimits,
    build_timeout: Duration,
    overhead: CpuCost,
}

impl LocalMeasurer {
    /// Measures on the CPU, in a new folder under the system's temporary folder.
    pub fn on_cpu(device: Device, toolchain: Toolchain) -> Result<LocalMeasurer, MeasurerError> {
        LocalMeasurer::on_cpu_in(&std::env::temp_dir(), device, toolchain)
    }

    /// Measures on the CPU, in a new folder under `parent`.
    pub fn on_cpu_in(
        parent: &Path,
        device: Device,
        toolchain: Toolchain,
    ) -> Result<LocalMeasurer, MeasurerError> {
        LocalMeasurer::open(parent, Host { device, toolchain }, Box::new(Cpu))
    }

    /// Measures on GPUs of one model, side by side where there are several. References in C still
    /// run on the CPU.
    pub fn on_gpus(
        gpus: &[Gpu],
        device: Device,
        toolchain: Toolchain,
    ) -> Result<LocalMeasurer, MeasurerError> {
        let backend = Box::new(Cuda::new(gpus)?);
        LocalMeasurer::open(&std::env::temp_dir(), Host { device, toolchain }, backend)
    }

    fn open(
        parent: &Path,
        mut host: Host,
        backend: Box<dyn Backend>,
    ) -> Result<LocalMeasurer, MeasurerError> {
        host.device.can_run()?;
        let folder = TemporaryFolder::open_in(parent, "measure")?;
        let undisturbing = backend.undisturbing(&host)?;
        let (spare, disturbing): (Vec<usize>, _) =
            host.device.spare.iter().partition(|c| undisturbing.contains(c));
        host.device.spare = spare;
        host.device.siblings.extend(disturbing);
        let is_gpu = !backend.gpus().is_empty();
        let mut overhead = CpuCost::default();
        overhead.build += host.toolchain.check(folder.path(), &NEVER)?;
        overhead.build += Runner::build(folder.path(), &host.toolchain, is_gpu)?;
        let workers = start_workers(folder.path(), &mut host, backend.gpus())?;
        Ok(LocalMeasurer {
            workers,
            identity: backend.identity(&host),
            backend,
            folder,
            host,
            cache: ArtifactCache::default(),
            tasks: HashMap::new(),
            current: None,
            limits: LIMITS,
            build_timeout: Duration::from_secs(30),
            overhead,
        })
    }

    /// The temporary folder, which exists as long as the measurer.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// How long a kernel's whole trial may take before it is killed, beside eight times its
    /// reference's time; 10 s at first.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.limits.timeout = timeout;
    }

    /// How long a compiler run may take; 30 s at first.
    pub fn set_build_timeout(&mut self, timeout: Duration) {
        self.build_timeout = timeout;
    }

    /// A kernel slower than the task's best by this factor is timed in two windows only; 5 at
    /// first, infinity for never.
    pub fn set_reject_factor(&mut self, factor: f64) {
        self.limits.reject = factor;
    }

    /// Times single calls, before each of which this many bytes are walked through, so that the
    /// caches hold nothing of use but, on a CPU, the data inputs; 0 (off) at first. It is part of
    /// the device's identity.
    pub fn set_cache_flush(&mut self, bytes: u64) {
        self.limits.flush = bytes;
        self.identity.device.caches = if bytes > 0 { Caches::Cold } else { Caches::Warm };
    }

    /// Whether kernels are timed once their results are right; true at first. Where they are not,
    /// outcomes are [`Outcome::Right`](squall_core::Outcome::Right): a kernel is called twice.
    pub fn set_timed(&mut self, is_timed: bool) {
        self.limits.is_timed = is_timed;
    }

    fn task(&self) -> Result<&LocalTask, MeasurerError> {
        let known = self.current.as_ref().and_then(|k| self.tasks.get(k));
        known.ok_or_else(MeasurerError::no_task)
    }

    fn on_first_worker<T>(
        &mut self,
        f: impl FnOnce(&mut Worker, &RunOptions) -> Result<T, MeasurerError>,
    ) -> Result<T, MeasurerError> {
        let options = options(self.folder.path(), &self.limits);
        f(&mut self.workers[0], &options)
    }

    /// Tells the first worker's process a task, whose outputs are computed by a reference kernel
    /// or lie in the folder. Gives the seconds that the reference took. Other workers are told
    /// when they need the task.
    fn tell(
        &mut self,
        task: &LocalTask,
        reference: Option<&KernelSource>,
    ) -> Result<f64, MeasurerError> {
        // Without OpenMP a reference computes the same on one core.
        let has_openmp = self.host.toolchain.openmp();
        let on_one =
            reference.map(|k| KernelSource { openmp: k.openmp && has_openmp, ..k.clone() });
        let plan = match &on_one {
            None => None,
            Some(kernel) => Some(self.reference_plan(task, kernel)?),
        };
        let (seconds, cpu) =
            self.on_first_worker(|w, options| w.set_task(options, task, plan.as_ref()))?;
        self.overhead.measure += cpu;
        Ok(seconds)
    }

    /// Builds a reference and tells how it is called. References that differ in sizes alone share a
    /// library; one that the compiler refuses in that form is built by itself.
    fn reference_plan(
        &mut self,
        task: &LocalTask,
        kernel: &KernelSource,
    ) -> Result<HostPlan, MeasurerError> {
        if let Some(SharedSource { source, numbers }) = SharedSource::of(kernel) {
            let (built, cpu) = self.build(&source)?;
            self.overhead.build += cpu;
            if let Built::Library(file) = built {
                let called = KernelSource { symbol: source.symbol, ..kernel.clone() };
                let mut plan = task.plan(self.folder.path(), &file, &called)?;
                plan.kernels.iter_mut().for_each(|k| k.numbers.clone_from(&numbers));
                return Ok(plan);
            }
        }
        let (built, cpu) = self.build(kernel)?;
        self.overhead.build += cpu;
        match built {
            Built::Library(file) => task.plan(self.folder.path(), &file, kernel),
            Built::Refused(why) => {
                Err(MeasurerError::Reference(format!("it does not compile: {why}")))
            }
        }
    }

    /// Builds a kernel now. Nothing is measured meanwhile, so it may have all cores.
    fn build(&mut self, kernel: &KernelSource) -> Result<(Built, f64), MeasurerError> {
        let key = digest(kernel);
        if let Some(built) = self.cache.get(&key) {
            return Ok((built.clone(), 0.0));
        }
        let cores = self.host.device.building_cores();
        let timeout = self.build_timeout.max(Duration::from_secs(30));
        let site = BuildSite { folder: self.folder.path(), timeout, cancel: &NEVER };
        let builder = Builder { backend: &*self.backend, host: &self.host, site };
        let build = pinned(&cores, || builder.build(kernel))
            .unwrap_or_else(|_| Err(MeasurerError::Runner("a builder panicked".into())));
        let (built, cpu) = build?.ok_or(MeasurerError::Stopped)?;
        self.cache.put(key, built.clone());
        Ok((built, cpu))
    }

    /// Builds and measures some jobs. With `builds_first`, nothing is measured before all are
    /// built.
    fn run_portion(
        &mut self,
        jobs: &[&KernelSource],
        builds_first: bool,
        stop: &AtomicBool,
        each: &mut dyn FnMut(JobResult),
    ) -> Result<(), MeasurerError> {
        let task = self.task()?.clone();
        let digests: Vec<String> = jobs.iter().map(|k| digest(k)).collect();
        // Equal sources are built once: the later ones find the artifact in the cache.
        let known = digests
            .iter()
            .enumerate()
            .map(|(i, d)| self.cache.get(d).is_some() || digests[..i].contains(d))
            .collect();
        let is_gpu = !self.backend.gpus().is_empty();
        let device = &self.host.device;
        // While nothing is measured, builds may run on all cores.
        let resting = [&device.distinct_cores()[..], &device.siblings].concat();
        let cores = if builds_first { &resting } else { &device.spare };
        let builders = cores.len().min(jobs.len());
        let cancel = AtomicBool::new(false);
        let site =
            BuildSite { folder: self.folder.path(), timeout: self.build_timeout, cancel: &cancel };
        let builder = Builder { backend: &*self.backend, host: &self.host, site };
        // The measuring thread looks at `stop`, so what it builds itself must end with that.
        let stopping = Builder { site: BuildSite { cancel: stop, ..site }, ..builder };
        let is_far = matches!(device.execution, Execution::Board(_));
        let idle = (!builds_first && !is_gpu && !is_far)
            .then_some(Idle { builder: stopping, cores: resting.as_slice() });
        let ahead = if builds_first { jobs.len() } else { 2 * builders + 6 };
        let queue = BuildQueue::new(jobs, known, ahead, idle);
        let options = options(self.folder.path(), &self.limits);
        let cache = Mutex::new(&mut self.cache);
        let batch = Batch {
            jobs,
            digests: &digests,
            queue: &queue,
            cache: &cache,
            task: &task,
            options: &options,
            stop,
        };
        let workers = self.workers.as_mut_slice();
        std::thread::scope(|scope| {
            let _closing = CloseOnDrop { queue: &queue, cancel: &cancel };
            for _ in 0..builders {
                scope.spawn(|| {
                    pin(cores);
                    queue.work(&builder);
                });
            }
            if builds_first {
                queue.wait_for_all(stop);
            }
            match workers {
                [worker] if builds_first || !is_gpu => batch.measure_in_order(worker, each),
                workers => batch.measure_in_parallel(workers, each),
            }
        })
    }
}

impl Measurer for LocalMeasurer {
    fn identity(&self) -> &MeasurerIdentity {
        &self.identity
    }

    /// Writes what is given of inputs and outputs into the folder, and has the reference compute
    /// the outputs otherwise. Returning to an earlier task reads them again.
    fn set_task(&mut self, setup: &TaskSetup) -> Result<(), MeasurerError> {
        let is_far = matches!(self.host.device.execution, Execution::Board(_));
        if is_far && setup.reference.judge.is_some() {
            return Err(MeasurerError::Device(
                "results that a function judges are looked at where it is: leave --runner out"
                    .into(),
            ));
        }
        let key = task::key(setup);
        if self.current.as_ref() == Some(&key) {
            return Ok(());
        }
        self.current = None;
        if let Some(known) = self.tasks.get(&key).cloned() {
            self.tell(&known, None)?;
        } else {
            let mut task = LocalTask::new(setup, self.tasks.len(), self.folder.path())?;
            task.reference_seconds = self.tell(&task, setup.reference.kernel.as_ref())?;
            self.tasks.insert(key.clone(), task);
        }
        self.current = Some(key);
        Ok(())
    }

    /// Builds run ahead on the spare cores. On a CPU jobs near the best are measured again a
    /// moment later, since machines are shared: both measurements count where a pacemaker ran
    /// beside them, else the faster one.
    fn run(
        &mut self,
        jobs: &[Job],
        stop: &AtomicBool,
        each: &mut dyn FnMut(JobResult),
    ) -> Result<(), MeasurerError> {
        self.task()?;
        let sources: Vec<&KernelSource> =
            jobs.iter().map(Job::required_source).collect::<Result<_, _>>()?;
        let builds_first = self.host.device.spare.is_empty();
        let portion = if builds_first { PORTION } else { jobs.len().max(1) };
        for (n, sources) in sources.chunks(portion).enumerate() {
            self.cache.trim(self.folder.path());
            self.run_portion(sources, builds_first, stop, &mut |result| {
                each(JobResult { job: n * portion + result.job, ..result })
            })?;
        }
        Ok(())
    }

    fn rematch(&mut self, incumbent: &Job, challenger: &Job) -> Result<Rematch, MeasurerError> {
        self.compare(incumbent.required_source()?, challenger.required_source()?)
    }

    fn overhead(&self) -> CpuCost {
        self.overhead
    }
}

/// One worker for each GPU, or else one for the CPU.
fn start_workers(
    folder: &Path,
    host: &mut Host,
    gpus: &[u32],
) -> Result<Vec<Worker>, MeasurerError> {
    if gpus.is_empty() {
        return Ok(vec![Worker::start(folder, host.device.clone(), None)?]);
    }
    let mut workers = Vec::new();
    for &gpu in gpus {
        let mut device = host.device.clone();
        // Results are compared on a core, of which each GPU's process has its own where there are
        // enough.
        if !workers.is_empty() && host.device.spare.len() > 1 {
            device.cores = host.device.spare.pop().into_iter().collect();
        }
        workers.push(Worker::start(folder, device, Some(gpu))?);
    }
    Ok(workers)
}

/// How kernels are run unless the measurer is told otherwise.
const LIMITS: RunLimits =
    RunLimits { timeout: Duration::from_secs(10), reject: 5.0, flush: 0, is_timed: true };

fn options<'a>(folder: &'a Path, limits: &'a RunLimits) -> RunOptions<'a> {
    RunOptions { folder, limits }
}
