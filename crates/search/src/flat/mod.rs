//! Strategies for flat spaces: spaces of which nothing is known but their knobs' values, such as
//! those of users' own kernels and of recordings. A strategy here is a [`PointSearch`], which
//! proposes the next point of one tunable's [`PointTable`] and learns its time; [`FlatSearch`]
//! makes a [`Strategy`] of it, with one search for each tunable of a task. docs/strategies.md
//! describes them.

mod anneal;
mod bayes;
mod climb;
#[cfg(test)]
mod function_tests;
mod point_table;
mod population;
mod random;
mod steps;
mod surrogate;
mod tabu;

use anneal::Anneal;
use bayes::Bayesian;
use climb::Climb;
pub(crate) use point_table::{PointId, PointTable};
use population::{Differential, Genetic, Swarm};
pub(crate) use random::Random;
use steps::{Stepped, Steps};
use tabu::Tabu;

use crate::statistics::time;
use crate::strategy::{Setting, Strategy, StrategyInfo};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use squall_core::{Candidate, Trial};
use std::sync::Arc;

/// A search over the points of one tunable.
pub(crate) trait PointSearch: Send {
    /// A fresh point to try next. It may be asked again before it was given the outcome of the
    /// last. `None` lets an even draw decide.
    fn next(&mut self, points: &mut PointTable, rng: &mut Xoshiro256PlusPlus) -> Option<PointId>;

    /// Takes note of the outcome of a point, asked for or not: its time, infinite for a failure.
    fn observe(&mut self, points: &mut PointTable, id: PointId, time: f64) {
        let _ = (points, id, time);
    }
}

/// Even draws without repetition: the baseline of every other strategy.
pub(crate) struct Even;

impl PointSearch for Even {
    fn next(&mut self, points: &mut PointTable, rng: &mut Xoshiro256PlusPlus) -> Option<PointId> {
        points.fresh(rng)
    }
}

/// The search over one tunable.
struct TunableSearch {
    name: Arc<str>,
    points: PointTable,
    search: Box<dyn PointSearch>,
    asked: f64,
    /// No point is left to propose.
    done: bool,
}

/// A strategy made of one search for each tunable.
pub(crate) struct FlatSearch {
    name: &'static str,
    parts: Vec<TunableSearch>,
    rng: Xoshiro256PlusPlus,
    /// Whether tunables get equal shares, whatever their times are.
    fair: bool,
}

/// A tunable keeps this share however slow its best is.
const FLOOR: f64 = 0.15;

impl FlatSearch {
    pub fn new(
        name: &'static str,
        setting: &Setting,
        make: impl Fn(&PointTable) -> Box<dyn PointSearch>,
    ) -> FlatSearch {
        let part = |t| {
            let points = PointTable::new(t);
            let (name, search) = (t.name().into(), make(&points));
            TunableSearch { name, search, points, asked: 0.0, done: false }
        };
        FlatSearch {
            name,
            parts: setting.tunables.iter().map(part).collect(),
            rng: Xoshiro256PlusPlus::seed_from_u64(setting.seed),
            fair: false,
        }
    }

    /// Even draws, from the tunables and from each one's configurations.
    pub fn even(name: &'static str, setting: &Setting) -> FlatSearch {
        FlatSearch { fair: true, ..FlatSearch::new(name, setting, |_| Box::new(Even)) }
    }

    /// The tunable that is furthest behind its share: the square of how close its best comes to
    /// the best of all.
    fn pick(&mut self) -> Option<usize> {
        let best = |p: &TunableSearch| p.points.best().map_or(f64::INFINITY, |b| p.points.time(b));
        let fastest = self.parts.iter().map(best).fold(f64::INFINITY, f64::min);
        let mut pick: Option<(f64, usize)> = None;
        for (i, p) in self.parts.iter().enumerate().filter(|(_, p)| !p.done) {
            let share = if self.fair {
                1.0
            } else if best(p).is_finite() {
                FLOOR + (1.0 - FLOOR) * (fastest / best(p)).powi(2)
            } else {
                0.5
            };
            let due = (p.asked + if self.parts.len() > 1 { self.rng.random::<f64>() } else { 0.0 })
                / share;
            if pick.is_none_or(|(d, _)| due < d) {
                pick = Some((due, i));
            }
        }
        pick.map(|(_, i)| i)
    }
}

impl Strategy for FlatSearch {
    fn name(&self) -> &'static str {
        self.name
    }

    fn ask(&mut self, n: usize) -> Vec<Candidate> {
        let mut out = Vec::new();
        while out.len() < n
            && let Some(i) = self.pick()
        {
            let part = &mut self.parts[i];
            let wanted = part
                .search
                .next(&mut part.points, &mut self.rng)
                .filter(|&s| part.points.is_fresh(s));
            match wanted.or_else(|| part.points.fresh(&mut self.rng)) {
                // A point that cannot be realized is marked so and not proposed again.
                Some(s) => out.extend(part.points.take(s).map(|configuration| {
                    part.asked += 1.0;
                    Candidate { tunable: part.name.clone(), configuration }
                })),
                None => part.done = true,
            }
        }
        out
    }

    fn tell(&mut self, trials: &[Trial]) {
        for t in trials {
            let Some(part) = self.parts.iter_mut().find(|p| p.name == t.candidate.tunable) else {
                continue;
            };
            let Some(id) = part.points.id_of(&t.candidate.configuration) else { continue };
            let time = time(&t.outcome);
            part.points.tell(id, time);
            part.search.observe(&mut part.points, id, time);
        }
    }
}

/// Every configuration in order.
struct Exhaustive(u128);

impl PointSearch for Exhaustive {
    fn next(&mut self, points: &mut PointTable, _: &mut Xoshiro256PlusPlus) -> Option<PointId> {
        loop {
            let s = points.at_rank(self.0)?;
            self.0 += 1;
            if points.is_fresh(s) {
                return Some(s);
            }
        }
    }
}

fn stepped<T: Steps + 'static>(search: T) -> Box<dyn PointSearch> {
    Box::new(Stepped::new(search))
}

/// The default strategy's search of flat spaces; `name` is the strategy's.
pub(crate) fn default_search(name: &'static str, s: &Setting) -> FlatSearch {
    FlatSearch::new(name, s, |f| Box::new(Bayesian::tuned(f)))
}

/// The strategies of flat spaces: [`FlatSearch`] with different searches.
pub(crate) const STRATEGIES: &[StrategyInfo] = &[
    StrategyInfo {
        name: "bayes",
        aliases: &[],
        summary: "a Gaussian process over the knobs, by expected improvement",
        make: |s| Box::new(FlatSearch::new("bayes", s, |f| Box::new(Bayesian::plain(f)))),
    },
    StrategyInfo {
        name: "climb",
        aliases: &[],
        summary: "greedy iterated local search: descend along single knobs, perturb two of them, \
                  again",
        make: |s| Box::new(FlatSearch::new("climb", s, |_| stepped(Climb::default()))),
    },
    StrategyInfo {
        name: "anneal",
        aliases: &[],
        summary: "simulated annealing over logarithms of time",
        make: |s| Box::new(FlatSearch::new("anneal", s, |_| stepped(Anneal::new()))),
    },
    StrategyInfo {
        name: "tabu",
        aliases: &[],
        summary: "tabu search: on to the best of some neighbours, never back",
        make: |s| Box::new(FlatSearch::new("tabu", s, |_| stepped(Tabu::default()))),
    },
    StrategyInfo {
        name: "genetic",
        aliases: &[],
        summary: "a genetic algorithm: tournament, crossover, mutation",
        make: |s| Box::new(FlatSearch::new("genetic", s, |_| stepped(Genetic::default()))),
    },
    StrategyInfo {
        name: "differential",
        aliases: &[],
        summary: "differential evolution",
        make: |s| {
            Box::new(FlatSearch::new("differential", s, |_| stepped(Differential::default())))
        },
    },
    StrategyInfo {
        name: "swarm",
        aliases: &[],
        summary: "a particle swarm",
        make: |s| Box::new(FlatSearch::new("swarm", s, |_| stepped(Swarm::default()))),
    },
    StrategyInfo {
        name: "exhaustive",
        aliases: &[],
        summary: "every configuration in order",
        make: |s| Box::new(FlatSearch::new("exhaustive", s, |_| Box::new(Exhaustive(0)))),
    },
];
