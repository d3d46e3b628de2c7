//! The simplest strategy: every configuration in the order of its space. It shows how much code a
//! strategy needs; the conformance suite of this crate and the tests of squall's trial loop run it.
//! Its entry for a list of strategies is [`IN_ORDER`].

use super::{Candidate, Setting, Strategy, StrategyInfo, Trial};
use std::collections::HashSet;

/// The line that adds the strategy to a list.
pub const IN_ORDER: StrategyInfo = StrategyInfo {
    name: "in-order",
    aliases: &[],
    summary: "every configuration in the order of its space; outcomes teach it nothing",
    make: |s| Box::new(InOrder::new(s)),
};

/// Goes once over the configurations of all tunables, from a place that the seed says.
struct InOrder {
    setting: Setting,
    /// Configurations that were looked at.
    done: u128,
    /// Candidates that were told, which are not to be asked for.
    known: HashSet<String>,
}

impl InOrder {
    fn new(setting: &Setting) -> InOrder {
        InOrder { setting: setting.clone(), done: 0, known: HashSet::new() }
    }

    /// Configurations of all tunables.
    fn len(&self) -> u128 {
        self.setting.tunables.iter().map(|t| t.space().len()).sum()
    }

    /// The candidate at a place among those of all tunables; absent where it has no kernel.
    fn candidate(&self, mut place: u128) -> Option<Candidate> {
        for t in &self.setting.tunables {
            let len = t.space().len();
            if place < len {
                let configuration = t.space().nth(place);
                let is_realizable = !t.features(&configuration).is_empty();
                let tunable = t.name().into();
                return is_realizable.then_some(Candidate { tunable, configuration });
            }
            place -= len;
        }
        None
    }
}

impl Strategy for InOrder {
    fn name(&self) -> &'static str {
        IN_ORDER.name
    }

    fn ask(&mut self, n: usize) -> Vec<Candidate> {
        let mut asked = Vec::new();
        while asked.len() < n && self.done < self.len() {
            let place = (u128::from(self.setting.seed) + self.done) % self.len();
            self.done += 1;
            asked.extend(self.candidate(place).filter(|c| !self.known.contains(&c.to_string())));
        }
        asked
    }

    fn tell(&mut self, trials: &[Trial]) {
        self.known.extend(trials.iter().map(|t| t.candidate.to_string()));
    }
}
