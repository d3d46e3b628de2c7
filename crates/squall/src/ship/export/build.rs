//! Builds an exported folder, as its Makefile would; runs nothing of it.

use super::levels::Levels;
use super::{DRIVER, LIBRARY};
use crate::base::error::Error;
use crate::inference::objects::{compile, objects};
use crate::predict::choose::Chosen;
use crate::target::target_context::TargetContext;
use squall_core::KernelSource;
use std::path::Path;
use std::process::{Command, Stdio};

/// Compiles the kernels of a folder into its library and its driver.
pub fn build(
    folder: &Path,
    kernels: &[Chosen],
    levels: &Levels,
    at: &TargetContext,
) -> Result<(), Error> {
    if !at.gpus.is_empty() {
        return make(folder, at);
    }
    let toolchain = &at.toolchain;
    let sources: Vec<&KernelSource> =
        kernels.iter().flat_map(|k| [&k.source, &k.reference]).collect();
    objects(folder, &sources, toolchain)?;
    let openmp = |s: &[&KernelSource]| s.iter().any(|s| s.openmp).then_some("-fopenmp");
    let tuned: Vec<&KernelSource> = kernels.iter().map(|k| &k.source).collect();
    let of = |pick: &dyn Fn(&Chosen) -> &KernelSource| {
        kernels.iter().map(|k| format!("{}.o", pick(k).symbol)).collect::<Vec<_>>()
    };
    let (mut ours, plain) = (of(&|k| &k.source), of(&|k| &k.reference));
    for l in &levels.levels {
        objects(folder, &l.sources.iter().collect::<Vec<_>>(), &l.toolchain)?;
    }
    objects(folder, &levels.choice.iter().collect::<Vec<_>>(), toolchain)?;
    ours.extend(levels.sources(toolchain).map(|(s, _)| format!("{}.o", s.symbol)));
    let mut link = vec!["-shared"];
    link.extend(openmp(&tuned));
    link.extend(["-o", LIBRARY]);
    link.extend(ours.iter().map(String::as_str));
    link.push("-lm");
    compile(folder, toolchain, &link)?;
    let mut link = vec!["-O2"];
    link.extend(openmp(&sources));
    link.extend(["-o", DRIVER, "driver.c"]);
    link.extend(ours.iter().chain(&plain).map(String::as_str));
    link.extend(["-lm", "-ldl"]);
    compile(folder, toolchain, &link)?;
    for object in ours.iter().chain(&plain) {
        // Left-overs do no harm; a failure here is not worth an error.
        let _ = std::fs::remove_file(folder.join(object));
    }
    Ok(())
}

/// CUDA goes through the folder's own Makefile: its compiler is nvcc, which calls others itself.
fn make(folder: &Path, at: &TargetContext) -> Result<(), Error> {
    let jobs = format!("-j{}", at.device.allowed_cores());
    let nvcc = std::env::var("NVCC").map(|n| format!("NVCC={n}"));
    let mut command = Command::new("make");
    command.arg(jobs).args(nvcc).current_dir(folder).stdin(Stdio::null());
    let fail = |message: String| Error::Build {
        message,
        hint: format!(
            "the sources are in `{}`; `make` there needs nvcc of the CUDA toolkit (in PATH, or \
             NVCC=/usr/local/cuda/bin/nvcc)",
            folder.display()
        ),
    };
    match command.output() {
        Ok(o) if o.status.success() => Ok(()),
        Ok(o) => {
            let said = String::from_utf8_lossy(&o.stderr);
            let line = said
                .lines()
                .find(|l| l.contains("rror"))
                .or(said.lines().next())
                .unwrap_or("it says nothing")
                .to_string();
            Err(fail(format!("the export cannot be built: {line}")))
        }
        Err(e) => Err(fail(format!("`make` cannot be run: {e}"))),
    }
}
