//! The estimate of a GPU kernel's time in cycles: formulas over the kernel's features whose
//! constants come from the machine model, one for tensor cores and one for ordinary lanes. It is
//! the feature `estimate`, which orders the first trials of a task before anything was measured.
//! `gpu.rs` calls it.

use super::gpu_table::GpuFeatures;
use squall_core::machine::GpuUnits;

/// The launch as the estimates see it: blocks that a multiprocessor gets in all (`each`), warps of
/// a block, warps that run at once (`active`), rounds of blocks (`waves`), launches, blocks of a
/// cluster, and bytes that move.
pub(super) struct Launch {
    pub each: f64,
    pub warps: f64,
    pub active: f64,
    pub waves: f64,
    pub launches: f64,
    pub cluster: f64,
    pub traffic: f64,
}

impl Launch {
    /// The estimated cycles of a program; `threads` counts the threads of all its blocks.
    pub fn cycles(&self, f: &GpuFeatures, threads: f64, units: &GpuUnits) -> f64 {
        if f.matrix_products > 0.0 {
            self.of_matrix_units(f, units)
        } else {
            self.of_lanes(f, threads, units)
        }
    }

    /// The estimated cycles of a program on ordinary lanes; few warps cannot keep them busy.
    fn of_lanes(&self, f: &GpuFeatures, threads: f64, units: &GpuUnits) -> f64 {
        let cost = &units.lane_cost;
        let own = self.each * self.warps;
        let arithmetic = own * f.flop / 2.0 / (units.lanes / units.warp)
            * (1.0 + cost.idle_warps / self.active.max(1.0));
        let shared = cost.shared_load * f.shared_loads + cost.shared_store * f.shared_stores;
        let loads = own
            * (shared
                + cost.scattered_load * f.global_loads_scattered
                + cost.global_store * f.global_stores);
        let memory = threads * (f.global_loads + f.global_stores) * 4.0 / cost.memory;
        let longest = arithmetic.max(loads).max(memory);
        let latency =
            cost.barrier * self.waves * f.barriers + cost.wave * (self.waves - 1.0).max(0.0);
        let cluster = if self.cluster > 1.0 {
            cost.cluster + cost.cluster_doubling * self.cluster.log2()
        } else {
            0.0
        };
        longest
            + cost.exposed * (arithmetic + loads + memory - longest)
            + latency
            + cost.launch * self.launches
            + cluster
    }

    /// Cycles of a program that uses matrix units; fetches and barriers cost their latency each
    /// step.
    fn of_matrix_units(&self, f: &GpuFeatures, units: &GpuUnits) -> f64 {
        let cost = &units.matrix_cost;
        let own = self.each * self.warps;
        let busy = (self.active / cost.busy_warps).min(1.0).powf(cost.busy_power);
        let arithmetic = own * f.flop / 2.0 / (units.lanes / units.warp) / busy
            + own * cost.product * f.matrix_products / (self.active / cost.product_warps).min(1.0);
        let loads =
            own * (f.shared_loads * cost.shared_load + f.shared_stores + f.conflicts) / busy.sqrt();
        let memory = self.traffic / cost.memory;
        let step = cost.step * f.steps.max(1.0) / (1.0 + f.stages_ahead);
        let latency =
            self.waves * (step + cost.barrier * f.barriers + cost.global_load * f.global_loads);
        let longest = arithmetic.max(loads).max(memory);
        let cluster = cost.cluster * (self.cluster - 1.0).min(1.0);
        longest
            + cost.exposed * (arithmetic + loads + memory - longest)
            + latency
            + cost.launch * self.launches
            + cluster
    }
}
