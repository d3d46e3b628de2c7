//! The emitter: prints a loop nest as kernel source in a language of C's family. Input: a verified
//! nest, a symbol and [`Options`]; output: a `KernelSource`. There is one printer (`printer.rs`);
//! the spellings in which languages differ are one table each ([`Dialect`]: `c.rs`, `cuda.rs`), and
//! the printer notes the helper functions that it used, which are then printed ahead of the program
//! (`c_prelude.rs`, `cuda_prelude.rs`).
//!
//! A dialect is of one of two kinds: in C a function computes on SIMD vectors (`vectors.rs`, with
//! `vector_values.rs`, `formats.rs`, `versions.rs`, `tiles.rs`), in CUDA many threads compute on
//! single numbers (`threads.rs`, with `thread_loops.rs`, `thread_statements.rs`,
//! `thread_values.rs`, `warps.rs`, `tma.rs`).

mod c;
mod c_fma;
mod c_formats;
mod c_functions;
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

/// The options of printing.
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
