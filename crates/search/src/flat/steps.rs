//! Searches that go one step at a time: propose a point, learn what it is worth, go on. Points
//! known already are learnt from at once and cost nothing, so that no search pays twice.

use super::{Field, Spot, Walker};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A search in steps.
pub(crate) trait Steps: Send {
    /// Any legal point, new or not. `None` lets an even draw decide.
    fn propose(&mut self, field: &mut Field, rng: &mut Xoshiro256PlusPlus) -> Option<Spot>;

    /// Learns of the point proposed: its time, infinite for a failure.
    fn learn(&mut self, field: &mut Field, spot: Spot, time: f64, rng: &mut Xoshiro256PlusPlus);
}

/// A walker made of steps.
pub(crate) struct Stepped<T> {
    search: T,
    pending: Option<Spot>,
}

/// Steps over known ground before an even draw breaks the circle.
const IDLE: usize = 100;

impl<T> Stepped<T> {
    pub fn new(search: T) -> Stepped<T> {
        Stepped { search, pending: None }
    }
}

impl<T: Steps> Walker for Stepped<T> {
    fn next(&mut self, field: &mut Field, rng: &mut Xoshiro256PlusPlus) -> Option<Spot> {
        if let Some(s) = self.pending {
            let time = field.worth(s)?;
            self.pending = None;
            self.search.learn(field, s, time, rng);
        }
        for _ in 0..IDLE {
            let s = self.search.propose(field, rng)?;
            if field.is_fresh(s) {
                self.pending = Some(s);
                return Some(s);
            }
            if let Some(time) = field.worth(s) {
                self.search.learn(field, s, time, rng);
            }
        }
        None
    }
}
