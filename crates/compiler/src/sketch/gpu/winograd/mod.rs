//! 3x3 convolutions of stride 1 by Winograd's minimal filtering, F(2x2, 3x3), in one kernel: 16
//! products instead of 36 for four outputs (Lavin and Gray, CVPR 2016; docs/decisions/0024).
//!
//! A block computes a number of tiles of 2x2 outputs for a number of output channels. The 16 places
//! of a transformed tile are 16 products of matrices that know nothing of each other: each belongs
//! to threads of its own, which add up tiles x channels in registers. In each step over the
//! channels, filters that were transformed ahead of time are copied to shared memory some steps
//! early, and what the next step needs of the input is loaded into registers before the products of
//! this one and transformed into shared memory after them. In the end the products meet in shared
//! memory to be transformed back. Channels can be split over groups of threads and over the blocks
//! of a cluster, which exchange outputs, not products.

//!
//! `knobs` holds the space, `tile` what a configuration gives to threads, `transform` the way of
//! filters and input into shared memory, `store` the way of products out of it, and `program` puts
//! them together.

mod knobs;
mod program;
mod store;
mod tile;
mod transform;

use super::super::{Facts, start, tile::with_epilogue};
use super::Program;
use super::loops::launches;
use crate::nest::{Nest, Scope};
use crate::schedule::{Convolution, find_convolution};
use squall_core::{Configuration, DType, Gpu};

/// Largest error, relative to the largest output, that is to be expected in single precision.
const EXPECTED_ERROR: f64 = 4e-6;

pub fn derive(f: &Facts<'_>, gpu: Gpu) -> Option<Program> {
    let (w, main) = with_epilogue(f.workload)?;
    let (base, _) = start(&w);
    let conv = find_convolution(&base, &w.stages[main].name).ok();
    let conv = conv.filter(|c| c.border == 0.0 && c.stride == 1)?;
    let wide =
        [conv.input, conv.weight, conv.output].iter().all(|b| base.buffer(*b).dtype == DType::F32);
    if !wide || EXPECTED_ERROR > f.workload.tolerance() {
        return None;
    }
    let space = knobs::space(&conv, gpu)?;
    let base = without(base, &conv);
    let make = move |c: &Configuration| program::program(&base, conv.clone(), c);
    Some(Program { name: "gpu_winograd".into(), space, gpu, make: Box::new(make) })
}

/// The nest without the convolution's loops. Buffers that nothing uses any more take no room as
/// local ones; the sum's stays as the epilogue's name for what replaces it.
fn without(mut n: Nest, conv: &Convolution) -> Nest {
    n.prepare.retain(|s| !conv.makes_copy(s));
    n.body.clear();
    for gone in conv.gone() {
        n.buffers[gone.0 as usize].scope = Scope::Local;
    }
    let prepare = std::mem::take(&mut n.prepare);
    n.prepare = launches(&mut n, prepare);
    n
}
