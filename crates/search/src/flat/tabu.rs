//! Tabu search (Glover, 1989) for flat spaces, of which only the knobs are known: it moves to the
//! best of some neighbours even where that is worse, and may not return to places that it left
//! lately. `steps.rs` runs it; `flat/mod.rs` lists all such searches.

use super::climb::{START, along};
use super::steps::Steps;
use super::{PointId, PointTable};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::VecDeque;

/// Neighbours that are looked at before a move.
const LOOKED: usize = 8;
/// Places that may not be entered.
const TENURE: usize = 40;
/// Moves without a new best before it begins again from the best.
const PATIENCE: usize = 12;

/// The search.
#[derive(Default)]
pub(crate) struct Tabu {
    at: Option<PointId>,
    looked: Vec<(f64, PointId)>,
    left: VecDeque<PointId>,
    /// The best when it was last better, and moves since.
    best: Option<PointId>,
    moves: usize,
}

impl Steps for Tabu {
    fn propose(
        &mut self,
        points: &mut PointTable,
        rng: &mut Xoshiro256PlusPlus,
    ) -> Option<PointId> {
        if points.told().len() < START {
            return None;
        }
        let at = *self.at.get_or_insert(points.best()?);
        let mut near = Vec::new();
        along(points, at, &[1, 2, 4], &mut near);
        near.retain(|s| !self.left.contains(s) && self.looked.iter().all(|(_, l)| l != s));
        if near.is_empty() {
            self.at = None;
            self.looked.clear();
            return None;
        }
        Some(near[rng.random_range(0..near.len())])
    }

    fn learn(
        &mut self,
        points: &mut PointTable,
        id: PointId,
        time: f64,
        _: &mut Xoshiro256PlusPlus,
    ) {
        self.looked.push((time, id));
        let better = self.at.is_some_and(|at| time < points.time(at));
        if !better && self.looked.len() < LOOKED {
            return;
        }
        let to = self.looked.drain(..).min_by(|a, b| a.0.total_cmp(&b.0));
        self.left.extend(self.at);
        if self.left.len() > TENURE {
            self.left.pop_front();
        }
        self.at = to.filter(|t| t.0.is_finite()).map(|t| t.1);
        self.moves += 1;
        if self.best != points.best() {
            self.best = points.best();
            self.moves = 0;
        }
        if self.moves > PATIENCE {
            self.moves = 0;
            self.at = None;
        }
    }
}
