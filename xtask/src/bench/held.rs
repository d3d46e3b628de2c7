//! Holds other libraries to AVX2 on a machine that has more instructions, so that they and kernels
//! of the level x86-64-v3 are compared with the same instructions. `bench cpu --isa` uses it; the
//! shim that answers CPUID is `held.c`.

use super::run;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Hides AVX-512, AVX-VNNI and AMX from the libraries that a process loads; see there.
const SHIM: &str = include_str!("held.c");

/// Has the libraries of a process choose their kernels as on a machine without AVX-512: by a shim
/// that answers CPUID where the machine lets that fault, which holds all of them, else by their own
/// variables, which onnxruntime and parts of OpenVINO have none of. Says which.
pub fn hold_to_avx2(process: &mut Command, folder: &Path) -> Result<bool, String> {
    let (source, shim) = (folder.join("held.c"), folder.join("held.so"));
    fs::write(&source, SHIM).map_err(|e| format!("{}: {e}", source.display()))?;
    let mut compile = Command::new("cc");
    run(compile.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&shim).arg(&source).arg("-ldl"))?;
    // The shim ends a process that it cannot hold.
    let works = Command::new("true").env("LD_PRELOAD", &shim).stderr(Stdio::null()).status();
    let is_held = works.is_ok_and(|s| s.success());
    match is_held {
        true => process.env("LD_PRELOAD", &shim),
        false => {
            println!("CPUID does not fault here: onnxruntime is not held to AVX2");
            process.envs([("ONEDNN_MAX_CPU_ISA", "AVX2"), ("OPENBLAS_CORETYPE", "Haswell")])
        }
    };
    Ok(is_held)
}
