//! The strategy `random`: even draws of the legal configurations of a task's tunables, none twice,
//! without learning from outcomes. It is the baseline of every other strategy, for flat spaces (of
//! which only the knobs are known) and for spaces with features.

use super::FlatSearch;
use crate::strategy::{Setting, Strategy};
use squall_core::{Candidate, Trial};

/// Draws evenly from the task's tunables, and evenly from each one's legal configurations.
pub struct Random(FlatSearch);

impl Random {
    /// The strategy for a task.
    pub fn new(setting: &Setting) -> Random {
        Random(FlatSearch::even("random", setting))
    }
}

impl Strategy for Random {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn ask(&mut self, n: usize) -> Vec<Candidate> {
        self.0.ask(n)
    }

    fn tell(&mut self, trials: &[Trial]) {
        self.0.tell(trials);
    }
}
