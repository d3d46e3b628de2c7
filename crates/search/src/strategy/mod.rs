//! Strategies propose candidates of one task and learn from what became of them.
//!
//! Most of them are made of the same parts: a ledger of what is known, [`storm`](evolution)
//! which explores under a cost model, and [`raindrop`](droplet) which descends from a start.

mod droplet;
mod evolution;
mod random;
mod ranker;
mod sampling;
mod storm_raindrop;

pub use droplet::Raindrop;
pub use evolution::Storm;
pub use random::Random;
pub use storm_raindrop::StormRaindrop;

use crate::cost_model::NoModel;
use squall_core::{Candidate, Trial, Tunable};
use std::sync::{Arc, LazyLock};

/// Proposes candidates of one task.
pub trait Strategy: Send {
    /// Its name in settings.
    fn name(&self) -> &'static str;

    /// At most `n` candidates that were neither asked nor told before. Fewer when it wants to
    /// hear first what became of these; none only when nothing is left that can be realized.
    fn ask(&mut self, n: usize) -> Vec<Candidate>;

    /// What became of candidates, asked for or not: known records are told before the first
    /// `ask`. A later trial of the same candidate replaces the earlier.
    fn tell(&mut self, trials: &[Trial]);
}

/// What a strategy is made for.
#[derive(Clone)]
pub struct Setting {
    /// The task's tunables, searched together.
    pub tunables: Vec<Arc<dyn Tunable>>,
    /// Of every random choice.
    pub seed: u64,
    /// Expected budget of the task: how long to explore depends on it.
    pub trials: usize,
}

/// A strategy that can be chosen by name.
#[derive(Clone, Copy)]
pub struct StrategyInfo {
    /// Its name in settings.
    pub name: &'static str,
    /// One line for a list.
    pub summary: &'static str,
    /// Makes one.
    pub make: fn(&Setting) -> Box<dyn Strategy>,
}

/// All strategies, the default first.
pub fn strategies() -> &'static [StrategyInfo] {
    static ALL: LazyLock<Vec<StrategyInfo>> =
        LazyLock::new(|| OURS.iter().chain(crate::flat::STRATEGIES).copied().collect());
    &ALL
}

const OURS: &[StrategyInfo] = &[
    StrategyInfo {
        name: DEFAULT,
        summary: "explore under a cost model, then descend from several of the best; the share by \
                  expected gain",
        make: |s| match !s.tunables.is_empty() && s.tunables.iter().all(|t| t.is_flat()) {
            true => Box::new(crate::flat::ours(s)),
            false => Box::new(StormRaindrop::new(s)),
        },
    },
    StrategyInfo {
        name: "storm",
        summary: "evolution under a gradient-boosted cost model (as in Ansor)",
        make: |s| Box::new(Storm::new(s)),
    },
    StrategyInfo {
        name: "raindrop",
        summary: "coordinate descent with a significance test (Droplet Search), restarted where \
                  it ends",
        make: |s| Box::new(Raindrop::new(s)),
    },
    StrategyInfo {
        name: "random",
        summary: "even draws of the legal configurations, none twice",
        make: |s| Box::new(Random::new(s)),
    },
];

/// The default's name.
pub const DEFAULT: &str = "storm+raindrop";

/// Strategies that lack a part on purpose, to measure what it is worth. Nobody should tune with
/// them.
pub fn ablations() -> &'static [StrategyInfo] {
    const ALL: &[StrategyInfo] = &[
        StrategyInfo {
            name: "storm-nomodel",
            summary: "the storm's evolution with random scores in place of its cost model",
            make: |s| Box::new(Storm::with_model(s, Box::new(NoModel { seed: s.seed }))),
        },
        StrategyInfo {
            name: "storm+raindrop-nomodel",
            summary: "both together with random scores in place of the cost model",
            make: |s| Box::new(StormRaindrop::with_model(s, Box::new(NoModel { seed: s.seed }))),
        },
    ];
    ALL
}

#[cfg(test)]
mod conformance;
#[cfg(test)]
mod races;
