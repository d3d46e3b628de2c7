//! Tuned kernels as files that anyone can compile: C sources, one header, a manifest, and a
//! driver that checks and times them.

mod build;
mod choose;
mod files;

pub use build::build;
pub(crate) use build::{compile, objects};
pub use choose::{Chosen, Origin, choose};
pub(crate) use files::{comment, declarations, literal, write};

use crate::error::Error;
use crate::input::Input;
use crate::session::toolchain_id;
use squall_core::{DType, Task};
use squall_measure::cpu::{Device, Toolchain};
use squall_records::Store;
use std::path::{Path, PathBuf};

/// The library that `--build` and the Makefile make.
pub const LIBRARY: &str = "libsquall_kernels.so";
/// The program that checks and times the kernels.
pub const DRIVER: &str = "driver";

/// What was exported.
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

/// Writes the best kernel of each of the input's tasks (those that `only` matches) into a folder:
/// by the store's records, or plain loops where it has none.
pub fn export(
    input: &Input,
    only: Option<&str>,
    store: Option<&Store>,
    threads: usize,
    folder: &Path,
    compile: bool,
) -> Result<Exported, Error> {
    let tasks = input.select(only)?;
    // The driver that comes along checks with inputs of its own.
    let plain = |t: &&&Task| {
        let w = &t.workload;
        let f = w.foreign.as_ref();
        f.is_none_or(|f| {
            w.output().dtype == DType::F32 && w.inputs.iter().all(|i| i.dtype == DType::F32) && f.ranges.iter().all(Option::is_none)
        })
    };
    if let Some(t) = tasks.iter().find(|t| !plain(t)) {
        return Err(Error::Input {
            place: t.name.clone(),
            message: "exports hold kernels on f32 without ranges of values".into(),
            hint: "`squall records best` says which values of the knobs won; give them to your own build".into(),
        });
    }
    let toolchain = Toolchain::detect()?;
    let device = Device::detect(threads, &toolchain)?;
    let kernels = choose(&tasks, &input.own, store, &device, &toolchain)?;
    let folder = std::path::absolute(folder).map_err(|source| Error::Write { path: folder.into(), source })?;
    let manifest = files::write(&folder, &kernels, &device.id(), &toolchain_id(&toolchain), &toolchain)?;
    if compile {
        build(&folder, &kernels, &toolchain)?;
    }
    Ok(Exported { folder, kernels, manifest, built: compile })
}
