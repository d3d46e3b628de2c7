//! The C files of the runtime that are linked into a network's program beside its kernels, each
//! with its optimisation level and compiler arguments. `program.rs` compiles them; `trust/moves.rs`
//! compares builds of the one that moves data.

use crate::base::error::Error;
use crate::inference::objects::refused;
use crate::target::target_context::TargetContext;
use squall_measure::cpu::Object;
use std::path::Path;

/// A C file of the runtime with its optimisation level. The first network's run waits for their
/// compilation, which takes 1.6 times as long if all are built with -O3.
pub struct Unit {
    pub name: &'static str,
    level: &'static str,
}

/// The interpreter of plans.
pub const RUNTIME: Unit = Unit { name: "network", level: "-O2" };
/// The moves of data, which gain from vectorisation. Their build is compared with an independent
/// one (`trust/moves.rs`).
pub const MOVES: Unit = Unit { name: "moves", level: "-O3" };
/// The table of the kernels.
pub const TABLE: Unit = Unit { name: "kernels", level: "-O2" };

/// The usual compiler arguments of a unit, which are replaced where the compiler's result proves
/// wrong.
pub fn usual_arguments(unit: &Unit, at: &TargetContext) -> Vec<String> {
    let flags = at.toolchain.flags().iter().map(String::as_str);
    let all = ["-c", unit.level].into_iter().chain(flags).chain(openmp(at));
    all.map(String::from).collect()
}

/// Several threads share the work of a network by OpenMP.
pub fn openmp(at: &TargetContext) -> Option<&'static str> {
    (at.device.cores.len() > 1 && at.toolchain.openmp()).then_some("-fopenmp")
}

/// Compiles a text of ours.
pub fn compile_text(
    at: &TargetContext,
    text: &str,
    arguments: &[String],
    to: &Path,
) -> Result<(), Error> {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match at.toolchain.compiled_text(text, &arguments, to)? {
        Object::Refused(said, _) => {
            Err(refused(to.parent().unwrap_or(Path::new(".")), &at.toolchain, &said))
        }
        _ => Ok(()),
    }
}
