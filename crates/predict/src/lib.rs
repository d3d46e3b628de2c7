//! Tuned parameters of problems that nobody tuned yet: what tuning found for many problems is
//! learned, and for a new one the most probable configurations of its tuner space are given, best
//! first, each legal and each with its probability.
//!
//! This crate does no IO but reading and writing predictor files, and reads no clock, environment
//! or global random state: equal seeds and equal examples give equal predictors.

mod case;
mod chain;
mod checkpoint;
pub mod classical;
mod encode;
mod file;
mod memory;
mod metric;
pub mod metrics;
pub mod nn;
pub mod paper;
mod parallel;
mod predictor;
mod ranker;
mod rows;
mod solver;
pub mod task;
#[cfg(test)]
mod tests;
mod train;

pub use chain::ChainSizes;
pub use checkpoint::Checkpoint;
pub use file::{FileError, VERSION};
pub use predictor::{Info, Model, PredictError, Predictor, RowCount, Score};
pub use ranker::RankerSizes;
pub use rows::{Kind, Rows};
pub use solver::{Curves, Material, Method, Mix, Options, Progress, Room, STEPS, Solver};
pub use train::Epoch;
