//! Fits a machine model (`core::MachineModel`: caches, ports, bandwidths and the constants of the
//! cost formula) to rates that were measured on the machine. Input: a model and [`CoreRates`] or
//! [`GpuRates`]; output: the model with the constants that the rates determine; all others stay.
//! `squall doctor` prints the result.

use squall_core::MachineModel;
use squall_core::machine::Units;

/// Rates of one core of a CPU.
#[derive(Clone, Debug, PartialEq)]
pub struct CoreRates {
    /// Its clock.
    pub ghz: f64,
    /// Fused multiply-adds of vectors of f32 (one is two operations), in GFLOP/s.
    pub gflops: f64,
    /// Reading from each level of the memory hierarchy, innermost first and memory last, in GB/s.
    pub reads: Vec<f64>,
}

/// Rates of a GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GpuRates {
    /// Its multiprocessors.
    pub multiprocessors: u32,
    /// Their clock.
    pub ghz: f64,
    /// Multiply-adds of f32 without matrix units, in GFLOP/s.
    pub gflops: f64,
    /// Reading from the second-level cache, in GB/s.
    pub l2_gbs: f64,
    /// Copying within memory, in GB/s.
    pub memory_gbs: f64,
}

/// The most units of a kind that a core of today has.
const MOST_PORTS: f64 = 4.0;

/// A CPU's model with ports and caches as the rates say.
pub fn cpu(model: &MachineModel, rates: &CoreRates) -> MachineModel {
    let mut fitted = model.clone();
    let bytes = model.vectors.bytes as f64;
    let ports = |a_cycle: f64| a_cycle.round().clamp(1.0, MOST_PORTS);
    if let Units::Cpu(units) = &mut fitted.units {
        units.fma_ports = ports(rates.gflops / (2.0 * bytes / 4.0 * rates.ghz));
        if let Some(near) = rates.reads.first() {
            units.load_ports = ports(near / (bytes * rates.ghz));
        }
    }
    // A level is filled as fast as the next one is read.
    for (level, gbs) in fitted.caches.iter_mut().zip(rates.reads.iter().skip(1)) {
        level.fill = gbs / rates.ghz;
    }
    fitted
}

/// A GPU's model with lanes and caches as the rates say.
pub fn gpu(model: &MachineModel, rates: &GpuRates) -> MachineModel {
    let mut fitted = model.clone();
    let cycles = f64::from(rates.multiprocessors) * rates.ghz;
    if let Units::Gpu(units) = &mut fitted.units {
        let warps = rates.gflops / (2.0 * cycles) / units.warp;
        units.lanes = units.warp * warps.round().max(1.0);
    }
    let fills = [rates.l2_gbs / cycles, rates.memory_gbs / rates.ghz];
    for (level, fill) in fitted.caches.iter_mut().zip(fills) {
        level.fill = fill;
    }
    fitted
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_core::{Bytes, Gpu};

    #[test]
    fn a_core_is_what_its_rates_say() {
        let model = MachineModel::cpu(64, 32, &[Bytes(48 << 10), Bytes(2 << 20)]);
        let reads = vec![340.0, 180.0, 60.0, 12.0];
        // One port of 16 lanes at 3 GHz, somewhat slowed down.
        let fitted = cpu(&model, &CoreRates { ghz: 3.0, gflops: 90.0, reads });
        let units = fitted.cpu_units();
        assert_eq!((units.fma_ports, units.load_ports), (1.0, 2.0));
        assert_eq!([fitted.cache(1).fill, fitted.cache(2).fill], [60.0, 20.0]);
        assert_eq!((units.spill, fitted.vectors), (model.cpu_units().spill, model.vectors));
        assert_eq!(fitted.to_string().parse::<MachineModel>().unwrap(), fitted);
    }

    #[test]
    fn a_gpu_is_what_its_rates_say() {
        let limits = Gpu {
            capability: 80,
            multiprocessors: 100,
            threads_per_block: 1024,
            threads_per_multiprocessor: 2048,
            shared_per_block: 160 << 10,
            shared_per_multiprocessor: 164 << 10,
            registers_per_multiprocessor: 65536,
            l2: 40 << 20,
        };
        let rates = GpuRates {
            multiprocessors: 100,
            ghz: 1.5,
            gflops: 18_000.0,
            l2_gbs: 4500.0,
            memory_gbs: 1500.0,
        };
        let fitted = gpu(&MachineModel::nvidia(&limits), &rates);
        assert_eq!(fitted.gpu_units().unwrap().lanes, 64.0);
        assert_eq!([fitted.caches[0].fill, fitted.caches[1].fill], [30.0, 1000.0]);
    }
}
