//! The machine that kernels are tuned for: its toolchain (C compiler and flags), its CPU or GPUs,
//! and their names in records. A [`Context`] detects each once, and all requests of a program share
//! it; [`TargetContext`] is the part for one target, from which measurers are opened.

use crate::base::error::Error;
use crate::target::kept_weights::KeptWeights;
use crate::target::roof::{Roof, RoofLevel};
use crate::target::runner::RunnerRequest;
use crate::target::target_request::TargetRequest;
use squall_compiler::CODEGEN_VERSION;
use squall_core::{Caches, Measurer, MeasurerError, Target};
use squall_measure::cpu::{Device, Toolchain, connect, device_of, roof};
use squall_measure::cuda::Gpu;
use squall_measure::{BoardAddress, LocalMeasurer, ObjectCache};
use squall_records::Place;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};

/// The folder of compiled files inside the cache folder.
const OBJECTS: &str = "objects";
/// The folder of prepared weights inside the cache folder.
const WEIGHTS: &str = "weights";

/// This machine, detected once for several requests of one program.
#[derive(Default)]
pub struct Context {
    /// The folder in which compiled files are kept.
    cache: Option<PathBuf>,
    /// Where kernels are run.
    runner: RunnerRequest,
    toolchain: OnceLock<Toolchain>,
    /// From how many bytes on a network's prepared weights are kept there, if not as usual.
    kept_from: Option<u64>,
    targets: Mutex<Vec<((TargetRequest, usize), TargetContext)>>,
}

impl Context {
    /// A context that looks at nothing before it is asked.
    pub fn new() -> Context {
        Context::default()
    }

    /// A context whose compiled files are kept in a folder, which is made where it is absent; one
    /// that cannot be used is not. Without a folder they are kept as long as the context.
    pub fn with_cache(folder: Option<PathBuf>) -> Context {
        Context { cache: folder, ..Context::default() }
    }

    /// A context whose compiled files are kept in the user's cache folder.
    pub fn with_user_cache() -> Context {
        Context::with_cache(crate::base::files::user_cache())
    }

    /// The same, which keeps the prepared weights of networks that have `bytes` or more of them.
    pub fn keeping_weights_from(self, bytes: u64) -> Context {
        Context { kept_from: Some(bytes), ..self }
    }

    /// Where prepared weights stay from one run of a network to the next, if they do.
    pub(crate) fn kept_weights(&self) -> Option<KeptWeights> {
        let folder = self.cache.as_ref()?.join(WEIGHTS);
        Some(KeptWeights::new(folder, self.kept_from))
    }

    /// The same, whose kernels run elsewhere.
    pub fn on(self, runner: RunnerRequest) -> Context {
        Context { runner, ..self }
    }

    /// Whether kernels run on this machine itself.
    pub fn is_here(&self) -> bool {
        self.runner == RunnerRequest::Here
    }

    /// The C compiler.
    pub fn toolchain(&self) -> Result<&Toolchain, Error> {
        if let Some(known) = self.toolchain.get() {
            return Ok(known);
        }
        let kept = self.cache.as_ref().map(|f| ObjectCache::open(&f.join(OBJECTS)));
        let objects = match kept {
            Some(Ok(kept)) => kept,
            _ => ObjectCache::temporary().unwrap_or_default(),
        };
        let found = Toolchain::detect_with(objects)?;
        Ok(self.toolchain.get_or_init(|| found))
    }

    /// A device of this machine, with warm caches; `threads` are a kernel's on the CPU.
    pub fn target(&self, request: TargetRequest, threads: usize) -> Result<TargetContext, Error> {
        let key = (request, threads);
        let mut targets = self.targets.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some((_, known)) = targets.iter().find(|(k, _)| *k == key) {
            return Ok(known.clone());
        }
        let found = match (&self.runner, request) {
            (RunnerRequest::Board(address), _) if request.is_cpu() => {
                self.board(address, request, threads)?
            }
            (RunnerRequest::Here | RunnerRequest::Emulator, TargetRequest::CpuAt(isa)) => {
                TargetContext::look(request, threads, &self.toolchain()?.at(isa)?)?
            }
            (RunnerRequest::Here, _) => TargetContext::look(request, threads, self.toolchain()?)?,
            (runner, _) => {
                return Err(Error::Usage {
                    message: format!("--runner {runner} runs kernels of a CPU's named level"),
                    hint: "leave --target out; with qemu say --isa armv8-a".into(),
                });
            }
        };
        let found = found.checking_only(self.runner == RunnerRequest::Emulator)?;
        targets.push((key, found.clone()));
        Ok(found)
    }

    /// Why times of `threads` threads mean nothing here: they share cores.
    pub(crate) fn crowding(
        &self,
        request: TargetRequest,
        threads: usize,
    ) -> Result<Option<String>, Error> {
        let at = self.target(request, threads)?;
        Ok(at.device.crowding().filter(|_| at.gpus.is_empty()))
    }

    /// A board, which is connected now and as long as the context is used.
    fn board(
        &self,
        address: &BoardAddress,
        request: TargetRequest,
        threads: usize,
    ) -> Result<TargetContext, Error> {
        let (board, toolchain) = connect(address, self.toolchain()?, request.isa())?;
        let device = device_of(&board, threads, &toolchain)?;
        Ok(TargetContext::of_cpu(device, toolchain))
    }
}

/// The toolchain's name in records: what turns a configuration into machine code.
pub fn toolchain_id(toolchain: &Toolchain) -> String {
    format!("squall-codegen {CODEGEN_VERSION}; {}", toolchain.id())
}

/// One target: what search and records need to know of it, and how to measure there.
#[derive(Clone, Debug)]
pub struct TargetContext {
    /// The device and the toolchain, by which records are told apart.
    pub place: Place,
    /// The facts that code generation and search need.
    pub target: Target,
    /// The C compiler, which references need wherever kernels run.
    pub toolchain: Toolchain,
    /// The CPU; beside GPUs, one core of it runs references and starts kernels, the others compile.
    pub device: Device,
    /// The GPUs, of one model; none for a CPU.
    pub gpus: Vec<Gpu>,
    /// Whether kernels are held against their references and not timed.
    checks_only: bool,
    /// The machine's roof, once it was measured; of no meaning to caches.
    roof: Arc<OnceLock<Roof>>,
}

impl TargetContext {
    /// Looks at the device with a toolchain at hand, which says to what level of instructions a
    /// CPU's kernels are held; `threads` are a kernel's on the CPU.
    pub fn look(
        request: TargetRequest,
        threads: usize,
        toolchain: &Toolchain,
    ) -> Result<TargetContext, Error> {
        let roof = Arc::default();
        let toolchain = toolchain.clone();
        let gpus = match request {
            TargetRequest::Cpu | TargetRequest::CpuAt(_) => {
                let device = Device::detect(threads, &toolchain)?;
                return Ok(TargetContext::of_cpu(device, toolchain));
            }
            TargetRequest::Cuda(ordinal) => vec![Gpu::detect(ordinal, &toolchain)?],
            TargetRequest::CudaAll => Gpu::detect_all(&toolchain)?,
        };
        let first = &gpus[0];
        if let Some(other) = gpus.iter().find(|g| g.id() != first.id() || g.limits != first.limits)
        {
            return Err(MeasurerError::Device(format!(
                "the GPUs differ, and times compare only within one model: {} is {}, {} is {}; \
                 name one with --target cuda:N",
                first.ordinal, first.name, other.ordinal, other.name
            ))
            .into());
        }
        let device = Device::detect(1, &toolchain)?;
        let place = Place {
            device: first.identity(),
            toolchain: format!("squall-codegen {CODEGEN_VERSION}; {}", first.toolchain()),
        };
        let target = first.target.clone();
        let checks_only = false;
        Ok(TargetContext { place, target, toolchain, device, gpus, checks_only, roof })
    }

    fn of_cpu(device: Device, toolchain: Toolchain) -> TargetContext {
        let place = Place { device: device.identity(), toolchain: toolchain_id(&toolchain) };
        TargetContext {
            place,
            target: device.target.clone(),
            toolchain,
            device,
            gpus: Vec::new(),
            checks_only: false,
            roof: Arc::default(),
        }
    }

    /// The same machine's CPU, where kernels are for its GPUs.
    pub fn without_gpus(&self) -> TargetContext {
        TargetContext::of_cpu(self.device.clone(), self.toolchain.clone())
    }

    /// The same, whose kernels are checked under an emulator where that is asked for.
    fn checking_only(self, is_asked: bool) -> Result<TargetContext, Error> {
        if is_asked && !self.device.is_emulated() {
            // What has no emulator says so itself.
            self.device.can_run()?;
            return Err(Error::Usage {
                message: format!(
                    "{} runs on this machine itself, not under qemu",
                    self.target.isa.map_or("it", squall_core::Isa::name)
                ),
                hint: "leave --runner out, or name a level of another architecture with --isa"
                    .into(),
            });
        }
        Ok(TargetContext { checks_only: is_asked, ..self })
    }

    /// Whether what its measurer says are times, or under an emulator right and wrong alone.
    pub fn is_timed(&self) -> bool {
        !self.checks_only
    }

    /// Looks at a device of this machine.
    pub fn at(request: TargetRequest, threads: usize) -> Result<TargetContext, Error> {
        Context::new().target(request, threads)
    }

    /// The same device with such caches.
    pub fn with_caches(mut self, caches: Caches) -> TargetContext {
        self.place.device = self.place.device.with_caches(caches);
        self
    }

    /// The device's name in records.
    pub fn device_name(&self) -> String {
        self.place.device.to_string()
    }

    /// The machine's roof (peak and bandwidths), measured at the first call (half a second).
    pub fn roof(&self) -> Result<Roof, Error> {
        if let Some(roof) = self.roof.get() {
            return Ok(roof.clone());
        }
        let roof = self.roof_now()?;
        Ok(self.roof.get_or_init(|| roof).clone())
    }

    /// The same, measured anew.
    pub fn roof_now(&self) -> Result<Roof, Error> {
        match self.gpus.first() {
            Some(gpu) => gpu_roof(gpu, &self.toolchain),
            None => measure_roof(&self.device, &self.toolchain),
        }
    }

    /// Opens what measures kernels there.
    pub fn measurer(&self) -> Result<Box<dyn Measurer>, Error> {
        if self.gpus.is_empty() && self.is_timed() {
            self.device.can_time()?;
        }
        Ok(Box::new(self.verifier()?))
    }

    /// Opens what runs kernels there and holds them against their references: times are of use
    /// only where [`Device::can_time`] says so.
    pub fn verifier(&self) -> Result<LocalMeasurer, Error> {
        let (device, toolchain) = (self.device.clone(), self.toolchain.clone());
        let mut measurer = if self.gpus.is_empty() {
            LocalMeasurer::on_cpu(device, toolchain)?
        } else {
            LocalMeasurer::on_gpus(&self.gpus, device, toolchain)?
        };
        if self.place.device.caches == Caches::Cold {
            measurer.set_cache_flush(self.flushing_bytes());
        }
        Ok(measurer)
    }

    /// Bytes that push everything out of the caches.
    fn flushing_bytes(&self) -> u64 {
        match self.gpus.first() {
            Some(gpu) => 2 * u64::from(gpu.limits.l2),
            // A walk through more would cost more than the kernels.
            None => self
                .device
                .caches
                .iter()
                .map(|c| c.size.0)
                .max()
                .unwrap_or(32 << 20)
                .clamp(1 << 20, 64 << 20),
        }
    }
}

/// The roof of a CPU, in the report's words.
pub fn measure_roof(device: &Device, toolchain: &Toolchain) -> Result<Roof, Error> {
    let r = roof(device, toolchain)?;
    let caches = r.levels.iter().filter(|l| l.name != "memory").enumerate();
    let level = |(i, l): (usize, &squall_measure::cpu::MemoryLevel)| RoofLevel {
        name: l.name.clone(),
        bytes: device.target.cache(i + 1),
        gbs: l.read_gbs,
    };
    Ok(Roof {
        peak_gflops: r.peak_gflops,
        byte_pace: squall_measure::cpu::byte_pace(device.target.isa),
        pair_pace: squall_measure::cpu::pair_pace(device.target.isa),
        memory_gbs: r.bandwidth_gbs,
        levels: caches.map(level).collect(),
    })
}

/// The same of a GPU: f32 without tensor cores, its second-level cache, its memory.
pub fn gpu_roof(gpu: &Gpu, toolchain: &Toolchain) -> Result<Roof, Error> {
    let r = gpu.roof(toolchain)?;
    let l2 = RoofLevel { name: "L2".into(), bytes: u64::from(gpu.limits.l2), gbs: r.l2_gbs };
    Ok(Roof {
        peak_gflops: r.peak_gflops,
        byte_pace: 1.0,
        pair_pace: 1.0,
        memory_gbs: r.copy_gbs,
        levels: vec![l2],
    })
}
