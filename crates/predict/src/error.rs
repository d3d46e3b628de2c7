//! The errors of predictors: questions that a predictor cannot answer (another solver or device
//! than it was trained for), and training that cannot go on, each with its reason in words for the
//! user. Files that cannot be read have errors of their own in `tensors.rs`.

use squall_core::forecast::FamilyError;

/// Why there is no prediction, or no predictor.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say what the fields are
pub enum PredictError {
    #[error("this predictor was not trained for `{solver}`; it knows {known}")]
    Solver { solver: String, known: String },
    #[error("there is nothing to learn for {0}: no example of training lies in a tuner space")]
    Nothing(String),
    #[error(
        "the checkpoint belongs to a training with other examples, split or options: remove it to \
         begin anew"
    )]
    OtherTraining,
    #[error("training was cancelled")]
    Cancelled,
    #[error(
        "this predictor was trained for {0}, not on records of tasks: `squall train --records` \
         learns those of a store"
    )]
    NoTasks(String),
    #[error(
        "this predictor learned what is fast on `{learned}`, which says little about `{asked}`: \
         train one on records of this device"
    )]
    Device { learned: String, asked: String },
    #[error(
        "this predictor knows no task like this {kind}; it knows {known}, each with the loops and \
         formats of its records"
    )]
    Kind { kind: String, known: String },
    #[error(transparent)]
    Family(#[from] FamilyError),
}
