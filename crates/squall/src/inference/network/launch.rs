//! Starts programs that this process has just built: the network's program and the programs of
//! `trust/` that compare builds. It tries again while the file is still open for writing in a
//! forked child, sets time limits, and pins threads to cores as measuring does.

use squall_measure::cpu::{Device, WAIT_POLICY, openmp_environment};
use squall_measure::status_within;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// Runs a program that may just have been written. The kernel refuses to run a file that is open
/// for writing, and a child that another thread forked holds it open until the child's own `exec`;
/// so a refused start is repeated.
pub fn output(command: &mut Command) -> std::io::Result<Output> {
    once_written(|| command.output())
}

/// Repeats the start of a program while its file is busy, for two seconds at most.
fn once_written<T>(mut start: impl FnMut() -> std::io::Result<T>) -> std::io::Result<T> {
    for _ in 0..200 {
        match start() {
            Err(e) if e.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                std::thread::sleep(Duration::from_millis(10));
            }
            other => return other,
        }
    }
    start()
}

/// How a program with a time limit ended.
pub enum Ended {
    Well,
    /// It did not succeed, and said this.
    Complained(String),
    /// Its time was over, or the user stops us.
    Late,
}

/// Runs a program for so long at most; its complaints go to a file of the folder.
pub fn ended_within(
    command: &mut Command,
    patience: Duration,
    folder: &Path,
) -> std::io::Result<Ended> {
    let complaints = folder.join("complaints.txt");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&complaints)?);
    Ok(match once_written(|| status_within(command, patience))? {
        None => Ended::Late,
        Some(status) if status.success() => Ended::Well,
        Some(_) => {
            Ended::Complained(String::from_utf8_lossy(&std::fs::read(&complaints)?).into_owned())
        }
    })
}

/// Has a program's threads run as kernels are measured: one thread a core, on the same cores.
pub fn on_cores(command: &mut Command, device: &Device) {
    let cores = &device.cores;
    if cores.len() < 2 {
        return;
    }
    // How threads wait may be the user's choice.
    let is_chosen = std::env::var_os(WAIT_POLICY).is_some();
    let ours = openmp_environment(cores).into_iter();
    let ours = ours.filter(|(name, _)| *name != WAIT_POLICY || !is_chosen);
    command.envs(ours).env_remove("OMP_THREAD_LIMIT").env_remove("GOMP_CPU_AFFINITY");
}
