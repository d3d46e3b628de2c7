//! Builds an exported folder, as the Makefile in it would: compiles each kernel to an object file
//! and links the library of kernels and the driver (the program that checks and times them). Runs
//! neither. For GPUs it calls `make`. `squall export --build` comes here; networks (`../network`)
//! compile their objects by [`objects`], too.

use super::choose::Chosen;
use super::levels::Levels;
use super::{DRIVER, LIBRARY};
use crate::error::Error;
use crate::files::unlink;
use crate::target_context::TargetContext;
use squall_core::KernelSource;
use squall_measure::cpu::{Object, Toolchain};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

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

/// Makes `SYMBOL.o` of each source in a folder, several at a time; what was compiled before is not
/// compiled again.
pub(crate) fn objects(
    folder: &Path,
    sources: &[&KernelSource],
    toolchain: &Toolchain,
) -> Result<(), Error> {
    let next = AtomicUsize::new(0);
    let failed: Mutex<Option<Error>> = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from).min(sources.len()) {
            scope.spawn(|| {
                while let Some(s) = sources.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(e) = object(folder, s, toolchain) {
                        next.store(sources.len(), Ordering::Relaxed);
                        if let Ok(mut f) = failed.lock() {
                            f.get_or_insert(e);
                        }
                    }
                }
            });
        }
    });
    match failed.into_inner() {
        Ok(Some(e)) => Err(e),
        _ => Ok(()),
    }
}

fn object(folder: &Path, s: &KernelSource, toolchain: &Toolchain) -> Result<(), Error> {
    match toolchain.object(s, &folder.join(format!("{}.o", s.symbol)))? {
        Object::Refused(said, _) => Err(refused(folder, toolchain, &said)),
        _ => Ok(()),
    }
}

/// The error of sources in a folder that the compiler refuses.
pub(crate) fn refused(folder: &Path, toolchain: &Toolchain, said: &str) -> Error {
    Error::Build {
        message: format!("`{}` cannot build the export: {said}", toolchain.command()),
        hint: format!("the sources are in `{}`; `make` there shows everything", folder.display()),
    }
}

/// Runs the compiler in a folder. What it writes follows no link.
pub(crate) fn compile(folder: &Path, toolchain: &Toolchain, args: &[&str]) -> Result<(), Error> {
    let output = args.iter().position(|a| *a == "-o").and_then(|i| args.get(i + 1));
    output.into_iter().for_each(|o| unlink(&folder.join(o)));
    let command = toolchain.command();
    // As in measure: CC is a path, or a command with arguments.
    let mut words: Vec<&str> = if Path::new(&command).is_file() {
        vec![&command]
    } else {
        command.split_whitespace().collect()
    };
    if words.is_empty() {
        words.push("cc");
    }
    let out = Command::new(words[0])
        .args(&words[1..])
        .args(args)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output();
    let fail = |message: String| Error::Build {
        message,
        hint: format!("the sources are in `{}`; `make` there shows everything", folder.display()),
    };
    match out {
        Ok(o) if o.status.success() => Ok(()),
        Ok(o) => {
            let said = String::from_utf8_lossy(&o.stderr);
            let line = said
                .lines()
                .find(|l| l.contains("error"))
                .or(said.lines().next())
                .unwrap_or("it says nothing");
            Err(fail(format!("`{command}` cannot build the export: {line}")))
        }
        Err(e) => Err(fail(format!("`{command}` cannot be run: {e}"))),
    }
}
