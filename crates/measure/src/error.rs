//! Why nothing can be measured: faults of the machine or the set-up, never of a candidate.

use std::io;
use std::path::{Path, PathBuf};

/// A fault that is not the candidate's: measuring cannot go on before somebody mends it.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// There is no compiler.
    #[error("no C compiler: tried {}; install one (`apt-get install gcc`, `dnf install gcc`, `apk \
             add build-base`) or set CC", .tried.join(", "))]
    NoCompiler {
        /// The commands tried.
        tried: Vec<String>,
    },
    /// There is a compiler, but it cannot build the simplest library.
    #[error("the C compiler `{command}` cannot build a trivial program in {}: \
             {detail}", .folder.display())]
    BrokenCompiler {
        /// The command.
        command: String,
        /// Where it was to write.
        folder: PathBuf,
        /// What it said.
        detail: String,
    },
    /// The temporary folder cannot be used.
    #[error("{}: {reason} (TMPDIR names another place for temporary files)", .path.display())]
    Folder {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// The device does not have what was asked for.
    #[error("{0}")]
    Device(String),
    /// The process that runs kernels does not start or does not answer as it should.
    #[error("the process that runs kernels: {0}")]
    Runner(String),
    /// The workload's reference cannot be built or run, so that no kernel can be checked.
    #[error("the reference of this task: {0}")]
    Reference(String),
    /// A kernel of a rematch failed, which both had passed before; the incumbent should stay.
    #[error("{} of a rematch failed: {detail}", if *.challenger { "the challenger" } else { "the incumbent" })]
    Contender {
        /// Whether it was the challenger.
        challenger: bool,
        /// What happened.
        detail: String,
    },
}

impl MeasureError {
    pub(crate) fn folder(path: &Path, error: &io::Error) -> MeasureError {
        MeasureError::Folder { path: path.into(), reason: error.to_string() }
    }
}
