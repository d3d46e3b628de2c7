//! The trait [`Strategy`], which proposes candidates of one task and learns from their outcomes,
//! and the strategies for spaces with features: [`evolution`], which explores under a cost model,
//! [`droplet`], which descends from a start, and both in turn. They share a ledger of what was
//! tried. Strategies for flat spaces are in `search/src/flat`.

mod droplet;
mod evolution;
mod evolution_droplet;
mod prospect;
mod ranker;
mod sampling;

pub use droplet::Droplet;
pub use evolution::Evolution;
pub use evolution_droplet::EvolutionDroplet;
pub use prospect::{Outlook, Prospect, prospect};

use squall_core::{Candidate, Trial, Tunable};
use std::sync::Arc;

/// The name of the default strategy.
pub const DEFAULT: &str = "evolution+droplet";

/// Proposes candidates of one task.
pub trait Strategy: Send {
    /// Its name in settings.
    fn name(&self) -> &'static str;

    /// At most `n` candidates that were neither asked nor told before. It gives fewer when it needs
    /// their outcomes first, and none only when nothing is left that can be realized.
    fn ask(&mut self, n: usize) -> Vec<Candidate>;

    /// Outcomes of candidates, asked for or not: known records are told before the first `ask`. A
    /// later trial of the same candidate replaces the earlier.
    fn tell(&mut self, trials: &[Trial]);
}

/// The expectation of an algorithm, for a task of which nothing was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    /// The algorithm: the first part of the names of its tunables
    /// ([`TunableName`](squall_core::TunableName)).
    pub algorithm: String,
    /// Its speed in relation to that of the fastest algorithm that is expected, which has 1.
    pub speed: f64,
}

/// What a strategy is made for.
#[derive(Clone)]
pub struct Setting {
    /// The task's tunables, which are searched together.
    pub tunables: Vec<Arc<dyn Tunable>>,
    /// The seed of every random choice.
    pub seed: u64,
    /// The task's expected budget in trials, on which the length of exploring depends.
    pub trials: usize,
    /// What is expected of the task's algorithms, on which their first trials depend. One that is
    /// not named here is expected to be as fast as any.
    pub expected: Vec<Expectation>,
}

impl Setting {
    /// A setting that expects nothing.
    pub fn new(tunables: Vec<Arc<dyn Tunable>>, seed: u64, trials: usize) -> Setting {
        Setting { tunables, seed, trials, expected: Vec::new() }
    }
}

/// A strategy that can be chosen by name.
#[derive(Clone, Copy)]
pub struct StrategyInfo {
    /// Its name in settings.
    pub name: &'static str,
    /// Its former names, which settings and records may still have.
    pub aliases: &'static [&'static str],
    /// One line for a list.
    pub summary: &'static str,
    /// Makes one.
    pub make: fn(&Setting) -> Box<dyn Strategy>,
}

impl StrategyInfo {
    /// Whether it goes by a name: its own, or a former one.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }
}
