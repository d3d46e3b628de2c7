//! C programs of ours that run beside us: compiled once a process, copied after that.

use super::Toolchain;
use super::toolchain::first_error;
use crate::MeasureError;
use crate::process::Process;
use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// What was compiled, by compiler, name and flags.
static MADE: Mutex<Option<HashMap<String, Vec<u8>>>> = Mutex::new(None);

/// Makes the program `name` in `folder` of `name.c`, which is among the sources; the CPU seconds
/// that took, or what the compiler complains of.
pub(super) fn make(
    folder: &Path,
    toolchain: &Toolchain,
    name: &str,
    sources: &[(&str, &str)],
    args: &[&str],
) -> Result<Result<f64, String>, MeasureError> {
    for (name, text) in sources {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|e| MeasureError::folder(&path, &e))?;
    }
    let path = folder.join(name);
    let key = format!("{} {name} {}", toolchain.command(), args.join(" "));
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let made = made.get_or_insert_default();
    if let Some(program) = made.get(&key) {
        let file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o755).open(&path);
        return file
            .and_then(|mut f| f.write_all(program))
            .map(|()| Ok(0.0))
            .map_err(|e| MeasureError::folder(&path, &e));
    }
    let c = toolchain.compile(
        folder,
        args,
        &folder.join(format!("{name}.c")),
        &path,
        Duration::from_secs(60),
        None,
    )?;
    if !c.ok {
        return Ok(Err(first_error(&c.said)));
    }
    made.extend(fs::read(&path).ok().map(|program| (key, program)));
    Ok(Ok(c.cpu))
}

/// Starts a program that may just have been written.
pub(super) fn start(command: &mut Command) -> io::Result<Process> {
    for _ in 0..200 {
        match Process::spawn(command) {
            // Another thread's child that is not its program yet holds the file open.
            Err(e) if e.kind() == io::ErrorKind::ExecutableFileBusy => {
                std::thread::sleep(Duration::from_millis(10))
            }
            other => return other,
        }
    }
    Process::spawn(command)
}
