//! Objects and programs of generated sources that lie in a folder, made by the user's C compiler.
//! Networks and exports are built with it.

use crate::base::error::Error;
use crate::base::files::unlink;
use squall_core::KernelSource;
use squall_measure::cpu::{Object, Toolchain};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

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
