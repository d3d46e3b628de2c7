//! How programs that were just built are run.

use squall_measure::cpu::{Device, WAIT_POLICY, openmp_environment};
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Runs a program that may just have been written: its file stays open in a child that another
/// thread forked until that child runs its own program.
pub fn output(command: &mut Command) -> std::io::Result<Output> {
    once_written(|| command.output())
}

/// Starts such a program.
fn started(command: &mut Command) -> std::io::Result<Child> {
    once_written(|| command.spawn())
}

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

/// Runs a program, whose complaints go to a file of the folder, for so long at most. None where it
/// took longer and was ended; else what it complained of, where it did not succeed.
pub fn output_within(
    command: &mut Command,
    patience: Duration,
    folder: &Path,
) -> std::io::Result<Option<Option<String>>> {
    let complaints = folder.join("complaints.txt");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&complaints)?);
    let mut child = started(command)?;
    let end = Instant::now() + patience;
    loop {
        if let Some(status) = child.try_wait()? {
            let said = std::fs::read(&complaints)?;
            let said = String::from_utf8_lossy(&said).into_owned();
            return Ok(Some((!status.success()).then_some(said)));
        }
        if Instant::now() > end {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
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
