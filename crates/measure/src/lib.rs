//! Measuring: implementations of [`Measurer`](squall_core::Measurer).
//!
//! [`LocalMeasurer`] builds kernels with the user's compiler, runs them in processes of their own,
//! checks them against a reference and times them, on this machine's [`cpu`] or on its GPUs
//! ([`cuda`]). [`RecordedMeasurer`] looks outcomes up, [`MockMeasurer`] asks a function for them,
//! and [`PipedMeasurer`] asks a measurer at the other end of a connection, where [`serve()`]
//! answers. A challenger meets the incumbent in interleaved windows that a sequential test decides
//! ([`rematch`]).

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
