//! Fits a machine model (registers, widths, caches and the constants of the cost formula) to
//! measured rates. Input: the device and its roof (measured peak and bandwidths); output: a
//! `MachineModel`, which `squall doctor` prints. `squall-measure`'s `fit` does the arithmetic.

use crate::target::roof::Roof;
use squall_core::MachineModel;
use squall_measure::cpu::{Device, Toolchain, clock};
use squall_measure::cuda::Gpu;
use squall_measure::fit::{self, CoreRates, GpuRates};

/// The model of a CPU with the constants that its roof gives, and its clock in GHz; none where the
/// clock cannot be measured.
pub fn fitted_cpu(d: &Device, toolchain: &Toolchain, roof: &Roof) -> Option<(MachineModel, f64)> {
    let ghz = clock(d, toolchain).ok()?;
    let threads = d.target.threads as f64;
    let reads = roof.levels.iter().map(|l| l.gbs).chain([roof.memory_gbs]);
    let rates = CoreRates {
        ghz,
        gflops: roof.peak_gflops / threads,
        reads: reads.map(|gbs| gbs / threads).collect(),
    };
    Some((fit::cpu(&d.target.machine, &rates), ghz))
}

/// The model of a GPU with the constants that its roof gives, at its highest clock.
pub fn fitted_gpu(g: &Gpu, roof: Option<&Roof>) -> MachineModel {
    let (Some(roof), 1..) = (roof, g.health.most_sm_mhz) else { return g.target.machine.clone() };
    let rates = GpuRates {
        multiprocessors: g.limits.multiprocessors,
        ghz: f64::from(g.health.most_sm_mhz) / 1000.0,
        gflops: roof.peak_gflops,
        l2_gbs: roof.levels.first().map_or(0.0, |l| l.gbs),
        memory_gbs: roof.memory_gbs,
    };
    fit::gpu(&g.target.machine, &rates)
}
