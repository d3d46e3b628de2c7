//! Replays search strategies on recordings (spaces of which every configuration was measured). No
//! kernel is built or run: each outcome is looked up, so that strategies can be compared fairly,
//! thousands of runs a minute. Every trial counts once, failed or not, and costs the seconds that
//! the recording says. Input: recordings, strategies, seeds, budgets; output: [`Run`]s, which
//! `score.rs` scores and `page.rs` draws. `squall replay` calls this.

mod page;
mod score;

pub use page::page;
pub use score::{BUDGETS, Score, budgets, score};

use crate::base::error::Error;
use crate::task::trials::{Limits, TrialRecorder, run_trials};
use crate::tuning::ask_tell::FlatTunable;
use squall_core::{
    CandidateText, Configuration, CpuCost, Measurer, MeasurerIdentity, Outcome, Reference, Space,
    TaskSetup, Trial, Tunable, Workload,
};
use squall_frontend::recording::{self, Recording, Row};
use squall_measure::RecordedMeasurer;
use squall_search::{Setting, StrategyInfo};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

/// A recording as a space that strategies search.
pub struct RecordedSpace {
    /// The file's stem: `convolution-A100`.
    pub name: String,
    /// The recording.
    pub recording: Recording,
    tunable: Arc<dyn Tunable>,
    /// The same by the names that a measurer is asked with.
    trials: Arc<HashMap<CandidateText, (Outcome, CpuCost)>>,
}

/// The tunable's name in records and recordings of what others measured.
const RECORDED: &str = "recorded";

/// Stands for the expression that a recording does not tell.
const WORKLOAD: &str =
    "workload recorded\ndata X: f32[1]\nstage Y: f32[i: 1] = max(X[i], 0)\noutput Y\n";

impl RecordedSpace {
    /// Reads a file of measured configurations.
    pub fn open(path: &Path) -> Result<RecordedSpace, Error> {
        let bytes = crate::base::files::read(path)?;
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
        let tunable = Arc::new(FlatTunable { name: RECORDED, space: recording.space.clone() });
        let row = |(c, row): (Configuration, &Row)| {
            (CandidateText::new(RECORDED, c.to_string()), (row.outcome.clone(), row.cost))
        };
        let trials = recording.space.iter().zip(&recording.rows).map(row).collect();
        RecordedSpace { name: name.into(), recording, tunable, trials: Arc::new(trials) }
    }

    /// A measurer that looks outcomes up, with the recording as its task.
    fn measurer(&self) -> Result<RecordedMeasurer, Error> {
        let identity = MeasurerIdentity::new(&self.recording.device, RECORDED);
        let mut measurer = RecordedMeasurer::new(identity, self.trials.clone());
        let workload = Workload::parse(WORKLOAD).map_err(|e| Error::Nothing(e.to_string()))?;
        measurer.set_task(&TaskSetup::new(workload, Reference::default(), 0))?;
        Ok(measurer)
    }
}

const HINT: &str = "replay reads Kernel Tuner's cache files and T4 results, plain or gzipped";

/// A replay: spaces, strategies and budgets.
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

/// Keeps the ranks of what was tried.
struct Trace<'a> {
    space: &'a Space,
    ranks: Vec<u32>,
    /// Seconds that the trials cost, as recorded.
    spent: f64,
    /// The most that they may cost.
    seconds: Option<f64>,
}

impl TrialRecorder for Trace<'_> {
    fn record(&mut self, trial: Trial, _: f64) -> Result<Trial, Error> {
        // Every strategy draws from the recording's own space.
        let rank = self.space.rank(&trial.candidate.configuration);
        self.ranks.extend(rank.map(|r| r as u32));
        self.spent += trial.cost.total();
        Ok(trial)
    }

    fn is_satisfied(&self) -> bool {
        self.seconds.is_some_and(|s| self.spent >= s)
    }
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
    /// Runs everything; `tick` is called after each run, on its thread. Runs come in order of
    /// strategy, space and seed; where `stop` was set, those that had ended by then.
    pub fn run(&self, stop: &AtomicBool, tick: &(dyn Fn() + Sync)) -> Result<Vec<Run>, Error> {
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
                let run = self.single(strategy, space, i as u64 % self.seeds, stop);
                if let Ok(None) = run {
                    break;
                }
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
        done.into_iter().filter_map(|(_, r)| r.transpose()).collect()
    }

    /// One run; none where it was ended early.
    fn single(
        &self,
        strategy: usize,
        space: usize,
        seed: u64,
        stop: &AtomicBool,
    ) -> Result<Option<Run>, Error> {
        let s = &self.spaces[space];
        let began = Instant::now();
        let tunables = [s.tunable.clone()];
        let setting = Setting::new(tunables.to_vec(), seed, self.evaluations);
        let mut search = (self.strategies[strategy].make)(&setting);
        let mut trace = Trace {
            space: &s.recording.space,
            ranks: Vec::with_capacity(self.evaluations),
            spent: 0.0,
            seconds: self.seconds,
        };
        let mut measurer = s.measurer()?;
        let limits = Limits::new(self.evaluations, 1, stop);
        let ran = run_trials(&mut measurer, &tunables, &mut *search, &mut trace, &limits)?;
        let is_whole = ran.exhausted || ran.trials >= self.evaluations || trace.is_satisfied();
        let (trace, seconds) = (trace.ranks, began.elapsed().as_secs_f64());
        Ok(is_whole.then_some(Run { strategy, space, seed, trace, seconds }))
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
