//! The features that the general predictor sees of a kernel: the compiler's features, normalised by
//! the machine and the task. Work, accesses and traffic become cycles of the machine's units per
//! cycle that the task's arithmetic takes at least; memory becomes shares of a cache; registers
//! become shares of the register file. Kernels that load their machines alike thus get like
//! features, whatever the task and the machine. `ask.rs` and `lessons.rs` compute them.

use squall_compiler::FEATURES;
use squall_core::{MachineModel, Workload};

/// Raised whenever a change makes [`Relative::row`] give other numbers for a kernel.
const VERSION: u32 = 1;

/// The name of this scheme of features. A predictor that learned from another scheme is refused.
pub(super) fn scheme() -> String {
    let mut hasher = blake3::Hasher::new();
    FEATURES.iter().chain(NAMES).for_each(|name| {
        hasher.update(name.as_bytes());
        hasher.update(b"\n");
    });
    format!("{VERSION}-{}", &hasher.finalize().to_hex()[..12])
}

/// A task on a machine, by which features are normalised.
#[derive(Clone, Debug)]
pub(super) struct Relative {
    machine: MachineModel,
    /// Operations of the task, at least 1.
    flop: f64,
    /// Bytes of its inputs and outputs, at least 1.
    bytes: f64,
}

/// Positions of the compiler's features that are looked up.
struct At<'r>(&'r [f32]);

impl At<'_> {
    /// A feature, without its logarithm.
    fn value(&self, name: &str) -> f64 {
        f64::from(self.logarithm(name)).exp2() - 1.0
    }

    /// A feature as the compiler gives it.
    fn logarithm(&self, name: &str) -> f32 {
        let at = FEATURES.iter().position(|n| *n == name);
        at.and_then(|i| self.0.get(i)).copied().unwrap_or(0.0)
    }
}

/// Features that are logarithms as they come: counts that mean the same on every machine.
const PLAIN: &[&str] = &[
    "update_statements",
    "inner_trip",
    "unrolled_body",
    "lanes",
    "accumulators",
    "registers_named",
    "flop_per_load",
    "innermost_serial_extent",
    "reduction_before_flush",
    "a_stride",
    "a_reuse_l1",
    "b_stride",
    "b_reuse_l1",
    "c_stride",
    "c_reuse_l1",
    "intensity_l1",
    "intensity_l2",
    "main_share",
    "tile_imbalance",
    "conflict",
    "hint_distance",
];

/// Amounts that are counted for each cycle of the least arithmetic.
const AMOUNTS: &[&str] = &[
    "estimate",
    "vector_flop",
    "scalar_flop",
    "loads_vector",
    "loads_broadcast",
    "loads_strided",
    "loads_scalar",
    "stores_vector",
    "stores_strided",
    "stores_scalar",
    "loop_iterations",
    "copy_elements",
    "branches",
    "hints",
];

/// Bytes that pass into a level of the caches, which takes them at its speed.
const TRAFFIC: &[(&str, usize)] = &[
    ("traffic_l1", 1),
    ("a_traffic_l1", 1),
    ("b_traffic_l1", 1),
    ("c_traffic_l1", 1),
    ("traffic_l2", 2),
    ("a_traffic_l2", 2),
    ("b_traffic_l2", 2),
    ("c_traffic_l2", 2),
];

/// Memory in bytes (`false`) or cache lines (`true`), as a share of a level of the caches.
const SHARES: &[(&str, bool, usize)] = &[
    ("stack_bytes", false, 1),
    ("workspace_bytes", false, 2),
    ("prepared_bytes", false, 2),
    ("a_lines", true, 1),
    ("b_lines", true, 1),
    ("c_lines", true, 1),
    ("a_unique", true, 2),
    ("b_unique", true, 2),
    ("c_unique", true, 2),
];

/// The numbers that follow those of the lists above.
const NAMES: &[&str] = &[
    "flop over the task's",
    "registers over the machine's",
    "accumulators over sums in flight",
    "lanes over the machine's",
    "load cycles over arithmetic cycles",
    "task flop",
    "task bytes",
    "task intensity",
    "task bytes over L1",
    "task bytes over L2",
    "task bytes over L3",
    "machine lanes",
    "machine registers",
];

/// The natural logarithm of the cycles that the cost formula expects, from the compiler's features,
/// of which its estimate is the first.
pub(super) fn estimate(features: &[f32]) -> f32 {
    features.first().copied().unwrap_or(0.0) * std::f32::consts::LN_2
}

/// Ratios below this are as good as nothing.
const LEAST: f64 = 1.0 / 4096.0;

fn ratio(a: f64, b: f64) -> f32 {
    (a / b + LEAST).log2() as f32
}

impl Relative {
    /// A task on a machine.
    pub fn new(workload: &Workload, machine: &MachineModel) -> Relative {
        Relative {
            machine: machine.clone(),
            flop: workload.flop().max(1) as f64,
            bytes: workload.bytes().0.max(1) as f64,
        }
    }

    /// The least number of cycles that the task's arithmetic takes.
    fn least_cycles(&self) -> f64 {
        let lanes = (self.machine.vectors.bytes / 4).max(1) as f64;
        self.flop / (2.0 * lanes * self.machine.cpu_units().fma_ports)
    }

    /// The normalised features of a kernel of the task, from the compiler's features.
    pub fn row(&self, features: &[f32]) -> Vec<f32> {
        let (at, m, units) = (At(features), &self.machine, self.machine.cpu_units());
        let lanes = (m.vectors.bytes / 4).max(1) as f64;
        let registers = m.vectors.registers.max(1) as f64;
        // Tasks without arithmetic to speak of are bound by the bytes that they move.
        let cycles = self.least_cycles().max(self.bytes / 64.0);
        let size = |level: usize| m.cache(level).size.0.max(1) as f64;
        let mut row: Vec<f32> = PLAIN.iter().map(|name| at.logarithm(name)).collect();
        row.extend(AMOUNTS.iter().map(|name| ratio(at.value(name), cycles)));
        row.extend(
            TRAFFIC.iter().map(|(name, level)| {
                ratio(at.value(name) / m.cache(*level).fill.max(1e-3), cycles)
            }),
        );
        row.extend(SHARES.iter().map(|(name, is_lines, level)| {
            let each = if *is_lines { units.line as f64 } else { 1.0 };
            ratio(at.value(name) * each, size(*level))
        }));
        let loads = (at.value("loads_vector")
            + units.broadcast * at.value("loads_broadcast")
            + at.value("loads_scalar"))
            / units.load_ports
            + units.strided_load * at.value("loads_strided");
        let arithmetic =
            (at.value("vector_flop") / 2.0 + at.value("scalar_flop")) / units.fma_ports;
        row.extend([
            ratio(at.value("flop"), self.flop),
            ratio(at.value("registers_named"), registers),
            ratio(at.value("accumulators"), units.sums_in_flight),
            ratio(at.value("lanes"), lanes),
            ratio(loads, arithmetic.max(1.0)),
            self.flop.log2() as f32,
            self.bytes.log2() as f32,
            ratio(self.flop, self.bytes),
            ratio(self.bytes, size(1)),
            ratio(self.bytes, size(2)),
            ratio(self.bytes, size(3)),
            lanes.log2() as f32,
            registers.log2() as f32,
        ]);
        row
    }
}
