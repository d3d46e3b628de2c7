//! The back end of a local measurer for the GPUs of this machine, all of one model: kernels in CUDA
//! C, built by NVRTC (`../cuda/nvrtc.rs`), one worker for each GPU.

use super::backend::{Backend, Host};
use crate::artifact::{Build, BuildSite};
use crate::cuda::{Gpu, Nvrtc};
use squall_core::{KernelSource, MeasurerError, MeasurerIdentity};

/// The GPUs and their compiler.
pub(super) struct Cuda {
    identity: MeasurerIdentity,
    ordinals: Vec<u32>,
    nvrtc: Nvrtc,
}

impl Cuda {
    /// Of some GPUs. Without any there is no device, which is an error.
    pub fn new(gpus: &[Gpu]) -> Result<Cuda, MeasurerError> {
        let first = gpus
            .first()
            .ok_or_else(|| MeasurerError::Device("no GPU was named to measure on".into()))?;
        Ok(Cuda {
            identity: MeasurerIdentity::of(first.identity(), first.toolchain()),
            ordinals: gpus.iter().map(|g| g.ordinal).collect(),
            nvrtc: Nvrtc::new(first.architecture()),
        })
    }
}

impl Backend for Cuda {
    fn identity(&self, _: &Host) -> MeasurerIdentity {
        self.identity.clone()
    }

    /// A compiler disturbs no kernel of a GPU.
    fn undisturbing(&self, host: &Host) -> Result<Vec<usize>, MeasurerError> {
        Ok(host.device.spare.clone())
    }

    fn gpus(&self) -> &[u32] {
        &self.ordinals
    }

    /// References may be kernels in C.
    fn build(&self, host: &Host, kernel: &KernelSource, site: BuildSite) -> Build {
        if !kernel.language.is_launched() {
            host.toolchain.build(kernel, site)
        } else {
            self.nvrtc.build(kernel, site)
        }
    }
}
