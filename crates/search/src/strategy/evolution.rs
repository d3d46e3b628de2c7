//! Evolutionary search under a learned cost model, as in Ansor (Zheng et al., OSDI 2020). Input:
//! the ledger of outcomes and a fitted model; output: a batch of new points. A population of
//! measured, carried and fresh points is varied for a few generations by traded tile factors,
//! steps, jumps and crossover; the points with the highest scores, chosen unlike one another, and a
//! few random points are proposed.

use super::ranker::Ranker;
use super::sampling::{divide, of_tunables, policy, shares, spread};
use super::{Expectation, Setting, Strategy};
use crate::cost_model::{CostModel, Gbdt, GbdtSettings};
use crate::ledger::{Ledger, Point, PointSet};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use squall_core::{Candidate, Trial};
use std::collections::HashSet;

const GENERATIONS: usize = 4;
/// Parents of a generation.
const PARENTS: usize = 128;
/// Measured points among the parents.
const MEASURED: usize = 48;
/// The share of a batch that is random.
const RANDOM: f64 = 0.07;

/// One in this many proposals is the best point of a tunable that was tried less than others; each
/// such tunable gets one in a batch.
const NEGLECTED: usize = 4;
/// A tunable whose best takes this many times as long as the best of all is left alone.
const HOPELESS: f64 = 1.6;

/// Random points before the first model is fitted.
pub(super) fn warm_up(trials: usize) -> usize {
    (trials / 5).clamp(6, 24)
}

/// The number of points that are proposed before their outcomes are needed; small budgets learn in
/// small steps.
pub(super) fn batch(trials: usize) -> usize {
    (trials / 16).clamp(4, 32)
}

/// The number of points whose features are computed for a batch of `n`. Features are the most
/// expensive part of a search, about half a millisecond each: with this many the search takes a
/// tenth of the cost of a convolution's trial, with twice as many a sixth.
pub(super) fn evaluations(n: usize) -> usize {
    (64 + 32 * n).min(800)
}

/// The evolution itself. The ledger is the caller's.
pub(super) struct Population {
    rng: Xoshiro256PlusPlus,
    /// The task's budget in trials, on which the shares of algorithms depend.
    trials: usize,
    /// What is expected of the task's algorithms, on which their openings depend.
    expected: Vec<Expectation>,
    /// Points with high scores that were not proposed.
    carried: Vec<Point>,
}

/// A point with the score that the model gives it.
pub(super) struct Member {
    pub point: Point,
    pub score: f32,
}

impl Population {
    pub fn new(seed: u64, trials: usize, expected: Vec<Expectation>) -> Population {
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        Population { rng, trials, expected, carried: Vec::new() }
    }

    /// Up to `n` new points, computing features of about `evaluations` at most.
    pub fn propose(
        &mut self,
        ledger: &mut Ledger,
        ranker: &Ranker,
        n: usize,
        evaluations: usize,
        not: &PointSet,
    ) -> Vec<Point> {
        let policy = policy(ledger, self.trials, &self.expected);
        let random = match ranker.is_ready() {
            true => (0..n).filter(|_| self.rng.random_bool(RANDOM)).count(),
            false => n.div_ceil(3),
        };
        let counts = divide(ledger, n - random, &policy, &[], &mut self.rng);
        let mut out: Vec<Point> = Vec::new();
        for (algorithm, &count) in counts.iter().enumerate().filter(|c| *c.1 > 0) {
            let evaluations = evaluations * count / (n - random);
            if !ranker.is_ready() {
                let members = self.anticipate(ledger, algorithm, evaluations, not);
                let (first, others) = by_register_tile(ledger, members, count.div_ceil(2));
                out.extend(self.pick(ledger, &others, count - first.len()));
                out.extend(first);
                continue;
            }
            let mut members = self.evolve(ledger, ranker, algorithm, evaluations, not);
            let mut picked = Vec::new();
            for tunable in neglected(ledger, algorithm, count.div_ceil(NEGLECTED)) {
                if let Some(i) = members.iter().position(|m| m.point.tunable == tunable) {
                    picked.push(members.remove(i).point);
                }
            }
            picked.extend(self.pick(ledger, &members, count - picked.len()));
            let proposed: PointSet = picked.iter().cloned().collect();
            self.carried.extend(
                members
                    .into_iter()
                    .map(|m| m.point)
                    .filter(|p| !proposed.contains(p))
                    .take(PARENTS / 2),
            );
            out.extend(picked);
        }
        let mut have = vec![0; counts.len()];
        out.iter().for_each(|p| have[ledger.algorithm(p.tunable)] += 1);
        let rest = divide(ledger, n - out.len(), &policy, &have, &mut self.rng);
        let mut not = not.clone();
        not.extend(out.iter().cloned());
        out.extend(spread(ledger, &rest, &not, &mut self.rng));
        out
    }

    /// Before a model is fitted: samples of an algorithm by the cost formulas of their tunables,
    /// the best first. None where a tunable has no formula, because the points cannot be compared
    /// then.
    fn anticipate(
        &mut self,
        ledger: &mut Ledger,
        algorithm: usize,
        evaluations: usize,
        not: &PointSet,
    ) -> Vec<Member> {
        let mut seen = not.clone();
        let mut members = Vec::new();
        let samples = self.samples(ledger, algorithm, evaluations, &mut seen);
        ledger.prepare(&samples);
        for point in samples {
            if ledger.features(&point).is_none() {
                continue;
            }
            let Some(prior) = ledger.prior(&point) else { return Vec::new() };
            members.push(Member { point, score: -prior });
        }
        members.sort_by(|a, b| b.score.total_cmp(&a.score));
        members
    }

    /// New points of an algorithm, the one with the highest score first.
    fn evolve(
        &mut self,
        ledger: &mut Ledger,
        ranker: &Ranker,
        algorithm: usize,
        evaluations: usize,
        not: &PointSet,
    ) -> Vec<Member> {
        let mut seen = not.clone();
        let (mut first, others) = std::mem::take(&mut self.carried)
            .into_iter()
            .partition::<Vec<Point>, _>(|p| ledger.algorithm(p.tunable) == algorithm);
        self.carried = others;
        first.retain(|p| !ledger.is_taken(p) && seen.insert(p.clone()));
        first.extend(self.samples(ledger, algorithm, evaluations / 3, &mut seen));
        let mut pool = score(ledger, ranker, first);
        // Measured points are parents too, but are not proposed again. They compete by the score
        // that the model gives them, as all others do.
        let ranking =
            ledger.ranking().into_iter().filter(|k| ledger.algorithm(k.point.tunable) == algorithm);
        let fastest = ranking.take(MEASURED).map(|k| k.point.clone()).collect();
        let measured = score(ledger, ranker, fastest);
        let each = evaluations.saturating_sub(evaluations / 3) / GENERATIONS;
        for _ in 0..GENERATIONS {
            let mut parents: Vec<&Member> = measured.iter().chain(&pool).collect();
            parents.sort_by(|a, b| b.score.total_cmp(&a.score));
            parents.truncate(PARENTS);
            let mut children = Vec::new();
            let mut spent = 0;
            for _ in 0..each * 3 {
                if spent >= each || parents.is_empty() {
                    break;
                }
                let Some(child) = self.breed(ledger, &parents) else { continue };
                if !ledger.is_taken(&child) && seen.insert(child.clone()) {
                    spent += usize::from(!ledger.has_features(&child));
                    children.push(child);
                }
            }
            pool.extend(score(ledger, ranker, children));
        }
        pool.sort_by(|a, b| b.score.total_cmp(&a.score));
        pool
    }

    /// Even samples, shared out between the tunables of an algorithm.
    pub(super) fn samples(
        &mut self,
        ledger: &Ledger,
        algorithm: usize,
        n: usize,
        seen: &mut PointSet,
    ) -> Vec<Point> {
        let shares = shares(ledger, algorithm);
        let total: f64 = shares.iter().sum();
        let mut out = Vec::new();
        for (tunable, share) in shares.iter().enumerate() {
            for _ in 0..(n as f64 * share / total).ceil() as usize {
                let space = ledger.space(tunable);
                let p = Point { tunable, configuration: space.sample(&mut self.rng) };
                if !ledger.is_taken(&p) && seen.insert(p.clone()) {
                    out.push(p);
                }
            }
        }
        out
    }

    /// A child of two of the parents, which are sorted by their scores, highest first.
    pub(super) fn breed(&mut self, ledger: &Ledger, parents: &[&Member]) -> Option<Point> {
        // The square of an even draw favours the parents with high scores.
        let mut draw = || (self.rng.random::<f64>().powi(2) * parents.len() as f64) as usize;
        let (mother, father) = (&parents[draw()].point, &parents[draw()].point);
        let shape = ledger.shape(mother);
        let mut configuration = mother.configuration.clone();
        if mother.tunable == father.tunable && mother != father && self.rng.random_bool(0.2) {
            configuration = shape.cross(&configuration, &father.configuration, &mut self.rng)?;
        } else {
            configuration = shape.mutate(&configuration, &mut self.rng)?;
            // Sometimes two or three moves are made at once, to leave a local optimum.
            while self.rng.random_bool(0.25) {
                configuration =
                    shape.mutate(&configuration, &mut self.rng).unwrap_or(configuration);
            }
        }
        Some(Point { tunable: mother.tunable, configuration })
    }

    /// Takes the members with the highest scores, each lowered by its similarity to those taken
    /// before, so that a batch does not consist of nearly equal kernels.
    fn pick(&self, ledger: &Ledger, members: &[Member], n: usize) -> Vec<Point> {
        let front = &members[..members.len().min(8 * n)];
        let Some((first, last)) = front.first().zip(front.last()) else { return Vec::new() };
        let weight = 0.5 * (first.score - last.score).max(1e-6);
        let mut left: Vec<(f32, &Member)> = front.iter().map(|m| (m.score, m)).collect();
        let mut out: Vec<Point> = Vec::new();
        while out.len() < n
            && let Some(i) =
                (0..left.len()).max_by(|&a, &b| left[a].0.total_cmp(&left[b].0).then(b.cmp(&a)))
        {
            let (_, taken) = left.remove(i);
            for (value, m) in
                left.iter_mut().filter(|(_, m)| m.point.tunable == taken.point.tunable)
            {
                let apart = ledger
                    .shape(&m.point)
                    .distance(&m.point.configuration, &taken.point.configuration);
                *value -= weight * (1.0 - 5.0 * apart).max(0.0);
            }
            out.push(taken.point.clone());
        }
        out
    }
}

/// The tunables of an algorithm that were tried less than their equal share, though not found far
/// behind the best, up to `n` of them, the least tried first. A model of a dozen trials knows one
/// tunable and stays with it, while another would have been faster by far.
fn neglected(ledger: &Ledger, algorithm: usize, n: usize) -> Vec<usize> {
    let (best, tries) = of_tunables(ledger, algorithm);
    let fastest = best.iter().copied().fold(f64::INFINITY, f64::min);
    let of = &ledger.algorithms()[algorithm];
    let fair = tries.iter().sum::<usize>() / of.len().max(1);
    let is_near = |t: usize| tries[t] == 0 || best[t] <= HOPELESS * fastest;
    let is_wanted = |&t: &usize| tries[t] < fair && is_near(t);
    let mut found: Vec<usize> = of.iter().copied().filter(is_wanted).collect();
    found.sort_by_key(|&t| tries[t]);
    found.truncate(n);
    found
}

/// The members with the highest scores of up to `n` register tiles, and all others. A formula knows
/// little of registers that are spilled and of latencies, so that a tile that it likes less may be
/// the fastest by far; of a tile that was tried once, the model knows more.
fn by_register_tile(ledger: &Ledger, members: Vec<Member>, n: usize) -> (Vec<Point>, Vec<Member>) {
    let mut tiles = HashSet::new();
    let (first, others): (Vec<Member>, Vec<Member>) = members.into_iter().partition(|m| {
        let tile = ledger.shape(&m.point).register_tile(&m.point.configuration);
        tiles.len() < n && tiles.insert((m.point.tunable, tile))
    });
    (first.into_iter().map(|m| m.point).collect(), others)
}

/// Scores points; those that cannot be realized are dropped.
pub(super) fn score(ledger: &mut Ledger, ranker: &Ranker, points: Vec<Point>) -> Vec<Member> {
    let scores = ranker.scores(ledger, &points);
    let members = points.into_iter().zip(scores).map(|(point, score)| Member { point, score });
    members.filter(|m| m.score > f32::NEG_INFINITY).collect()
}

/// The cost model that strategies use by default.
pub(super) fn default_model(seed: u64) -> Box<dyn CostModel> {
    Box::new(Gbdt::new(GbdtSettings { seed, ..GbdtSettings::default() }))
}

/// Population under a cost model for one task.
pub struct Evolution {
    ledger: Ledger,
    ranker: Ranker,
    population: Population,
    trials: usize,
}

impl Evolution {
    /// The strategy with gradient-boosted trees.
    pub fn new(setting: &Setting) -> Evolution {
        Evolution::with_model(setting, default_model(setting.seed))
    }

    /// The strategy with another cost model.
    pub fn with_model(setting: &Setting, model: Box<dyn CostModel>) -> Evolution {
        Evolution {
            ledger: Ledger::new(&setting.tunables),
            ranker: Ranker::new(model),
            population: Population::new(setting.seed, setting.trials, setting.expected.clone()),
            trials: setting.trials,
        }
    }
}

impl Strategy for Evolution {
    fn name(&self) -> &'static str {
        "evolution"
    }

    fn ask(&mut self, n: usize) -> Vec<Candidate> {
        self.ranker.refresh(&mut self.ledger);
        let n =
            n.min(if self.ranker.is_ready() { batch(self.trials) } else { warm_up(self.trials) });
        let points = self.population.propose(
            &mut self.ledger,
            &self.ranker,
            n,
            evaluations(n),
            &PointSet::default(),
        );
        self.ledger.propose(&points)
    }

    fn tell(&mut self, trials: &[Trial]) {
        for t in trials {
            self.ledger.tell(t);
        }
    }
}
