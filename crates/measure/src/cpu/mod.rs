//! CPUs: the user's C compiler ([`Toolchain`]), the machine ([`Device`]) and its roof ([`Roof`]),
//! and the process that runs kernels there and on GPUs.

mod build;
mod device;
mod program;
mod roof;
mod runner;
mod toolchain;

pub(crate) use runner::{Reply, Runner, STARTS, ready, unexpected};
pub(crate) use toolchain::NEVER;

pub use device::{Cache, Device};
pub use roof::{Level, Prober, Roof, clock, roof};
pub use toolchain::Toolchain;
