//! What users own becomes tasks: ONNX models ([`import_onnx`]) and operator lines
//! ([`import_ops`]). Bytes and text come from the caller; this crate does no IO.

mod build;
mod error;
mod graph;
mod import;
pub mod npy;
mod onnx;
mod ops;
mod tensor;

pub use error::{ImportError, Place};
pub use graph::Graph;
pub use import::{Import, Untuned};
pub use onnx::import_onnx;
pub use ops::import_ops;
