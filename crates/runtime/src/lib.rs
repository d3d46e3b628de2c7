//! Everything that runs kernels outside of Squall's own process: the plan format ([`plan`]: which
//! kernels run on which memory in which order), the C host library that reads and runs plans
//! ([`host`]), plans over ranges of extents ([`varying`]), launch tables for exported kernels
//! ([`tables`]), and the protocol between a measurer and its runner process ([`protocol`]).
//! docs/plan-format.md describes the texts.

pub mod host;
pub mod plan;
pub mod protocol;
pub mod tables;
pub mod varying;

pub use plan::{HostPlan, HostPlanError};
pub use varying::{Formula, VaryingPlan};
