//! The laboratory: kernels are built by the user's compiler, run in a process of their own, checked
//! against a reference and timed ([`cpu`]; GPUs: [`cuda`]); a challenger meets the incumbent in
//! interleaved windows that a sequential test decides ([`rematch`]). Whatever a kernel does is an
//! [`Outcome`](squall_core::Outcome); a [`MeasureError`] means that nothing can be measured at all.

pub mod cpu;
pub mod cuda;
mod process;
pub mod rematch;

pub use squall_core::MeasurerError as MeasureError;
pub use squall_core::{Rematch, Verdict};
