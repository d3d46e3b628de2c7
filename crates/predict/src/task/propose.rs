//! Proposes candidates for a task that was not tuned, in the order in which to try them. Candidates
//! are the best configurations of similar tasks brought into this task's spaces, variations of
//! them, and a few even samples; all are legal by construction. They are ordered by the mean score
//! of the networks less their disagreement.

use super::encode::distance;
use super::{KnownTask, TaskModel};
use crate::error::PredictError;
use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Generator;
use squall_core::forecast::{Problem, fnv1a};
use squall_core::{Candidate, Configuration, Space, Tunable, find_tunable};
use std::collections::HashSet;
use std::sync::Arc;

/// Candidates taken over from similar tasks, the nearest task's first.
const TAKEN: usize = 120;
/// Even samples of each space.
const SAMPLED: usize = 48;
/// Candidates bred in a generation, and from how many.
const BRED: usize = 240;
const PARENTS: usize = 24;
/// Parents that each sketch has whatever the others are.
const OWN_PARENTS: usize = 4;
const GENERATIONS: usize = 3;
/// The factor on the standard deviation of the networks' scores, which is subtracted: a candidate
/// that only some networks score high is probably unlike those that were learned from.
const DISAGREEMENT: f32 = 0.5;
/// The most that likeness to a candidate that is chosen already costs, in logarithms of time: ten
/// of the same kernel are one try.
const SIMILARITY: f32 = 0.08;
/// A sketch whose best is expected to be within this of the best of all, in logarithms of time, is
/// tried once, as long as a third of all tries suffices: few tasks teach which sketch suits one,
/// and a network that is wrong about that is wrong about all of its candidates.
const SKETCH_MARGIN: f32 = 0.5;

/// A candidate worth trying.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// A sketch of the task and a configuration of its space.
    pub candidate: Candidate,
    /// The speed expected over that of the first proposal.
    pub speed: f64,
}

/// A candidate with what the networks think of it.
struct Member {
    /// Its place among the tunables.
    tunable: usize,
    configuration: Configuration,
    score: f32,
}

impl TaskModel {
    /// The tasks like this one, the nearest first.
    pub fn similar_tasks(&self, problem: &Problem) -> Vec<&KnownTask> {
        let mut all: Vec<(f64, &KnownTask)> = self
            .facts
            .known
            .iter()
            .filter_map(|k| Some((distance(problem, &k.problem)?, k)))
            .collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        all.into_iter().map(|(_, k)| k).collect()
    }

    /// Up to `n` best configurations of the tasks like this one, the nearest task's first, each
    /// brought into this task's space of the same sketch.
    pub fn neighbours(
        &self,
        problem: &Problem,
        tunables: &[Arc<dyn Tunable>],
        n: usize,
    ) -> Vec<Candidate> {
        let mut out: Vec<Candidate> = Vec::new();
        let best = self.similar_tasks(problem).into_iter().flat_map(|k| &k.best);
        for (tunable, text, _) in best {
            if out.len() >= n {
                break;
            }
            let Some(t) = find_tunable(tunables, tunable) else { continue };
            let Some(configuration) = t.space().nearest(text) else { continue };
            let candidate = Candidate { tunable: t.name().into(), configuration };
            if !out.contains(&candidate) {
                out.push(candidate);
            }
        }
        out
    }

    /// Up to `n` candidates for a task, in the order in which they are worth trying.
    ///
    /// # Errors
    /// For a problem of another device, or one of a kind that was not learned.
    pub fn propose(
        &self,
        problem: &Problem,
        tunables: &[Arc<dyn Tunable>],
        n: usize,
    ) -> Result<Vec<Proposal>, PredictError> {
        if problem.device != self.facts.device {
            return Err(PredictError::Device {
                learned: self.facts.device.clone(),
                asked: problem.device.clone(),
            });
        }
        if self.similar_tasks(problem).is_empty() {
            return Err(PredictError::Kind {
                kind: problem.solver.clone(),
                known: self.kinds().join(", "),
            });
        }
        let mut rng = Generator::seed_from_u64(fnv1a(problem.key.as_bytes()));
        let mut seen: HashSet<(usize, String)> = HashSet::new();
        let mut fresh = |all: Vec<(usize, Configuration)>| -> Vec<(usize, Configuration)> {
            all.into_iter().filter(|(t, c)| seen.insert((*t, c.to_string()))).collect()
        };
        let place = |c: Candidate| {
            Some((tunables.iter().position(|t| *t.name() == *c.tunable)?, c.configuration))
        };
        let mut first: Vec<_> =
            self.neighbours(problem, tunables, TAKEN).into_iter().filter_map(place).collect();
        for (t, tunable) in tunables.iter().enumerate() {
            first.extend((0..SAMPLED).map(|_| (t, tunable.space().sample(&mut rng))));
        }
        let mut pool = self.weigh(problem, tunables, fresh(first));
        for _ in 0..GENERATIONS {
            let of = |t: usize| pool.iter().filter(move |m| m.tunable == t).take(OWN_PARENTS);
            let parents: Vec<&Member> =
                pool.iter().take(PARENTS).chain((0..tunables.len()).flat_map(of)).collect();
            let breed = |_| {
                let parent = parents.get(rng.random_range(0..parents.len().max(1)))?;
                Some((
                    parent.tunable,
                    moved(tunables[parent.tunable].space(), &parent.configuration, &mut rng)?,
                ))
            };
            let bred: Vec<_> = (0..BRED).filter_map(breed).collect();
            pool.extend(self.weigh(problem, tunables, fresh(bred)));
            pool.sort_by(|a, b| b.score.total_cmp(&a.score));
        }
        let chosen = choose(pool, n);
        let top = chosen.first().map_or(0.0, |m| m.score);
        let named = |m: Member| Proposal {
            candidate: Candidate {
                tunable: tunables[m.tunable].name().into(),
                configuration: m.configuration,
            },
            speed: f64::from(m.score - top).exp(),
        };
        Ok(chosen.into_iter().map(named).collect())
    }

    /// The kinds of kernels that were learned.
    pub fn kinds(&self) -> Vec<&str> {
        let mut all: Vec<&str> =
            self.facts.known.iter().map(|k| k.problem.solver.as_str()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Scores candidates, best first; those without a kernel are left out.
    fn weigh(
        &self,
        problem: &Problem,
        tunables: &[Arc<dyn Tunable>],
        all: Vec<(usize, Configuration)>,
    ) -> Vec<Member> {
        let v = &self.facts.vocabulary;
        let mut inputs = Vec::new();
        let mut members = Vec::new();
        for (tunable, configuration) in all {
            let features = tunables[tunable].features(&configuration);
            if features.len() == v.features() {
                v.push(problem, tunables[tunable].name(), &configuration, &features, &mut inputs);
                members.push(Member { tunable, configuration, score: 0.0 });
            }
        }
        let lists: Vec<Vec<f32>> =
            (0..self.members.len()).map(|m| self.scores(m, &inputs)).collect();
        let n = lists.len().max(1) as f32;
        for (i, m) in members.iter_mut().enumerate() {
            let mean = lists.iter().map(|l| l[i]).sum::<f32>() / n;
            let spread = (lists.iter().map(|l| (l[i] - mean).powi(2)).sum::<f32>() / n).sqrt();
            m.score = mean - DISAGREEMENT * spread;
        }
        members.sort_by(|a, b| b.score.total_cmp(&a.score));
        members
    }
}

/// Up to `n` even samples of a task's spaces, the sketches in turn: what chance would try.
pub fn even(tunables: &[Arc<dyn Tunable>], n: usize, seed: u64) -> Vec<Candidate> {
    let mut rng = Generator::seed_from_u64(seed);
    let mut out: Vec<Candidate> = Vec::new();
    // Spaces may be smaller than what is asked for.
    for t in tunables.iter().cycle().take(10 * n) {
        let c = Candidate { tunable: t.name().into(), configuration: t.space().sample(&mut rng) };
        if out.len() < n && !out.contains(&c) {
            out.push(c);
        }
    }
    out
}

/// Takes the best one after another, each marked down by its likeness to those taken; every second,
/// as long as there are any, is the best of a sketch that had no turn.
fn choose(pool: Vec<Member>, n: usize) -> Vec<Member> {
    let top = pool.first().map_or(0.0, |m| m.score);
    let mut left: Vec<(f32, Member)> = pool.into_iter().map(|m| (m.score, m)).collect();
    let mut out: Vec<Member> = Vec::new();
    let mut hedges = n / 3;
    while out.len() < n {
        let greatest = |among: &dyn Fn(&Member) -> bool| {
            let all = (0..left.len()).filter(|&i| among(&left[i].1));
            all.max_by(|&a, &b| left[a].0.total_cmp(&left[b].0).then(b.cmp(&a)))
        };
        let is_new = |m: &Member| {
            m.score > top - SKETCH_MARGIN && out.iter().all(|o| o.tunable != m.tunable)
        };
        let hedge = if hedges > 0 && out.len() >= 2 && out.len().is_multiple_of(2) {
            greatest(&is_new)
        } else {
            None
        };
        hedges -= usize::from(hedge.is_some());
        let Some(i) = hedge.or_else(|| greatest(&|_| true)) else { break };
        let (_, taken) = left.remove(i);
        for (value, m) in left.iter_mut().filter(|(_, m)| m.tunable == taken.tunable) {
            *value -= SIMILARITY * likeness(&m.configuration, &taken.configuration);
        }
        out.push(taken);
    }
    out
}

/// From 0 for two that share less than half of their values to 1 for equal ones.
fn likeness(a: &Configuration, b: &Configuration) -> f32 {
    let (same, all) =
        (a.indices().zip(b.indices()).filter(|(x, y)| x == y).count(), a.indices().len().max(1));
    (2.0 * same as f32 / all as f32 - 1.0).max(0.0)
}

/// One or two knobs set to other values, the rest as near to what it was as is legal.
fn moved(space: &Space, from: &Configuration, rng: &mut impl Rng) -> Option<Configuration> {
    let old: Vec<usize> = from.indices().collect();
    let (first, second) = (rng.random_range(0..old.len()), rng.random_range(0..old.len()));
    let both = rng.random_bool(0.4);
    let mut p = space.open();
    for (k, &was) in old.iter().enumerate() {
        let allowed: Vec<usize> = p.allowed().collect();
        let at = allowed.iter().enumerate().min_by_key(|(_, v)| v.abs_diff(was))?.0;
        let change = k == first || both && k == second;
        let v = if !change || allowed.len() < 2 {
            allowed[at]
        } else if rng.random_bool(0.6) {
            // A neighbour in the list.
            allowed[if at == 0 || at + 1 < allowed.len() && rng.random_bool(0.5) {
                at + 1
            } else {
                at - 1
            }]
        } else {
            allowed[rng.random_range(0..allowed.len())]
        };
        p.bind(v);
    }
    p.finish().filter(|c| c != from)
}
