//! The CPU side of measuring: the user's C compiler ([`Toolchain`]), the machine ([`Device`]), its
//! roof ([`CpuRoof`]: measured peak and bandwidths), builds of kernels, and the runner, the process
//! in which kernels run on CPUs and GPUs. `../local` puts these together into a measurer.

mod ahead;
mod build;
mod device;
mod far;
mod findings;
mod level;
mod line;
mod numbers;
mod object;
mod program;
mod roof;
mod runner;
mod toolchain;
mod written;

pub(crate) use runner::{Reply, Runner, STARTS, ready, unexpected};
pub use runner::{WAIT_POLICY, openmp_environment};
pub(crate) use toolchain::NEVER;

pub use ahead::{Ahead, on_spare_cores, while_compiling};
pub use device::{Cache, Device};
pub use far::{connect, device_of};
pub use level::{Execution, byte_pace, highest_level, pair_pace, runs};
pub use numbers::SharedSource;
pub use object::Object;
pub use roof::{CpuRoof, MemoryLevel, Prober, clock, roof};
pub use toolchain::Toolchain;
