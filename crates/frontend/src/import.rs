//! What an import of operator lines gives.

use squall_core::Task;

/// A list of kernels, as tasks.
#[derive(Clone, Debug, Default)]
pub struct Import {
    /// The distinct kernels; equal ones are merged, with their count and their nodes.
    pub tasks: Vec<Task>,
}
