//! The machine model: registers, vector width, caches, ports and matrix units of a machine as data,
//! with the constants of the cost formulas that order kernels before any of them is measured.
//! Sketches choose tile sizes by it, and `compiler/src/features` estimates cycles by it. The values
//! of each kind of machine stand in one table here; `squall doctor` prints them and fits the values
//! that it can measure. A model prints and parses as JSON.

use crate::isa::{Level, TileUnit};
use crate::units::Bytes;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The facts about a machine that code generation, search and cost formulas use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineModel {
    /// The registers that vector code names.
    pub vectors: Vectors,
    /// Caches, innermost first: data caches of one core; of a GPU, a multiprocessor's shared memory
    /// and the second level.
    pub caches: Vec<CacheLevel>,
    /// The units that compute.
    pub units: Units,
    /// A CPU's unit that multiplies tiles, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tiles: Option<TileUnit>,
    /// Whether products of bytes are made of products of words of 16 bits (`vpmaddwd`), because a
    /// CPU has no exact one of bytes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub words: bool,
}

/// The limits of a GPU, as its driver states them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Gpu {
    /// Compute capability, as 90 for 9.0.
    pub capability: u32,
    /// Streaming multiprocessors.
    pub multiprocessors: u32,
    /// Most threads of a block.
    pub threads_per_block: u32,
    /// Most threads that a multiprocessor holds at once.
    pub threads_per_multiprocessor: u32,
    /// Most bytes of shared memory of a block, where it asks for them.
    pub shared_per_block: u32,
    /// Bytes of shared memory of a multiprocessor.
    pub shared_per_multiprocessor: u32,
    /// 32-bit registers of a multiprocessor.
    pub registers_per_multiprocessor: u32,
    /// Bytes of the second-level cache.
    pub l2: u32,
}

impl Gpu {
    /// Blocks that may form a cluster and read each other's shared memory: 8 from Hopper on, and 16
    /// on its and its successor's data centre chips, where a kernel asks for it.
    pub fn cluster(&self) -> i64 {
        match self.capability {
            0..90 => 1,
            90..110 => 16,
            _ => 8,
        }
    }
}

/// Vector registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vectors {
    /// Width of one in bytes (64 with AVX-512, 32 with AVX2, 16 with NEON or SSE).
    pub bytes: usize,
    /// How many code can name.
    pub registers: usize,
}

/// One level of the caches.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheLevel {
    /// One core's share of it.
    pub size: Bytes,
    /// Bytes a cycle that the level behind it fills it with.
    pub fill: f64,
}

/// What computes, by the family of the machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Units {
    /// A CPU's core.
    Cpu(CpuUnits),
    /// A GPU's multiprocessors.
    Gpu(GpuUnits),
}

/// A core, and the constants of the estimate of a kernel's cycles on it. The constants were fitted
/// on 2,900 kernels of 42 tasks (docs/performance.md).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuUnits {
    /// Fused multiply-adds that begin in a cycle.
    pub fma_ports: f64,
    /// Loads that begin in a cycle.
    pub load_ports: f64,
    /// Bytes of a cache line.
    pub line: u64,
    /// Independent sums that keep all multiply-add units busy: their latency times their number.
    pub sums_in_flight: f64,
    /// The power to which fewer sums than that slow arithmetic down.
    pub waiting_power: f64,
    /// How much slower arithmetic is for each register file of values that do not fit.
    pub spill: f64,
    /// Registers that each held operand counts as, beside the sums.
    #[serde(default)]
    pub held: f64,
    /// Loads that broadcasting one element counts as: it is a part of the arithmetic's instruction.
    pub broadcast: f64,
    /// Cycles of a load of lanes at a stride.
    pub strided_load: f64,
    /// Cycles of a store.
    pub store: f64,
    /// Cycles of an iteration of a loop.
    pub iteration: f64,
    /// Cycles of a prefetch.
    pub prefetch: f64,
    /// The share of arithmetic, loads and traffic that the longest of them does not hide.
    pub exposed: f64,
    /// The same where data are prefetched.
    pub exposed_prefetched: f64,
    /// The share of a cache that a working set may take to stay in it.
    pub cache_share: f64,
}

/// The multiprocessors of a GPU, and the constants of the estimates of a kernel's cycles on them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuUnits {
    /// Threads of a warp.
    pub warp: f64,
    /// f32 multiply-adds that a multiprocessor begins in a cycle.
    pub lanes: f64,
    /// Banks of shared memory, of four bytes each.
    pub banks: i64,
    /// Bytes of shared memory that each block takes beside its own.
    pub shared_reserved: f64,
    /// Registers of a thread beside those that the program names.
    pub registers_reserved: f64,
    /// Most blocks that a multiprocessor holds at once.
    pub most_blocks: f64,
    /// How many loads a scattered one moves.
    pub scattered_traffic: f64,
    /// How many times quicker a warpgroup multiplies than its warps would.
    pub warpgroup_speedup: f64,
    /// Programs that add up on ordinary lanes.
    pub lane_cost: LaneCost,
    /// Programs that multiply on matrix units (tensor cores).
    pub matrix_cost: MatrixCost,
}

/// Constants of the estimate of programs on ordinary lanes, in cycles unless said otherwise. They
/// were fitted to 5,400 trials of twelve layers and products on an H200; the rank correlation with
/// the times of a layer that was left out is 0.45 on average.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaneCost {
    /// Warps too few by which arithmetic takes twice as long.
    pub idle_warps: f64,
    /// A warp's load from shared memory.
    pub shared_load: f64,
    /// A warp's store to shared memory.
    pub shared_store: f64,
    /// A warp's load of scattered elements.
    pub scattered_load: f64,
    /// A warp's store to device memory.
    pub global_store: f64,
    /// Bytes a cycle that device memory moves.
    pub memory: f64,
    /// A barrier.
    pub barrier: f64,
    /// A round of blocks after the first.
    pub wave: f64,
    /// A launch.
    pub launch: f64,
    /// A cluster.
    pub cluster: f64,
    /// Each doubling of a cluster's blocks.
    pub cluster_doubling: f64,
    /// The share of arithmetic, loads and traffic that the longest of them does not hide.
    pub exposed: f64,
}

/// Constants of the estimate of programs on matrix units, in cycles unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MatrixCost {
    /// A product of 16 x 16 sums, 32 bytes deep, on a multiprocessor's units.
    pub product: f64,
    /// Warps that keep the units busy.
    pub product_warps: f64,
    /// Warps that keep all else busy.
    pub busy_warps: f64,
    /// The power to which fewer warps than that slow it down.
    pub busy_power: f64,
    /// A warp's load from shared memory.
    pub shared_load: f64,
    /// Bytes a cycle that device memory moves.
    pub memory: f64,
    /// The latency of a step's copies.
    pub step: f64,
    /// A barrier.
    pub barrier: f64,
    /// A load from device memory, whose latency stands in each step.
    pub global_load: f64,
    /// A launch.
    pub launch: f64,
    /// A cluster of more than one block.
    pub cluster: f64,
    /// The share of arithmetic, loads and traffic that the longest of them does not hide.
    pub exposed: f64,
}

/// A core of a server CPU of today.
pub const CPU: CpuUnits = CpuUnits {
    fma_ports: 2.0,
    load_ports: 2.0,
    line: 64,
    sums_in_flight: 8.0,
    waiting_power: 0.25,
    spill: 0.3,
    held: 0.0,
    broadcast: 0.4,
    strided_load: 1.75,
    store: 0.6,
    iteration: 0.2,
    prefetch: 0.25,
    exposed: 0.7,
    exposed_prefetched: 0.45,
    cache_share: 0.75,
};

/// Vector registers that are few: sums, operands and what is loaded next barely fit.
const FEW: usize = 16;

/// The same where registers are few, as with AVX2. One value too many slowed a 3x3 convolution of
/// 14 sums down 1.9 times, and 14 broadcasts for 14 multiply-adds need both load ports
/// (benches/notes/2026-11-cpu-levels.md).
pub const NARROW: CpuUnits = CpuUnits { spill: 8.0, held: 1.0, broadcast: 1.0, ..CPU };

/// Multiprocessors as an H200 has them.
pub const NVIDIA: GpuUnits = GpuUnits {
    warp: 32.0,
    lanes: 128.0,
    banks: 32,
    shared_reserved: 1024.0,
    registers_reserved: 28.0,
    most_blocks: 32.0,
    scattered_traffic: 3.0,
    warpgroup_speedup: 2.0,
    lane_cost: LaneCost {
        idle_warps: 6.4,
        shared_load: 0.57,
        shared_store: 7.4,
        scattered_load: 7.9,
        global_store: 24.0,
        memory: 3600.0,
        barrier: 20.0,
        wave: 3000.0,
        launch: 1400.0,
        cluster: 1850.0,
        cluster_doubling: 270.0,
        exposed: 0.28,
    },
    matrix_cost: MatrixCost {
        product: 4.0,
        product_warps: 8.0,
        busy_warps: 12.0,
        busy_power: 0.7,
        shared_load: 0.6,
        memory: 2600.0,
        step: 700.0,
        barrier: 30.0,
        global_load: 8.0,
        launch: 2500.0,
        cluster: 600.0,
        exposed: 0.3,
    },
};

/// Modest guesses for the first three levels of a CPU's caches, where the machine does not tell.
const CACHES: [CacheLevel; 3] = [
    CacheLevel { size: Bytes(32 << 10), fill: 80.0 },
    CacheLevel { size: Bytes(512 << 10), fill: 8.0 },
    CacheLevel { size: Bytes(4 << 20), fill: 8.0 },
];

impl MachineModel {
    /// A CPU of this vector width with caches of these sizes. Where it names few registers, each
    /// value that does not fit costs a store and a load in every step; below AVX-512 a broadcast is
    /// an instruction and a load of its own.
    pub fn cpu(vector_bytes: usize, vector_registers: usize, caches: &[Bytes]) -> MachineModel {
        let fill = |level: usize| CACHES[level.min(CACHES.len() - 1)].fill;
        MachineModel {
            vectors: Vectors { bytes: vector_bytes, registers: vector_registers },
            caches: (caches.iter().enumerate())
                .map(|(i, &size)| CacheLevel { size, fill: fill(i) })
                .collect(),
            units: Units::Cpu(if vector_registers <= FEW { NARROW } else { CPU }),
            tiles: None,
            words: false,
        }
    }

    /// A CPU of today at a level of instructions, with caches of these sizes. Bytes a cycle and
    /// cycles of instructions are those of any vector width; without fused multiply-adds a
    /// multiplication and an addition share the ports, half as many pairs begin in a cycle.
    pub fn at_level(level: &Level, caches: &[Bytes]) -> MachineModel {
        let mut model = MachineModel::cpu(level.vector_bytes, level.vector_registers, caches);
        model.tiles = level.tiles;
        model.words = level.multiplies_words();
        if !level.fused {
            let units = *model.cpu_units();
            model.units = Units::Cpu(CpuUnits { fma_ports: units.fma_ports / 2.0, ..units });
        }
        model
    }

    /// An NVIDIA GPU with these limits.
    pub fn nvidia(gpu: &Gpu) -> MachineModel {
        let level = |bytes: u32, fill| CacheLevel { size: Bytes(u64::from(bytes)), fill };
        MachineModel {
            vectors: Vectors { bytes: 16, registers: 255 },
            caches: vec![
                level(gpu.shared_per_multiprocessor, 64.0),
                level(gpu.l2, NVIDIA.lane_cost.memory),
            ],
            units: Units::Gpu(NVIDIA),
            tiles: None,
            words: false,
        }
    }

    /// Cache level `level` (1 is innermost), or a modest guess where the machine does not tell.
    pub fn cache(&self, level: usize) -> CacheLevel {
        let known = self.caches.get(level.wrapping_sub(1)).copied();
        known.unwrap_or(CACHES[level.clamp(1, 3) - 1])
    }

    /// The core; of a machine that is none, a CPU of today: its model orders references.
    pub fn cpu_units(&self) -> &CpuUnits {
        match &self.units {
            Units::Cpu(units) => units,
            Units::Gpu(_) => &CPU,
        }
    }

    /// The multiprocessors, where there are some.
    pub fn gpu_units(&self) -> Option<&GpuUnits> {
        match &self.units {
            Units::Cpu(_) => None,
            Units::Gpu(units) => Some(units),
        }
    }
}

/// The model as JSON, as [`FromStr`] reads it.
impl fmt::Display for MachineModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string_pretty(self).map_err(|_| fmt::Error)?)
    }
}

impl FromStr for MachineModel {
    type Err = serde_json::Error;
    fn from_str(text: &str) -> Result<MachineModel, serde_json::Error> {
        serde_json::from_str(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_prints_and_parses() {
        let mut own = MachineModel::cpu(32, 16, &[Bytes(48 << 10)]);
        own.caches[0].fill = 61.25;
        let gpu = Gpu {
            capability: 90,
            multiprocessors: 132,
            threads_per_block: 1024,
            threads_per_multiprocessor: 2048,
            shared_per_block: 232448,
            shared_per_multiprocessor: 233472,
            registers_per_multiprocessor: 65536,
            l2: 60 << 20,
        };
        for model in [own, MachineModel::nvidia(&gpu)] {
            assert_eq!(model.to_string().parse::<MachineModel>().unwrap(), model);
        }
        let text = MachineModel::cpu(32, 16, &[]).to_string();
        let wrong = text.replace("fma_ports", "fma_port");
        let error = wrong.parse::<MachineModel>().unwrap_err().to_string();
        assert!(error.contains("fma_port") && error.contains("line"), "{error}");
    }

    #[test]
    fn what_a_machine_does_not_tell_is_guessed() {
        let model = MachineModel::cpu(64, 32, &[Bytes(48 << 10)]);
        let sizes = [0, 1, 2, 3, 9].map(|l| model.cache(l).size.0 >> 10);
        assert_eq!(sizes, [32, 48, 512, 4 << 10, 4 << 10]);
        assert_eq!([1, 2].map(|l| model.cache(l).fill), [80.0, 8.0]);
    }
}
