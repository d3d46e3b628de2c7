//! The estimate of a CPU kernel's time in cycles: a formula over the features of a loop nest whose
//! constants come from the machine model (ports, cache bandwidths, registers). It is the feature
//! `estimate`, and orders the first trials of a task before anything was measured; the learned cost
//! model corrects it.

use super::cpu_table::Features;
use squall_core::MachineModel;

/// The estimate: arithmetic, loads and the traffic of two caches overlap in part; stores and loops
/// are added. `held` are the registers that operands take beside the sums. The boosted trees of the
/// cost model take the estimate as a feature and correct it.
pub(super) fn estimate(f: &Features, held: f64, machine: &MachineModel) -> f64 {
    let units = machine.cpu_units();
    // With fewer independent sums than latency times number of the units, sums wait for each other.
    let fewer = (units.sums_in_flight / f.accumulators.max(1.0)).max(1.0);
    let waiting = fewer.powf(units.waiting_power);
    let registers = machine.vectors.registers as f64;
    let named = f.registers_named + units.held * held;
    let spilled = 1.0 + units.spill * (named - registers).max(0.0) / registers;
    // A fused multiply-add is two operations; code that is no vector code has none.
    let arithmetic = f.vector_flop / (2.0 * units.fma_ports) * waiting * spilled
        + f.scalar_flop / units.fma_ports;
    // A broadcast is part of the arithmetic's instruction.
    let loads = (f.loads_vector + units.broadcast * f.loads_broadcast + f.loads_scalar)
        / units.load_ports
        + units.strided_load * f.loads_strided;
    let stores = f.stores_vector + f.stores_scalar + f.stores_strided;
    let [near, far] = [1, 2].map(|level| machine.cache(level).fill);
    let parts = [arithmetic, loads, f.traffic_l1 / near, f.traffic_l2 / far];
    let longest = parts.iter().copied().fold(0.0, f64::max);
    // Prefetched data arrive while other data are worked on.
    let exposed = if f.hints > 0.0 { units.exposed_prefetched } else { units.exposed };
    longest
        + exposed * (parts.iter().sum::<f64>() - longest)
        + units.store * stores
        + units.iteration * f.loop_iterations
        + units.prefetch * f.hints
}
