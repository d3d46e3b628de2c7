//! The back end of a local measurer for the CPU of this machine or of a board: kernels in C, built
//! by the user's compiler (`../cpu/build.rs`) on cores that do not disturb the measured ones.

use super::backend::{Backend, Host};
use crate::artifact::{Build, BuildSite};
use crate::cpu::{Execution, Prober};
use squall_core::{KernelSource, MeasurerError, MeasurerIdentity};

/// The CPU of the host.
pub(super) struct Cpu;

impl Backend for Cpu {
    fn identity(&self, host: &Host) -> MeasurerIdentity {
        MeasurerIdentity::of(host.device.identity(), host.toolchain.id())
    }

    fn undisturbing(&self, host: &Host) -> Result<Vec<usize>, MeasurerError> {
        if matches!(host.device.execution, Execution::Board(_)) {
            return Ok(host.device.spare.clone());
        }
        if host.device.spare.is_empty() || host.device.execution != Execution::Here {
            return Ok(Vec::new());
        }
        Prober::build(&host.device, &host.toolchain)?.undisturbing()
    }

    fn gpus(&self) -> &[u32] {
        &[]
    }

    fn build(&self, host: &Host, kernel: &KernelSource, site: BuildSite) -> Build {
        host.toolchain.build(kernel, site)
    }
}
