//! What users own becomes tasks: ONNX models ([`import_onnx`]) and operator lines ([`import_ops`]).
//! Users' own kernels come as kernel.toml ([`import_kernel`]). Spaces that others measured become
//! recordings ([`recording`]), MIOpen's databases problems and examples ([`miopen`]). Bytes and
//! text come from the caller; databases alone are opened here, for SQLite must see who else writes
//! them.

mod error;
mod graph;
mod import;
pub mod kernel_toml;
mod layout;
mod lower;
pub mod miopen;
pub mod npy;
pub mod onnx;
mod operator;
mod ops;
pub mod plan;
pub mod recording;
#[cfg(test)]
mod test_data;
mod weights;

pub use error::ImportError;
pub use graph::Graph;
pub use import::{Import, Untuned};
pub use kernel_toml::{UserKernel, import_kernel};
pub use layout::Layouts;
pub use lower::import_onnx;
pub use ops::import_ops;
pub use weights::Weights;
