//! Matrix products and convolutions by warpgroups (`wgmma`, compute capability 9.0), for factors of
//! 16 bits; sums are 32-bit floats.
//!
//! Rows and columns are those of `tensor`. A block computes a tile of both, a warpgroup, which is
//! four warps, `64 i` rows by up to 256 columns of it. Tensor cores read both factors from shared
//! memory by themselves, so a matrix has to lie there as they want it: rows of 64 elements of the
//! reduction, or columns of 64 rows, swizzled. A convolution is an implicit product: at each step,
//! 64 channels at one position of the window, rows are gathered by copies of 16 bytes. Several
//! stages are on their way; with `lag` the products of one step also go on while the next begin, at
//! the price of a stage. The reduction can be split over the blocks of a cluster; sums end as in
//! `tensor`.

mod knobs;
mod program;

use super::Program;
use super::problem::Contraction;
use super::tensor::roles::roles;
use squall_core::Gpu;
use std::sync::Arc;

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
