//! Predictors of tuned parameters: models learn from the configurations that tuning found for many
//! problems, and give for a new problem the most probable configurations of its tuner space, best
//! first, each legal and each with its probability (docs/predictor.md). [`task`] does so for
//! Squall's own tasks, [`find`] chooses MIOpen's solvers.
//!
//! This crate does no IO but reading and writing predictor files, and reads no clock, environment
//! or global random state: equal seeds and equal examples give equal predictors.

mod chain;
mod checkpoint;
mod classical;
mod encode;
mod error;
mod features;
mod file;
pub mod find;
mod memory;
mod metric;
pub mod metrics;
mod model;
pub mod nn;
mod options;
mod paper;
mod parallel;
mod predictor;
mod ranker;
mod ranking;
mod rows;
mod solver;
mod solvers;
pub mod task;
mod tensors;
#[cfg(test)]
mod tests;
mod train;
mod trainer;

pub use chain::ChainSizes;
pub use checkpoint::Checkpoint;
pub use error::PredictError;
pub use model::{Model, RowCount, Score};
pub use options::{Classical, Kind, Method, Options, PaperModel};
pub use predictor::{Info, Predictor};
pub use ranker::RankerSizes;
pub use rows::RowModels;
pub use solver::{Curves, Mix, STEPS, Scratch, Solver};
pub use solvers::TrainingRequest;
pub use tensors::{FileError, VERSION};
pub use train::Epoch;
pub use trainer::{Progress, TrainingData};
