//! Searches replayed on recordings: no kernel is built or run, every outcome is looked up, so
//! that strategies can be compared fairly, thousands of runs a minute. A trial counts once, failed
//! or not; it costs the seconds that the recording says.

mod page;
mod score;

pub use page::page;
pub use score::{BUDGETS, Score, budgets, score};

use crate::error::Error;
use squall_core::{Configuration, KernelSource, RealizeError, Space, Trial, Tunable};
use squall_frontend::recording::{self, Recording};
use squall_search::{Setting, StrategyInfo};
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

/// A recording that strategies can be let loose on.
pub struct RecordedSpace {
    /// The file's stem: `convolution-A100`.
    pub name: String,
    /// What was measured.
    pub recording: Recording,
    tunable: Arc<dyn Tunable>,
}

struct Recorded(Space);

impl Tunable for Recorded {
    fn name(&self) -> &str {
        "recorded"
    }
    fn space(&self) -> &Space {
        &self.0
    }
    fn realize(&self, _: &Configuration, _: &str) -> Result<KernelSource, RealizeError> {
        Err(RealizeError("a recording has no sources".into()))
    }
    fn is_flat(&self) -> bool {
        true
    }
    fn features(&self, c: &Configuration) -> Vec<f32> {
        c.indices().map(|i| i as f32).collect()
    }
}

impl RecordedSpace {
    /// Reads a file of measured configurations.
    pub fn open(path: &Path) -> Result<RecordedSpace, Error> {
        let bytes =
            std::fs::read(path).map_err(|source| Error::Read { path: path.into(), source })?;
        let file: String =
            path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let read = recording::read(&path.display().to_string(), &bytes);
        let recording = read.map_err(Error::Recording)?;
        if recording.optimum().is_none() {
            let message = "nothing in it ran: there is no time to look for".into();
            return Err(Error::Input { place: file, message, hint: HINT.into() });
        }
        let name = file.strip_suffix(".gz").unwrap_or(&file);
        Ok(RecordedSpace::new(name.strip_suffix(".json").unwrap_or(name), recording))
    }

    /// Of a recording at hand.
    pub fn new(name: &str, recording: Recording) -> RecordedSpace {
        let tunable = Arc::new(Recorded(recording.space.clone()));
        RecordedSpace { name: name.into(), recording, tunable }
    }
}

const HINT: &str = "replay reads Kernel Tuner's cache files and T4 results, plain or gzipped";

/// What to replay.
pub struct Replay<'a> {
    /// The recordings.
    pub spaces: &'a [RecordedSpace],
    /// The strategies.
    pub strategies: &'a [&'static StrategyInfo],
    /// Runs of each strategy on each recording; their seeds count from 0.
    pub seeds: u64,
    /// Trials of a run.
    pub evaluations: usize,
    /// Seconds that a run's trials may have cost, as recorded.
    pub seconds: Option<f64>,
    /// Threads that work at it.
    pub threads: usize,
}

/// One search.
pub struct Run {
    /// Position of the strategy.
    pub strategy: usize,
    /// Position of the space.
    pub space: usize,
    /// Its seed.
    pub seed: u64,
    /// Ranks of the configurations in the order tried.
    pub trace: Vec<u32>,
    /// Seconds that the strategy itself took.
    pub seconds: f64,
}

impl Replay<'_> {
    /// Runs everything; `tick` hears of each run, on its own thread. Runs come in order of
    /// strategy, space and seed; where `stop` was set, those that had ended by then.
    pub fn run(&self, stop: &AtomicBool, tick: &(dyn Fn() + Sync)) -> Vec<Run> {
        let each = self.spaces.len() * self.seeds as usize;
        let all = self.strategies.len() * each;
        let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(all)));
        let work = || {
            let mut mine = Vec::new();
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= all || stop.load(Ordering::Relaxed) {
                    break;
                }
                let (strategy, space) = (i / each, i % each / self.seeds as usize);
                let Some(run) = self.single(strategy, space, i as u64 % self.seeds, stop) else {
                    break;
                };
                mine.push((i, run));
                tick();
            }
            if let Ok(mut done) = done.lock() {
                done.extend(mine);
            }
        };
        std::thread::scope(|s| {
            for _ in 1..self.threads.max(1) {
                s.spawn(work);
            }
            work();
        });
        let mut done = done.into_inner().unwrap_or_default();
        done.sort_by_key(|(i, _)| *i);
        done.into_iter().map(|(_, r)| r).collect()
    }

    /// One run; none where it was ended early.
    fn single(&self, strategy: usize, space: usize, seed: u64, stop: &AtomicBool) -> Option<Run> {
        let c = &self.spaces[space];
        let began = Instant::now();
        let setting = Setting { tunables: vec![c.tunable.clone()], seed, trials: self.evaluations };
        let mut search = (self.strategies[strategy].make)(&setting);
        let (mut trace, mut spent) = (Vec::with_capacity(self.evaluations), 0.0);
        while trace.len() < self.evaluations && self.seconds.is_none_or(|s| spent < s) {
            if stop.load(Ordering::Relaxed) {
                return None;
            }
            let asked = search.ask(1);
            let Some(candidate) = asked.into_iter().next() else { break };
            // Every strategy draws from the space's own space.
            let Some(rank) = c.recording.space.rank(&candidate.configuration) else { break };
            let row = &c.recording.rows[rank as usize];
            trace.push(rank as u32);
            spent += row.cost.total();
            search.tell(&[Trial { candidate, outcome: row.outcome.clone(), cost: row.cost }]);
        }
        Some(Run { strategy, space, seed, trace, seconds: began.elapsed().as_secs_f64() })
    }

    /// Positions of the strategies that ended all their runs.
    pub fn complete(&self, runs: &[Run]) -> Vec<usize> {
        let all = self.spaces.len() * self.seeds as usize;
        (0..self.strategies.len())
            .filter(|&s| runs.iter().filter(|r| r.strategy == s).count() == all)
            .collect()
    }

    /// A run as a line of JSON, the form that referees of this protocol read.
    pub fn line(&self, run: &Run) -> String {
        let c = &self.spaces[run.space];
        let trace: Vec<&str> =
            run.trace.iter().map(|&r| c.recording.rows[r as usize].key.as_str()).collect();
        let tuner = self.strategies[run.strategy].name;
        serde_json::json!({"space": c.name, "seed": run.seed, "tuner": tuner, "trace": trace})
            .to_string()
    }
}

#[cfg(test)]
mod tests;
