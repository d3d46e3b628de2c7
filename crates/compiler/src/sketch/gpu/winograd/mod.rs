//! 3x3 convolutions of stride 1 by Winograd's minimal filtering, F(2x2, 3x3), in one GPU kernel: 16
//! products instead of 36 for four outputs (Lavin and Gray, CVPR 2016; docs/decisions/0024). Input:
//! a workload (a tensor expression) with such a convolution over 32-bit floats; output: the sketch
//! `gpu_winograd`.
//!
//! A block computes a number of 2x2 output tiles for a number of output channels. The 16 places of
//! a transformed tile are 16 independent matrix products; each belongs to threads of its own, which
//! add up tiles x channels in registers. In each step over the input channels, filters that were
//! transformed ahead of time are copied to shared memory some steps early. The part of the input
//! that the next step needs is loaded into registers before the products of this step and
//! transformed into shared memory after them. At the end the 16 products meet in shared memory and
//! are transformed back. Input channels can be split over groups of threads and over the blocks of
//! a cluster, which exchange outputs, not products.
//!
//! `knobs` holds the space, `tile` the work of each thread under a configuration (a value for each
//! knob), `transform` the way of filters and input into shared memory, `store` the way of products
//! out of it, and `program` puts them together.

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

/// The largest error to expect in single precision, relative to the largest output.
const EXPECTED_ERROR: f64 = 4e-6;

/// The sketch of a workload that is a 3x3 convolution of stride 1; none for other workloads.
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

/// The nest without the convolution's loops. Buffers that nothing uses any more become local ones,
/// which take no memory; the sum's buffer stays, since the epilogue names it for the value that
/// replaces it.
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
