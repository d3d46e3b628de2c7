//! NVIDIA GPUs: detection, identity in records, and roof (measured peak and bandwidths). The driver
//! and NVRTC (NVIDIA's runtime compiler) are loaded at run time, and only by the process that runs
//! kernels (`crates/runtime/host/cuda.c`), never by this one: a compiler that crashes or a kernel
//! that hangs ends a process that can be replaced (docs/decisions/0011).

mod cubin;
mod nvrtc;

pub use cubin::{cubins, file as cubin_file};

pub(crate) use nvrtc::{Nvrtc, has_lowered_names, names_file};

use crate::cpu::{Reply, Runner, Toolchain, unexpected};
use crate::folder::TemporaryFolder;
use squall_core::{DeviceIdentity, Gpu as Limits, GpuState, MeasurerError, Target};
use squall_runtime::protocol::{self, GpuDescription, Start};
use std::time::Duration;

/// A GPU of this machine, as its driver describes it.
#[derive(Clone, Debug)]
pub struct Gpu {
    /// Its number in the driver.
    pub ordinal: u32,
    /// Its name.
    pub name: String,
    /// The highest CUDA version that the driver understands, as 13000.
    pub driver: u32,
    /// NVRTC's version, as `13.0`.
    pub nvrtc: String,
    /// The facts that code generation and search need.
    pub target: Target,
    /// The limits behind it.
    pub limits: Limits,
    /// How many devices the driver sees.
    pub count: u32,
    /// Clocks now and at most, heat and power; zeros where the management library does not say.
    pub health: Health,
}

/// A GPU's state by the management library; 0 for what it does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// The clocks, and what slows them down.
    pub now: GpuState,
    /// Most MHz of the multiprocessors.
    pub most_sm_mhz: u32,
    /// Most MHz of memory.
    pub most_memory_mhz: u32,
    /// Degrees Celsius.
    pub degrees: u32,
    /// Watts.
    pub watts: u32,
}

/// A GPU's roof: its measured peak and bandwidths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GpuRates {
    /// f32 multiply-adds without tensor cores, in GFLOP/s (one is two operations).
    pub peak_gflops: f64,
    /// Copying within its memory, in GB/s; bytes read and bytes written both count.
    pub copy_gbs: f64,
    /// Reading what its second-level cache holds, in GB/s.
    pub l2_gbs: f64,
    /// Its clocks meanwhile.
    pub state: GpuState,
}

impl Gpu {
    /// The GPU of this number. An error says what is missing: device, driver or NVRTC.
    pub fn detect(ordinal: u32, toolchain: &Toolchain) -> Result<Gpu, MeasurerError> {
        match ask(toolchain, &Start::Describe(ordinal))? {
            protocol::Reply::Device(d) => Ok(Gpu::described(ordinal, *d)),
            other => Err(unexpected(&other)),
        }
    }

    /// All GPUs that the driver sees, of which there is one at least.
    pub fn detect_all(toolchain: &Toolchain) -> Result<Vec<Gpu>, MeasurerError> {
        let first = Gpu::detect(0, toolchain)?;
        let others = (1..first.count).map(|n| Gpu::detect(n, toolchain));
        std::iter::once(Ok(first.clone())).chain(others).collect()
    }

    /// Measures what the GPU can do at most; that takes half a second.
    pub fn roof(&self, toolchain: &Toolchain) -> Result<GpuRates, MeasurerError> {
        let start = Start::Roof { ordinal: self.ordinal, architecture: self.architecture() };
        match ask(toolchain, &start)? {
            protocol::Reply::Roof(r) => Ok(GpuRates {
                peak_gflops: r.gflops,
                copy_gbs: r.memory_gbs,
                l2_gbs: r.l2_gbs,
                state: r.state,
            }),
            other => Err(unexpected(&other)),
        }
    }

    /// A GPU by what its runner says of it.
    fn described(ordinal: u32, d: GpuDescription) -> Gpu {
        let limits = d.limits;
        let health = Health {
            now: d.now,
            most_sm_mhz: d.most_sm_mhz,
            most_memory_mhz: d.most_memory_mhz,
            degrees: d.degrees,
            watts: d.watts,
        };
        Gpu {
            ordinal,
            name: d.name,
            driver: d.driver,
            nvrtc: d.nvrtc,
            target: Target::cuda(limits),
            limits,
            count: d.count,
            health,
        }
    }

    /// The device's identity, within which times compare.
    pub fn identity(&self) -> DeviceIdentity {
        DeviceIdentity::cuda(self.name.clone())
    }

    /// The device's name in records.
    pub fn id(&self) -> String {
        self.identity().to_string()
    }

    /// The architecture that NVRTC compiles for.
    pub fn architecture(&self) -> String {
        let a = if self.limits.capability >= 90 { "a" } else { "" };
        format!("sm_{}{a}", self.limits.capability)
    }

    /// The toolchain's name in records: what turns sources into machine code.
    pub fn toolchain(&self) -> String {
        format!("nvrtc {}, {}", self.nvrtc, self.architecture())
    }
}

/// What the runner program says that is started so.
fn ask(toolchain: &Toolchain, start: &Start) -> Result<protocol::Reply, MeasurerError> {
    let folder = TemporaryFolder::new("probe")?;
    Runner::build(folder.path(), toolchain, true)?;
    let unusable = |why: &str| MeasurerError::Device(format!("CUDA cannot be used: {why}"));
    match Runner::begin(folder.path(), start)?.hear(Duration::from_secs(60))? {
        Reply::Answer(protocol::Reply::Failed(f), _) => Err(unusable(&f.message)),
        Reply::Answer(reply, _) => Ok(reply),
        Reply::Died(how, _) => {
            Err(unusable(&format!("asking the driver ended the process: {how}")))
        }
        Reply::Late(_) => Err(unusable("the driver does not answer within 60 s")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_read() {
        let line = "0.1 device count=2 driver=13000 nvrtc=13.0 capability=90 multiprocessors=132 \
                    threads_per_block=1024 threads_per_multiprocessor=2048 \
                    shared_per_block=232448 shared_per_multiprocessor=233472 \
                    registers_per_multiprocessor=65536 l2=62914560 gpu=1,345,3201,4 \
                    most_sm_mhz=1980 most_memory_mhz=3201 degrees=31 watts=77 name=NVIDIA H200";
        let protocol::Line::Reply(protocol::Reply::Device(d), _) = protocol::Line::parse(line)
        else {
            panic!("{line}")
        };
        let g = Gpu::described(1, *d);
        assert_eq!(
            (g.id().as_str(), g.toolchain().as_str()),
            ("cuda NVIDIA H200", "nvrtc 13.0, sm_90a")
        );
        assert_eq!(
            (g.limits.multiprocessors, g.limits.shared_per_block, g.limits.cluster()),
            (132, 232448, 16)
        );
        assert_eq!(
            (g.count, g.health.now.sm_mhz, g.health.most_sm_mhz, g.health.watts),
            (2, 345, 1980, 77)
        );
        assert_eq!(g.health.now.throttled_by(), ["power cap"]);
    }

    /// Where there is a GPU it is found, and where there is none the error says what is missing.
    #[test]
    fn a_device_is_found_or_its_absence_explained() {
        let toolchain = Toolchain::detect().unwrap();
        match Gpu::detect(0, &toolchain) {
            Ok(g) => assert!(g.limits.multiprocessors > 0 && !g.name.is_empty()),
            Err(e) => {
                let e = e.to_string();
                println!("skipped: {e}");
                assert!(
                    e.starts_with("CUDA cannot be used: ")
                        && (e.contains("driver") || e.contains("NVRTC") || e.contains("device")),
                    "{e}"
                );
            }
        }
    }
}
