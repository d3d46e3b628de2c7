//! Divides a batch of trials between the algorithms of a task (docs/decisions/0015), and draws
//! random points: shared fairly between tunables, and spread out within one. Each algorithm is
//! tried for a while first; later its share follows from its best time. Evolution takes its samples
//! and its batches' division from here.

use super::Expectation;
use crate::ledger::{Ledger, Point, PointSet};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

/// The share of the budget in which each algorithm gets its first trials.
const OPENING: f64 = 0.3;
/// The most trials of an algorithm's opening.
const LONGEST_OPENING: usize = 64;
/// The least trials of an algorithm's opening, where an equal share would have been as many.
const SHORTEST_OPENING: usize = 4;
/// The share of an algorithm in the opening is its expected speed to this power.
const TRUST: f64 = 3.0;
/// An algorithm's opening ends after this many failures without a kernel that ran.
const FAILURES: usize = 8;
/// The least share that all algorithms behind the best one get together, relative to its share.
const FLOOR: f64 = 0.15;

/// The rule by which algorithms share trials.
pub(super) struct Policy {
    /// Trials of each algorithm that come first.
    pub openings: Vec<usize>,
    /// The share of an algorithm is the ratio of the best time to its own, to this power.
    pub power: i32,
}

/// The policy of a task whose trials a cost model picks: each algorithm is tried for a while before
/// its best time decides its share. Without that, the model would settle after a dozen trials and
/// drop an algorithm that begins slowly: on a GPU, the algorithm that was best with all trials for
/// itself got 11 of 500 beside one that began well. An algorithm that is expected to be slow has a
/// short opening, and what it saves goes to the others, as far as theirs may be long.
pub(super) fn policy(ledger: &Ledger, trials: usize, expected: &[Expectation]) -> Policy {
    let speed = |algorithm: usize| {
        let name = ledger.algorithm_name(algorithm);
        let found = expected.iter().find(|e| e.algorithm == name);
        found.map_or(1.0, |e| e.speed.clamp(0.0, 1.0))
    };
    let shares: Vec<f64> =
        (0..ledger.algorithms().len()).map(|a| speed(a).powf(TRUST).max(1e-6)).collect();
    let (all, total) = (OPENING * trials as f64, shares.iter().sum::<f64>());
    let least = ((all / shares.len().max(1) as f64) as usize).min(SHORTEST_OPENING);
    let opening = |share: &f64| ((all * share / total) as usize).clamp(least, LONGEST_OPENING);
    Policy { openings: shares.iter().map(opening).collect(), power: 6 }
}

/// Divides `n` new points between the algorithms that have untried points left; `have` is what the
/// batch holds already. The algorithm that is furthest from the end of its opening is next until
/// all had theirs; then shares go by how close the best time of each comes to the best of all.
pub(super) fn divide(
    ledger: &Ledger,
    n: usize,
    policy: &Policy,
    have: &[usize],
    rng: &mut Xoshiro256PlusPlus,
) -> Vec<usize> {
    let algorithms = ledger.algorithms().len();
    if algorithms < 2 {
        return vec![n; algorithms];
    }
    let (best, tries) = tally(ledger, algorithms, |t| Some(ledger.algorithm(t)));
    let fastest = best.iter().copied().fold(f64::INFINITY, f64::min);
    let floor = FLOOR / (algorithms - 1) as f64;
    let weight = |f: usize| match best[f].is_finite() {
        _ if ledger.is_used_up(f, tries[f]) => 0.0,
        true => (fastest / best[f]).powi(policy.power).max(floor),
        // One that was never tried gets a full share; one that was tried and never ran gets little.
        false => (FAILURES as f64 / (FAILURES + tries[f]) as f64).max(floor),
    };
    let weights: Vec<f64> = (0..algorithms).map(weight).collect();
    let total: f64 = weights.iter().sum();
    let mut out = vec![0; algorithms];
    for _ in 0..n {
        let held = |f: usize| tries[f] + have.get(f).copied().unwrap_or(0) + out[f];
        let opens = |f: &usize| {
            held(*f) < policy.openings[*f]
                && !ledger.is_used_up(*f, held(*f))
                && (best[*f].is_finite() || tries[*f] < FAILURES)
        };
        let done = |f: usize| held(f) as f64 / policy.openings[f] as f64;
        let next = (0..algorithms).filter(opens).min_by(|&a, &b| done(a).total_cmp(&done(b)));
        let chosen = next.unwrap_or_else(|| {
            // A draw for each point keeps small batches fair.
            let mut x = rng.random::<f64>() * total;
            let hit = weights.iter().position(|w| {
                x -= w;
                x < 0.0
            });
            hit.unwrap_or(0)
        });
        out[chosen] += 1;
    }
    out
}

/// The best time, and the number of trials, of each of `n` groups; `group` says which a tunable is
/// of, if it counts.
fn tally(
    ledger: &Ledger,
    n: usize,
    group: impl Fn(usize) -> Option<usize>,
) -> (Vec<f64>, Vec<usize>) {
    let (mut best, mut tries) = (vec![f64::INFINITY; n], vec![0; n]);
    for k in ledger.known() {
        if let Some(g) = group(k.point.tunable) {
            best[g] = best[g].min(k.time);
            tries[g] += 1;
        }
    }
    (best, tries)
}

/// The best time and the number of trials of each tunable; those of other algorithms have none.
pub(super) fn of_tunables(ledger: &Ledger, algorithm: usize) -> (Vec<f64>, Vec<usize>) {
    tally(ledger, ledger.len(), |t| (ledger.algorithm(t) == algorithm).then_some(t))
}

/// The share of a random draw that each tunable of an algorithm gets: equal while nothing is known,
/// later the square of how close its best time comes to the best of all, with a floor that keeps
/// each one in play. Tunables of other algorithms get nothing.
pub(super) fn shares(ledger: &Ledger, algorithm: usize) -> Vec<f64> {
    const FLOOR: f64 = 0.15;
    let (best, tries) = of_tunables(ledger, algorithm);
    let fastest = best.iter().copied().fold(f64::INFINITY, f64::min);
    let share = |(t, (&b, &tries)): (usize, (&f64, &usize))| match b.is_finite() {
        _ if ledger.algorithm(t) != algorithm => 0.0,
        true => FLOOR + (1.0 - FLOOR) * (fastest / b).powi(2),
        // One that was never tried gets a full share; one that was tried and never ran gets little.
        false => (8.0 / (8.0 + tries as f64)).max(FLOOR),
    };
    best.iter().zip(&tries).enumerate().map(share).collect()
}

/// The tunable that is furthest behind its share, given how many points each already has.
fn behind(shares: &[f64], have: &[usize], open: &[bool]) -> Option<usize> {
    let due = |t: usize| (have[t] as f64 + 1.0) / shares[t].max(1e-9);
    (0..shares.len()).filter(|&t| open[t]).min_by(|&a, &b| due(a).total_cmp(&due(b)))
}

/// New points of each algorithm, as many as `counts` says. Each is the one of a few samples that is
/// farthest from the others and from the known points of its tunable. Where an algorithm has too
/// few points left, the others give more.
pub(super) fn spread(
    ledger: &mut Ledger,
    counts: &[usize],
    not: &PointSet,
    rng: &mut Xoshiro256PlusPlus,
) -> Vec<Point> {
    let n: usize = counts.iter().sum();
    let mut left = counts.to_vec();
    let mut open = vec![true; ledger.len()];
    let mut have = vec![0; ledger.len()];
    // Weights are varied a little, so that small batches do not always favour the first tunable.
    let of = |f: usize| shares(ledger, f);
    let mut weights: Vec<Vec<f64>> = (0..counts.len()).map(of).collect();
    weights
        .iter_mut()
        .flatten()
        .filter(|s| **s > 0.0)
        .for_each(|s| *s *= rng.random_range(0.95..1.05));
    let mut out: Vec<Point> = Vec::new();
    let mut not = not.clone();
    while out.len() < n {
        let of = |f: usize| -> Vec<bool> {
            (0..open.len()).map(|t| open[t] && ledger.algorithm(t) == f).collect()
        };
        let next = |f: usize| behind(&weights[f], &have, &of(f)).map(|t| (f, t));
        let mut turn: Vec<usize> = (0..left.len()).collect();
        turn.sort_by_key(|&f| std::cmp::Reverse(left[f]));
        let Some((f, t)) = turn.into_iter().find_map(next) else { break };
        const TRIES: usize = 4;
        let mut best: Option<(f32, Point)> = None;
        for _ in 0..TRIES {
            let Some(p) = ledger.fresh(t, &not, rng) else { break };
            let of_same = ledger
                .known()
                .iter()
                .rev()
                .take(64)
                .map(|k| &k.point)
                .chain(&out)
                .filter(|o| o.tunable == t);
            let nearest = of_same
                .map(|o| ledger.shape(&p).distance(&p.configuration, &o.configuration))
                .fold(1.0, f32::min);
            if best.as_ref().is_none_or(|(d, _)| nearest > *d) {
                best = Some((nearest, p));
            }
        }
        match best {
            Some((_, p)) => {
                have[t] += 1;
                left[f] = left[f].saturating_sub(1);
                not.insert(p.clone());
                out.push(p);
            }
            None => open[t] = false,
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::landscape::TestProblem;
    use rand::SeedableRng;
    use squall_core::{Candidate, CpuCost, FailStage, Measurement, Nanos, Outcome, Trial};

    /// Three algorithms, of which so many trials came to such a time; infinity for failures.
    fn ledger(trials: &[(usize, f64)]) -> Ledger {
        let tunables = TestProblem::several(1)[3].tunables();
        let mut ledger = Ledger::new(&tunables);
        for (t, &(count, time)) in tunables.iter().zip(trials) {
            for i in 0..count {
                let candidate =
                    Candidate { tunable: t.name().into(), configuration: t.space().nth(i as u128) };
                let outcome = match time.is_finite() {
                    true => Outcome::Measured(Measurement {
                        samples: vec![Nanos(time)],
                        calls: 1,
                        error: 0.0,
                        gpu: None,
                        pace: None,
                    }),
                    false => Outcome::Failed { stage: FailStage::Build, detail: String::new() },
                };
                ledger.tell(&Trial { candidate, outcome, cost: CpuCost::default() });
            }
        }
        ledger
    }

    fn dealt(trials: &[(usize, f64)], n: usize, have: &[usize]) -> Vec<usize> {
        divide(
            &ledger(trials),
            n,
            &Policy { openings: vec![20; 3], power: 6 },
            have,
            &mut Xoshiro256PlusPlus::seed_from_u64(3),
        )
    }

    #[test]
    fn the_opening_is_fair() {
        assert_eq!(dealt(&[], 12, &[]), [4, 4, 4]);
        assert_eq!(dealt(&[], 9, &[3, 0, 0]), [1, 4, 4]);
        assert_eq!(dealt(&[(20, 1.0), (4, 9.0), (12, 2.0)], 16, &[]), [0, 12, 4]);
        // Eight failures end it: an algorithm that never ran gets a few of many.
        let failing = dealt(&[(20, 1.0), (20, 1.0), (8, f64::INFINITY)], 1000, &[]);
        assert!(failing[2] > 100 && failing[2] < 300, "{failing:?}");
        let equal = |trials| policy(&ledger(&[]), trials, &[]).openings;
        assert_eq!([64, 100, 3, 1_000_000].map(equal), [[6; 3], [10; 3], [0; 3], [64; 3]]);
    }

    #[test]
    fn an_algorithm_that_is_expected_to_be_slow_opens_with_few() {
        let l = ledger(&[]);
        let of = |speeds: [f64; 3], trials| {
            let expected = (0..3)
                .map(|a| Expectation { algorithm: l.algorithm_name(a).into(), speed: speeds[a] });
            policy(&l, trials, &expected.collect::<Vec<_>>()).openings
        };
        assert_eq!(of([1.0; 3], 100), [10; 3]);
        // By 1, 0.125 and 0.001, and the least.
        assert_eq!(of([1.0, 0.5, 0.1], 100), [26, 4, 4]);
        assert_eq!(of([0.9, 1.0, f64::NAN], 30).len(), 3);
        // Where an equal share is less than the least, none gets less than that.
        assert_eq!(of([1.0, 0.1, 0.1], 20), [5, 2, 2]);
        // The one that is furthest from the end of its opening comes first.
        let policy = Policy { openings: vec![26, 4, 4], power: 6 };
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        assert_eq!(divide(&l, 17, &policy, &[], &mut rng), [13, 2, 2]);
    }

    #[test]
    fn later_shares_follow_the_best_times() {
        let shares = dealt(&[(20, 1.0), (20, 1.05), (20, 3.0)], 10_000, &[]);
        assert_eq!(shares.iter().sum::<usize>(), 10_000);
        // By 1, 1.05^-6 and the floor of 0.075.
        for (share, expected) in shares.iter().zip([5490, 4100, 410]) {
            assert!(share.abs_diff(expected) < 200, "{shares:?}");
        }
    }

    #[test]
    fn each_family_gets_its_count() {
        let tunables = TestProblem::several(1)[3].tunables();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut ledger = Ledger::new(&tunables);
        let points = spread(&mut ledger, &[2, 0, 3], &PointSet::default(), &mut rng);
        let of = |t| points.iter().filter(|p| p.tunable == t).count();
        assert_eq!([of(0), of(1), of(2)], [2, 0, 3]);
    }
}
