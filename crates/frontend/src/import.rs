//! [`Import`], the result of reading operator lines (`ops.rs`): a list of tasks, each a kernel to
//! tune, with equal kernels merged into one task with a count. The crate `squall` tunes the tasks.

use squall_core::Task;

/// A list of kernels, as tasks.
#[derive(Clone, Debug, Default)]
pub struct Import {
    /// The distinct kernels; equal ones are merged, with their count and their nodes.
    pub tasks: Vec<Task>,
}
