//! What runs kernels outside of our process: the plan format ([`plan`]), the C host library that
//! reads and runs plans ([`host`]), launch tables for exported kernels ([`tables`]), and the typed
//! protocol between a measurer and its runner ([`protocol`]). docs/plan-format.md describes all of
//! it for readers of the texts.

pub mod host;
pub mod plan;
pub mod protocol;
pub mod tables;

pub use plan::{HostPlan, HostPlanError};
