//! Layouts of images between kernels. Every kernel of a model is made for channels first, as ONNX
//! has them; images that only kernels see may just as well have their channels last, where vectors
//! of channels lie in order.

use super::Cost;
use super::elimination::{Factor, cheapest};
use super::images::{Images, Kernel};
use crate::assignment::Choice;
use crate::candidates::Candidates;
use crate::layout::Layout;
use squall_core::Task;

/// All images have their channels last. See [`super::Solve`].
pub fn channels_last(all: &Candidates, choice: Choice, _: &Cost<'_>) -> Choice {
    let last = vec![true; Images::new(all, &choice).values.len()];
    lay_out(all, choice, &last)
}

/// The layouts for which the kernels' times add up to least; kernels of which nothing is known are
/// avoided first. See [`super::Solve`].
pub fn fastest(all: &Candidates, choice: Choice, time: &Cost<'_>) -> Choice {
    /// Slower than any kernel in nanoseconds (three hours), and small enough that sums of
    /// thousands stay exact to a nanosecond.
    const UNKNOWN: f64 = 1e13;
    let images = Images::new(all, &choice);
    let factor = |k: &Kernel| {
        let costs = (0..1usize << k.touched.len()).map(|bits| {
            let last = |i: usize| {
                k.touched.iter().position(|&t| t == i).is_some_and(|p| bits >> p & 1 == 1)
            };
            let id = images.variant(k, &last).map(|w| Task::new("", w).id);
            id.and_then(time).unwrap_or(UNKNOWN)
        });
        let costs: Vec<f64> = costs.collect();
        // Where nothing is known either way, nothing can be avoided.
        let blind = costs.iter().all(|&c| c == UNKNOWN);
        Factor {
            scope: k.touched.clone(),
            costs: if blind { vec![0.0; costs.len()] } else { costs },
        }
    };
    let last = cheapest(images.values.len(), images.kernels.iter().map(factor).collect());
    lay_out(all, choice, &last)
}

/// The choice where the channels of those images lie last.
fn lay_out(all: &Candidates, choice: Choice, last: &[bool]) -> Choice {
    let images = Images::new(all, &choice);
    // Each image alone fits its kernels, and they are rewritten apart from one another. Should some
    // not fit together all the same, half a change would be a wrong network.
    let is_last = |i: usize| last.get(i) == Some(&true);
    if !images.kernels.iter().all(|k| images.variant(k, &is_last).is_some()) {
        return Choice { steps: choice.steps.clone(), ..Choice::default() };
    }
    let chosen = images.values.iter().zip(last).filter(|(_, l)| **l);
    let layouts = chosen.map(|(&v, _)| (v, Layout::ChannelsLast)).collect();
    Choice { steps: choice.steps.clone(), layouts }
}
