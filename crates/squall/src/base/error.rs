//! The error type of the crate's public functions. Each variant has a message and, from
//! [`Error::hint`], what the user can do about it; the command line prints both. Errors of the
//! inner crates (import, store, measurer, predictor) are variants.

use squall_core::MeasurerError as MeasureError;
use squall_frontend::ImportError;
use squall_frontend::miopen::DatabaseError;
use squall_predict::{FileError, PredictError};
use squall_records::StoreError;
use std::path::PathBuf;

/// Why a request (a tuning session, an export, a check, ..) cannot go on.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say what the fields are
pub enum Error {
    #[error("cannot read `{}`: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("cannot write `{}`: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    #[error("{place}: {source}")]
    Import { place: String, source: ImportError },
    /// Its message names the file and the remedy.
    #[error(transparent)]
    Recording(ImportError),
    #[error(transparent)]
    Kernel(ImportError),
    /// Its message names the file and the remedy.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error("{place}: {message}")]
    Input { place: String, message: String, hint: String },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Measure(#[from] MeasureError),
    #[cfg(feature = "fleet")]
    #[error(transparent)]
    Fleet(#[from] squall_fleet::FleetError),
    #[error("there is no strategy `{name}`; there are {known}")]
    Strategy { name: String, known: String },
    #[error("{0}")]
    Nothing(String),
    #[error("cannot use the predictor `{}`: {source}", path.display())]
    Predictor { path: PathBuf, source: Box<FileError> },
    #[error(transparent)]
    Predict(#[from] PredictError),
    #[error("{message}")]
    Build { message: String, hint: String },
    /// A request that contradicts itself or what it names.
    #[error("{message}")]
    Usage { message: String, hint: String },
}

impl Error {
    /// Whether the user ended what was being done, in which no fault lies.
    pub fn is_stop(&self) -> bool {
        matches!(
            self,
            Error::Store(StoreError::Stopped { .. }) | Error::Measure(MeasureError::Stopped)
        )
    }

    /// What the user can do about it, where that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Store(e) => Some(e.remedy()),
            #[cfg(feature = "fleet")]
            Error::Fleet(e) => Some(e.remedy()),
            Error::Measure(MeasureError::Stopped) => None,
            Error::Measure(_) => {
                Some("`squall doctor` says what is missing and how to mend it".into())
            }
            Error::Input { hint, .. } | Error::Build { hint, .. } | Error::Usage { hint, .. } => {
                Some(hint.clone())
            }
            Error::Import { .. } => Some("`squall tasks --help` shows the forms of input".into()),
            Error::Kernel(_) => Some(
                "`squall init` writes a kernel.toml that says what may stand \
                                      in it"
                    .into(),
            ),
            Error::Strategy { .. } => Some("name one of these, or none for the default".into()),
            Error::Read { .. } => Some("check the path and that you may read it".into()),
            Error::Write { .. } => Some(
                "check that the folder exists, that you may write there \
                                         and that space is left"
                    .into(),
            ),
            Error::Predictor { .. } => Some(
                "`squall train --out FILE` writes a predictor; a checkpoint can be removed \
                      to begin anew"
                    .into(),
            ),
            Error::Predict(PredictError::Solver { .. }) => Some(
                "name one of these, or \
                `all`"
                    .into(),
            ),
            Error::Predict(
                PredictError::NoTasks(_) | PredictError::Device { .. } | PredictError::Kind { .. },
            ) => Some(
                "`squall tune` makes records, `squall train --records --store STORE --out \
                      FILE` learns from them"
                    .into(),
            ),
            Error::Predict(_) => None,
            Error::Nothing(_) | Error::Recording(_) | Error::Database(_) => None,
        }
    }
}
