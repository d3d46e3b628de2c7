//! How programs that were just built are run.

use squall_measure::cpu::{Device, WAIT_POLICY, openmp_environment};
use std::process::{Command, Output};
use std::time::Duration;

/// Runs a program that may just have been written: its file stays open in a child that another
/// thread forked until that child runs its own program.
pub fn output(command: &mut Command) -> std::io::Result<Output> {
    for _ in 0..200 {
        match command.output() {
            Err(e) if e.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                std::thread::sleep(Duration::from_millis(10));
            }
            other => return other,
        }
    }
    command.output()
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
