//! Greedy iterated local search: first-improvement descent along single knobs, and where nothing
//! is better, a descent from the best with two of its knobs changed.

use super::steps::Steps;
use super::{Field, Spot};
use rand::RngExt;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;

/// Even draws before the first descent.
pub(super) const START: usize = 10;
/// Lengths of steps along a knob, in positions.
const STEPS: [usize; 3] = [1, 2, 4];
/// Knobs that are changed where a descent ends.
const KICK: usize = 2;
/// Tries to find a legal kick.
const TRIES: usize = 50;

/// The search.
#[derive(Default)]
pub(crate) struct Climb {
    /// Where the descent stands.
    at: Option<Spot>,
    /// Neighbours not looked at yet.
    queue: Vec<Spot>,
    /// The descent goes on from here whatever it is worth.
    landing: Option<Spot>,
}

impl Climb {
    fn stand(&mut self, field: &mut Field, spot: Spot, rng: &mut Xoshiro256PlusPlus) {
        self.at = Some(spot);
        self.queue.clear();
        along(field, spot, &STEPS, &mut self.queue);
        self.queue.shuffle(rng);
    }
}

impl Steps for Climb {
    fn propose(&mut self, field: &mut Field, rng: &mut Xoshiro256PlusPlus) -> Option<Spot> {
        if field.told().len() < START {
            return None;
        }
        if self.at.is_none() {
            let best = field.best()?;
            self.stand(field, best, rng);
        }
        if let Some(s) = self.queue.pop() {
            return Some(s);
        }
        let best = field.best()?;
        self.landing = kick(field, best, KICK, rng);
        self.landing
    }

    fn learn(&mut self, field: &mut Field, spot: Spot, time: f64, rng: &mut Xoshiro256PlusPlus) {
        let landed = self.landing.take_if(|l| *l == spot).is_some();
        if landed || self.at.is_none_or(|at| time < field.time(at)) {
            self.stand(field, spot, rng);
        }
    }
}

/// Legal points along single knobs: so many positions either way; of words, all others.
pub(super) fn along(field: &mut Field, spot: Spot, steps: &[usize], out: &mut Vec<Spot>) {
    let from: Vec<usize> = field.point(spot).iter().map(|&i| i as usize).collect();
    for k in field.live().to_vec() {
        let w = field.width(k);
        let to: Vec<usize> = match field.is_ordered(k) {
            true => steps
                .iter()
                .flat_map(|&s| [from[k].checked_sub(s), Some(from[k] + s)])
                .flatten()
                .filter(|&v| v < w)
                .collect(),
            false => (0..w).filter(|&v| v != from[k]).collect(),
        };
        out.extend(to.into_iter().filter_map(|v| field.moved(spot, &[(k, v)])));
    }
}

/// A legal point with some knobs of another changed.
pub(super) fn kick(
    field: &mut Field,
    from: Spot,
    knobs: usize,
    rng: &mut Xoshiro256PlusPlus,
) -> Option<Spot> {
    let mut live = field.live().to_vec();
    let at: Vec<usize> = field.point(from).iter().map(|&i| i as usize).collect();
    for _ in 0..TRIES {
        live.shuffle(rng);
        let other = |&k: &usize| {
            let v = rng.random_range(0..field.width(k) - 1);
            (k, v + usize::from(v >= at[k]))
        };
        let steps: Vec<(usize, usize)> = live.iter().take(knobs).map(other).collect();
        if let Some(s) = field.moved(from, &steps) {
            return Some(s);
        }
    }
    None
}
