//! Solvers of layouts: for given kernels, whether the images between them have their channels
//! first, as in ONNX, or last, where vectors of channels are contiguous. One solver puts all
//! channels last, one takes the layouts with the least sum of known kernel times
//! (`elimination.rs`), and both exist with values placed in the memory of others (`in_place.rs`).
//! Input and output: a choice. `mod.rs` lists the solvers.

use super::Cost;
use super::elimination::{Factor, cheapest};
use super::images::{Images, Kernel};
use super::in_place::settled;
use crate::assignment::Choice;
use crate::candidates::Candidates;
use crate::layout::Layout;
use squall_core::graph::ValueId;
use squall_core::{Task, Workload};
use std::collections::BTreeSet;

/// All images have their channels last. See [`super::Solve`].
pub fn channels_last(all: &Candidates, choice: Choice, _: &Cost<'_>) -> Choice {
    lay_out(&Images::new(all, &choice, false), &|_| true)
}

/// The layouts with the least sum of the kernels' times; kernels without a known time are avoided
/// first. See [`super::Solve`].
pub fn fastest(all: &Candidates, choice: Choice, time: &Cost<'_>) -> Choice {
    let images = Images::new(all, &choice, false);
    let last = cheapest_layouts(&images, time, &Choice::default());
    lay_out(&images, &|g| last[g])
}

/// All images have their channels last, including those that moves join, and moves that strides can
/// express are not made. See [`super::Solve`].
pub fn channels_last_in_place(all: &Candidates, choice: Choice, _: &Cost<'_>) -> Choice {
    settled(all, &lay_out(&Images::new(all, &choice, true), &|_| true))
}

/// The same with the layouts of the least sum of times. For a kernel whose value lies in another
/// value's memory, the time with memory of its own counts if no other is known.
pub fn fastest_in_place(all: &Candidates, choice: Choice, time: &Cost<'_>) -> Choice {
    let images = Images::new(all, &choice, true);
    let within = settled(all, &lay_out(&images, &|_| true));
    let last = cheapest_layouts(&images, time, &within);
    settled(all, &lay_out(&images, &|g| last[g]))
}

/// The kernels of `choice` with images as `looks` says they lie, and with values in the memory of
/// others where `in_place` says so.
pub fn laid_out_as(
    all: &Candidates,
    choice: &Choice,
    in_place: bool,
    looks: &dyn Fn(ValueId) -> Layout,
) -> Choice {
    let images = Images::new(all, choice, in_place);
    let is_last = |(v, g): (&ValueId, &usize)| (looks(*v) == Layout::ChannelsLast).then_some(*g);
    let last: BTreeSet<usize> = images.values.iter().filter_map(is_last).collect();
    let choice = lay_out(&images, &|g| last.contains(&g));
    if in_place { settled(all, &choice) } else { choice }
}

/// For each group of images whether its channels lie last in the cheapest layouts. `within` has the
/// sites of images with channels last.
fn cheapest_layouts(images: &Images<'_>, time: &Cost<'_>, within: &Choice) -> Vec<bool> {
    /// Slower than any kernel in nanoseconds (three hours), and small enough that sums of
    /// thousands stay exact to a nanosecond.
    const UNKNOWN: f64 = 1e13;
    let known = |w: Option<Workload>| w.map(|w| Task::new("", w).id).and_then(time);
    let factor = |k: &Kernel| {
        let costs = (0..1usize << k.touched.len()).map(|bits| {
            let last = |g: usize| {
                k.touched.iter().position(|&t| t == g).is_some_and(|p| bits >> p & 1 == 1)
            };
            let own = images.laid_out(&last);
            let mut placed = own.clone();
            for (v, site) in within.sites.iter().filter(|(v, _)| own.layouts.contains_key(v)) {
                placed.layouts.remove(v);
                placed.sites.insert(*v, site.clone());
            }
            let there = known(images.variant(k, &placed));
            there.or_else(|| known(images.variant(k, &own))).unwrap_or(UNKNOWN)
        });
        let costs: Vec<f64> = costs.collect();
        // Where nothing is known either way, nothing can be avoided.
        let blind = costs.iter().all(|&c| c == UNKNOWN);
        Factor {
            scope: k.touched.clone(),
            costs: if blind { vec![0.0; costs.len()] } else { costs },
        }
    };
    cheapest(images.groups, images.kernels.iter().map(factor).collect())
}

/// The choice where the channels of those images lie last.
fn lay_out(images: &Images<'_>, last: &dyn Fn(usize) -> bool) -> Choice {
    let choice = images.laid_out(last);
    // Each image alone fits its kernels, and they are rewritten apart from one another. Should some
    // not fit together all the same, half a change would be a wrong network.
    if !images.kernels.iter().all(|k| images.variant(k, &choice).is_some()) {
        return images.laid_out(&|_| false);
    }
    choice
}
