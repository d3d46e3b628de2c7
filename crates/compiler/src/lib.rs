//! The kernel compiler: from a workload (a tensor expression, as in TVM's TE or Halide) and a
//! target to the source of a kernel in C or CUDA C.
//!
//! The way through the modules: `sketch` derives sketches by rule; a sketch is one structure of a
//! kernel whose choices (tile sizes, vector lanes, ..) are left open as knobs. A configuration
//! gives every knob a value and so becomes a `schedule`, a list of primitives such as `split(k_C,
//! 8, ko, ki)`. The schedule rewrites a loop nest (`nest`), and `emit` prints the nest. `features`
//! are the numbers that the cost model reads off a nest; `plain` generates C for operators without
//! a sketch, `moves` CUDA C for copies. The crate sees `squall-core` only and does no IO; `squall`
//! calls it.

mod cores;
pub mod emit;
mod explain;
mod features;
pub mod moves;
pub mod nest;
mod occupancy;
pub mod plain;
pub mod schedule;
mod sketch;

pub use cores::on_all_cores;
pub use explain::{STAGES, explain};
pub use features::{FEATURES, GPU_FEATURES};
pub use sketch::{
    Wanted, by_pairs, counterpart, cpu_makes_chain, gpu_makes_chain, of_operators, reference,
    reference_of, sketch_of_range, sketches, sketches_wanted, untuned,
};

/// Changes whenever equal candidates may give other code; records of different versions do not
/// mix.
pub const CODEGEN_VERSION: u32 = 25;

/// The first version whose candidates still rank as they do now, so that what was learned from its
/// records serves. Version 12 has a shorter exponential than 11 and else the same code;
/// in 13 warpgroups await their last copies; in 14 vectors are converted from and to bf16 by single
/// instructions, in 15 rounded to bytes, in 16 and 17 stored as bytes by AVX2; in 18 GPUs compute
/// what comes ahead of a contraction as elements are fetched; in 19 AVX2 takes every second element
/// of two vectors in two shuffles. In 20 AVX2 keeps vectors that several sums use in registers, so
/// that tiles of up to four rows rank higher than older records say; what was learned of all other
/// kernels, and on other machines, is worth more than that. In 21 attention on GPUs fetches several
/// elements of parts of larger boxes at once (its sketches by tensor cores are new). In 22 the
/// larger and the smaller of two numbers are NaN where one is, and overlapping tiles are one share.
/// In 24 CPUs compute sines, cosines, tanh and logarithms in vectors; in 25 exponentials and tanh
/// have shorter polynomials.
pub const RANKED_SINCE: u32 = 11;

/// The greatest common divisor; of 0 and a number, that number.
pub(crate) fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
