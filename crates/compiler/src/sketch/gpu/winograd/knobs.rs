//! The space of Winograd's sketch for GPUs (`mod.rs`): its knobs, and the constraints that make
//! their values legal or sensible. Input: a 3x3 convolution and a GPU; output: a space of
//! configurations, which `program.rs` turns into kernels.
//!
//! `t_*` knobs tile the 2x2 output tiles of all images, `k_*` the output channels (threads, values
//! far apart, values side by side), `chunk` and `split_*` the input channels; `stages` is the depth
//! of the pipeline of filters.

use super::super::super::{Draft, divisors, overlap_at_most, powers};
use super::super::resources::{Block, steps};
use super::tile::{MOST_HELD, PLACES, tiles_of};
use crate::schedule::Convolution;
use squall_core::space::{Knob, Role, Term};
use squall_core::{Gpu, Space};

/// The most multiplications that are unrolled.
const MOST_UNROLLED: i64 = 2048;

/// The product of knobs.
fn product(names: &[&str]) -> Term {
    Term::product(names.iter().map(|k| Term::knob(*k)))
}

/// Tiles and output channels of a block, and the sums of a thread.
fn of_tiles() -> Term {
    product(&["t_t", "t_i"])
}

fn of_outputs() -> Term {
    product(&["k_t", "k_v", "k_i"])
}

fn sums() -> Term {
    product(&["t_i", "k_v", "k_i"])
}

/// Channels of a step.
fn whole() -> Term {
    product(&["chunk", "split_threads"])
}

/// The knobs, with their values for this convolution.
fn knobs(conv: &Convolution, gpu: Gpu) -> Vec<Knob> {
    let (_, _, total) = tiles_of(conv);
    let some = |extent: i64, most: i64| -> Vec<i64> {
        let most = most.min(extent);
        powers(1, most).chain(divisors(extent).into_iter().filter(|d| *d <= most)).collect()
    };
    let tile = |axis: &str, level| Role::Tile { axis: axis.into(), level };
    let channels = conv.channels;
    let two = |most: i64| {
        divisors(channels).into_iter().filter(move |d| *d <= most && d.count_ones() == 1)
    };
    vec![
        Knob::ints("t_t", tile("tiles", 0), some(total, 16)),
        Knob::ints("t_i", tile("tiles", 1), some(total, 16)),
        Knob::ints("k_t", tile("k", 0), some(conv.outputs, 32)),
        Knob::ints("k_v", tile("k", 1), some(conv.outputs, 2)),
        Knob::ints("k_i", tile("k", 2), some(conv.outputs, 8)),
        Knob::ints("chunk", tile("c", 0), divisors(channels).into_iter().filter(|d| *d <= 32)),
        Knob::ints("split_threads", tile("c", 1), two(8)),
        Knob::ints("split_blocks", tile("c", 2), two(gpu.cluster())),
        Knob::ints("stages", Role::Choice, [2, 3]),
        Knob::ints("unroll", Role::Unroll, [1, 2, 4, 8]),
    ]
}

/// The resources of a block: two stages of transformed input and some of filters, and later
/// products.
fn block() -> Block {
    let words = |t: Term| Term::product([t, Term::from(4 * PLACES)]);
    let kept = Term::sum([
        Term::product([Term::from(2), of_tiles()]),
        Term::product([Term::knob("stages"), of_outputs()]),
    ]);
    let met = Term::product([Term::knob("split_threads"), of_tiles(), of_outputs()]);
    Block {
        threads: threads(),
        registers: None,
        shared: vec![words(Term::product([whole(), kept])), words(met)],
    }
}

fn threads() -> Term {
    Term::product([product(&["t_t", "k_t", "split_threads"]), Term::from(PLACES)])
}

pub fn space(conv: &Convolution, gpu: Gpu) -> Option<Space> {
    let (_, _, total) = tiles_of(conv);
    let parts = ["chunk", "split_threads", "split_blocks"];
    let (knob, unroll) = (|name: &str| Term::knob(name), || Term::knob("unroll"));
    let steps = steps(conv.channels, parts.map(Term::knob));
    let mut must = vec![
        of_tiles().at_most(total),
        overlap_at_most(total, of_tiles, 7),
        of_outputs().divides(conv.outputs),
        sums().at_most(64),
        Term::product([sums(), unroll()]).at_most(MOST_UNROLLED),
        product(&parts).divides(conv.channels),
        knob("stages").at_most(Term::sum([steps, Term::from(1)])),
        of_tiles().at_most(threads()),
        Term::product([of_tiles(), whole()])
            .at_most(Term::product([threads(), Term::from(MOST_HELD)])),
        unroll().equals(1).or(unroll().divides(knob("chunk"))),
        knob("split_blocks").divides(of_outputs()),
    ];
    must.extend(block().fits(gpu));
    // A thread with few sums waits for shared memory, few threads cannot hide any latency, and
    // small steps wait for each other.
    let enough = |at_least: i64, t: Term| Term::from(at_least).at_most(t);
    let should =
        vec![enough(14, sums()), enough(128, threads()), enough(4, whole()), enough(2, unroll())];
    Draft { knobs: knobs(conv, gpu), must, should }.open()
}
