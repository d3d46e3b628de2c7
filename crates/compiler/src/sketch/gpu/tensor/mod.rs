//! Matrix products and convolutions on tensor cores by warps (`mma.sync`, compute capability 8.0
//! and later), for factors of 16 bits and for 32-bit floats whose task allows rounding to tf32;
//! sums are 32-bit floats. Other 32-bit factors are split into two tf32 numbers each, and three of
//! the four products are added up: the loss is 2^-22 of a product (docs/decisions/0012). Input: a
//! contraction (`problem.rs`) and a GPU; output: the sketch `gpu_tensor` or `gpu_tensor_split`.
//!
//! The axes that only one factor has, counted together, are the rows of the product, those of the
//! other factor its columns; the output's innermost axis is among the columns. A block computes a
//! tile of both, a warp `16 i` rows by `16 j` columns of it. Chunks of the reduction wait in shared
//! memory in several stages. A convolution's input lies there once for all positions of the window,
//! and a lane computes where its row of a matrix lies, so that no im2col copy is made. A weight's
//! tile can arrive in pieces, one of which is multiplied while the next is fetched. The reduction
//! can be split over groups of warps and over the blocks of a cluster. Sums go through shared
//! memory, from where the epilogue writes whole lines of the output.
//!
//! The files are the stages of a program, and each uses only those before it: `roles` (which
//! operand gives the rows, which the columns, over which axes), `tile` (the part of them that a
//! block and a warp compute), `repack` (copies of factors in device memory, made before the
//! kernel), `shared` (how tiles lie in shared memory), `tma` and `load` (how they get there),
//! `multiply`, `store`, and `program`, which puts them together. `knobs` holds the space. The
//! sketch `warpgroup` shares all of them but `multiply` and `program`.

pub(super) mod knobs;
pub(super) mod load;
mod multiply;
mod program;
pub(super) mod repack;
pub(super) mod roles;
pub(super) mod shared;
pub(super) mod store;
pub(super) mod tile;
pub(super) mod tma;

use super::Program;
use super::problem::Contraction;
use roles::Roles;
use squall_core::Gpu;
use std::sync::Arc;

/// The sketch by warps, where the device and the operands allow it.
pub(super) fn derive(p: &Arc<Contraction>, gpu: Gpu) -> Option<Program> {
    if gpu.capability < 80 {
        return None;
    }
    let led = roles::leading(p).map(|r| Arc::new(p.led_by(r)));
    let images = p.sums_over_images();
    // Where no walk through images fits, their sums are taken as any others.
    let mut ways = led.iter().chain([p]).map(|p| (p, images)).chain(images.then_some((p, false)));
    let (p, roles, space) = ways.find_map(|(p, images)| {
        let roles = Arc::new(Roles { images, ..roles::roles(p)? });
        Some((Arc::clone(p), Arc::clone(&roles), knobs::space(p, &roles, gpu)?))
    })?;
    let name = if roles.split { "gpu_tensor_split" } else { "gpu_tensor" };
    Some(Program {
        name: name.into(),
        space,
        gpu,
        make: Box::new(move |c| Ok(program::program(&p, &roles, c))),
    })
}
