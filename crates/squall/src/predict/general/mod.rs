//! The general predictor: one ranking model for the kernels of all tasks on all CPUs, which ships
//! inside the binary. Its gradient-boosted trees order candidates by the compiler's features,
//! normalised by the machine's capabilities (`relative.rs`). It is trained on records of several
//! machines ([`train_general`]) and asked for tasks of which nothing was measured
//! ([`GeneralPredictor::ask`]). docs/general-predictor.md says how the shipped file was made.

mod algorithms;
mod ask;
mod file;
mod lessons;
mod measure;
mod relative;
mod shipped;
mod train;

pub use algorithms::{
    AlgorithmScore, AlgorithmTried, AlgorithmWay, algorithm_scores, try_algorithms,
};
pub use ask::Effort;
pub(crate) use ask::expected_speeds;
#[cfg(feature = "fleet")]
pub(crate) use ask::formula_outlook;
pub use file::{
    GeneralPredictor, Held, MOST_BYTES, MachineFacts, Provenance, StoreFacts, is_general,
};
pub use lessons::{KnownMachine, Lesson, LessonRow, LessonSource, lessons};
pub use measure::{
    FIRST, GENERAL_WAYS, GeneralTried, GeneralTrying, general_share, measure_general,
};
pub(crate) use shipped::Predictors;
pub use shipped::shipped;
pub use train::{GeneralRequest, train_general};

#[cfg(test)]
mod tests;
