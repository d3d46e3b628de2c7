//! Proposals for a task of which nothing was measured, under a cost model that was fitted to other
//! tasks (the general predictor, `squall/src/general`). Input: the task's tunables, hints, and the
//! model; output: the most promising candidates, each unlike those before it, found among hints,
//! even samples and a few generations of evolution.

use super::Expectation;
use super::evolution::{Member, Population, score};
use super::ranker::Ranker;
use crate::cost_model::CostModel;
use crate::ledger::{Ledger, Point, PointSet};
use squall_core::{Candidate, Tunable};
use std::sync::Arc;

/// Generations after the first samples.
const GENERATIONS: usize = 3;
/// Parents of a generation. Few, for the model is sure of little and a search is short.
const PARENTS: usize = 32;
/// The number of best points from which each proposal is chosen.
const FRONT: usize = 24;
/// The loss of worth of a point that is nearly a proposed one; scores are logarithms of speed.
const LIKE: f32 = 0.06;

/// The effort of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// Candidates whose features are computed: half of them samples, the rest their offspring,
    /// where those are more than a few.
    pub evaluations: usize,
    /// The seed of every random choice.
    pub seed: u64,
}

/// The prospects of a task under a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prospect {
    /// The candidates that are most worth trying, the best first.
    pub candidates: Vec<Candidate>,
    /// The speed that the best candidates of each algorithm are expected to reach, the fastest
    /// algorithm first. An algorithm of which nothing could be realized is not among them.
    pub algorithms: Vec<Expectation>,
}

/// The `n` candidates that are most worth trying, the best first, each unlike those before it.
/// `hints` are looked at besides samples, where they are candidates of these tunables. The model's
/// scores are natural logarithms of speed.
pub fn prospect(
    tunables: &[Arc<dyn Tunable>],
    model: Box<dyn CostModel>,
    hints: &[Candidate],
    outlook: Outlook,
    n: usize,
) -> Prospect {
    let (mut ledger, ranker) = (Ledger::new(tunables), Ranker::fitted(model));
    let mut population = Population::new(outlook.seed, n, Vec::new());
    let mut seen = PointSet::default();
    let point = |c: &Candidate| {
        let tunable = tunables.iter().position(|t| *t.name() == *c.tunable)?;
        let indices: Vec<usize> = c.configuration.indices().collect();
        let configuration = tunables[tunable].space().configuration(&indices)?;
        Some(Point { tunable, configuration })
    };
    let mut first: Vec<Point> = hints.iter().filter_map(point).collect();
    first.retain(|p| seen.insert(p.clone()));
    let algorithms = ledger.algorithms().len().max(1);
    for algorithm in 0..ledger.algorithms().len() {
        let samples = outlook.evaluations / 2 / algorithms;
        first.extend(population.samples(&ledger, algorithm, samples, &mut seen));
    }
    let mut pool = score(&mut ledger, &ranker, first);
    let each = outlook.evaluations / 2 / GENERATIONS;
    // A generation of very few finds little, and threads do not pay for it.
    let generations = if each > 3 { GENERATIONS } else { 0 };
    for _ in 0..generations {
        pool.sort_by(|a, b| b.score.total_cmp(&a.score));
        let parents: Vec<_> = pool.iter().take(PARENTS).collect();
        let mut children = Vec::new();
        for _ in 0..each * 3 {
            if children.len() >= each || parents.is_empty() {
                break;
            }
            let Some(child) = population.breed(&ledger, &parents) else { continue };
            if seen.insert(child.clone()) {
                children.push(child);
            }
        }
        pool.extend(score(&mut ledger, &ranker, children));
    }
    pool.sort_by(|a, b| b.score.total_cmp(&a.score));
    let algorithms = expectations(&ledger, &pool);
    let points = unlike(&ledger, &pool, n);
    Prospect { candidates: ledger.propose(&points), algorithms }
}

/// What the best member of each algorithm is expected to reach; the one with the highest score
/// comes first.
fn expectations(ledger: &Ledger, pool: &[Member]) -> Vec<Expectation> {
    let mut seen = vec![false; ledger.algorithms().len()];
    let mut out = Vec::new();
    for m in pool {
        let algorithm = ledger.algorithm(m.point.tunable);
        if !std::mem::replace(&mut seen[algorithm], true) {
            let speed = f64::from(m.score - pool[0].score).exp();
            out.push(Expectation { algorithm: ledger.algorithm_name(algorithm).into(), speed });
        }
    }
    out
}

/// The points with the highest scores, each lowered by its similarity to those before it: what is
/// wrong about one is wrong about those like it.
fn unlike(ledger: &Ledger, pool: &[Member], n: usize) -> Vec<Point> {
    let mut left: Vec<(f32, &Point)> =
        pool.iter().take(FRONT * n).map(|m| (m.score, &m.point)).collect();
    let mut out: Vec<Point> = Vec::new();
    while out.len() < n
        && let Some(i) =
            (0..left.len()).max_by(|&a, &b| left[a].0.total_cmp(&left[b].0).then(b.cmp(&a)))
    {
        let (_, taken) = left.remove(i);
        for (score, p) in left.iter_mut().filter(|(_, p)| p.tunable == taken.tunable) {
            let apart = ledger.shape(p).distance(&p.configuration, &taken.configuration);
            *score -= LIKE * (1.0 - 4.0 * apart).max(0.0);
        }
        out.push(taken.clone());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::landscape::TestProblem;

    /// Knows the true times of a problem, as a model that was fitted to very much would.
    struct Oracle(Vec<(Vec<f32>, f32)>);

    impl CostModel for Oracle {
        fn fit(&mut self, _: &[&[f32]], _: &[f32]) {}

        fn predict(&self, rows: &[&[f32]]) -> Vec<f32> {
            let near = |row: &&[f32]| {
                let distance =
                    |r: &[f32]| -> f32 { r.iter().zip(*row).map(|(a, b)| (a - b).powi(2)).sum() };
                let best = self.0.iter().min_by(|a, b| distance(&a.0).total_cmp(&distance(&b.0)));
                best.map_or(0.0, |b| b.1)
            };
            rows.iter().map(near).collect()
        }
    }

    #[test]
    fn a_good_model_finds_good_candidates_and_hints_count() {
        use rand::SeedableRng;
        use rand_xoshiro::Xoshiro256PlusPlus;
        let problem = &TestProblem::several(3)[0];
        let tunables = problem.tunables();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(4);
        let sample = |rng: &mut Xoshiro256PlusPlus| Candidate {
            tunable: tunables[0].name().into(),
            configuration: tunables[0].space().sample(rng),
        };
        let mut known: Vec<(Candidate, f64)> = Vec::new();
        while known.len() < 600 {
            let c = sample(&mut rng);
            if let Some(t) = problem.truth(&c) {
                known.push((c, t));
            }
        }
        let rows = |all: &[(Candidate, f64)]| -> Vec<(Vec<f32>, f32)> {
            let row = |(c, t): &(Candidate, f64)| {
                (tunables[0].features(&c.configuration), -(t.ln() as f32))
            };
            all.iter().map(row).filter(|r| !r.0.is_empty()).collect()
        };
        known.sort_by(|a, b| a.1.total_cmp(&b.1));
        let outlook = Outlook { evaluations: 200, seed: 5 };
        let found = prospect(&tunables, Box::new(Oracle(rows(&known))), &[], outlook, 4).candidates;
        assert_eq!(found.len(), 4);
        let times: Vec<f64> = found.iter().filter_map(|c| problem.truth(c)).collect();
        let median = known[known.len() / 2].1;
        assert!(times.iter().all(|t| *t < median), "{times:?} against {median}");
        // Among the best twentieth with most seeds.
        let best = |seed: u64| {
            let outlook = Outlook { evaluations: 200, seed };
            let model = Box::new(Oracle(rows(&known)));
            let found = prospect(&tunables, model, &[], outlook, 4).candidates;
            found.iter().filter_map(|c| problem.truth(c)).fold(f64::INFINITY, f64::min)
        };
        let mut bests: Vec<f64> = (0..9).map(best).collect();
        bests.sort_by(f64::total_cmp);
        assert!(bests[5] < known[known.len() / 20].1, "{bests:?}");
        // A hint that the model likes best comes first.
        let hint = known[0].0.clone();
        let hints = std::slice::from_ref(&hint);
        let found =
            prospect(&tunables, Box::new(Oracle(rows(&known[..1]))), hints, outlook, 1).candidates;
        let again =
            prospect(&tunables, Box::new(Oracle(rows(&known[..1]))), hints, outlook, 1).candidates;
        assert_eq!((found.len(), &found), (1, &again));
    }
}
