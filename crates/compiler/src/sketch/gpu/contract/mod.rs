//! Contractions on a GPU without tensor cores: matrix products, convolutions, depthwise
//! convolutions and pooling, everything that sums over tiles. After Ansor's GPU sketch (SSSRRSRS),
//! with split-K by thread-block clusters. Input: a workload (a tensor expression); output: this
//! sketch, and those of `tensor` and `warpgroup`, for which `contraction` prepares the same
//! description (`problem.rs`).
//!
//! A block computes a tile of the output, and a thread computes `v x i` elements of it along each
//! axis: `v` far apart (virtual threads), `i` next to each other. The block's threads fetch the
//! part of each operand that a chunk of the reduction needs into shared memory; padding is tested
//! there. Weights are rearranged into tiles ahead of time. With two stages the next chunk is
//! fetched while one is summed. The first reduction axis can be split over groups of a block's
//! threads and over the blocks of a cluster: partial sums then meet in shared memory, each block
//! finishes a slice of the tile with the epilogue, and no partial sum goes through device memory.
//! For a product that reads normalised rows, each block first computes the statistics of its rows
//! (`row_steps.rs`).

mod program;
mod tiling;
mod unfold;

use super::super::tile::{Pad, TileAxis, padding, shape_base, with_epilogue};
use super::super::{Draft, Facts, divisors, overlap_at_most, powers};
use super::loops::launches;
use super::problem::{Contraction, RowSteps, problem};
use super::resources::Block;
use super::{Program, tensor, warpgroup};
use squall_core::operator::Normed;
use squall_core::space::{Knob, Role, Term};
use squall_core::{Gpu, Space, Workload};
use std::sync::Arc;

/// Sums that a thread holds in registers at most.
const MOST_SUMS: i64 = 128;

/// Whether a workload is a product that reads normalised rows along the axis of its sum.
pub fn makes_normed(w: &Workload) -> bool {
    Normed::of(w).is_some() && contraction(w).is_some()
}

/// The contraction that a workload is, with the steps that first compute the statistics of
/// normalised rows.
fn contraction(w: &Workload) -> Option<Contraction> {
    let normed = Normed::of(w);
    let product = match &normed {
        Some(n) => n.product.clone(),
        None => unfold::unfolded(w),
    };
    let (w, main) = with_epilogue(&product)?;
    let pad = if padding(&w, main) { Pad::Guard } else { Pad::None };
    let (mut base, _) = shape_base(&w, main, pad)?;
    let prepare = std::mem::take(&mut base.prepare);
    base.prepare = launches(&mut base, prepare);
    let mut p = problem(base, &w.stages[main].name)?;
    if let Some(n) = &normed {
        p.row_steps = Some(RowSteps::of(n, &mut p)?);
    }
    Some(p)
}

/// The sketches of a contraction: by plain threads and by tensor cores; none for other workloads.
pub fn derive(f: &Facts<'_>, gpu: Gpu) -> Vec<Program> {
    let Some(p) = contraction(f.workload) else { return Vec::new() };
    let Some(space) = space(&p, gpu) else { return Vec::new() };
    let p = Arc::new(p);
    let tensor = tensor::derive(&p, gpu).into_iter().chain(warpgroup::derive(&p, gpu));
    let tile = Program {
        name: "gpu_tile".into(),
        space,
        gpu,
        make: Box::new(move |c| program::program(&p, c)),
    };
    tensor.chain([tile]).collect()
}

/// The constraints on the tile of an axis: it cuts packed weights evenly, and other tiles overlap
/// by an eighth at most.
fn axis_tile(d: &mut Draft, p: &Contraction, a: &TileAxis) {
    let tile = || Term::product(["t", "v", "i"].map(|what| of_axis(a, what)));
    if p.cuts_weight(a) {
        d.must.push(tile().divides(a.extent));
    } else {
        d.must.push(tile().at_most(a.extent));
        d.must.push(overlap_at_most(a.extent, tile, 8));
    }
}

/// A knob of an axis.
fn of_axis(a: &TileAxis, what: &str) -> Term {
    Term::knob(format!("{}_{what}", a.short))
}

fn space(p: &Contraction, gpu: Gpu) -> Option<Space> {
    let mut d = Draft::default();
    let small = |e: i64, most: i64| -> Vec<i64> {
        powers(1, most.min(e)).chain(divisors(e).into_iter().filter(|d| *d <= most)).collect()
    };
    for (number, a) in p.axes.iter().enumerate() {
        let threads = if number + 1 == p.axes.len() { 128 } else { 64 };
        for (level, (what, most)) in [("t", threads), ("v", 4), ("i", 8)].into_iter().enumerate() {
            let role = Role::Tile { axis: a.short.clone(), level: level as u8 };
            let name = format!("{}_{what}", a.short);
            d.knobs.push(Knob::ints(name, role, small(a.extent, most)));
        }
        axis_tile(&mut d, p, a);
    }
    // The knobs are levels of one axis, so that a search can move factors between them: a factor
    // that the block gives up, its threads may take.
    let first = &p.reduce[0];
    let role = |level| Role::Tile { axis: first.short.clone(), level };
    let chunks = divisors(first.extent).into_iter().filter(|d| *d <= 64);
    let splits = |most: i64| {
        divisors(first.extent).into_iter().filter(move |d| *d <= most && d.count_ones() == 1)
    };
    d.knobs.extend([
        Knob::ints("chunk", role(0), chunks),
        Knob::ints("split_threads", role(1), splits(16)),
        Knob::ints("split_blocks", role(2), splits(gpu.cluster())),
        Knob::ints("unroll", Role::Unroll, [1, 2, 4, 8]),
        Knob::ints("vector", Role::Vector, [1, 4]),
        Knob::ints("pad", Role::Layout, [0, 1, 4]),
        Knob::ints("stages", Role::Choice, [1, 2]),
    ]);
    let parts = ["chunk", "split_threads", "split_blocks"].map(Term::knob);
    d.must.push(Term::product(parts).divides(first.extent));
    let of_block = p.axes.iter().map(|a| of_axis(a, "t"));
    let threads = Term::product(of_block.chain([Term::knob("split_threads")]));
    let sums = p.axes.iter().flat_map(|a| [of_axis(a, "v"), of_axis(a, "i")]);
    d.must.push(Term::product(sums).at_most(MOST_SUMS));
    // Small blocks leave most of a multiprocessor idle, where the problem is large enough.
    let elements: i64 = p.axes.iter().map(|a| a.extent).product();
    d.should.push(Term::from(64.min(elements)).at_most(threads.clone()));
    d.must.extend(Block { threads, registers: None, shared: Vec::new() }.fits(gpu));
    d.open()
}
