//! The GPU sketch of a depthwise convolution with the pointwise convolutions beside it as one
//! launch: a separable convolution or an inverted residual. After FCM (arXiv 2404.19331), with the
//! channels between the convolutions split over the blocks of a cluster. Input: a workload of this
//! form (`core/src/operator/separable.rs`); output: the space of configurations, and by
//! `program.rs` the loop nest of each.
//!
//! A block computes all channels of the result on a tile of places, from a part of the channels of
//! the depthwise convolution: the sums of a cluster's blocks meet in shared memory. It walks
//! through its part in chunks: the pointwise convolution ahead computes a chunk on the tile and its
//! border, the depthwise one goes over that, and the one behind adds its products to sums. All
//! tensors between the convolutions stay in shared memory. Where no convolution follows the
//! depthwise one, each block has a chunk of its own.
//!
//! In the place of the depthwise convolution may stand a pooling, with any convolution ahead of it,
//! or nothing: then two matrix products lie one behind the other.

mod program;

use super::super::{Draft, Facts, divisors, overlap_at_most, powers};
use super::Program;
use super::resources::Block;
use crate::nest::{Nest, Scope, Stmt, lower, visit};
use squall_core::expr::{Expr, Source};
use squall_core::operator::{Separable, SlidingWindow};
use squall_core::space::{Knob, Role, Term};
use squall_core::{Configuration, Gpu, Space, Workload};
use std::collections::HashMap;
use std::sync::Arc;

/// The most places of a tile along rows, and along columns.
const MOST_PLACES: [i64; 2] = [16, 32];
/// The most channels of a chunk.
const MOST_CHANNELS: i64 = 192;
/// The most places of a window, and the most multiplications of windows that are unrolled for one
/// thread.
const LARGEST_WINDOW: i64 = 128;
const MOST_WRITTEN: i64 = 512;
/// Words of shared memory that are kept free for alignment, and for filling up a line.
const SLACK: i64 = 256;
const FILLED: i64 = 4;

/// A workload of this form, with the buffers that its program begins with.
struct Problem {
    s: Separable,
    /// The buffers, with copies of the weights made ahead of time.
    base: Nest,
    /// The copies through which weights are read, by the inputs that they copy.
    copies: HashMap<Source, Source>,
    output: Source,
}

impl Problem {
    /// The buffer through which an input is read.
    fn buffer(&self, input: Source) -> Source {
        self.copies.get(&input).copied().unwrap_or(input)
    }
}

/// Whether a workload is a depthwise convolution with pointwise ones beside it, a convolution with
/// its pooling, or two products of matrices. The sketch also takes a pooling ahead of a pointwise
/// convolution and images in the place of matrices. This function refuses both, because neither was
/// measured: estimates alone would cover models by them.
pub fn makes(w: &Workload) -> bool {
    let Some(s) = Separable::of(w) else { return false };
    match &s.over {
        Some(o) if o.weight.is_some() => true,
        Some(_) => s.expand.is_some() && s.project.is_none(),
        None => s.batch.is_empty(),
    }
}

pub fn derive(f: &Facts<'_>, gpu: Gpu) -> Vec<Program> {
    let Some(p) = problem(f.workload) else { return Vec::new() };
    let Some(space) = space(&p.s, gpu) else { return Vec::new() };
    let p = Arc::new(p);
    let make = move |c: &Configuration| Ok(program::program(&p, c));
    vec![Program { name: "gpu_separable".into(), space, gpu, make: Box::new(make) }]
}

fn problem(w: &Workload) -> Option<Problem> {
    let s = Separable::of(w).filter(|s| places(s) <= LARGEST_WINDOW)?;
    let mut base = lower(w);
    base.body.clear();
    let mut copies = HashMap::new();
    visit(&base.prepare, &mut |stmt| {
        if let Stmt::Store { buffer, value: Expr::Load { source, .. }, .. } = stmt {
            copies.insert(*source, *buffer);
        }
    });
    let prepare = std::mem::take(&mut base.prepare);
    base.prepare = super::loops::launches(&mut base, prepare);
    // Nothing lies between the stages.
    base.buffers.iter_mut().filter(|b| b.scope == Scope::Workspace).for_each(|b| {
        b.scope = Scope::Local;
    });
    let output = base.buffers.iter().position(|b| b.scope == Scope::Output)?;
    Some(Problem { s, base, copies, output: Source(output as u32) })
}

/// The places of a window.
fn places(s: &Separable) -> i64 {
    s.windows.iter().map(|w| w.kernel).product()
}

/// [`SlidingWindow::read`] as a term.
fn read(w: &SlidingWindow, outputs: Term) -> Term {
    let border = w.read(1) - w.stride;
    Term::sum([Term::product([outputs, Term::from(w.stride)]), Term::from(border)])
}

fn space(s: &Separable, gpu: Gpu) -> Option<Space> {
    let mut d = Draft::default();
    let tile = |axis: &str, level| Role::Tile { axis: axis.into(), level };
    for ((w, name), most) in s.windows.iter().zip(["p", "q"]).zip(MOST_PLACES) {
        let most = most.min(w.outputs);
        let sizes = powers(1, most).chain(divisors(w.outputs).into_iter().filter(|d| *d <= most));
        let knob = format!("{name}_tile");
        d.knobs.push(Knob::ints(&knob, tile(name, 0), sizes));
        d.should.push(overlap_at_most(w.outputs, || Term::knob(&knob), 3));
    }
    let chunks = divisors(s.channels).into_iter().filter(|d| *d <= MOST_CHANNELS);
    d.knobs.extend([
        Knob::ints("channels", tile("m", 1), chunks),
        Knob::ints("threads", Role::Choice, [64, 96, 128, 192, 256, 384, 512]),
        Knob::ints("q_i", tile("q", 1), [1, 2, 3, 4, 6, 7, 8]),
        Knob::ints("unroll", Role::Unroll, [1, 2, 4, 8, 16]),
        Knob::ints("vector", Role::Vector, [1, 4]),
    ]);
    let knobs = |names: &[&str]| Term::product(names.iter().map(|k| Term::knob(*k)));
    let outputs = || knobs(&["p_tile", "q_tile"]);
    let patch = || {
        let [rows, columns] = &s.windows;
        Term::product([read(rows, Term::knob("p_tile")), read(columns, Term::knob("q_tile"))])
    };
    d.must.push(Term::knob("q_i").divides(Term::knob("q_tile")));
    let filled = |t: Term| Term::sum([t, Term::from(FILLED)]);
    let by_channels = |t: Term| Term::product([Term::knob("channels"), t]);
    let kernel = places(s);
    d.must.push(Term::product([Term::knob("q_i"), Term::from(kernel)]).at_most(MOST_WRITTEN));
    let taps = if s.over.is_some() { kernel } else { 0 };
    let mut words =
        vec![Term::from(SLACK), by_channels(Term::from(taps)), by_channels(filled(patch()))];
    let near = |axis: &str, names: [&str; 2]| {
        let sizes = [vec![1, 2, 4, 8], vec![1, 2, 4]];
        [0, 1].map(|i| Knob::ints(names[i], tile(axis, 2 + i as u8), sizes[i].iter().copied()))
    };
    if let Some((e, _)) = &s.expand {
        let depth = e.depth();
        d.knobs.extend(near("m", ["m_i", "a_i"]));
        let groups = [1, 2, 4, 8].into_iter().filter(|n| depth % n == 0);
        d.knobs.push(Knob::ints("split_threads", tile("c", 0), groups));
        d.must.push(Term::knob("m_i").divides(Term::knob("channels")));
        d.should.push(Term::from(4).at_most(knobs(&["m_i", "a_i"])));
        words.push(Term::product([Term::from(depth), filled(patch())]));
        words.push(by_channels(Term::from(depth)));
        // Sums of groups of threads meet there; one group has none, and is counted all the same.
        words.push(Term::product([Term::knob("split_threads"), by_channels(filled(patch()))]));
    }
    if s.project.is_some() {
        let split = powers(1, gpu.cluster()).filter(|n| s.channels % n == 0 && s.outputs % n == 0);
        d.knobs.push(Knob::ints("split_blocks", tile("m", 0), split));
        d.knobs.extend(near("k", ["k_i", "o_i"]));
        d.must.push(knobs(&["channels", "split_blocks"]).divides(s.channels));
        d.must.push(Term::knob("k_i").divides(s.outputs));
        d.should.push(Term::from(2).at_most(knobs(&["k_i", "o_i"])));
        // Where nothing goes over windows, the patch is what it reads.
        if s.over.is_some() {
            words.push(by_channels(filled(outputs())));
        }
        words.push(by_channels(Term::from(s.outputs)));
        words.push(Term::product([Term::from(s.outputs), filled(outputs())]));
    }
    // Fewer places than these leave a block's threads idle.
    let all: i64 = s.windows.iter().map(|w| w.outputs).product();
    d.should.push(Term::from(all.min(8)).at_most(outputs()));
    let shared = vec![Term::product([Term::sum(words), Term::from(4)])];
    let threads = Term::knob("threads");
    d.must.extend(Block { threads, registers: None, shared }.fits(gpu));
    d.open()
}
