//! What to try next. A [`Strategy`] proposes candidates of one task and is told what became of
//! them; a [`CostModel`] ranks candidates that nobody has measured yet; the [`Allocator`]
//! divides a budget between tasks. This crate does no IO and reads no clock, environment or
//! global random state: equal seeds and equal outcomes give equal proposals, byte for byte.

pub mod allocation;
pub mod cost_model;
mod flat;
mod ledger;
mod moves;
pub mod statistics;
pub mod strategy;

#[cfg(test)]
mod landscape;

pub use allocation::{Allocator, TaskFacts};
pub use cost_model::{CostModel, Gbdt, NoModel};
pub use strategy::{DEFAULT, Setting, Strategy, StrategyInfo, ablations, strategies};
