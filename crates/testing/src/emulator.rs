//! An emulated GPU for tests on machines without one: the library in
//! `crates/measure/tests/emulator` stands for the CUDA driver, NVRTC and NVML, and compiles kernels
//! for the CPU with g++. Output: the environment variables under which a process finds it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Environment variables with which a GPU is there; none, and the reason printed, where g++ is
/// missing.
pub fn emulator() -> Option<Vec<(&'static str, PathBuf)>> {
    static BUILT: OnceLock<Option<tempfile::TempDir>> = OnceLock::new();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../measure/tests/emulator");
    let built = BUILT.get_or_init(|| {
        let works =
            |c: &str| Command::new(c).arg("--version").output().is_ok_and(|o| o.status.success());
        if !works("g++") {
            println!("skipped: kernels are emulated by g++, which is not there");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O1", "-w", "-o"])
            .arg(dir.path().join("emulated.so"))
            .arg(folder.join("driver.c"))
            .arg("-ldl");
        assert!(cc.status().unwrap().success());
        Some(dir)
    });
    let library = built.as_ref()?.path().join("emulated.so");
    let header = folder.join("device.h").canonicalize().unwrap();
    let all = ["SQUALL_LIBCUDA", "SQUALL_NVML", "SQUALL_NVRTC"].map(|name| (name, library.clone()));
    Some(all.into_iter().chain([("EMULATED_HEADER", header)]).collect())
}
