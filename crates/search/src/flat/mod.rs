//! Strategies of flat spaces: spaces of knobs of which nothing is known but their values, as those
//! of users' own kernels and of recordings. Each is a [`Walker`] over the [`Field`] of one tunable;
//! [`Flat`] makes a [`Strategy`] of it, with one walker for each tunable of a task.

mod anneal;
mod climb;
mod field;
mod population;
mod process;
mod steps;
mod surrogate;
mod tabu;

use anneal::Anneal;
use climb::Climb;
pub(crate) use field::{Field, Spot};
use population::{Differential, Genetic, Swarm};
use process::Process;
use steps::{Stepped, Steps};
use tabu::Tabu;

use crate::statistics::time;
use crate::strategy::{Setting, Strategy, StrategyInfo};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use squall_core::{Candidate, Trial};
use std::sync::Arc;

/// A search through one field.
pub(crate) trait Walker: Send {
    /// A fresh point to try next. Asked again before it heard of the last, it goes on as well as
    /// it can. `None` lets an even draw decide.
    fn next(&mut self, field: &mut Field, rng: &mut Xoshiro256PlusPlus) -> Option<Spot>;

    /// Hears what became of a point, asked for or not: its time, infinite for a failure.
    fn hear(&mut self, field: &mut Field, spot: Spot, time: f64) {
        let _ = (field, spot, time);
    }
}

/// Even draws without repetition: the baseline of every other strategy.
pub(crate) struct Even;

impl Walker for Even {
    fn next(&mut self, field: &mut Field, rng: &mut Xoshiro256PlusPlus) -> Option<Spot> {
        field.fresh(rng)
    }
}

struct Part {
    name: Arc<str>,
    field: Field,
    walker: Box<dyn Walker>,
    asked: f64,
    /// Nothing is left in it.
    done: bool,
}

/// A strategy made of walkers.
pub(crate) struct Flat {
    name: &'static str,
    parts: Vec<Part>,
    rng: Xoshiro256PlusPlus,
    /// Tunables get equal shares, however they do.
    fair: bool,
}

/// However slow its best, a tunable stays in play with this share.
const FLOOR: f64 = 0.15;

impl Flat {
    pub fn new(
        name: &'static str,
        setting: &Setting,
        make: impl Fn(&Field) -> Box<dyn Walker>,
    ) -> Flat {
        let part = |t| {
            let field = Field::new(t);
            Part { name: t.name().into(), walker: make(&field), field, asked: 0.0, done: false }
        };
        Flat {
            name,
            parts: setting.tunables.iter().map(part).collect(),
            rng: Xoshiro256PlusPlus::seed_from_u64(setting.seed),
            fair: false,
        }
    }

    /// Even draws, from the tunables and from each one's configurations.
    pub fn even(name: &'static str, setting: &Setting) -> Flat {
        Flat { fair: true, ..Flat::new(name, setting, |_| Box::new(Even)) }
    }

    /// The tunable that is furthest behind its share: the square of how close its best comes to
    /// the best of all.
    fn pick(&mut self) -> Option<usize> {
        let best = |p: &Part| p.field.best().map_or(f64::INFINITY, |b| p.field.time(b));
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

impl Strategy for Flat {
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
                .walker
                .next(&mut part.field, &mut self.rng)
                .filter(|&s| part.field.is_fresh(s));
            match wanted.or_else(|| part.field.fresh(&mut self.rng)) {
                // What cannot be realized is out of the way now.
                Some(s) => out.extend(part.field.take(s).map(|configuration| {
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
            let Some(spot) = part.field.spot_of(&t.candidate.configuration) else { continue };
            let time = time(&t.outcome);
            part.field.tell(spot, time);
            part.walker.hear(&mut part.field, spot, time);
        }
    }
}

/// Every configuration in order.
struct Exhaustive(u128);

impl Walker for Exhaustive {
    fn next(&mut self, field: &mut Field, _: &mut Xoshiro256PlusPlus) -> Option<Spot> {
        loop {
            let s = field.at_rank(self.0)?;
            self.0 += 1;
            if field.is_fresh(s) {
                return Some(s);
            }
        }
    }
}

fn stepped<T: Steps + 'static>(search: T) -> Box<dyn Walker> {
    Box::new(Stepped::new(search))
}

/// The default of flat spaces.
pub(crate) fn ours(s: &Setting) -> Flat {
    Flat::new(crate::strategy::DEFAULT, s, |f| Box::new(Process::ours(f)))
}

/// The strategies of flat spaces, all with the same parts and different walkers.
pub(crate) const STRATEGIES: &[StrategyInfo] = &[
    StrategyInfo {
        name: "bayes",
        summary: "a Gaussian process over the knobs, by expected improvement",
        make: |s| Box::new(Flat::new("bayes", s, |f| Box::new(Process::plain(f)))),
    },
    StrategyInfo {
        name: "climb",
        summary: "greedy iterated local search: descend along single knobs, kick two of them, \
                  again",
        make: |s| Box::new(Flat::new("climb", s, |_| stepped(Climb::default()))),
    },
    StrategyInfo {
        name: "anneal",
        summary: "simulated annealing over logarithms of time",
        make: |s| Box::new(Flat::new("anneal", s, |_| stepped(Anneal::new()))),
    },
    StrategyInfo {
        name: "tabu",
        summary: "tabu search: on to the best of some neighbours, never back",
        make: |s| Box::new(Flat::new("tabu", s, |_| stepped(Tabu::default()))),
    },
    StrategyInfo {
        name: "genetic",
        summary: "a genetic algorithm: tournament, crossover, mutation",
        make: |s| Box::new(Flat::new("genetic", s, |_| stepped(Genetic::default()))),
    },
    StrategyInfo {
        name: "differential",
        summary: "differential evolution",
        make: |s| Box::new(Flat::new("differential", s, |_| stepped(Differential::default()))),
    },
    StrategyInfo {
        name: "swarm",
        summary: "a particle swarm",
        make: |s| Box::new(Flat::new("swarm", s, |_| stepped(Swarm::default()))),
    },
    StrategyInfo {
        name: "exhaustive",
        summary: "every configuration in order",
        make: |s| Box::new(Flat::new("exhaustive", s, |_| Box::new(Exhaustive(0)))),
    },
];
