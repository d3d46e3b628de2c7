//! Prints a nest in a language of C's family. There is one printer; what languages spell
//! differently stands in one table each ([`Dialect`]), and the printer notes what it used, which
//! decides what stands before a program.
//!
//! Two files say how programs are divided into what runs at once: `vectors.rs` where instructions
//! work on vectors (CPUs), `threads.rs` where many threads work on single numbers (GPUs).

mod c;
mod c_fma;
mod c_formats;
mod c_prelude;
mod cuda;
mod cuda_prelude;
mod dialect;
mod formats;
mod printer;
mod registers;
mod state;
mod thread_loops;
mod thread_statements;
mod thread_values;
mod threads;
mod tiles;
mod tma;
mod vector_values;
mod vectors;
mod versions;
mod warps;

pub use c::C;
pub use cuda::CUDA;
pub use cuda_prelude::FORMATS as DEVICE_FORMATS;
pub use dialect::{Dialect, Execution, Index, Numbers, ThreadWords, Used, VectorWords};
pub use registers::{register_count, stack_bytes};
pub use threads::shared_bytes;
pub(crate) use tiles::{INSTRUCTIONS as AMX_INSTRUCTIONS, SHAPES as AMX_SHAPES};

use crate::nest::Nest;
use squall_core::{KernelSource, Language};

/// All languages. A new one is a file with a table, and a line here.
pub const DIALECTS: &[&Dialect] = &[&C, &CUDA];

/// What the emitter is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Threads that parallel loops are shared among; 1 leaves OpenMP out, 0 lets it choose.
    pub threads: usize,
    /// Computes and keeps intermediates in double precision: for references.
    pub double: bool,
    /// See [`KernelSource::full_optimisation`].
    pub full_optimisation: bool,
}

/// The table of a language; C's where it has none.
pub fn dialect(language: Language) -> &'static Dialect {
    DIALECTS.iter().find(|d| d.language == language).unwrap_or(&&C)
}

/// The source of a verified nest in a dialect, with entry point `symbol`.
pub fn print(n: &Nest, symbol: &str, o: Options, d: &Dialect) -> KernelSource {
    match d.execution {
        Execution::Vectors(_) => vectors::source(n, symbol, o, d),
        Execution::Threads(_) => threads::source(n, symbol, o, d),
    }
}

/// The C source of a verified nest, with entry point `symbol`.
pub fn emit(n: &Nest, symbol: &str, o: Options) -> KernelSource {
    print(n, symbol, o, dialect(Language::C))
}

/// The CUDA C of a verified GPU program; the functions' names begin with `symbol`.
pub fn emit_cuda(n: &Nest, symbol: &str) -> KernelSource {
    let o = Options { threads: 1, double: false, full_optimisation: true };
    print(n, symbol, o, dialect(Language::Cuda))
}
