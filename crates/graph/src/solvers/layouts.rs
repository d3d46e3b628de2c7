//! Layouts of images between kernels. Every kernel of a model is made for channels first, as ONNX
//! has them; images that only kernels see may just as well have their channels last, where vectors
//! of channels lie in order.

use super::Cost;
use super::elimination::{Factor, cheapest};
use super::images::{Images, Kernel};
use super::in_place::settled;
use crate::assignment::Choice;
use crate::candidates::Candidates;
use squall_core::{Task, Workload};

/// All images have their channels last. See [`super::Solve`].
pub fn channels_last(all: &Candidates, choice: Choice, _: &Cost<'_>) -> Choice {
    lay_out(&Images::new(all, &choice, false), &|_| true)
}

/// The layouts for which the kernels' times add up to least; kernels of which nothing is known are
/// avoided first. See [`super::Solve`].
pub fn fastest(all: &Candidates, choice: Choice, time: &Cost<'_>) -> Choice {
    let images = Images::new(all, &choice, false);
    let last = cheapest_layouts(&images, time, &Choice::default());
    lay_out(&images, &|g| last[g])
}

/// All images have their channels last, those that moves join among them, and no move that strides
/// can say is made. See [`super::Solve`].
pub fn channels_last_in_place(all: &Candidates, choice: Choice, _: &Cost<'_>) -> Choice {
    settled(all, &lay_out(&Images::new(all, &choice, true), &|_| true))
}

/// The same with the layouts for which the kernels' times add up to least. Of a kernel that lies in
/// another value's memory the time in its own counts where no other is known.
pub fn fastest_in_place(all: &Candidates, choice: Choice, time: &Cost<'_>) -> Choice {
    let images = Images::new(all, &choice, true);
    let within = settled(all, &lay_out(&images, &|_| true));
    let last = cheapest_layouts(&images, time, &within);
    settled(all, &lay_out(&images, &|g| last[g]))
}

/// For each group of images whether its channels lie last where the times add up to least. `within`
/// says in whose memory images lie whose channels do.
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
