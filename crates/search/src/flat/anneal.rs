//! Simulated annealing (Kirkpatrick et al., Science 1983) over logarithms of time, so that the
//! unit of time does not matter, and cooled by trials made, so that the budget does not either.

use super::climb::{START, along};
use super::steps::Steps;
use super::{Field, Spot};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

/// A move that makes things worse by this, in logarithms, is taken with odds of 1 in e at first.
const HOT: f64 = 0.3;
/// It cools by this share each trial, down to [`COLD`], and is then warmed to a third of [`HOT`].
const COOLING: f64 = 0.97;
const COLD: f64 = 0.01;
/// Lengths of steps along a knob, in positions.
const STEPS: [usize; 2] = [1, 2];

/// The search.
pub(crate) struct Anneal {
    at: Option<Spot>,
    heat: f64,
}

impl Anneal {
    pub fn new() -> Anneal {
        Anneal { at: None, heat: HOT }
    }
}

impl Steps for Anneal {
    fn propose(&mut self, field: &mut Field, rng: &mut Xoshiro256PlusPlus) -> Option<Spot> {
        if field.told().len() < START {
            return None;
        }
        if self.heat < COLD {
            self.heat = HOT / 3.0;
            self.at = None;
        }
        let at = *self.at.get_or_insert(field.best()?);
        let mut near = Vec::new();
        along(field, at, &STEPS, &mut near);
        if near.is_empty() { None } else { Some(near[rng.random_range(0..near.len())]) }
    }

    fn learn(&mut self, field: &mut Field, spot: Spot, time: f64, rng: &mut Xoshiro256PlusPlus) {
        self.heat *= COOLING;
        let worse = self.at.map_or(0.0, |at| (time / field.time(at)).ln());
        if worse <= 0.0 || rng.random::<f64>() < (-worse / self.heat).exp() {
            self.at = Some(spot);
        }
    }
}
