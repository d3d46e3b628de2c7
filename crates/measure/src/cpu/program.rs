//! Compiles the C programs of this crate (the runner, the roof's program, the keeper), which run as
//! processes of their own. Each is compiled once per process, and once for all processes where the
//! toolchain has a cache; each measurer's folder gets a copy.

use super::Toolchain;
use super::toolchain::{NEVER, first_error};
use super::written;
use crate::artifact::BuildSite;
use crate::objects::Wanted;
use crate::process::Process;
use squall_core::MeasurerError;
use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The programs compiled so far, by compiler, name and flags.
static MADE: Mutex<Option<HashMap<String, Vec<u8>>>> = Mutex::new(None);

/// Makes the program `name` in `folder` from `name.c`, which is among the sources. Returns the CPU
/// seconds of the compiler, or its complaint.
pub(super) fn make(
    folder: &Path,
    toolchain: &Toolchain,
    name: &str,
    sources: &[(&str, &str)],
    args: &[&str],
) -> Result<Result<f64, String>, MeasurerError> {
    for (name, text) in sources {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|e| MeasurerError::folder(&path, &e))?;
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
            .map_err(|e| MeasurerError::folder(&path, &e));
    }
    let site = BuildSite { folder, timeout: Duration::from_secs(60), cancel: &NEVER };
    let texts: Vec<&str> = sources.iter().flat_map(|(name, text)| [*name, *text]).collect();
    let wanted =
        Wanted { key: &toolchain.key(args, &texts), to: &path, executable: true, cancel: &NEVER };
    let compiled = toolchain.objects().obtain(wanted, || {
        let mut c = toolchain.compile(site, args, &folder.join(format!("{name}.c")), &path)?;
        if let Some(why) = written::fault(&path, toolchain.isa()).filter(|_| c.ok) {
            (c.ok, c.said) = (false, why);
        }
        let is_made = c.ok;
        Ok((c, is_made))
    })?;
    let cpu = match compiled {
        Some(c) if !c.ok => return Ok(Err(first_error(&c.said))),
        Some(c) => c.cpu,
        None => 0.0,
    };
    made.extend(fs::read(&path).ok().map(|program| (key, program)));
    Ok(Ok(cpu))
}

/// Starts a program that may just have been written and that this thread waits for.
pub(super) fn start_bound(command: &mut Command) -> io::Result<Process> {
    start(crate::process::end_with_us(command))
}

/// Starts a program that may just have been written.
pub(super) fn start(command: &mut Command) -> io::Result<Process> {
    for _ in 0..200 {
        match Process::spawn(command) {
            // The file stays open in a child that another thread forked until that child runs its
            // own program.
            Err(e) if e.kind() == io::ErrorKind::ExecutableFileBusy => {
                std::thread::sleep(Duration::from_millis(10))
            }
            other => return other,
        }
    }
    Process::spawn(command)
}
