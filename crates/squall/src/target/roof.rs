//! The machine's roof: what it can do at most by what was measured, and the least time that this
//! leaves to some work. `target_context.rs` measures it; sessions, belief and reports ask it.

use squall_compiler::by_pairs;
use squall_core::{Nanos, Workload};

/// The machine's limits, as measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Roof {
    /// Floating-point operations per nanosecond, with all threads of the session.
    pub peak_gflops: f64,
    /// How many operations on bytes take the time of one on floats.
    pub byte_pace: f64,
    /// The same on pairs of bf16.
    pub pair_pace: f64,
    /// Bytes per nanosecond from main memory.
    pub memory_gbs: f64,
    /// The caches, innermost first.
    pub levels: Vec<RoofLevel>,
}

/// A cache and its bandwidth.
#[derive(Clone, Debug, PartialEq)]
pub struct RoofLevel {
    /// `L1`, `L2`, `L3`.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Bytes per nanosecond.
    pub gbs: f64,
}

impl Roof {
    /// The least time in which this machine can do this work: all operations at the peak, or all
    /// bytes moved, each from the innermost level that still has room for it, since a tuned
    /// kernel is timed with its data where the last call left them.
    pub fn bound(&self, flop: u64, bytes: u64) -> Nanos {
        Nanos(self.arithmetic(flop).max(self.moving(bytes)))
    }

    /// The same of a workload, by an algorithm that takes `operations`.
    pub fn bound_of(&self, w: &Workload, operations: u64) -> Nanos {
        self.bound(self.paced(operations, Factors::of(w, operations)), w.bytes().0)
    }

    /// How many operations on factors take the time of one on floats.
    pub fn pace(&self, of: Factors) -> f64 {
        match of {
            Factors::Floats => 1.0,
            Factors::Pairs => self.pair_pace,
            Factors::Bytes => self.byte_pace,
        }
    }

    /// Operations on floats that take as long as these.
    pub fn paced(&self, operations: u64, of: Factors) -> u64 {
        (operations as f64 / self.pace(of)) as u64
    }

    /// What sets that bound: `arithmetic`, or the farthest level that bytes come from.
    pub fn limit(&self, flop: u64, bytes: u64) -> &str {
        if self.arithmetic(flop) >= self.moving(bytes) {
            return "arithmetic";
        }
        self.levels.iter().find(|l| bytes <= l.bytes).map_or("memory", |l| &l.name)
    }

    fn arithmetic(&self, flop: u64) -> f64 {
        flop as f64 / self.peak_gflops
    }

    fn moving(&self, bytes: u64) -> f64 {
        let (mut held, mut moving) = (0, 0.0);
        for level in &self.levels {
            let here = bytes.min(level.bytes).saturating_sub(held);
            moving += here as f64 / level.gbs.max(self.memory_gbs);
            held += here;
        }
        moving + (bytes - held) as f64 / self.memory_gbs
    }
}

/// What a kernel multiplies: numbers of each sort have a peak of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Factors {
    /// Floats of 32 bits, or nothing.
    Floats,
    /// Numbers of bf16, by pairs where the CPU can.
    Pairs,
    /// Bytes.
    Bytes,
}

impl Factors {
    /// The factors of a workload by an algorithm that takes `operations`. Where the algorithm takes
    /// fewer than the expression has, as Winograd's does, the factors are floats.
    pub fn of(w: &Workload, operations: u64) -> Factors {
        match w.multiplies_bytes() {
            true => Factors::Bytes,
            false if operations >= w.flop() && by_pairs(w).is_some() => Factors::Pairs,
            false => Factors::Floats,
        }
    }
}
