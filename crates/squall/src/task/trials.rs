//! The one trial loop. [`run_trials`] repeats: ask a strategy for candidates, realize each as a
//! kernel source, have the measurer build, check and time it, record the trial, tell the strategy.
//! Tuning, comparisons of strategies, replays and measurements of predictors all use it and differ
//! in their strategy, measurer and recorder only.
//!
//! A trial is recorded before the strategy or a report hears of it. An error of the recorder or the
//! measurer ends the loop; trials that were recorded before stay.

pub use crate::base::clock::cpu_time;
use crate::base::error::Error;
pub use crate::task::task_state::name_of;
use squall_core::{
    Candidate, CandidateText, CpuCost, Job, KernelSource, Measurer, Outcome, Trial, Tunable,
};
use squall_search::{Strategy, StrategyInfo};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// The name of a measured kernel's function, unless the limits name another. Each kernel is a
/// shared library of its own, so that names do not collide.
pub const SYMBOL: &str = "squall_kernel";

/// Trials between two decisions of the allocator: enough for a cost model to learn from, few enough
/// to change course soon.
pub const BATCH: usize = 16;

/// How often a limit in time is looked at while kernels are built and run.
const WATCH: Duration = Duration::from_millis(20);

/// Keeps each trial as soon as its outcome is known, before the strategy is told.
pub trait TrialRecorder {
    /// Keeps a trial. `search` is the CPU time that finding it took.
    ///
    /// # Errors
    /// Where it cannot be kept: the loop ends with this error.
    fn record(&mut self, trial: Trial, search: f64) -> Result<Trial, Error>;

    /// Hears which candidates are measured next, in their order.
    fn begin(&mut self, _candidates: &[Candidate]) {}

    /// Whether no more trials are wanted; asked before each batch.
    fn is_satisfied(&self) -> bool {
        false
    }
}

/// Keeps nothing: for measurements that are no trials of a search.
pub struct NoRecords;

impl TrialRecorder for NoRecords {
    fn record(&mut self, trial: Trial, _: f64) -> Result<Trial, Error> {
        Ok(trial)
    }
}

/// How far the loop may go.
#[derive(Clone, Copy)]
pub struct Limits<'a> {
    /// Trials in all.
    pub trials: usize,
    /// Trials that are asked for at once.
    pub batch: usize,
    /// How often the strategy may be asked.
    pub asks: usize,
    /// Ends the loop once it is set; the trial being measured is finished and counts.
    pub stop: &'a AtomicBool,
    /// Ends the loop in the same way.
    pub end: Option<Instant>,
    /// CPU time of the search that no trial has carried yet.
    pub search: f64,
    /// The entry point of the kernels.
    pub symbol: &'a str,
}

impl<'a> Limits<'a> {
    /// So many trials, asked for `batch` at a time, until `stop` is set.
    pub fn new(trials: usize, batch: usize, stop: &'a AtomicBool) -> Limits<'a> {
        Limits { trials, batch, asks: usize::MAX, stop, end: None, search: 0.0, symbol: SYMBOL }
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.end.is_some_and(|e| Instant::now() >= e)
    }
}

/// How the loop ended.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ran {
    /// Trials made.
    pub trials: usize,
    /// Whether the strategy had nothing left to ask for.
    pub exhausted: bool,
    /// CPU time of the search that no trial has carried yet.
    pub search: f64,
}

/// The source of a candidate, or why it can never have one.
pub fn realize(
    tunables: &[Arc<dyn Tunable>],
    candidate: &Candidate,
    symbol: &str,
) -> Result<KernelSource, Outcome> {
    match tunables.iter().find(|t| *t.name() == *candidate.tunable) {
        Some(t) => t
            .realize(&candidate.configuration, symbol)
            .map_err(|e| Outcome::Infeasible(e.to_string())),
        None => {
            Err(Outcome::Infeasible(format!("the task has no tunable `{}`", candidate.tunable)))
        }
    }
}

/// Makes trials of the measurer's task until a limit is reached or the strategy has nothing left.
///
/// # Errors
/// Where the recorder cannot keep a trial or the measurer can measure none: the strategy is told
/// nothing of that batch.
pub fn run_trials(
    measurer: &mut dyn Measurer,
    tunables: &[Arc<dyn Tunable>],
    strategy: &mut dyn Strategy,
    recorder: &mut dyn TrialRecorder,
    limits: &Limits,
) -> Result<Ran, Error> {
    let mut ran = Ran { search: limits.search, ..Ran::default() };
    // A recorded trial takes less time than reading the clock of all threads.
    let is_timed = measurer.needs_source();
    let cpu_time = || if is_timed { cpu_time() } else { 0.0 };
    for _ in 0..limits.asks {
        if ran.trials >= limits.trials || limits.is_over() || recorder.is_satisfied() {
            break;
        }
        let clock = cpu_time();
        let asked = strategy.ask((limits.trials - ran.trials).min(limits.batch));
        if asked.is_empty() {
            ran.search += cpu_time() - clock;
            ran.exhausted = true;
            break;
        }
        let batch = Batch::realize(measurer, tunables, asked, limits.symbol);
        ran.search += cpu_time() - clock;
        let each = std::mem::take(&mut ran.search) / batch.len() as f64;
        let trials = batch.run(measurer, recorder, each, limits)?;
        ran.trials += trials.len();
        let clock = cpu_time();
        strategy.tell(&trials);
        ran.search += cpu_time() - clock;
    }
    Ok(ran)
}

/// The strategy of this name among some.
pub fn strategy(
    name: &str,
    all: impl IntoIterator<Item = &'static StrategyInfo> + Clone,
) -> Result<&'static StrategyInfo, Error> {
    let known = || all.clone().into_iter().map(|s| s.name).collect::<Vec<_>>().join(", ");
    all.clone()
        .into_iter()
        .find(|s| s.is_called(name))
        .ok_or_else(|| Error::Strategy { name: name.into(), known: known() })
}

/// The candidates of one ask, realized as kernel sources.
struct Batch {
    jobs: Vec<Job>,
    /// The candidate of each job.
    candidates: Vec<Candidate>,
    /// The candidates that have no kernel, and the reasons.
    infeasible: Vec<(Candidate, Outcome)>,
}

impl Batch {
    fn realize(
        measurer: &dyn Measurer,
        tunables: &[Arc<dyn Tunable>],
        asked: Vec<Candidate>,
        symbol: &str,
    ) -> Batch {
        let mut batch = Batch { jobs: Vec::new(), candidates: Vec::new(), infeasible: Vec::new() };
        for candidate in asked {
            let name = CandidateText::from(&candidate);
            let job = match measurer.needs_source() {
                true => realize(tunables, &candidate, symbol).map(|s| Job::new(name, s)),
                false => Ok(Job::without_source(name)),
            };
            match job {
                Ok(job) => {
                    batch.jobs.push(job);
                    batch.candidates.push(candidate);
                }
                Err(outcome) => batch.infeasible.push((candidate, outcome)),
            }
        }
        batch
    }

    fn len(&self) -> usize {
        self.jobs.len() + self.infeasible.len()
    }

    /// Measures and records it; the trials in the order in which they were recorded.
    fn run(
        self,
        measurer: &mut dyn Measurer,
        recorder: &mut dyn TrialRecorder,
        search: f64,
        limits: &Limits,
    ) -> Result<Vec<Trial>, Error> {
        let mut trials = Vec::with_capacity(self.len());
        for (candidate, outcome) in self.infeasible {
            let trial = Trial { candidate, outcome, cost: CpuCost::default() };
            trials.push(recorder.record(trial, search)?);
        }
        recorder.begin(&self.candidates);
        let halt = AtomicBool::new(false);
        let mut failure = None;
        let candidates = &self.candidates;
        let is_watched = measurer.needs_source();
        let mut run = || {
            measurer.run(&self.jobs, &halt, &mut |result| {
                // What was in flight when a trial could not be kept is not kept, either.
                if failure.is_some() {
                    return;
                }
                let candidate = candidates[result.job].clone();
                let trial = Trial { candidate, outcome: result.outcome, cost: result.cost };
                match recorder.record(trial, search) {
                    Ok(trial) => trials.push(trial),
                    Err(e) => {
                        failure.get_or_insert(e);
                    }
                }
                if failure.is_some() || limits.is_over() {
                    halt.store(true, Ordering::Relaxed);
                }
            })
        };
        // Looking up outcomes takes less time than starting a thread that watches the clock.
        let done = if is_watched { watched(run, &halt, limits) } else { run() };
        match failure {
            Some(e) => Err(e),
            None => done.map(|()| trials).map_err(Error::from),
        }
    }
}

/// Does something while another thread sets `halt` as soon as a limit is reached.
fn watched<T>(work: impl FnOnce() -> T, halt: &AtomicBool, limits: &Limits) -> T {
    /// Ends the watch however the work ends, by a panic, too.
    struct Watch<'a>(&'a AtomicBool, &'a Thread);
    impl Drop for Watch<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
            self.1.unpark();
        }
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                if limits.is_over() {
                    halt.store(true, Ordering::Relaxed);
                }
                std::thread::park_timeout(WATCH);
            }
        });
        let _end = Watch(&done, watch.thread());
        work()
    })
}

/// A strategy that measures given candidates several times. Every round begins with another of
/// them, so that a disturbance does not always meet the same.
pub struct Rounds {
    candidates: Vec<Candidate>,
    rounds: usize,
    /// Candidates asked for so far.
    asked: usize,
    /// The times of each candidate.
    times: Vec<Vec<f64>>,
    turning: bool,
}

impl Rounds {
    /// Each candidate `rounds` times.
    pub fn new(candidates: Vec<Candidate>, rounds: usize) -> Rounds {
        let times = vec![Vec::new(); candidates.len()];
        Rounds { candidates, rounds, asked: 0, times, turning: true }
    }

    /// The same with every round in the order given.
    pub fn in_order(self) -> Rounds {
        Rounds { turning: false, ..self }
    }

    /// Trials in all.
    pub fn len(&self) -> usize {
        self.candidates.len() * self.rounds
    }

    /// Whether there is nothing to measure.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The candidates of a round, whose number is the batch that [`Limits`] must allow.
    pub fn batch(&self) -> usize {
        self.candidates.len()
    }

    /// The candidates, each with its times; shorter where some failed.
    pub fn into_times(self) -> Vec<(Candidate, Vec<f64>)> {
        self.candidates.into_iter().zip(self.times).collect()
    }
}

impl Strategy for Rounds {
    fn name(&self) -> &'static str {
        "rounds"
    }

    fn ask(&mut self, n: usize) -> Vec<Candidate> {
        let (size, left) = (self.candidates.len(), self.len() - self.asked);
        let place = |i: usize| {
            let (round, place) = (i / size, i % size);
            let turn = if self.turning { round * size / self.rounds } else { 0 };
            (place + turn) % size
        };
        let asked =
            (self.asked..self.asked + n.min(left)).map(|i| self.candidates[place(i)].clone());
        let asked: Vec<Candidate> = asked.collect();
        self.asked += asked.len();
        asked
    }

    fn tell(&mut self, trials: &[Trial]) {
        for t in trials {
            let place = self.candidates.iter().position(|c| *c == t.candidate);
            if let (Some(place), Some(time)) = (place, t.outcome.time()) {
                self.times[place].push(time.0);
            }
        }
    }
}

#[cfg(test)]
mod tests;
