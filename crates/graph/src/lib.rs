//! The graph compiler: from a neural network to an order of kernels over memory, in typed stages.
//!
//! A [`Model`](squall_core::graph::Model) comes from a reader (ONNX). Its [`Candidates`] are the
//! sets of nodes that may be one kernel, found by the rules of fusion ([`rules`]). An
//! [`Assignment`] is a legal cover of the model by candidates, with the layout of each value,
//! chosen by a solver ([`solvers`]). A [`plan`] is an order of steps over blocks of memory, which
//! `squall/src/inference/network` prints as one program. Each stage is text that prints and parses
//! back, and is checked when it was read. Each kernel is a tuning task with a workload, for which
//! the crate `compiler` makes sketches; this crate does not depend on it. `simplify`, `bytes`,
//! `halves` and `ranges` rewrite the model before the first stage.

pub mod assignment;
pub mod bytes;
pub mod candidate;
pub mod candidates;
mod demand;
pub mod feed;
mod fuse;
pub mod halves;
pub mod inputs;
pub mod layout;
mod moves;
mod numbered;
pub mod placed;
pub mod plan;
pub mod ranges;
mod renamed;
mod rewrite;
pub mod rules;
pub mod run;
pub mod simplify;
pub mod site;
pub mod solvers;
mod split;
pub mod state;
pub mod view;
pub mod weights;

pub use assignment::{Assignment, Choice, Step};
pub use candidate::FusionCandidate;
pub use candidates::Candidates;
pub use layout::Layout;
pub use plan::Plan;
pub use site::Site;

/// Whether an operator can be part of a tuned kernel.
pub fn is_tuned(op: &str) -> bool {
    fuse::anchor::is_anchor(op) || fuse::step::is_elementwise(op)
}
