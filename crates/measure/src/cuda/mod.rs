//! NVIDIA GPUs, through the driver and NVRTC. Both are loaded at run time by the process that runs
//! kernels (`gpu.h`, a part of `runner.c`), never by ours: a compiler that crashes or a kernel that
//! hangs ends a process that can be replaced (docs/decisions/0011).

mod nvrtc;

pub(crate) use nvrtc::Nvrtc;

use crate::cpu::{Reply, Runner, Toolchain};
use squall_core::{DeviceIdentity, Gpu as Limits, GpuState, MeasurerError, Target};
use std::time::Duration;

/// A GPU of this machine, as its driver describes it.
#[derive(Clone, Debug)]
pub struct Gpu {
    /// The driver's number of it.
    pub ordinal: u32,
    /// Its name.
    pub name: String,
    /// The highest CUDA version that the driver understands, as 13000.
    pub driver: u32,
    /// NVRTC's version, as `13.0`.
    pub nvrtc: String,
    /// What code generation and search need to know.
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

/// What a GPU can do at most, measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Roof {
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
        let words = ask(toolchain, &["describe", &ordinal.to_string()], "device ")?;
        Gpu::parse(ordinal, &words)
            .ok_or_else(|| MeasurerError::Runner(format!("it answers `{words}`")))
    }

    /// All GPUs that the driver sees, of which there is one at least.
    pub fn detect_all(toolchain: &Toolchain) -> Result<Vec<Gpu>, MeasurerError> {
        let first = Gpu::detect(0, toolchain)?;
        let others = (1..first.count).map(|n| Gpu::detect(n, toolchain));
        std::iter::once(Ok(first.clone())).chain(others).collect()
    }

    /// Measures what the GPU can do at most; that takes half a second.
    pub fn roof(&self, toolchain: &Toolchain) -> Result<Roof, MeasurerError> {
        let words = ask(
            toolchain,
            &["roof", &format!("{}:{}", self.ordinal, self.architecture())],
            "roof ",
        )?;
        let numbers: Vec<f64> = words.split(' ').filter_map(|w| w.parse().ok()).collect();
        let &[peak_gflops, copy_gbs, l2_gbs, sm, memory, throttle] = numbers.as_slice() else {
            return Err(MeasurerError::Runner(format!("it answers `{words}`")));
        };
        let state = GpuState {
            device: self.ordinal,
            sm_mhz: sm as u32,
            memory_mhz: memory as u32,
            throttle: throttle as u32,
        };
        Ok(Roof { peak_gflops, copy_gbs, l2_gbs, state })
    }

    /// Reads `COUNT DRIVER NVRTC_MAJOR NVRTC_MINOR`, nine attributes, seven numbers of its health,
    /// then the name.
    fn parse(ordinal: u32, text: &str) -> Option<Gpu> {
        let mut words = text.splitn(21, ' ');
        let mut number = || words.next()?.parse::<u32>().ok();
        let count = number()?;
        let (driver, major, minor) = (number()?, number()?, number()?);
        let limits = Limits {
            capability: 10 * number()? + number()?,
            multiprocessors: number()?,
            threads_per_block: number()?,
            threads_per_multiprocessor: number()?,
            shared_per_block: number()?,
            shared_per_multiprocessor: number()?,
            registers_per_multiprocessor: number()?,
            l2: number()?,
        };
        let now = GpuState {
            device: ordinal,
            sm_mhz: number()?,
            memory_mhz: number()?,
            throttle: number()?,
        };
        let health = Health {
            now,
            most_sm_mhz: number()?,
            most_memory_mhz: number()?,
            degrees: number()?,
            watts: number()?,
        };
        let name = words.next()?.trim().to_string();
        Some(Gpu {
            ordinal,
            name,
            driver,
            nvrtc: format!("{major}.{minor}"),
            target: Target::cuda(limits),
            limits,
            count,
            health,
        })
    }

    /// What times compare within.
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

    /// What turns sources into machine code, in records.
    pub fn toolchain(&self) -> String {
        format!("nvrtc {}, {}", self.nvrtc, self.architecture())
    }
}

/// Starts the runner program with `arguments`; what it says behind the word `first`.
fn ask(toolchain: &Toolchain, arguments: &[&str], first: &str) -> Result<String, MeasurerError> {
    let temp = std::env::temp_dir();
    let folder = tempfile::tempdir().map_err(|e| MeasurerError::folder(&temp, &e))?;
    Runner::build(folder.path(), toolchain, true)?;
    let unusable = |why: &str| MeasurerError::Device(format!("CUDA cannot be used: {why}"));
    match Runner::begin(folder.path(), arguments)?.hear(Duration::from_secs(60))? {
        Reply::Answer(words, _) => match (words.strip_prefix(first), words.strip_prefix("failed "))
        {
            (Some(text), _) => Ok(text.into()),
            (_, Some(why)) => Err(unusable(why.split_once(' ').map_or(why, |w| w.1))),
            _ => Err(MeasurerError::Runner(format!("it answers `{words}`"))),
        },
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
        let g = Gpu::parse(
            1,
            "2 13000 13 0 9 0 132 1024 2048 232448 233472 65536 62914560 345 3201 4 \
                           1980 3201 31 77 NVIDIA H200",
        )
        .unwrap();
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
        assert!(Gpu::parse(0, "13000 13 0 9").is_none());
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
