//! Where a kernel shall run, as far as code generation and search need to know.

use crate::units::Bytes;
use serde::{Deserialize, Serialize};

/// The family of devices, which decides sketch rules and emitter dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TargetKind {
    /// A CPU programmed through a C compiler.
    Cpu,
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
        self.caches.get(level.wrapping_sub(1)).map_or([32 << 10, 512 << 10, 4 << 20][level.clamp(1, 3) - 1], |b| b.0)
    }
}
