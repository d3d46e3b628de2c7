//! The interface between a [`LocalMeasurer`](super::LocalMeasurer) and the kind of device that it
//! measures on: names in records, number of workers, and how a kernel source is compiled. `cpu.rs`
//! and `cuda.rs` implement it.

use crate::artifact::{Build, BuildSite};
use crate::cpu::{Device, Toolchain};
use squall_core::{KernelSource, MeasurerError, MeasurerIdentity};

/// The machine that builds kernels and starts the processes that run them.
pub(super) struct Host {
    /// Its CPU. Where kernels run on GPUs, one core of it runs references and starts kernels.
    pub device: Device,
    /// Its C compiler, which references need wherever kernels run.
    pub toolchain: Toolchain,
}

/// A kind of device.
pub(super) trait Backend: Send + Sync {
    /// The names of the device and its toolchain in records.
    fn identity(&self, host: &Host) -> MeasurerIdentity;

    /// The spare cores on which a compiler does not slow down what is measured.
    fn undisturbing(&self, host: &Host) -> Result<Vec<usize>, MeasurerError>;

    /// The driver's numbers of the GPUs, each of which gets a worker; empty for a CPU.
    fn gpus(&self) -> &[u32];

    /// Compiles a kernel. An error means that no kernel would build.
    fn build(&self, host: &Host, kernel: &KernelSource, site: BuildSite) -> Build;
}
