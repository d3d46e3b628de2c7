//! A model on its way to kernels, in typed stages: a [`Model`](squall_core::graph::Model) that a
//! reader made; its [`Candidates`], the sets of nodes that may be one kernel, found by the rules of
//! fusion ([`rules`]); an [`Assignment`], a legal cover of the model by candidates with the layout
//! of each value, chosen by a solver ([`solvers`]); and the [`plan`], an order of steps over blocks
//! of memory. Each stage is text that prints and parses back, and is checked when it was read.

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

/// Whether an operator, in forms that sketches know, is computed by a tuned kernel.
pub fn is_tuned(op: &str) -> bool {
    fuse::anchor::is_anchor(op) || fuse::step::is_elementwise(op)
}
