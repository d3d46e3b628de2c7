//! Greedy iterated local search for flat spaces, of which only the knobs are known:
//! first-improvement descent along single knobs, and, where no neighbour is better, a new descent
//! from the best point with two of its knobs changed. `flat/mod.rs` lists all such searches.

use super::steps::Steps;
use super::{PointId, PointTable};
use rand::RngExt;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;

/// Even draws before the first descent.
pub(super) const START: usize = 10;
/// Lengths of steps along a knob, in positions.
const STEPS: [usize; 3] = [1, 2, 4];
/// Knobs that are changed at the end of a descent.
const PERTURBED: usize = 2;
/// Tries to find a legal point with some knobs changed.
const TRIES: usize = 50;

/// The search.
#[derive(Default)]
pub(crate) struct Climb {
    /// Where the descent stands.
    at: Option<PointId>,
    /// Neighbours not looked at yet.
    queue: Vec<PointId>,
    /// The point that the descent goes on from whatever its time is.
    landing: Option<PointId>,
}

impl Climb {
    fn stand(&mut self, points: &mut PointTable, id: PointId, rng: &mut Xoshiro256PlusPlus) {
        self.at = Some(id);
        self.queue.clear();
        along(points, id, &STEPS, &mut self.queue);
        self.queue.shuffle(rng);
    }
}

impl Steps for Climb {
    fn propose(
        &mut self,
        points: &mut PointTable,
        rng: &mut Xoshiro256PlusPlus,
    ) -> Option<PointId> {
        if points.told().len() < START {
            return None;
        }
        if self.at.is_none() {
            let best = points.best()?;
            self.stand(points, best, rng);
        }
        if let Some(s) = self.queue.pop() {
            return Some(s);
        }
        let best = points.best()?;
        self.landing = perturb(points, best, PERTURBED, rng);
        self.landing
    }

    fn learn(
        &mut self,
        points: &mut PointTable,
        id: PointId,
        time: f64,
        rng: &mut Xoshiro256PlusPlus,
    ) {
        let landed = self.landing.take_if(|l| *l == id).is_some();
        if landed || self.at.is_none_or(|at| time < points.time(at)) {
            self.stand(points, id, rng);
        }
    }
}

/// Legal points along single knobs: `steps` positions either way; of words, all others.
pub(super) fn along(points: &mut PointTable, id: PointId, steps: &[usize], out: &mut Vec<PointId>) {
    let from: Vec<usize> = points.point(id).iter().map(|&i| i as usize).collect();
    for k in points.live().to_vec() {
        let w = points.width(k);
        let to: Vec<usize> = match points.is_ordered(k) {
            true => steps
                .iter()
                .flat_map(|&s| [from[k].checked_sub(s), Some(from[k] + s)])
                .flatten()
                .filter(|&v| v < w)
                .collect(),
            false => (0..w).filter(|&v| v != from[k]).collect(),
        };
        out.extend(to.into_iter().filter_map(|v| points.moved(id, &[(k, v)])));
    }
}

/// A legal point with some knobs of another changed.
pub(super) fn perturb(
    points: &mut PointTable,
    from: PointId,
    knobs: usize,
    rng: &mut Xoshiro256PlusPlus,
) -> Option<PointId> {
    let mut live = points.live().to_vec();
    let at: Vec<usize> = points.point(from).iter().map(|&i| i as usize).collect();
    for _ in 0..TRIES {
        live.shuffle(rng);
        let other = |&k: &usize| {
            let v = rng.random_range(0..points.width(k) - 1);
            (k, v + usize::from(v >= at[k]))
        };
        let steps: Vec<(usize, usize)> = live.iter().take(knobs).map(other).collect();
        if let Some(s) = points.moved(from, &steps) {
            return Some(s);
        }
    }
    None
}
