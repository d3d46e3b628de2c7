//! The target of a kernel: the device's kind (CPU through C, or an NVIDIA GPU through CUDA C), the
//! number of threads, the machine model, and the level of instructions. Code generation derives
//! sketches for a target, and search and predictors read its sizes. A target is read from the
//! machine or stated by the user, never assumed.

use crate::isa::Isa;
use crate::machine::{Gpu, MachineModel};
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

/// A device's traits: read from the machine, never assumed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// The family.
    pub kind: TargetKind,
    /// Threads that a kernel may use.
    pub threads: usize,
    /// The machine.
    pub machine: MachineModel,
    /// The level of instructions that kernels are held to; none for all that the machine has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isa: Option<Isa>,
}

impl Target {
    /// One thread of a CPU of this vector width, with caches of these sizes.
    pub fn cpu(vector_bytes: usize, vector_registers: usize, caches: &[Bytes]) -> Target {
        let machine = MachineModel::cpu(vector_bytes, vector_registers, caches);
        Target { kind: TargetKind::Cpu, threads: 1, machine, isa: None }
    }

    /// One thread of a CPU, held to a level of instructions, with caches of these sizes.
    pub fn at_level(isa: Isa, caches: &[Bytes]) -> Target {
        let machine = MachineModel::at_level(isa.level(), caches);
        Target { kind: TargetKind::Cpu, threads: 1, machine, isa: Some(isa) }
    }

    /// An NVIDIA GPU with these limits.
    pub fn cuda(gpu: Gpu) -> Target {
        let machine = MachineModel::nvidia(&gpu);
        Target { kind: TargetKind::Cuda(gpu), threads: 1, machine, isa: None }
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
