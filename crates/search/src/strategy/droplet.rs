//! Droplet Search (Canesche et al., ACM TACO 2024): a coordinate descent whose steps must be
//! statistically significant. Input: a start point and the ledger of outcomes; output: neighbours
//! to measure. It differs from the published code, which has faults: values are sorted and the
//! start stands at its true place among them, steps go both ways and end at the ends of a list,
//! only legal points are proposed, no queued point is lost, points are identified by the whole
//! configuration, and a batch without an improvement widens the radius instead of ending the
//! descent.

use super::evolution::batch;
use super::ranker::Ranker;
use super::sampling::{Policy, divide, spread};
use super::{Setting, Strategy};
use crate::ledger::{Known, Ledger, Point, PointSet};
use crate::statistics::welch_less;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use squall_core::{Candidate, Configuration, Trial};
use std::collections::VecDeque;

/// A challenger must be faster than the incumbent by this share.
const LEAST_EFFECT: f64 = 0.01;
/// The same share where there are single samples, which do not show the noise.
const LEAST_EFFECT_UNTESTED: f64 = 0.03;
/// The probability of seeing its lead by chance must be below this.
const SIGNIFICANCE: f64 = 0.05;
/// Diagonal neighbours that one stage proposes; a point has hundreds.
const DIAGONALS: usize = 48;

/// Whether a challenger is really faster than the incumbent.
pub(crate) fn beats(challenger: &Known, incumbent: &Known) -> bool {
    if !incumbent.time.is_finite() || !challenger.time.is_finite() {
        return challenger.time.is_finite();
    }
    let effect = 1.0 - challenger.time / incumbent.time;
    match welch_less(&challenger.samples, &incumbent.samples) {
        Some(p) => effect >= LEAST_EFFECT && p <= SIGNIFICANCE,
        None => effect >= LEAST_EFFECT_UNTESTED,
    }
}

/// The points that can be realized, the one with the highest score first.
fn ranked(ledger: &mut Ledger, ranker: &Ranker, points: Vec<Point>) -> Vec<Point> {
    let scores = ranker.scores(ledger, &points);
    let mut order: Vec<(f32, Point)> =
        scores.into_iter().zip(points).filter(|(s, _)| *s > f32::NEG_INFINITY).collect();
    order.sort_by(|a, b| b.0.total_cmp(&a.0));
    order.into_iter().map(|(_, p)| p).collect()
}

/// A descent from one start. The ledger is the caller's.
pub(super) struct Descent {
    centre: Point,
    /// The stage that is searched; see [`Descent::neighbours`].
    stage: usize,
    /// Neighbours to be proposed.
    queue: VecDeque<Point>,
    /// Points that were proposed and whose outcomes are not known yet.
    waiting: PointSet,
    /// Proposals since the centre moved.
    pub tries: usize,
    rng: Xoshiro256PlusPlus,
}

impl Descent {
    /// A descent from a known point.
    pub fn new(centre: Point, seed: u64) -> Descent {
        Descent {
            centre,
            stage: 0,
            queue: VecDeque::new(),
            waiting: PointSet::default(),
            tries: 0,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
        }
    }

    pub fn centre(&self) -> &Point {
        &self.centre
    }

    /// Whether all outcomes within the largest radius are known.
    pub fn has_ended(&self, ledger: &Ledger) -> bool {
        self.stage > self.last_stage(ledger) && self.queue.is_empty() && self.waiting.is_empty()
    }

    /// Whether the nearest neighbours are all proposed and none was better so far.
    pub fn is_flat(&self) -> bool {
        self.stage > 1
    }

    fn last_stage(&self, ledger: &Ledger) -> usize {
        2 * ledger.shape(&self.centre).reach().max(1)
    }

    /// The neighbours of the stage: even stages step along single knobs and trade factors, odd ones
    /// go along two knobs at once; every second stage widens the radius. The last stage returns to
    /// the diagonals that earlier ones left out.
    fn neighbours(&mut self, ledger: &mut Ledger, ranker: Option<&Ranker>) -> Vec<Point> {
        let last = self.last_stage(ledger);
        let shape = ledger.shape(&self.centre);
        let c = &self.centre.configuration;
        let radius = self.stage / 2 + 1;
        let mut found: Vec<Configuration> = match self.stage {
            s if s == last => shape.diagonals(c, 1),
            s if s % 2 == 0 => [shape.along_knobs(c, radius), shape.trades(c, radius)].concat(),
            _ => shape.diagonals(c, radius),
        };
        found.shuffle(&mut self.rng);
        let tunable = self.centre.tunable;
        let mut seen = PointSet::default();
        let mut points: Vec<Point> =
            found.into_iter().map(|configuration| Point { tunable, configuration }).collect();
        points.retain(|p| seen.insert(p.clone()));
        if self.stage % 2 == 1 {
            // Known points cost no trial and are all kept.
            let mut room = DIAGONALS;
            points.retain(|p| {
                let keep = room > 0 || ledger.is_taken(p);
                room -= usize::from(keep && room > 0 && !ledger.is_taken(p));
                keep
            });
        }
        match ranker.filter(|r| r.is_ready()) {
            Some(ranker) => ranked(ledger, ranker, points),
            None => {
                points.retain(|p| ledger.features(p).is_some());
                points
            }
        }
    }

    /// Moves to the fastest of some points that really beats the centre.
    fn move_to_best_of(&mut self, ledger: &Ledger, points: &[Point]) -> bool {
        let Some(centre) = ledger.look_up(&self.centre) else { return false };
        let better = points.iter().filter_map(|p| ledger.look_up(p)).filter(|k| beats(k, centre));
        let Some(best) = better.min_by(|a, b| a.time.total_cmp(&b.time)) else { return false };
        let to = best.point.clone();
        // A step that was good may be good again: the same step further on is tried first.
        let onward = ledger.shape(&to).onward(&self.centre.configuration, &to.configuration);
        self.queue.clear();
        self.queue.extend(onward.map(|configuration| Point { tunable: to.tunable, configuration }));
        self.centre = to;
        self.stage = 0;
        self.tries = 0;
        true
    }

    /// Continues from another point.
    pub fn relocate(&mut self, to: Point) {
        self.queue.clear();
        self.centre = to;
        self.stage = 0;
        self.tries = 0;
    }

    /// Takes note of outcomes. A proposal of this descent may become its centre; the neighbours of
    /// a centre that was measured again are compared anew.
    pub fn absorb(&mut self, ledger: &Ledger, told: &[Point]) {
        let mine: Vec<Point> = told.iter().filter(|p| self.waiting.remove(*p)).cloned().collect();
        let again = told.contains(&self.centre);
        if !self.move_to_best_of(ledger, &mine) && again {
            self.queue.clear();
            self.stage = 0;
        }
    }

    /// Up to `n` new points. Where the stage has too few, the next one is begun before the
    /// answers are in, as the published search does.
    pub fn propose(
        &mut self,
        ledger: &mut Ledger,
        ranker: Option<&Ranker>,
        n: usize,
        not: &PointSet,
    ) -> Vec<Point> {
        let mut out = Vec::new();
        // The model may have learnt more since the neighbours were queued.
        if let Some(ranker) = ranker.filter(|r| r.is_ready() && self.stage > 0) {
            let queue: Vec<Point> = self.queue.drain(..).collect();
            self.queue.extend(ranked(ledger, ranker, queue));
        }
        loop {
            while out.len() < n
                && let Some(p) = self.queue.pop_front()
            {
                if !ledger.is_taken(&p)
                    && !self.waiting.contains(&p)
                    && !not.contains(&p)
                    && ledger.features(&p).is_some()
                {
                    self.waiting.insert(p.clone());
                    out.push(p);
                }
            }
            if out.len() == n || self.stage > self.last_stage(ledger) {
                self.tries += out.len();
                return out;
            }
            let neighbours = self.neighbours(ledger, ranker);
            // A better neighbour may have been measured already, proposed by another search.
            if !self.move_to_best_of(ledger, &neighbours) {
                self.stage += 1;
                self.queue.extend(neighbours);
            }
        }
    }
}

/// Droplet Search with restarts: descents one after another, each from the best point that no
/// earlier one started from, with some random points before each.
pub struct Droplet {
    ledger: Ledger,
    descent: Option<Descent>,
    /// Points that descents started from or ended at.
    used: PointSet,
    told: Vec<Point>,
    rng: Xoshiro256PlusPlus,
    trials: usize,
    /// Random points to be proposed before the next descent.
    random_left: usize,
}

impl Droplet {
    /// The strategy for a task.
    pub fn new(setting: &Setting) -> Droplet {
        Droplet {
            ledger: Ledger::new(&setting.tunables),
            descent: None,
            used: PointSet::default(),
            told: Vec::new(),
            rng: Xoshiro256PlusPlus::seed_from_u64(setting.seed),
            trials: setting.trials,
            random_left: (setting.trials / 8).clamp(4, 16),
        }
    }

    fn absorb(&mut self) {
        let told = std::mem::take(&mut self.told);
        // Every trial that was told counts as one of the random points.
        self.random_left = self.random_left.saturating_sub(told.len());
        if let Some(d) = &mut self.descent {
            d.absorb(&self.ledger, &told);
            if d.has_ended(&self.ledger) {
                self.used.insert(d.centre().clone());
                self.descent = None;
                self.random_left = 4;
            }
        }
        if self.descent.is_none() && self.random_left == 0 {
            let start = self
                .ledger
                .ranking()
                .into_iter()
                .map(|k| &k.point)
                .find(|p| !self.used.contains(p))
                .cloned();
            match start {
                Some(p) => {
                    self.used.insert(p.clone());
                    self.descent = Some(Descent::new(p, self.rng.random()));
                }
                None => self.random_left = 4,
            }
        }
    }
}

impl Strategy for Droplet {
    fn name(&self) -> &'static str {
        "droplet"
    }

    fn ask(&mut self, n: usize) -> Vec<Candidate> {
        self.absorb();
        let mut points = Vec::new();
        if let Some(d) = &mut self.descent {
            points =
                d.propose(&mut self.ledger, None, n.min(batch(self.trials)), &PointSet::default());
        }
        if points.is_empty() && n > 0 {
            // Without a proposal of a descent random points are proposed, as long as any are left.
            let openings = vec![4; self.ledger.algorithms().len()];
            let policy = Policy { openings, power: 2 };
            let counts =
                divide(&self.ledger, n.min(self.random_left.max(4)), &policy, &[], &mut self.rng);
            points = spread(&mut self.ledger, &counts, &PointSet::default(), &mut self.rng);
        }
        self.ledger.propose(&points)
    }

    fn tell(&mut self, trials: &[Trial]) {
        for t in trials {
            self.told.extend(self.ledger.tell(t));
        }
    }
}

#[cfg(test)]
#[path = "droplet_tests.rs"]
mod tests;
