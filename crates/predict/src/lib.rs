//! Tuned parameters of problems that nobody tuned yet.
pub mod nn;
