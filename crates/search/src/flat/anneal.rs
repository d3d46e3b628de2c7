//! Simulated annealing (Kirkpatrick et al., Science 1983) for flat spaces, of which only the knobs
//! are known. It works on logarithms of time, so that the unit of time does not matter, and cools
//! with the number of trials made, so that the budget does not matter either. `steps.rs` runs it;
//! `flat/mod.rs` lists all such searches.

use super::climb::{START, along};
use super::steps::Steps;
use super::{PointId, PointTable};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

/// The first temperature: a move that is worse by this, in logarithms of time, is taken with a
/// probability of 1/e.
const HOT: f64 = 0.3;
/// The temperature is multiplied by this at each trial, down to [`COLD`], and then set to a third
/// of [`HOT`].
const COOLING: f64 = 0.97;
const COLD: f64 = 0.01;
/// Lengths of steps along a knob, in positions.
const STEPS: [usize; 2] = [1, 2];

/// The search.
pub(crate) struct Anneal {
    at: Option<PointId>,
    heat: f64,
}

impl Anneal {
    pub fn new() -> Anneal {
        Anneal { at: None, heat: HOT }
    }
}

impl Steps for Anneal {
    fn propose(
        &mut self,
        points: &mut PointTable,
        rng: &mut Xoshiro256PlusPlus,
    ) -> Option<PointId> {
        if points.told().len() < START {
            return None;
        }
        if self.heat < COLD {
            self.heat = HOT / 3.0;
            self.at = None;
        }
        let at = *self.at.get_or_insert(points.best()?);
        let mut near = Vec::new();
        along(points, at, &STEPS, &mut near);
        if near.is_empty() { None } else { Some(near[rng.random_range(0..near.len())]) }
    }

    fn learn(
        &mut self,
        points: &mut PointTable,
        id: PointId,
        time: f64,
        rng: &mut Xoshiro256PlusPlus,
    ) {
        self.heat *= COOLING;
        let worse = self.at.map_or(0.0, |at| (time / points.time(at)).ln());
        if worse <= 0.0 || rng.random::<f64>() < (-worse / self.heat).exp() {
            self.at = Some(id);
        }
    }
}
