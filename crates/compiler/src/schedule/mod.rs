//! Schedules: lists of primitives that rewrite a loop nest without changing what it computes, as in
//! Halide and TVM. A schedule prints and parses back, one primitive a line: `split(k_C, 8, ko,
//! ki)`.
//!
//! Input: a nest (`nest/mod.rs`) and a list of [`Primitive`]s; output: the rewritten nest. A
//! primitive that would change the result refuses with a reason; in debug builds the verifier runs
//! after each. Each file has the primitives of one kind; `primitive.rs` lists all of them,
//! `parse.rs` reads them. Sketches make schedules from configurations
//! (`sketch/tile/primitives.rs`); reference pages with examples are in
//! `compiler/tests/primitives/`.

mod buffers;
mod caching;
mod compute_at;
mod dependence;
mod loops;
mod pack;
mod parse;
mod peel;
mod prefetch;
mod primitive;
mod reduction;
mod skip;
mod store;
pub(crate) mod structure;
mod toom;
mod version;
mod winograd;

pub use parse::parse;
pub use primitive::{Primitive, Refused, apply, print};
pub(crate) use skip::has_zeros;
pub(crate) use toom::{Transforms, combine};
pub(crate) use winograd::{Convolution, find as find_convolution};
pub use winograd::{Threads as WinogradThreads, WinogradTile};

use crate::nest::Nest;

/// Rewrites all accesses of a buffer that has become one-dimensional from its former shape.
pub(crate) fn flatten_accesses(n: &mut Nest, b: squall_core::expr::Source, shape: &[i64]) {
    buffers::reindex(n, b, &|index| vec![squall_core::workload::flatten(index, shape)]);
}

/// Moves an axis of a buffer behind its other axes, in its shape and wherever it is used.
pub(crate) fn move_axis_last(n: &mut Nest, b: squall_core::expr::Source, axis: usize) {
    buffers::reindex(n, b, &|index| {
        let mut moved = index.to_vec();
        moved[axis..].rotate_left(1);
        moved
    });
    n.buffers[b.0 as usize].shape[axis..].rotate_left(1);
}
