//! Random points: drawn fairly between tunables, spread out within one.

use crate::ledger::{Ledger, Point, PointSet};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

/// How much of a random draw each tunable gets. Even while nothing is known; later by the square
/// of how close its best comes to the best of all, with a floor that keeps each one in play.
pub(super) fn shares(ledger: &Ledger) -> Vec<f64> {
    const FLOOR: f64 = 0.15;
    let mut best = vec![f64::INFINITY; ledger.len()];
    let mut tries = vec![0usize; ledger.len()];
    for k in ledger.known() {
        best[k.point.tunable] = best[k.point.tunable].min(k.time);
        tries[k.point.tunable] += 1;
    }
    let fastest = best.iter().copied().fold(f64::INFINITY, f64::min);
    let share = |(&b, &tries): (&f64, &usize)| match b.is_finite() {
        true => FLOOR + (1.0 - FLOOR) * (fastest / b).powi(2),
        // Never tried deserves a try; tried and never ran deserves few more.
        false => (8.0 / (8.0 + tries as f64)).max(FLOOR),
    };
    best.iter().zip(&tries).map(share).collect()
}

/// The tunable that is furthest behind its share, given how many points each already has.
fn behind(shares: &[f64], have: &[usize], open: &[bool]) -> Option<usize> {
    let due = |t: usize| (have[t] as f64 + 1.0) / shares[t].max(1e-9);
    (0..shares.len()).filter(|&t| open[t]).min_by(|&a, &b| due(a).total_cmp(&due(b)))
}

/// Up to `n` new points, each the one of a few samples that is least like the others and like
/// what is known of its tunable.
pub(super) fn spread(ledger: &mut Ledger, n: usize, not: &PointSet, rng: &mut Xoshiro256PlusPlus) -> Vec<Point> {
    let shares = shares(ledger);
    let mut open = vec![true; ledger.len()];
    let mut have = vec![0; ledger.len()];
    // Tunables start in random order, so that small batches do not always favour the first.
    let shares: Vec<f64> = shares.into_iter().map(|s| s * rng.random_range(0.95..1.05)).collect();
    let mut out: Vec<Point> = Vec::new();
    let mut not = not.clone();
    while out.len() < n
        && let Some(t) = behind(&shares, &have, &open)
    {
        const TRIES: usize = 4;
        let mut best: Option<(f32, Point)> = None;
        for _ in 0..TRIES {
            let Some(p) = ledger.fresh(t, &not, rng) else { break };
            let of_same = ledger.known().iter().rev().take(64).map(|k| &k.point).chain(&out).filter(|o| o.tunable == t);
            let nearest = of_same.map(|o| ledger.shape(&p).distance(&p.configuration, &o.configuration)).fold(1.0, f32::min);
            if best.as_ref().is_none_or(|(d, _)| nearest > *d) {
                best = Some((nearest, p));
            }
        }
        match best {
            Some((_, p)) => {
                have[t] += 1;
                not.insert(p.clone());
                out.push(p);
            }
            None => open[t] = false,
        }
    }
    out
}
