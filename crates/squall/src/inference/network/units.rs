//! What a network's program is linked from beside its kernels, and how that is compiled.

use crate::base::error::Error;
use crate::inference::objects::refused;
use crate::target::target_context::TargetContext;
use squall_measure::cpu::Object;
use std::path::Path;

/// A text of ours, and how hard a compiler works on it: the first run of all networks waits for
/// these, and all by -O3 take 1.6 times the time.
pub struct Unit {
    pub name: &'static str,
    level: &'static str,
}

/// What runs a plan.
pub const RUNTIME: Unit = Unit { name: "network", level: "-O2" };
/// Its moves of data, which want vectors. Their build is compared with an independent one.
pub const MOVES: Unit = Unit { name: "moves", level: "-O3" };
/// The table of the kernels.
pub const TABLE: Unit = Unit { name: "kernels", level: "-O2" };

/// How a unit is compiled by a compiler that is right.
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
