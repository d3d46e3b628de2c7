//! The features of a kernel: the numbers that the learned cost model of the search reads off a loop
//! nest (after Ansor's features), such as floating-point operations, vector operations, registers
//! and bytes moved at each cache level.
//!
//! [`extract`] maps a nest and a target to a vector of logarithms, so that ratios of kernels are
//! differences of features. CPUs and GPUs have a struct of named numbers each (`cpu_table`,
//! `gpu_table`), filled by `cpu` and `gpu`. Its first number is an estimate of the time by a
//! formula (`cpu_cost`, `gpu_cost`), which orders the first trials of a task before anything was
//! measured.

/// Declares a struct of numbers and the list of their names, in one order.
macro_rules! features {
    ($(#[$about:meta])* $of:ident, $(#[$list:meta])* $names:ident: $($name:ident)*) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default)]
        pub(crate) struct $of { $(pub $name: f64,)* }

        $(#[$list])*
        pub const $names: &[&str] = &[$(stringify!($name),)*];

        impl $of {
            /// Logarithms of all numbers, in the order of their names.
            pub fn logarithms(&self) -> Vec<f32> {
                [$(self.$name,)*].iter().map(|x| (x.max(0.0) + 1.0).log2() as f32).collect()
            }
        }
    };
}

mod cpu;
mod cpu_cost;
mod cpu_table;
mod gpu;
mod gpu_cost;
mod gpu_table;

pub use cpu_table::FEATURES;
pub use gpu_table::GPU_FEATURES;

use crate::nest::Nest;
use squall_core::machine::NVIDIA;
use squall_core::{Target, TargetKind};

/// The features of a nest on a target, one for each of [`FEATURES`], or of [`GPU_FEATURES`] for a
/// GPU's program.
pub(crate) fn extract(n: &Nest, t: &Target) -> Vec<f32> {
    match t.kind {
        TargetKind::Cpu => cpu::extract(n, &t.machine).logarithms(),
        TargetKind::Cuda(gpu) => {
            let units = t.machine.gpu_units().unwrap_or(&NVIDIA);
            gpu::extract(n, gpu, units).logarithms()
        }
    }
}
