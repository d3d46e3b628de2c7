//! The list of all search strategies by name, with summaries for the command line, and the
//! ablations, variants that lack a part on purpose. A new strategy is a file in `strategy/` or
//! `flat/` and one entry here or in `flat::STRATEGIES`.

use crate::cost_model::NoModel;
use crate::flat::{self, Random};
use crate::strategy::{DEFAULT, Droplet, Evolution, EvolutionDroplet, StrategyInfo};
use std::sync::LazyLock;

/// All strategies, the default first.
pub fn strategies() -> &'static [StrategyInfo] {
    static ALL: LazyLock<Vec<StrategyInfo>> =
        LazyLock::new(|| GENERAL.iter().chain(flat::STRATEGIES).copied().collect());
    &ALL
}

/// The strategies of spaces with features; they search flat spaces too.
const GENERAL: &[StrategyInfo] = &[
    StrategyInfo {
        name: DEFAULT,
        aliases: &["storm+raindrop"],
        summary: "explore under a cost model, then descend from several of the best; the share by \
                  expected gain",
        make: |s| match !s.tunables.is_empty() && s.tunables.iter().all(|t| t.is_flat()) {
            true => Box::new(flat::default_search(DEFAULT, s)),
            false => Box::new(EvolutionDroplet::new(s)),
        },
    },
    StrategyInfo {
        name: "evolution",
        aliases: &["storm"],
        summary: "evolution under a gradient-boosted cost model (as in Ansor)",
        make: |s| Box::new(Evolution::new(s)),
    },
    StrategyInfo {
        name: "droplet",
        aliases: &["raindrop"],
        summary: "coordinate descent with a significance test (Droplet Search), restarted where \
                  it ends",
        make: |s| Box::new(Droplet::new(s)),
    },
    StrategyInfo {
        name: "random",
        aliases: &[],
        summary: "even draws of the legal configurations, none twice",
        make: |s| Box::new(Random::new(s)),
    },
];

/// Strategies that lack a part on purpose, to measure what it is worth. They are not meant for
/// tuning.
pub fn ablations() -> &'static [StrategyInfo] {
    const ALL: &[StrategyInfo] = &[
        StrategyInfo {
            name: "evolution-nomodel",
            aliases: &["storm-nomodel"],
            summary: "evolution with random scores in place of its cost model",
            make: |s| Box::new(Evolution::with_model(s, Box::new(NoModel { seed: s.seed }))),
        },
        StrategyInfo {
            name: "evolution+droplet-nomodel",
            aliases: &["storm+raindrop-nomodel"],
            summary: "the default with random scores in place of the cost model",
            make: |s| Box::new(EvolutionDroplet::with_model(s, Box::new(NoModel { seed: s.seed }))),
        },
    ];
    ALL
}
