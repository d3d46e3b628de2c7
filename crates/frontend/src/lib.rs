//! Readers of the files that users own. ONNX models become a [`Model`](squall_core::graph::Model)
//! ([`onnx::read`]), operator lines become tasks ([`import_ops`]), and users' own kernels come as
//! kernel.toml ([`import_kernel`]). Spaces that others measured become recordings ([`recording`]),
//! MIOpen's databases become problems and examples ([`miopen`]). Bytes and text come from the
//! caller (the crate `squall`); databases alone are opened here, since SQLite locks them against
//! other processes.

mod error;
mod import;
pub mod kernel_toml;
pub mod miopen;
pub mod npy;
pub mod onnx;
mod ops;
mod packed;
pub mod recording;

pub use error::ImportError;
pub use import::Import;
pub use kernel_toml::{UserKernel, import_kernel};
pub use onnx::read_weights;
pub use ops::import_ops;
pub use squall_core::tasks::Untuned;
