//! Where a kernel shall run, as far as code generation and search need to know.

use crate::units::Bytes;
use serde::{Deserialize, Serialize};

/// The family of devices, which decides sketch rules and emitter dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TargetKind {
    /// A CPU programmed through a C compiler.
    Cpu,
    /// An NVIDIA GPU programmed in CUDA C.
    Cuda(Gpu),
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

/// A device's traits: read from the machine, never assumed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The family.
    pub kind: TargetKind,
    /// Threads that a kernel may use.
    pub threads: usize,
    /// Width of one vector register in bytes (64 with AVX-512, 32 with AVX2, 16 with NEON or SSE).
    pub vector_bytes: usize,
    /// Vector registers that code can name.
    pub vector_registers: usize,
    /// Cache sizes, innermost first; private data caches of one core.
    pub caches: Vec<Bytes>,
}

impl Target {
    /// Elements of 4 bytes in a vector register.
    pub fn lanes_f32(&self) -> i64 {
        (self.vector_bytes / 4).max(1) as i64
    }

    /// The size of cache level `level` (1 is innermost), or a modest guess where unknown.
    pub fn cache(&self, level: usize) -> u64 {
        self.caches
            .get(level.wrapping_sub(1))
            .map_or([32 << 10, 512 << 10, 4 << 20][level.clamp(1, 3) - 1], |b| b.0)
    }
}
