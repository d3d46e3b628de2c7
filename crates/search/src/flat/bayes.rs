//! Bayesian optimisation for flat spaces, of which only the knobs are known: a Gaussian process
//! (`surrogate.rs`) is fitted to the times so far, and the next point is the one with the greatest
//! expected improvement among neighbours of the best points and some even draws. It is part of the
//! default search of flat spaces (`flat/mod.rs`).

use super::surrogate::{KnobAxis, Surrogate};
use super::{Climb, PointId, PointSearch, PointTable, Stepped};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

/// Points spread over the space before the first expectation.
const START: usize = 8;
/// Draws of which the one farthest from the others is kept.
const SPREAD: usize = 30;
/// Successes before expectations are computed.
const LEAST: usize = 2;
/// Numbers of successes after which the kernel's weights are fitted again.
const REFITS: [usize; 11] = [8, 12, 18, 25, 35, 50, 75, 100, 150, 200, 300];
/// Candidates are the neighbours of this many of the best points,
const CENTRES: usize = 3;
/// and this many even draws
const DRAWS: usize = 300;
/// from a pool of this size. The pool is drawn anew when weights are fitted, because a point that
/// is looked at again costs little.
const POOL: usize = 1500;
/// Values of a knob beyond which not all are tried in the place of one.
const MANY: usize = 256;
/// The rate at which the influence of a success or failure falls with distance.
const NEARNESS: f64 = 4.0;

/// Trials without a gain after which local search takes turns with the Gaussian process.
const PATIENCE: usize = 60;
/// Local search then gets one trial of this many.
const TURNS: usize = 4;

/// The search.
pub(crate) struct Bayesian {
    surrogate: Surrogate,
    start: Vec<PointId>,
    /// Successes, fastest first, by logarithm of time.
    ranking: Vec<(f64, PointId)>,
    feasibility: Feasibility,
    pool: Vec<PointId>,
    /// The number of successes when weights were last fitted.
    fitted: usize,
    /// The local search that takes turns with the process where that finds nothing better.
    climb: Option<Stepped<Climb>>,
    /// Trials since the last gain.
    idle: usize,
}

impl Bayesian {
    /// The search as it is published.
    pub fn plain(points: &PointTable) -> Bayesian {
        let axes = KnobAxis::knobs(points, |_| 0.15);
        Bayesian::with(Surrogate::new(axes, f64::INFINITY), points)
    }

    /// The search of the default strategy. Its prior says that sizes matter more than switches and
    /// that products of sizes may matter; it resolves fast times more finely than slow ones, and
    /// takes turns with a local search when it finds nothing better.
    pub fn tuned(points: &PointTable) -> Bayesian {
        let knobs = KnobAxis::knobs(points, |values| match values {
            0..=2 => 0.04,
            3..=4 => 0.08,
            _ => 0.12,
        });
        let mut axes: Vec<KnobAxis> = knobs.into_iter().flat_map(KnobAxis::smoothed).collect();
        axes.extend(KnobAxis::products(points, 0.03));
        Bayesian {
            climb: Some(Stepped::new(Climb::default())),
            ..Bayesian::with(Surrogate::new(axes, 0.5), points)
        }
    }

    fn with(surrogate: Surrogate, points: &PointTable) -> Bayesian {
        Bayesian {
            surrogate,
            start: Vec::new(),
            ranking: Vec::new(),
            feasibility: Feasibility::new(points),
            pool: Vec::new(),
            fitted: 0,
            climb: None,
            idle: 0,
        }
    }

    /// Fresh neighbours of the best, and some even draws.
    fn candidates(
        &mut self,
        points: &mut PointTable,
        rng: &mut Xoshiro256PlusPlus,
    ) -> Vec<PointId> {
        let mut out = Vec::new();
        for &(_, s) in self.ranking.iter().take(CENTRES) {
            neighbours(points, s, &mut out);
        }
        if self.pool.is_empty() {
            self.pool = (0..POOL).map(|_| points.any(rng)).collect();
        }
        for _ in 0..DRAWS {
            let s = self.pool[rng.random_range(0..POOL)];
            if points.is_fresh(s) {
                out.push(s);
            }
        }
        out.sort_unstable();
        out.dedup();
        out
    }
}

/// A fresh point far from those in `from`.
pub(super) fn far(
    points: &mut PointTable,
    from: &[PointId],
    rng: &mut Xoshiro256PlusPlus,
) -> Option<PointId> {
    if from.is_empty() {
        return points.fresh(rng);
    }
    let mut best: Option<(f64, PointId)> = None;
    for _ in 0..SPREAD {
        let s = points.any(rng);
        if !points.is_fresh(s) {
            continue;
        }
        let near = from.iter().map(|&o| points.distance(s, o)).fold(f64::INFINITY, f64::min);
        if best.is_none_or(|(d, _)| near > d) {
            best = Some((near, s));
        }
    }
    best.map(|(_, s)| s).or_else(|| points.fresh(rng))
}

/// The values of a knob that are tried in the place of one: all others, or, where there are many,
/// those at distances that grow by half.
fn others(width: usize, at: usize) -> Vec<usize> {
    if width <= MANY {
        return (0..width).filter(|&v| v != at).collect();
    }
    let mut distances = vec![1];
    while let Some(&d) = distances.last().filter(|&&d| d < width) {
        distances.push(d + (d / 2).max(1));
    }
    let both = distances.iter().flat_map(|d| [at.checked_sub(*d), Some(at + d)]);
    both.flatten().filter(|&v| v < width).collect()
}

/// Fresh neighbours: another value of one knob, or one step along each of two.
pub(super) fn neighbours(points: &mut PointTable, centre: PointId, out: &mut Vec<PointId>) {
    let at: Vec<usize> = points.point(centre).iter().map(|&i| i as usize).collect();
    let live = points.live().to_vec();
    let step = |points: &PointTable, k: usize| {
        let i = at[k];
        [i.checked_sub(1), Some(i + 1).filter(|&j| j < points.width(k))].into_iter().flatten()
    };
    for (n, &a) in live.iter().enumerate() {
        for v in others(points.width(a), at[a]) {
            out.extend(points.moved(centre, &[(a, v)]));
        }
        for &b in &live[n + 1..] {
            for i in step(points, a) {
                for j in step(points, b) {
                    out.extend(points.moved(centre, &[(a, i), (b, j)]));
                }
            }
        }
    }
    out.retain(|&s| points.is_fresh(s));
}

impl PointSearch for Bayesian {
    fn next(&mut self, points: &mut PointTable, rng: &mut Xoshiro256PlusPlus) -> Option<PointId> {
        if self.start.len() < START {
            let s = far(points, &self.start, rng)?;
            self.start.push(s);
            return Some(s);
        }
        if self.surrogate.len() < LEAST {
            return None;
        }
        let due = REFITS.iter().rev().find(|&&r| self.surrogate.len() >= r).copied().unwrap_or(0);
        if due > self.fitted {
            self.fitted = due;
            self.surrogate.fit(points, rng);
            self.pool.clear();
        }
        if let Some(climb) =
            self.climb.as_mut().filter(|_| self.idle >= PATIENCE && self.idle.is_multiple_of(TURNS))
            && let Some(s) = climb.next(points, rng)
        {
            return Some(s);
        }
        let candidates = self.candidates(points, rng);
        let best = self.surrogate.squeezed(self.ranking.first()?.0);
        let expected = self.surrogate.expect(points, &candidates);
        let mut pick: Option<(f64, PointId)> = None;
        for (e, &s) in expected.iter().zip(&candidates) {
            let worth = e.improvement(best) * self.feasibility.of(points, s);
            if pick.is_none_or(|(w, _)| worth > w) {
                pick = Some((worth, s));
            }
        }
        pick.map(|(_, s)| s)
    }

    fn observe(&mut self, points: &mut PointTable, id: PointId, time: f64) {
        self.idle += 1;
        self.ranking.retain(|&(_, s)| s != id);
        let again = self.feasibility.observed.contains(&id);
        self.feasibility.observe(id, !time.is_finite(), again);
        if !time.is_finite() {
            self.surrogate.change(points, id, None);
            return;
        }
        let log = time.ln();
        let at = self.ranking.partition_point(|&(o, _)| o <= log);
        self.ranking.insert(at, (log, id));
        if at == 0 {
            self.idle = 0;
        }
        if self.surrogate.knows(id) {
            self.surrogate.change(points, id, Some(log))
        } else {
            self.surrogate.add(points, id, log)
        }
    }
}

/// The probability that a point runs, by the outcomes of the points near it.
struct Feasibility {
    /// For each live knob exp(-4 d_j) by how many places values lie apart; of words whether any.
    near: Vec<Vec<f32>>,
    /// For each point the weights of the successes and of the failures near it, and how many of
    /// the observed points these sums cover.
    sums: Vec<(f32, f32, u32)>,
    /// Points whose outcome is known.
    observed: Vec<PointId>,
    failed: bool,
}

impl Feasibility {
    fn new(points: &PointTable) -> Feasibility {
        let near = |&k: &usize| {
            let (places, ordered) = match points.is_ordered(k) {
                true => (points.width(k), true),
                false => (2, false),
            };
            let far = |apart: usize| match (apart, ordered) {
                (0, _) => 0.0,
                (_, false) => 1.0,
                (_, true) => 0.5 + 0.5 * points.level(k, apart as u16),
            };
            (0..places).map(|apart| (-NEARNESS * far(apart)).exp() as f32).collect()
        };
        Feasibility {
            near: points.live().iter().map(near).collect(),
            sums: Vec::new(),
            observed: Vec::new(),
            failed: false,
        }
    }

    /// Takes note of an outcome. A point that was observed before may have another outcome now, so
    /// that all sums are computed again.
    fn observe(&mut self, id: PointId, failed: bool, again: bool) {
        self.failed |= failed;
        match again {
            true => self.sums.clear(),
            false => self.observed.push(id),
        }
    }

    fn of(&mut self, points: &PointTable, s: PointId) -> f64 {
        if !self.failed {
            return 1.0;
        }
        if self.sums.len() < points.numbered() {
            self.sums.resize(points.numbered(), (0.0, 0.0, 0));
        }
        let p = points.point(s);
        let sum = &mut self.sums[s as usize];
        for &o in &self.observed[sum.2 as usize..] {
            let q = points.point(o);
            let near = |(j, &k): (usize, &usize)| {
                let apart = p[k].abs_diff(q[k]) as usize;
                self.near[j][if points.is_ordered(k) { apart } else { apart.min(1) }]
            };
            let near: f32 = points.live().iter().enumerate().map(near).product();
            if points.time(o).is_finite() { sum.0 += near } else { sum.1 += near }
        }
        sum.2 = self.observed.len() as u32;
        f64::from((1.0 + sum.0) / (1.0 + sum.0 + sum.1))
    }
}
