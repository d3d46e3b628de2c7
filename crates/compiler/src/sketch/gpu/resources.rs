//! The resources that one block of a GPU kernel takes of a multiprocessor: threads, registers, and
//! bytes of shared memory.
//!
//! Written as terms over knobs they are constraints of the space of a sketch (a kernel structure
//! with open knobs) (`Block::fits`), so that the device can run at least one block of each legal
//! configuration (`occupancy.rs` counts how many). For a finished nest, `check_shared` compares its
//! bytes of shared memory with the device's limit. All GPU sketches that tile use this file.

use crate::emit::shared_bytes;
use crate::nest::Nest;
use squall_core::Gpu;
use squall_core::space::Term;

/// Threads of a warp, and of a warpgroup.
pub const WARP: i64 = 32;
pub const WARPGROUP: i64 = 4 * WARP;

/// Registers that a thread can have.
const MOST_REGISTERS: i64 = 256;

/// The alignment in bytes of swizzled rows (rows of shared memory permuted against bank conflicts).
/// A block loses as many bytes, because the barriers that count arriving bytes lie before the rows.
pub const SWIZZLE_ALIGNMENT: i64 = 1024;

/// The resources of a block, as terms over knobs.
pub struct Block {
    pub threads: Term,
    /// Registers of a thread, where a sketch estimates them.
    pub registers: Option<Term>,
    /// Bytes of shared memory at each time that the program uses it differently.
    pub shared: Vec<Term>,
}

impl Block {
    /// The constraints under which the device can run such a block.
    pub fn fits(self, gpu: Gpu) -> Vec<Term> {
        let mut all = vec![self.threads.clone().at_most(i64::from(gpu.threads_per_block))];
        if let Some(registers) = self.registers {
            all.push(registers.clone().at_most(MOST_REGISTERS));
            let block = Term::product([self.threads, registers]);
            all.push(block.at_most(i64::from(gpu.registers_per_multiprocessor)));
        }
        let room = i64::from(gpu.shared_per_block);
        all.extend(self.shared.into_iter().map(|bytes| bytes.at_most(room)));
        all
    }
}

/// Registers of a thread whose warp holds `sums` 16x16 matrices of 32-bit sums, and `factors`
/// matrices of factors, each of which takes `factor` registers; addresses and the like come on top.
pub fn warp_registers(sums: Term, factors: Term, factor: i64) -> Term {
    let factors = Term::product([factors, Term::from(factor)]);
    Term::sum([Term::product([sums, Term::from(8)]), factors, Term::from(48)])
}

/// Registers of a thread whose warpgroup holds sums of 64 `rows` by 8 `columns`: four for each
/// pair, and some for addresses and copies.
pub fn warpgroup_registers(rows: Term, columns: Term) -> Term {
    Term::sum([Term::product([rows, columns, Term::from(4)]), Term::from(64)])
}

/// Bytes of what stages hold: `lines` rows and columns, each with `depth` elements of the
/// reduction.
pub fn stage_bytes(lines: Term, depth: Term, stages: Term, element: i64) -> Term {
    Term::product([lines, depth, stages, Term::from(element)])
}

/// Bytes of a tile of sums, 32-bit floats, with `free` left behind each row.
pub fn sum_bytes(rows: Term, columns: Term, free: i64) -> Term {
    Term::product([rows, Term::sum([columns, Term::from(free)]), Term::from(4)])
}

/// The number of steps through a reduction of `extent` elements, where each step takes the product
/// of `parts`.
pub fn steps(extent: i64, parts: impl IntoIterator<Item = Term>) -> Term {
    Term::from(extent).ceil_div(Term::product(parts))
}

/// The constraint that steps of the product of `parts` run over the reduction's end by an eighth of
/// it at most, or to the end of its last slice of `depth`.
pub fn ends_near(extent: i64, depth: i64, parts: impl Fn() -> Term) -> Term {
    let most = (9 * extent / 8).max((extent + depth - 1) / depth * depth);
    Term::product([Term::from(extent).ceil_div(parts()), parts()]).at_most(most)
}

/// Refuses a nest whose buffers do not fit a block's shared memory.
pub fn check_shared(n: &Nest, gpu: Gpu) -> Result<(), String> {
    let (bytes, room) = (shared_bytes(n), u64::from(gpu.shared_per_block));
    match bytes > room {
        true => Err(format!("{bytes} bytes of shared memory, a block has {room}")),
        false => Ok(()),
    }
}
