//! The reader of ONNX models. Input: the bytes of a file; output: a
//! [`Model`](squall_core::graph::Model) whose nodes are in an order of execution, with shapes
//! inferred and constants folded ([`read`]). Large weights are not needed for tuning and are read
//! apart ([`read_weights`]), where a model is to be run.

mod data;
mod external;
pub mod proto;
mod reader;
mod stored;
mod tensor;
mod thin;
mod weights;

pub use data::{DeclaredInput, Extent, Signature, read_tensor, signature};
pub use external::{External, external_weights, with_weights_at};
pub use reader::{
    ONNXRUNTIME_LIMITS, composed_operators, onnxruntime_operators, read, read_bound,
    read_over_range,
};
pub use thin::{read_outline, read_thin};
pub use weights::{Beside, read_weights};
