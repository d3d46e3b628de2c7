//! Measuring: the implementations of [`Measurer`](squall_core::Measurer), which takes kernel
//! sources and returns outcomes (times, or the stage at which a kernel failed).
//!
//! [`LocalMeasurer`] builds kernels with the user's compiler, runs them in processes of their own,
//! checks them against a reference and times them, on this machine's [`cpu`] or on its GPUs
//! ([`cuda`]). [`RecordedMeasurer`] looks outcomes up in a recording, [`MockMeasurer`] asks a
//! function for them, and [`PipedMeasurer`] asks a measurer at the other end of a connection, where
//! [`serve()`] answers. [`rematch`] decides which of two kernels is faster, by interleaved windows
//! and a sequential test.

mod artifact;
pub mod board;
pub mod cpu;
pub mod cuda;
pub mod fit;
mod folder;
mod local;
mod mock;
mod objects;
mod others;
mod piped;
mod process;
mod recorded;
pub mod rematch;
mod serve;
mod wire;

pub use board::{Board, BoardAddress};
pub use folder::TemporaryFolder;
pub use local::LocalMeasurer;
pub use mock::MockMeasurer;
pub use objects::{ObjectCache, ObjectSource};
pub use others::{Gentle, Others, minute_of_day};
pub use piped::PipedMeasurer;
pub use process::{end_with_us, status_within};
pub use recorded::RecordedMeasurer;
pub use serve::serve;
