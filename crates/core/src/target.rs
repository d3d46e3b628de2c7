//! Where a kernel shall run, as far as code generation and search need to know.

use crate::machine::MachineModel;
use crate::units::Bytes;
use serde::{Deserialize, Serialize};

/// The family of devices, which decides sketch rules and the language of kernels.
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// The family.
    pub kind: TargetKind,
    /// Threads that a kernel may use.
    pub threads: usize,
    /// The machine.
    pub machine: MachineModel,
}

impl Target {
    /// One thread of a CPU of this vector width, with caches of these sizes.
    pub fn cpu(vector_bytes: usize, vector_registers: usize, caches: &[Bytes]) -> Target {
        let machine = MachineModel::cpu(vector_bytes, vector_registers, caches);
        Target { kind: TargetKind::Cpu, threads: 1, machine }
    }

    /// An NVIDIA GPU with these limits.
    pub fn cuda(gpu: Gpu) -> Target {
        Target { kind: TargetKind::Cuda(gpu), threads: 1, machine: MachineModel::nvidia(&gpu) }
    }

    /// Width of one vector register in bytes.
    pub fn vector_bytes(&self) -> usize {
        self.machine.vectors.bytes
    }

    /// Vector registers that code can name.
    pub fn vector_registers(&self) -> usize {
        self.machine.vectors.registers
    }

    /// Elements of 4 bytes in a vector register.
    pub fn lanes_f32(&self) -> i64 {
        (self.vector_bytes() / 4).max(1) as i64
    }

    /// The size of cache level `level` (1 is innermost), or a modest guess where unknown.
    pub fn cache(&self, level: usize) -> u64 {
        self.machine.cache(level).size.0
    }
}
