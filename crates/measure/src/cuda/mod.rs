//! NVIDIA GPUs, through the driver and NVRTC. Both are loaded at run time by the process that runs
//! kernels (`gpu.h`, a part of the laboratory's `runner.c`), never by ours: a compiler that crashes
//! or a kernel that hangs ends a process that can be replaced (docs/decisions/0011).

mod nvrtc;

pub(crate) use nvrtc::Nvrtc;

use crate::MeasureError;
use crate::cpu::{Reply, Runner, Toolchain};
use squall_core::{Bytes, Gpu as Limits, Target, TargetKind};
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
}

impl Gpu {
    /// The GPU of this number. An error says what is missing: device, driver or NVRTC.
    pub fn detect(ordinal: u32, toolchain: &Toolchain) -> Result<Gpu, MeasureError> {
        let temp = std::env::temp_dir();
        let folder = tempfile::tempdir().map_err(|e| MeasureError::folder(&temp, &e))?;
        Runner::build(folder.path(), toolchain, true)?;
        let mut runner = Runner::begin(folder.path(), &["describe", &ordinal.to_string()])?;
        match runner.hear(Duration::from_secs(60))? {
            Reply::Answer(words, _) => match (words.strip_prefix("device "), words.strip_prefix("failed ")) {
                (Some(text), _) => Gpu::parse(ordinal, text).ok_or_else(|| MeasureError::Runner(format!("it answers `{words}`"))),
                (_, Some(why)) => {
                    let why = why.split_once(' ').map_or(why, |w| w.1);
                    Err(MeasureError::Device(format!("CUDA cannot be used: {why}")))
                }
                _ => Err(MeasureError::Runner(format!("it answers `{words}`"))),
            },
            Reply::Died(how, _) => Err(MeasureError::Device(format!("CUDA cannot be used: asking the driver ended the process: {how}"))),
            Reply::Late(_) => Err(MeasureError::Device("CUDA cannot be used: the driver does not answer within 60 s".into())),
        }
    }

    /// Reads `DRIVER NVRTC_MAJOR NVRTC_MINOR` and ten attributes, then the name.
    fn parse(ordinal: u32, text: &str) -> Option<Gpu> {
        let mut words = text.splitn(14, ' ');
        let mut number = || words.next()?.parse::<u32>().ok();
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
        let _clock = number()?;
        let name = words.next()?.trim().to_string();
        let caches = vec![Bytes(u64::from(limits.shared_per_multiprocessor)), Bytes(u64::from(limits.l2))];
        let target = Target { kind: TargetKind::Cuda(limits), threads: 1, vector_bytes: 16, vector_registers: 255, caches };
        Some(Gpu { ordinal, name, driver, nvrtc: format!("{major}.{minor}"), target, limits })
    }

    /// The device's name in records: times compare only within one.
    pub fn id(&self) -> String {
        format!("cuda {}", self.name)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_read() {
        let g = Gpu::parse(1, "13000 13 0 9 0 132 1024 2048 232448 233472 65536 62914560 1980000 NVIDIA H200").unwrap();
        assert_eq!((g.id().as_str(), g.toolchain().as_str()), ("cuda NVIDIA H200", "nvrtc 13.0, sm_90a"));
        assert_eq!((g.limits.multiprocessors, g.limits.shared_per_block, g.limits.cluster()), (132, 232448, 16));
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
                    e.starts_with("CUDA cannot be used: ") && (e.contains("driver") || e.contains("NVRTC") || e.contains("device")),
                    "{e}"
                );
            }
        }
    }
}
