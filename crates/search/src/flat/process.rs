//! Bayesian search: a Gaussian process over the knobs, and the point of the greatest expected
//! improvement among neighbours of the best and some even draws.

use super::surrogate::Surrogate;
use super::{Field, Spot, Walker};
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
/// How fast the odds of failure fall with distance.
const NEARNESS: f64 = 4.0;

/// The search.
pub(crate) struct Process {
    surrogate: Surrogate,
    start: Vec<Spot>,
    failures: Vec<Spot>,
    /// Successes, fastest first.
    ranking: Vec<(f64, Spot)>,
    fitted: usize,
}

impl Process {
    pub fn new(field: &Field) -> Process {
        Process { surrogate: Surrogate::new(field), start: Vec::new(), failures: Vec::new(), ranking: Vec::new(), fitted: 0 }
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
        let surrogate = &mut self.surrogate;
        if self.start.len() < START {
            let s = far(field, &self.start, rng)?;
            self.start.push(s);
            return Some(s);
        }
        if surrogate.len() < LEAST {
            return field.fresh(rng);
        }
        let due = REFITS.iter().rev().find(|&&r| surrogate.len() >= r).copied().unwrap_or(0);
        if due > self.fitted {
            self.fitted = due;
            surrogate.fit(field, rng);
        }
        let mut candidates = Vec::new();
        for &(_, s) in self.ranking.iter().take(CENTRES) {
            neighbours(field, s, &mut candidates);
        }
        for _ in 0..DRAWS {
            let s = field.any(rng);
            if field.is_fresh(s) {
                candidates.push(s);
            }
        }
        candidates.sort_unstable();
        candidates.dedup();
        if candidates.is_empty() {
            return field.fresh(rng);
        }
        let best = self.ranking[0].0;
        let expected = surrogate.expect(field, &candidates);
        let mut pick: Option<(f64, Spot)> = None;
        for (e, &s) in expected.iter().zip(&candidates) {
            let mut worth = e.improvement(best);
            if !self.failures.is_empty() {
                let near = |o: Spot| (-NEARNESS * halves(field, s, o)).exp();
                let ran: f64 = self.ranking.iter().map(|&(_, o)| near(o)).sum();
                let failed: f64 = self.failures.iter().map(|&o| near(o)).sum();
                worth *= (1.0 + ran) / (1.0 + ran + failed);
            }
            if pick.is_none_or(|(w, _)| worth > w) {
                pick = Some((worth, s));
            }
        }
        pick.map(|(_, s)| s)
    }

    fn hear(&mut self, field: &mut Field, spot: Spot, time: f64) {
        let surrogate = &mut self.surrogate;
        self.ranking.retain(|&(_, s)| s != spot);
        self.failures.retain(|&s| s != spot);
        if time.is_finite() {
            let y = time.ln();
            let at = self.ranking.partition_point(|&(o, _)| o <= y);
            self.ranking.insert(at, (y, spot));
            if surrogate.knows(spot) { surrogate.change(field, spot, Some(y)) } else { surrogate.add(field, spot, y) }
        } else {
            self.failures.push(spot);
            surrogate.change(field, spot, None);
        }
    }
}

/// The distance of the kernel, unweighted.
fn halves(field: &Field, a: Spot, b: Spot) -> f64 {
    let (p, q) = (field.point(a), field.point(b));
    field
        .live()
        .iter()
        .map(|&k| match (p[k] == q[k], field.is_ordered(k)) {
            (true, _) => 0.0,
            (false, false) => 1.0,
            (false, true) => 0.5 + 0.5 * (field.level(k, p[k]) - field.level(k, q[k])).abs(),
        })
        .sum()
}
