//! Matrix products and convolutions by warpgroups (`wgmma`, compute capability 9.0 only), for
//! factors of 16 bits; sums are 32-bit floats. Input: a contraction (`problem.rs`) and a GPU;
//! output: the sketch `gpu_warpgroup`. As in CUTLASS's Hopper kernels, tensor cores read both
//! factors from shared memory.
//!
//! Rows and columns are those of `tensor`. A block computes a tile of both; a warpgroup, which is
//! four warps, computes `64 i` rows by up to 256 columns of it. In shared memory the factors lie as
//! the instruction wants them: swizzled rows of 64 elements of the reduction, or swizzled columns
//! of 64 rows. A convolution is an implicit product: each step takes 64 channels at one position of
//! the window, whose rows are gathered by copies of 16 bytes. Several stages are fetched ahead;
//! with `lag` the products of one step also continue while the next begin, at the price of a stage.
//! The reduction can be split over the blocks of a cluster; the sums end as in `tensor`.

mod knobs;
mod program;

use super::Program;
use super::problem::Contraction;
use super::tensor::roles::roles;
use squall_core::Gpu;
use std::sync::Arc;

/// The sketch by warpgroups, where the device and the operands allow it.
pub(super) fn derive(p: &Arc<Contraction>, gpu: Gpu) -> Option<Program> {
    // Later devices do not have these instructions.
    if gpu.capability / 10 != 9 {
        return None;
    }
    let roles = Arc::new(roles(p).filter(|r| r.format.is_half())?);
    let space = knobs::space(p, &roles, gpu)?;
    let p = Arc::clone(p);
    Some(Program {
        name: "gpu_warpgroup".into(),
        space,
        gpu,
        make: Box::new(move |c| Ok(program::program(&p, &roles, c))),
    })
}
