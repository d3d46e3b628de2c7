//! CPUs: the user's C compiler ([`Toolchain`]), the machine ([`Device`]) and its roof ([`Roof`]),
//! and the laboratory that builds and measures kernels there ([`Lab`]).

mod build;
mod device;
mod duel;
mod folder;
mod lab;
mod pace;
mod program;
mod roof;
mod runner;
mod seat;
mod toolchain;
mod work;

pub(crate) use build::{Build, Built, digest};
pub(crate) use runner::{Reply, Runner};

pub use device::{Cache, Device};
pub use lab::{Lab, letter};
pub use roof::{Level, Prober, Roof, roof};
pub use runner::ELEMENTS;
pub use toolchain::Toolchain;
