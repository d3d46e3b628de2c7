//! Export of tuned kernels as files that compile without Squall: C or CUDA C sources, one header, a
//! manifest, and a driver that checks and times them. `choose.rs` chooses each task's kernel
//! (`guess.rs` where nothing was tuned), `files.rs` and `cuda.rs` write, `levels.rs` joins several
//! instruction levels, `build.rs` compiles. Whole networks are exported by `../library`.

mod build;
mod cuda;
mod files;
mod levels;

pub use crate::predict::choose::{Chosen, Origin, choose};
pub use crate::predict::counts::KernelCounts;
pub use crate::predict::guess::{GuessRequest, GuessSource, Guesser};
pub use build::build;
pub use levels::{LevelKernels, Levels, join};

use crate::base::error::Error;
use crate::target::target_context::TargetContext;
use files::write;
use std::path::{Path, PathBuf};

/// The library that `--build` and the Makefile make.
pub const LIBRARY: &str = "libsquall_kernels.so";
/// The program that checks and times the kernels.
pub const DRIVER: &str = "driver";

/// The result of an export.
pub struct Exported {
    /// The folder.
    pub folder: PathBuf,
    /// Task by task.
    pub kernels: Vec<Chosen>,
    /// The manifest's content.
    pub manifest: serde_json::Value,
    /// Whether the library was built.
    pub built: bool,
}

/// Writes kernels into a folder, those of several levels of instructions if there are some, and
/// compiles them there if asked to.
pub fn export(
    kernels: Vec<Chosen>,
    levels: &Levels,
    at: &TargetContext,
    folder: &Path,
    compile: bool,
) -> Result<Exported, Error> {
    let folder = std::path::absolute(folder)
        .map_err(|source| Error::Write { path: folder.into(), source })?;
    let manifest = write(&folder, &kernels, levels, at)?;
    if compile {
        build(&folder, &kernels, levels, at)?;
    }
    Ok(Exported { folder, kernels, manifest, built: compile })
}
