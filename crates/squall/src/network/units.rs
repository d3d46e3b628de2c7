//! What a network's program is linked from beside its kernels, and how that is compiled.

use crate::target_context::TargetContext;

/// What it is linked from beside the kernels, and how hard a compiler works on each: the runtime,
/// its moves of data, which want vectors, and the table. The first run of all networks waits for
/// them: all by -O3 take 1.6 times the time.
pub const UNITS: [Unit; 3] = [("network", "-O2"), MOVES, ("kernels", "-O2")];
/// The unit of moves of data, whose build is judged.
pub const MOVES: Unit = ("moves", "-O3");

/// A unit's name and its level of optimisation.
pub type Unit = (&'static str, &'static str);

/// How a unit is compiled by a compiler that is right.
pub fn usual_arguments(unit: &Unit, at: &TargetContext) -> Vec<String> {
    let flags = at.toolchain.flags().iter().map(String::as_str);
    let all = ["-c", unit.1].into_iter().chain(flags).chain(openmp(at));
    all.map(String::from).collect()
}

/// Several threads share the work of a network by OpenMP.
pub fn openmp(at: &TargetContext) -> Option<&'static str> {
    (at.device.cores.len() > 1 && at.toolchain.openmp()).then_some("-fopenmp")
}
