//! Even samples of the legal configurations: the baseline of every other strategy.

use super::{Setting, Strategy};
use crate::ledger::{Ledger, PointSet};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use squall_core::{Candidate, Trial};

/// Draws evenly from the task's tunables, and evenly from each one's legal configurations.
pub struct Random {
    ledger: Ledger,
    rng: Xoshiro256PlusPlus,
}

impl Random {
    /// For a task.
    pub fn new(setting: &Setting) -> Random {
        Random { ledger: Ledger::new(&setting.tunables), rng: Xoshiro256PlusPlus::seed_from_u64(setting.seed) }
    }
}

impl Strategy for Random {
    fn name(&self) -> &'static str {
        "random"
    }

    fn ask(&mut self, n: usize) -> Vec<Candidate> {
        let mut open: Vec<usize> = (0..self.ledger.len()).collect();
        let mut out = Vec::new();
        while out.len() < n && !open.is_empty() {
            let i = self.rng.random_range(0..open.len());
            match self.ledger.fresh(open[i], &PointSet::default(), &mut self.rng) {
                Some(p) => out.extend(self.ledger.propose(&[p])),
                None => {
                    open.remove(i);
                }
            }
        }
        out
    }

    fn tell(&mut self, trials: &[Trial]) {
        for t in trials {
            self.ledger.tell(t);
        }
    }
}
