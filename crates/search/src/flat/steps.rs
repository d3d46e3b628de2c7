//! An adapter for searches that go one step at a time (annealing, tabu and others): they propose a
//! point, learn its time, and go on. [`Stepped`] makes a [`PointSearch`] of them; a point whose
//! time is known already is learned from at once and costs no trial.

use super::{PointId, PointSearch, PointTable};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A search in steps.
pub(crate) trait Steps: Send {
    /// Any legal point, new or not. `None` lets an even draw decide.
    fn propose(&mut self, points: &mut PointTable, rng: &mut Xoshiro256PlusPlus)
    -> Option<PointId>;

    /// Learns of the point proposed: its time, infinite for a failure.
    fn learn(
        &mut self,
        points: &mut PointTable,
        id: PointId,
        time: f64,
        rng: &mut Xoshiro256PlusPlus,
    );
}

/// A [`PointSearch`] made of steps.
pub(crate) struct Stepped<T> {
    search: T,
    pending: Option<PointId>,
}

/// Steps over known points after which an even draw ends a cycle.
const IDLE: usize = 100;

impl<T> Stepped<T> {
    pub fn new(search: T) -> Stepped<T> {
        Stepped { search, pending: None }
    }
}

impl<T: Steps> PointSearch for Stepped<T> {
    fn next(&mut self, points: &mut PointTable, rng: &mut Xoshiro256PlusPlus) -> Option<PointId> {
        if let Some(s) = self.pending {
            let time = points.known_time(s)?;
            self.pending = None;
            self.search.learn(points, s, time, rng);
        }
        for _ in 0..IDLE {
            let s = self.search.propose(points, rng)?;
            if points.is_fresh(s) {
                self.pending = Some(s);
                return Some(s);
            }
            if let Some(time) = points.known_time(s) {
                self.search.learn(points, s, time, rng);
            }
        }
        None
    }
}
