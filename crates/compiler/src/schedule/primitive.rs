//! The list of all schedule primitives as one enum: their named fields, their text (`split(k_C, 8,
//! ko, ki)`), and `apply`, which runs a list of them on a loop nest through the functions of the
//! sibling files and stops with a [`Refused`] at the first that cannot be applied.

use super::dependence::shared_loops_are_independent;
use super::winograd::{self, WinogradTile};
use super::{
    buffers, caching, compute_at, loops, pack, peel, prefetch, reduction, skip, store, structure,
    version,
};
use crate::nest::{Mode, Nest, verify};
use std::fmt;

/// A primitive that cannot be applied, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{primitive}: {reason}")]
pub struct Refused {
    /// The primitive's text.
    pub primitive: String,
    /// The rule that it would break, or the name that it did not find.
    pub reason: String,
}

/// One rewrite. Loops and buffers are named as the nest names them; `of` and `at` are loops.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // a field's name says what it is; the variant says what becomes of it
pub enum Primitive {
    /// Computes a stage where it is read and drops its buffer.
    Inline { buffer: String },
    /// Merges a dimension of a buffer with the next, so that loops over both can fuse.
    Reshape { buffer: String, dim: usize },
    /// Permutes a buffer's dimensions.
    Relayout { buffer: String, order: Vec<usize> },
    /// Makes one loop of two that are directly nested.
    Fuse { outer: String, inner: String, fused: String },
    /// Makes one loop of two adjacent ones of equal extent; the first name stays.
    Join { first: String, second: String },
    /// Splits a loop by a factor. Where the factor does not divide, the last tile moves back and
    /// overlaps the one before.
    Split { of: String, factor: i64, outer: String, inner: String },
    /// Cuts a loop in two at a point; `rest` names the second.
    Peel { of: String, at: i64, rest: String },
    /// Gives directly nested loops a new order.
    Reorder { loops: Vec<String> },
    /// Distributes a loop over the statements of its body, one name a statement.
    Fission { of: String, names: Vec<String> },
    /// Shrinks a buffer to the part that one iteration of a loop uses and declares it there.
    Contract { buffer: String, at: String },
    /// Computes of a local buffer what an iteration of a loop reads, at its start.
    ComputeAt { buffer: String, at: String },
    /// Accumulates in a local copy around a loop.
    CacheWrite { at: String, buffer: String, local: String },
    /// Starts a cached accumulation from the constant that its buffer was filled with.
    Forward { buffer: String },
    /// Copies what a loop reads of a buffer, in the order that the loop reads it. Weights are
    /// copied ahead of time, data at the start of the call.
    Pack { buffer: String, at: String, packed: String },
    /// Copies what one iteration of a loop reads of a data input, at its start, in the order of
    /// its reads.
    PackNear { buffer: String, at: String, packed: String },
    /// Prefetches the elements that the innermost loop that moves through a buffer reads, about
    /// this many cache lines before they are read.
    Prefetch { buffer: String, lines: i64 },
    /// Writes the body of a loop out twice, without tests for the iterations at which all of them
    /// hold.
    Version { at: String },
    /// Leaves out the steps of a sum whose prepared factor is 0 by the test that it was made with.
    Skip { buffer: String },
    /// Accumulates a reduction separately for each iteration of a loop, then combines.
    Rfactor { of: String, partial: String },
    /// Reduces a buffer where it is stored and does not store it: for a buffer of which only the
    /// largest or the least element is read.
    ReduceAtStore { buffer: String, partial: String },
    /// Computes a 3x3 convolution of stride 1 or 2, summed into a buffer, by Winograd's
    /// minimal filtering.
    Winograd { buffer: String, tile: WinogradTile },
    /// Runs a loop in a mode; in that of tiles with all loops that are directly nested in it.
    Mark { mode: Mode, of: String },
}

impl Primitive {
    /// Applies the primitive; of a nest that it refuses nothing more can be made.
    pub fn apply(&self, n: &mut Nest) -> Result<(), Refused> {
        let refuse = |reason: String| Refused { primitive: self.to_string(), reason };
        self.rewrite(n).map_err(refuse)?;
        // A loop stays shared where others around and inside it change places.
        shared_loops_are_independent(n).map_err(refuse)?;
        // The first three primitives merge indices or copy them away from the tests that guard
        // them, and a loop that another one moves may be a vector loop. So the verifier decides
        // whether these are refused; all other primitives never break a nest.
        let unsure = matches!(
            self,
            Primitive::Reshape { .. }
                | Primitive::Pack { .. }
                | Primitive::PackNear { .. }
                | Primitive::Reorder { .. }
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

    fn rewrite(&self, n: &mut Nest) -> Result<(), String> {
        use Primitive as P;
        match self {
            P::Inline { buffer } => structure::inline(n, buffer),
            P::Reshape { buffer, dim } => buffers::reshape(n, buffer, *dim),
            P::Relayout { buffer, order } => buffers::relayout(n, buffer, order),
            P::Fuse { outer, inner, fused } => loops::fuse(n, outer, inner, fused),
            P::Join { first, second } => structure::join(n, first, second),
            P::Split { of, factor, outer, inner } => loops::split(n, of, *factor, outer, inner),
            P::Peel { of, at, rest } => peel::peel(n, of, *at, rest),
            P::Reorder { loops } => loops::reorder(n, loops),
            P::Fission { of, names } => structure::fission(n, of, names),
            P::Contract { buffer, at } => buffers::contract(n, buffer, at),
            P::ComputeAt { buffer, at } => compute_at::compute_at(n, buffer, at),
            P::CacheWrite { at, buffer, local } => caching::cache_write(n, at, buffer, local),
            P::Forward { buffer } => caching::forward(n, buffer),
            P::Pack { buffer, at, packed } => pack::pack(n, buffer, at, packed),
            P::PackNear { buffer, at, packed } => pack::pack_near(n, buffer, at, packed),
            P::Prefetch { buffer, lines } => prefetch::prefetch(n, buffer, *lines),
            P::Version { at } => version::version(n, at),
            P::Skip { buffer } => skip::skip(n, buffer),
            P::Rfactor { of, partial } => reduction::rfactor(n, of, partial),
            P::ReduceAtStore { buffer, partial } => store::reduce_at_store(n, buffer, partial),
            P::Winograd { buffer, tile } => winograd::winograd(n, buffer, tile),
            P::Mark { mode, of } => loops::mark(n, *mode, of),
        }
    }
}

/// Applies all primitives in order.
pub fn apply(n: &mut Nest, schedule: &[Primitive]) -> Result<(), Refused> {
    schedule.iter().try_for_each(|p| p.apply(n))
}

/// Numbers between commas.
fn numbers<T: ToString>(list: &[T]) -> String {
    list.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Primitive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use Primitive as P;
        match self {
            P::Inline { buffer } => write!(f, "inline({buffer})"),
            P::Reshape { buffer, dim } => write!(f, "reshape({buffer}, {dim})"),
            P::Relayout { buffer, order } => write!(f, "relayout({buffer}, [{}])", numbers(order)),
            P::Fuse { outer, inner, fused } => write!(f, "fuse({outer}, {inner}, {fused})"),
            P::Join { first, second } => write!(f, "join({first}, {second})"),
            P::Split { of, factor, outer, inner } => {
                write!(f, "split({of}, {factor}, {outer}, {inner})")
            }
            P::Peel { of, at, rest } => write!(f, "peel({of}, {at}, {rest})"),
            P::Reorder { loops } => write!(f, "reorder([{}])", loops.join(", ")),
            P::Fission { of, names } => write!(f, "fission({of}, [{}])", names.join(", ")),
            P::Contract { buffer, at } => write!(f, "contract({buffer}, {at})"),
            P::ComputeAt { buffer, at } => write!(f, "compute_at({buffer}, {at})"),
            P::CacheWrite { at, buffer, local } => {
                write!(f, "cache_write({at}, {buffer}, {local})")
            }
            P::Forward { buffer } => write!(f, "forward({buffer})"),
            P::Pack { buffer, at, packed } => write!(f, "pack({buffer}, {at}, {packed})"),
            P::PackNear { buffer, at, packed } => write!(f, "pack_near({buffer}, {at}, {packed})"),
            P::Prefetch { buffer, lines } => write!(f, "prefetch({buffer}, {lines})"),
            P::Version { at } => write!(f, "version({at})"),
            P::Skip { buffer } => write!(f, "skip({buffer})"),
            P::Rfactor { of, partial } => write!(f, "rfactor({of}, {partial})"),
            P::ReduceAtStore { buffer, partial } => {
                write!(f, "reduce_at_store({buffer}, {partial})")
            }
            P::Winograd { buffer, tile } => {
                write!(f, "winograd({buffer}, [{}])", numbers(&tile.numbers()))
            }
            P::Mark { mode: Mode::Serial, of } => write!(f, "serial({of})"),
            P::Mark { mode: Mode::Parallel, of } => write!(f, "parallel({of})"),
            P::Mark { mode: Mode::Vector, of } => write!(f, "vectorize({of})"),
            P::Mark { mode: Mode::Unroll, of } => write!(f, "unroll({of})"),
            P::Mark { mode: Mode::Step, of } => write!(f, "step({of})"),
            P::Mark { mode: Mode::Amx, of } => write!(f, "tensorize({of})"),
            // The remaining modes are those of GPU programs, which sketches write as a whole,
            // without a schedule.
            P::Mark { of, .. } => write!(f, "gpu({of})"),
        }
    }
}

/// A schedule's text.
pub fn print(schedule: &[Primitive]) -> String {
    schedule.iter().map(|p| format!("{p}\n")).collect()
}
