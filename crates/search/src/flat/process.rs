//! Bayesian search: a Gaussian process over the knobs, and the point of the greatest expected
//! improvement among neighbours of the best and some even draws.

use super::surrogate::{Axis, Surrogate};
use super::{Climb, Field, Spot, Stepped, Walker};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

/// Points spread over the space before the first expectation.
const START: usize = 8;
/// Draws of which the one farthest from the others is kept.
const SPREAD: usize = 30;
/// The process begins with so many successes.
const LEAST: usize = 2;
/// Successes after which weights are fitted again.
const REFITS: [usize; 11] = [8, 12, 18, 25, 35, 50, 75, 100, 150, 200, 300];
/// Neighbours of so many of the best are candidates,
const CENTRES: usize = 3;
/// and so many even draws.
const DRAWS: usize = 300;
/// of a pool that is drawn anew when weights are fitted: what is looked at again costs little.
const POOL: usize = 1500;
/// How fast the odds of failure fall with distance.
const NEARNESS: f64 = 4.0;

/// Trials without a gain after which local search takes turns with the process.
const PATIENCE: usize = 60;
/// It gets one trial of so many then.
const TURNS: usize = 4;

/// The search.
pub(crate) struct Process {
    surrogate: Surrogate,
    start: Vec<Spot>,
    /// Successes, fastest first, by logarithm of time.
    ranking: Vec<(f64, Spot)>,
    odds: Odds,
    pool: Vec<Spot>,
    /// Successes when weights were fitted.
    fitted: usize,
    /// Takes turns with the process where that gets nowhere.
    climb: Option<Stepped<Climb>>,
    /// Trials since the last gain.
    idle: usize,
}

impl Process {
    /// The process as published searches have it.
    pub fn plain(field: &Field) -> Process {
        let axes = Axis::knobs(field, |_| 0.15);
        Process::with(Surrogate::new(axes, f64::INFINITY), field)
    }

    /// The process of the default strategy: it knows that sizes matter more than switches and that
    /// products of sizes may matter, looks closer at fast times, and calls for help when stuck.
    pub fn ours(field: &Field) -> Process {
        let mut axes = Axis::knobs(field, |values| match values {
            0..=2 => 0.04,
            3..=4 => 0.08,
            _ => 0.12,
        });
        axes.extend(Axis::products(field, 0.03));
        Process {
            climb: Some(Stepped::new(Climb::default())),
            ..Process::with(Surrogate::new(axes, 0.5), field)
        }
    }

    fn with(surrogate: Surrogate, field: &Field) -> Process {
        Process {
            surrogate,
            start: Vec::new(),
            ranking: Vec::new(),
            odds: Odds::new(field),
            pool: Vec::new(),
            fitted: 0,
            climb: None,
            idle: 0,
        }
    }

    /// Fresh neighbours of the best, and some even draws.
    fn candidates(&mut self, field: &mut Field, rng: &mut Xoshiro256PlusPlus) -> Vec<Spot> {
        let mut out = Vec::new();
        for &(_, s) in self.ranking.iter().take(CENTRES) {
            neighbours(field, s, &mut out);
        }
        if self.pool.is_empty() {
            self.pool = (0..POOL).map(|_| field.any(rng)).collect();
        }
        for _ in 0..DRAWS {
            let s = self.pool[rng.random_range(0..POOL)];
            if field.is_fresh(s) {
                out.push(s);
            }
        }
        out.sort_unstable();
        out.dedup();
        out
    }
}

/// A point far from those in `from`, and fresh.
pub(super) fn far(field: &mut Field, from: &[Spot], rng: &mut Xoshiro256PlusPlus) -> Option<Spot> {
    if from.is_empty() {
        return field.fresh(rng);
    }
    let mut best: Option<(f64, Spot)> = None;
    for _ in 0..SPREAD {
        let s = field.any(rng);
        if !field.is_fresh(s) {
            continue;
        }
        let near = from.iter().map(|&o| field.distance(s, o)).fold(f64::INFINITY, f64::min);
        if best.is_none_or(|(d, _)| near > d) {
            best = Some((near, s));
        }
    }
    best.map(|(_, s)| s).or_else(|| field.fresh(rng))
}

/// Fresh neighbours: any other value of one knob, or one step along each of two.
pub(super) fn neighbours(field: &mut Field, centre: Spot, out: &mut Vec<Spot>) {
    let at: Vec<usize> = field.point(centre).iter().map(|&i| i as usize).collect();
    let live = field.live().to_vec();
    let step = |field: &Field, k: usize| {
        let i = at[k];
        [i.checked_sub(1), Some(i + 1).filter(|&j| j < field.width(k))].into_iter().flatten()
    };
    for (n, &a) in live.iter().enumerate() {
        for v in (0..field.width(a)).filter(|&v| v != at[a]) {
            out.extend(field.moved(centre, &[(a, v)]));
        }
        for &b in &live[n + 1..] {
            for i in step(field, a) {
                for j in step(field, b) {
                    out.extend(field.moved(centre, &[(a, i), (b, j)]));
                }
            }
        }
    }
    out.retain(|&s| field.is_fresh(s));
}

impl Walker for Process {
    fn next(&mut self, field: &mut Field, rng: &mut Xoshiro256PlusPlus) -> Option<Spot> {
        if self.start.len() < START {
            let s = far(field, &self.start, rng)?;
            self.start.push(s);
            return Some(s);
        }
        if self.surrogate.len() < LEAST {
            return None;
        }
        let due = REFITS.iter().rev().find(|&&r| self.surrogate.len() >= r).copied().unwrap_or(0);
        if due > self.fitted {
            self.fitted = due;
            self.surrogate.fit(field, rng);
            self.pool.clear();
        }
        if let Some(climb) =
            self.climb.as_mut().filter(|_| self.idle >= PATIENCE && self.idle.is_multiple_of(TURNS))
            && let Some(s) = climb.next(field, rng)
        {
            return Some(s);
        }
        let candidates = self.candidates(field, rng);
        let best = self.surrogate.squeezed(self.ranking.first()?.0);
        let expected = self.surrogate.expect(field, &candidates);
        let mut pick: Option<(f64, Spot)> = None;
        for (e, &s) in expected.iter().zip(&candidates) {
            let worth = e.improvement(best) * self.odds.of(field, s);
            if pick.is_none_or(|(w, _)| worth > w) {
                pick = Some((worth, s));
            }
        }
        pick.map(|(_, s)| s)
    }

    fn hear(&mut self, field: &mut Field, spot: Spot, time: f64) {
        self.idle += 1;
        self.ranking.retain(|&(_, s)| s != spot);
        let again = self.odds.heard.contains(&spot);
        self.odds.hear(spot, !time.is_finite(), again);
        if !time.is_finite() {
            self.surrogate.change(field, spot, None);
            return;
        }
        let log = time.ln();
        let at = self.ranking.partition_point(|&(o, _)| o <= log);
        self.ranking.insert(at, (log, spot));
        if at == 0 {
            self.idle = 0;
        }
        if self.surrogate.knows(spot) {
            self.surrogate.change(field, spot, Some(log))
        } else {
            self.surrogate.add(field, spot, log)
        }
    }
}

/// The odds that a point runs, by what became of the points near it.
struct Odds {
    /// Of each live knob exp(-4 d_j) for all pairs of values.
    near: Vec<Vec<f32>>,
    /// Of each point the weight of successes and failures near it, and how many points told that
    /// covers.
    sums: Vec<(f32, f32, u32)>,
    /// Points heard of.
    heard: Vec<Spot>,
    failed: bool,
}

impl Odds {
    fn new(field: &Field) -> Odds {
        let near = |&k: &usize| {
            let w = field.width(k);
            let far = |a: usize, b: usize| match (a == b, field.is_ordered(k)) {
                (true, _) => 0.0,
                (false, false) => 1.0,
                (false, true) => {
                    0.5 + 0.5 * (field.level(k, a as u16) - field.level(k, b as u16)).abs()
                }
            };
            (0..w * w).map(|i| (-NEARNESS * far(i / w, i % w)).exp() as f32).collect()
        };
        Odds {
            near: field.live().iter().map(near).collect(),
            sums: Vec::new(),
            heard: Vec::new(),
            failed: false,
        }
    }

    /// Hears of a point; one heard of before may have another outcome now, and all is counted
    /// again.
    fn hear(&mut self, spot: Spot, failed: bool, again: bool) {
        self.failed |= failed;
        match again {
            true => self.sums.clear(),
            false => self.heard.push(spot),
        }
    }

    fn of(&mut self, field: &Field, s: Spot) -> f64 {
        if !self.failed {
            return 1.0;
        }
        if self.sums.len() < field.numbered() {
            self.sums.resize(field.numbered(), (0.0, 0.0, 0));
        }
        let p = field.point(s);
        let sum = &mut self.sums[s as usize];
        for &o in &self.heard[sum.2 as usize..] {
            let q = field.point(o);
            let near = |(j, &k): (usize, &usize)| {
                self.near[j][p[k] as usize * field.width(k) + q[k] as usize]
            };
            let near: f32 = field.live().iter().enumerate().map(near).product();
            if field.time(o).is_finite() { sum.0 += near } else { sum.1 += near }
        }
        sum.2 = self.heard.len() as u32;
        f64::from((1.0 + sum.0) / (1.0 + sum.0 + sum.1))
    }
}
