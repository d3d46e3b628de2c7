//! A user's kernel for one set of sizes, as `import_kernel` returns it: its task, the tunable with
//! its configurations, the untuned kernel, and the reference for its results.
//! `squall/src/input/user_input.rs` takes it in place of the sketches that the compiler would
//! derive; a CUDA kernel is completed for a GPU by `on`.

use super::cuda::CudaKernel;
use super::recipe::Recipe;
use squall_core::{Bytes, Configuration, Gpu, Judge, Reference, Task, Tunable};
use std::sync::Arc;

/// A user's kernel for one set of sizes.
#[derive(Clone)]
pub struct UserKernel {
    /// The task.
    pub task: Task,
    /// The kernel with its configurations.
    pub tunable: Arc<dyn Tunable>,
    /// The kernel untuned: its one configuration is what gains are measured from.
    pub plain: Arc<dyn Tunable>,
    /// Bytes that are copied within each timed call, because the kernel writes over its input.
    pub restored: Bytes,
    /// The kernel that computes the expected results; `None` where files hold them.
    pub(super) reference: Option<Recipe>,
    /// The expected results where files hold them, and the inputs that files hold.
    pub(super) given: Reference,
    /// The configuration of the reference, if that is the kernel itself or sees its macros.
    pub(super) default: Configuration,
    /// The parts of a CUDA kernel that are decided when the device is known.
    pub(super) plan: Option<Arc<CudaKernel>>,
}

impl UserKernel {
    /// Whether it is written in CUDA C++.
    pub fn is_cuda(&self) -> bool {
        self.plan.is_some()
    }

    /// The kernel on a GPU, with the configurations that the GPU's limits allow.
    ///
    /// # Errors
    /// Where they allow none; the text says why.
    pub fn on(&self, gpu: &Gpu) -> Result<UserKernel, String> {
        let Some(plan) = &self.plan else { return Ok(self.clone()) };
        let placed = plan.on(gpu).map_err(|f| f.message)?;
        let reference = self
            .reference
            .as_ref()
            .map(|r| if r.cuda.is_none() { r.clone() } else { placed.reference() });
        Ok(UserKernel {
            tunable: placed.tunable,
            plain: placed.plain,
            default: placed.default,
            reference,
            ..self.clone()
        })
    }

    /// The same kernel, whose results `judge` looks at: they are compared with nothing.
    pub fn judged(mut self, judge: Judge) -> UserKernel {
        self.given.judge = Some(judge);
        self
    }

    /// The reference that the kernel's results are compared with.
    pub fn reference(&self, symbol: &str) -> Reference {
        // It has a source at this configuration: that was checked when the file was read.
        let kernel = self.reference.as_ref().and_then(|r| r.source(&self.default, symbol).ok());
        Reference { kernel, ..self.given.clone() }
    }
}
