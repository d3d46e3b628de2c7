//! Schedules: lists of primitives that rewrite a nest without changing what it computes. Each
//! primitive refuses, with a reason, where it would; the verifier runs after each in debug
//! builds. A schedule prints and parses back, one primitive a line: `split(k_C, 8, ko, ki)`.

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
