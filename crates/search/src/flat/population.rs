//! Searches by populations for flat spaces: a genetic algorithm, differential evolution and a
//! particle swarm. Each keeps a set of points with their times and proposes a new point from some
//! of them; a point between legal ones is moved to the nearest legal one, knob by knob.
//! `flat/mod.rs` lists all such searches.

use super::climb::perturb;
use super::steps::Steps;
use super::{PointId, PointTable};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

/// Members of every population.
const MEMBERS: usize = 16;

/// The members of a population with their times; the first members are even draws.
#[derive(Default)]
struct Members {
    all: Vec<(f64, PointId)>,
    /// The number of points that were told before the population began.
    before: usize,
    /// The member whose turn it is, where they take turns.
    turn: usize,
}

impl Members {
    /// Fills the population with known points; whether it is full.
    fn fill(&mut self, points: &PointTable) -> bool {
        if self.all.len() < MEMBERS {
            self.all = points
                .told()
                .iter()
                .skip(self.before)
                .take(MEMBERS)
                .map(|&s| (points.time(s), s))
                .collect();
        }
        self.all.len() == MEMBERS
    }

    /// The better of two members.
    fn parent(&self, rng: &mut Xoshiro256PlusPlus) -> PointId {
        let (a, b) =
            (self.all[rng.random_range(0..MEMBERS)], self.all[rng.random_range(0..MEMBERS)]);
        if a.0 <= b.0 { a.1 } else { b.1 }
    }

    /// The member whose turn it is keeps the better of its point and another; then the next one has
    /// its turn.
    fn end_turn(&mut self, id: PointId, time: f64) {
        if time < self.all[self.turn].0 {
            self.all[self.turn] = (time, id);
        }
        self.turn = (self.turn + 1) % MEMBERS;
    }

    fn best(&self) -> Option<(f64, PointId)> {
        self.all.iter().copied().min_by(|a, b| a.0.total_cmp(&b.0))
    }

    fn worst(&self) -> usize {
        (0..self.all.len()).max_by(|&a, &b| self.all[a].0.total_cmp(&self.all[b].0)).unwrap_or(0)
    }
}

/// A genetic algorithm: parents by tournament, each knob from either, mutation by a step along a
/// knob or any value of it, and the child takes the place of the worst.
#[derive(Default)]
pub(crate) struct Genetic {
    members: Members,
}

/// Feasibility that a knob of a child changes, times the number of knobs.
const MUTATIONS: f64 = 1.0;

impl Steps for Genetic {
    fn propose(
        &mut self,
        points: &mut PointTable,
        rng: &mut Xoshiro256PlusPlus,
    ) -> Option<PointId> {
        if !self.members.fill(points) {
            return None;
        }
        let (a, b) = (self.members.parent(rng), self.members.parent(rng));
        let mut child: Vec<f64> = levels(points, a);
        let other = levels(points, b);
        let probability = MUTATIONS / points.live().len().max(1) as f64;
        for k in points.live() {
            if rng.random::<bool>() {
                child[*k] = other[*k];
            }
            if rng.random::<f64>() < probability {
                let step = 1.0 / (points.width(*k) - 1) as f64;
                child[*k] = match rng.random_range(0..3) {
                    0 => child[*k] + step,
                    1 => child[*k] - step,
                    _ => rng.random::<f64>(),
                };
            }
        }
        points.nearest(&child)
    }

    fn learn(&mut self, _: &mut PointTable, id: PointId, time: f64, _: &mut Xoshiro256PlusPlus) {
        let worst = self.members.worst();
        if time < self.members.all[worst].0 && self.members.all.iter().all(|m| m.1 != id) {
            self.members.all[worst] = (time, id);
        }
    }
}

fn levels(points: &PointTable, s: PointId) -> Vec<f64> {
    points.point(s).iter().enumerate().map(|(k, &v)| points.level(k, v)).collect()
}

/// Differential evolution (Storn and Price, 1997): a member moved along the difference of two
/// others towards the best, crossed with itself; the better of old and new stays.
#[derive(Default)]
pub(crate) struct Differential {
    members: Members,
}

/// The factor on differences, and the probability that a knob takes part.
const DIFFERENCE: f64 = 0.7;
const CROSSED: f64 = 0.6;

impl Steps for Differential {
    fn propose(
        &mut self,
        points: &mut PointTable,
        rng: &mut Xoshiro256PlusPlus,
    ) -> Option<PointId> {
        if !self.members.fill(points) {
            return None;
        }
        let (m, turn) = (&self.members.all, self.members.turn);
        let any = |rng: &mut Xoshiro256PlusPlus| levels(points, m[rng.random_range(0..MEMBERS)].1);
        let (b, c) = (any(rng), any(rng));
        let best = levels(points, points.best()?);
        let mut child = levels(points, m[turn].1);
        let always = points.live()[rng.random_range(0..points.live().len())];
        for &k in points.live() {
            if k == always || rng.random::<f64>() < CROSSED {
                child[k] = best[k] + DIFFERENCE * (b[k] - c[k]);
            }
        }
        let s = points.nearest(&child)?;
        // A population that has converged goes on by single changes.
        if s == m[turn].1 || Some(s) == points.best() {
            perturb(points, s, 1, rng)
        } else {
            Some(s)
        }
    }

    fn learn(&mut self, _: &mut PointTable, id: PointId, time: f64, _: &mut Xoshiro256PlusPlus) {
        self.members.end_turn(id, time);
    }
}

/// A particle swarm (Kennedy and Eberhart, 1995): each particle is drawn to its own best position
/// and to that of all. A particle that stands still is perturbed, and a swarm that has converged
/// without gaining any more is replaced by a new one.
#[derive(Default)]
pub(crate) struct Swarm {
    /// Best of each particle.
    bests: Members,
    places: Vec<Vec<f64>>,
    speeds: Vec<Vec<f64>>,
    /// Trials since the last gain.
    idle: usize,
}

const INERTIA: f64 = 0.5;
const OWN: f64 = 1.0;
const ALL: f64 = 1.5;
/// Trials without a gain after which a swarm that moves over known points is given up.
const PATIENCE: usize = 3 * MEMBERS;

impl Steps for Swarm {
    fn propose(
        &mut self,
        points: &mut PointTable,
        rng: &mut Xoshiro256PlusPlus,
    ) -> Option<PointId> {
        if !self.bests.fill(points) {
            return None;
        }
        if self.places.is_empty() {
            self.places = self.bests.all.iter().map(|m| levels(points, m.1)).collect();
            self.speeds = self
                .places
                .iter()
                .map(|p| p.iter().map(|_| rng.random_range(-0.25..0.25)).collect())
                .collect();
        }
        let turn = self.bests.turn;
        let leader = self.bests.best()?.1;
        let (own, all) = (levels(points, self.bests.all[turn].1), levels(points, leader));
        let (place, speed) = (&mut self.places[turn], &mut self.speeds[turn]);
        for &k in points.live() {
            let pull = OWN * rng.random::<f64>() * (own[k] - place[k])
                + ALL * rng.random::<f64>() * (all[k] - place[k]);
            speed[k] = (INERTIA * speed[k] + pull).clamp(-1.0, 1.0);
            place[k] = (place[k] + speed[k]).clamp(0.0, 1.0);
        }
        let place = place.clone();
        let s = points.nearest(&place)?;
        if points.is_fresh(s) {
            return Some(s);
        }
        if self.idle > PATIENCE {
            *self = Swarm {
                bests: Members { before: points.told().len(), ..Members::default() },
                ..Swarm::default()
            };
            return None;
        }
        let pushed = perturb(points, s, 1, rng)?;
        self.places[turn] = levels(points, pushed);
        Some(pushed)
    }

    fn learn(&mut self, _: &mut PointTable, id: PointId, time: f64, _: &mut Xoshiro256PlusPlus) {
        if self.bests.best().is_some_and(|b| time < b.0) {
            self.idle = 0
        } else {
            self.idle += 1
        }
        self.bests.end_turn(id, time);
    }
}
