//! Searches: which configurations of a task to try next. A [`Strategy`] proposes candidates of one
//! task and is told their outcomes; a [`CostModel`] ranks candidates that are not measured yet; the
//! [`Allocator`] divides a budget between tasks. `squall/src/task/trials.rs` asks a strategy,
//! builds and measures its proposals, and tells it the results. This crate does no IO and reads no
//! clock, environment or global random state: equal seeds and equal outcomes give equal proposals,
//! byte for byte.

pub mod allocation;
pub mod cost_model;
mod flat;
mod ledger;
mod moves;
mod registry;
pub mod statistics;
pub mod strategy;

#[cfg(test)]
mod comparison_tests;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod landscape;

pub use allocation::{Allocator, FIRST_TRIALS, TaskWeight};
pub use cost_model::{CostModel, Gbdt, NoModel};
pub use registry::{ablations, strategies};
pub use strategy::{DEFAULT, Setting, Strategy, StrategyInfo};
