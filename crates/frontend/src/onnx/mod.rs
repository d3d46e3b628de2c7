//! ONNX models: read, put in order, shapes inferred, constants folded; and their weights, of any
//! size, where a model is to be run.

pub mod proto;
mod reader;
mod tensor;
mod weights;

pub use reader::read;
pub use weights::{Beside, read_weights};
