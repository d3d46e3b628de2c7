//! Schedules: lists of primitives that rewrite a nest without changing what it computes. Each
//! primitive refuses, with a reason, where it would; the verifier runs after each in debug
//! builds. A schedule prints and parses back, one primitive a line: `split(k_C, 8, ko, ki)`.

mod buffers;
mod caching;
mod dependence;
mod loops;
mod pack;
mod parse;
mod peel;
mod prefetch;
mod reduction;
mod structure;
mod toom;
mod winograd;

pub use parse::parse;
pub(crate) use toom::{Transforms, combine};
pub(crate) use winograd::{Convolution, find as find_convolution};
pub use winograd::{Threads as WinogradThreads, WinogradTile};

use crate::nest::{Mode, Nest, verify};
use std::fmt;

/// A primitive that cannot be applied, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{primitive}: {reason}")]
pub struct Refused {
    /// The primitive's text.
    pub primitive: String,
    /// What it would break, or what it did not find.
    pub reason: String,
}

/// One rewrite. Loops and buffers are named as the nest names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Primitive {
    /// Computes a stage where it is read and drops its buffer.
    Inline(String),
    /// Merges dimension `.1` of a buffer with the next, so that loops over both can fuse.
    Reshape(String, usize),
    /// Permutes a buffer's dimensions.
    Relayout(String, Vec<usize>),
    /// Makes one loop of two that are directly nested: outer, inner, new name.
    Fuse(String, String, String),
    /// Makes one loop of two adjacent ones of equal extent; the first name stays.
    Join(String, String),
    /// Splits a loop by a factor: loop, factor, outer, inner. Where the factor does not divide,
    /// the last tile moves back and overlaps the one before.
    Split(String, i64, String, String),
    /// Cuts a loop in two at a point: loop, point, name of the rest.
    Peel(String, i64, String),
    /// Gives directly nested loops a new order.
    Reorder(Vec<String>),
    /// Distributes a loop over the statements of its body: loop, one new name a statement.
    Fission(String, Vec<String>),
    /// Shrinks a buffer to what one iteration of a loop uses and declares it there.
    Contract(String, String),
    /// Accumulates in a local copy around a loop: loop, buffer, local's name.
    CacheWrite(String, String, String),
    /// Starts a cached accumulation from the constant that its buffer was filled with: buffer.
    Forward(String),
    /// Copies what a loop reads of a buffer, in the order that the loop reads it: buffer, loop, new
    /// name. Weights are copied ahead of time, data at the start of the call.
    Pack(String, String, String),
    /// Copies what one iteration of a loop reads of a data input, at its start, in the order of
    /// its reads: buffer, loop, new name.
    PackNear(String, String, String),
    /// Asks for what the innermost loop that moves through a buffer reads, about so many cache
    /// lines before it is read: buffer, lines.
    Prefetch(String, i64),
    /// Accumulates a reduction separately for each iteration of a loop, then combines: loop, new
    /// buffer.
    Rfactor(String, String),
    /// Computes a 3x3 convolution of stride 1 by Winograd's minimal filtering: the buffer that it
    /// is summed into, how it is cut.
    Winograd(String, WinogradTile),
    /// Runs a loop in a mode.
    Mark(Mode, String),
}

impl Primitive {
    /// Applies the primitive.
    pub fn apply(&self, n: &mut Nest) -> Result<(), Refused> {
        let r = match self {
            Primitive::Inline(b) => structure::inline(n, b),
            Primitive::Reshape(b, d) => buffers::reshape(n, b, *d),
            Primitive::Relayout(b, p) => buffers::relayout(n, b, p),
            Primitive::Fuse(a, b, c) => loops::fuse(n, a, b, c),
            Primitive::Join(a, b) => structure::join(n, a, b),
            Primitive::Split(l, f, o, i) => loops::split(n, l, *f, o, i),
            Primitive::Peel(l, at, rest) => peel::peel(n, l, *at, rest),
            Primitive::Reorder(v) => loops::reorder(n, v),
            Primitive::Fission(l, v) => structure::fission(n, l, v),
            Primitive::Contract(b, l) => buffers::contract(n, b, l),
            Primitive::CacheWrite(l, b, c) => caching::cache_write(n, l, b, c),
            Primitive::Forward(b) => caching::forward(n, b),
            Primitive::Pack(b, l, p) => pack::pack(n, b, l, p),
            Primitive::PackNear(b, l, p) => pack::pack_near(n, b, l, p),
            Primitive::Prefetch(b, lines) => prefetch::prefetch(n, b, *lines),
            Primitive::Rfactor(l, b) => reduction::rfactor(n, l, b),
            Primitive::Winograd(b, w) => winograd::winograd(n, b, w),
            Primitive::Mark(m, l) => loops::mark(n, *m, l),
        };
        let refuse = |reason: String| Refused { primitive: self.to_string(), reason };
        r.map_err(refuse)?;
        // The first three merge indices or copy them away from the tests that guard them; a loop
        // that is moved may be a vector loop. The verifier decides; the others never break a nest.
        let unsure = matches!(
            self,
            Primitive::Reshape(..)
                | Primitive::Pack(..)
                | Primitive::PackNear(..)
                | Primitive::Reorder(..)
        );
        if unsure || cfg!(debug_assertions) {
            let why = if unsure {
                "what comes of it is not known to be right"
            } else {
                "it broke the nest (a bug of Squall)"
            };
            verify(n).map_err(|e| refuse(format!("{why}: {e}")))?;
        }
        Ok(())
    }
}

/// Applies all primitives in order.
pub fn apply(n: &mut Nest, schedule: &[Primitive]) -> Result<(), Refused> {
    schedule.iter().try_for_each(|p| p.apply(n))
}

impl fmt::Display for Primitive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Primitive::Inline(b) => write!(f, "inline({b})"),
            Primitive::Reshape(b, d) => write!(f, "reshape({b}, {d})"),
            Primitive::Relayout(b, p) => {
                let p: Vec<String> = p.iter().map(usize::to_string).collect();
                write!(f, "relayout({b}, [{}])", p.join(", "))
            }
            Primitive::Fuse(a, b, c) => write!(f, "fuse({a}, {b}, {c})"),
            Primitive::Join(a, b) => write!(f, "join({a}, {b})"),
            Primitive::Split(l, k, o, i) => write!(f, "split({l}, {k}, {o}, {i})"),
            Primitive::Peel(l, at, r) => write!(f, "peel({l}, {at}, {r})"),
            Primitive::Reorder(v) => write!(f, "reorder([{}])", v.join(", ")),
            Primitive::Fission(l, v) => write!(f, "fission({l}, [{}])", v.join(", ")),
            Primitive::Contract(b, l) => write!(f, "contract({b}, {l})"),
            Primitive::CacheWrite(l, b, c) => write!(f, "cache_write({l}, {b}, {c})"),
            Primitive::Forward(b) => write!(f, "forward({b})"),
            Primitive::Pack(b, l, p) => write!(f, "pack({b}, {l}, {p})"),
            Primitive::PackNear(b, l, p) => write!(f, "pack_near({b}, {l}, {p})"),
            Primitive::Prefetch(b, lines) => write!(f, "prefetch({b}, {lines})"),
            Primitive::Rfactor(l, b) => write!(f, "rfactor({l}, {b})"),
            Primitive::Winograd(b, w) => {
                let w: Vec<String> = w.numbers().iter().map(i64::to_string).collect();
                write!(f, "winograd({b}, [{}])", w.join(", "))
            }
            Primitive::Mark(Mode::Serial, l) => write!(f, "serial({l})"),
            Primitive::Mark(Mode::Parallel, l) => write!(f, "parallel({l})"),
            Primitive::Mark(Mode::Vector, l) => write!(f, "vectorize({l})"),
            Primitive::Mark(Mode::Unroll, l) => write!(f, "unroll({l})"),
            Primitive::Mark(
                Mode::Block | Mode::Cluster | Mode::Thread | Mode::Share | Mode::Box,
                l,
            ) => write!(f, "gpu({l})"),
        }
    }
}

/// A schedule's text.
pub fn print(schedule: &[Primitive]) -> String {
    schedule.iter().map(|p| format!("{p}\n")).collect()
}

/// Rewrites all accesses of a buffer that has become one-dimensional from its former shape.
pub(crate) fn flatten_accesses(n: &mut Nest, b: squall_core::expr::Source, shape: &[i64]) {
    buffers::reindex(n, b, &|index| vec![squall_core::workload::flatten(index, shape)]);
}
