//! The verb behind `squall replay`: compares search strategies on recordings, spaces of which every
//! configuration was measured. Input: files, strategies, seeds and budgets; output: [`Replayed`],
//! whose `replay()` runs them (`crate::replay`).

use crate::base::error::Error;
use crate::tuning::replay::{RecordedSpace, Replay, Run};
use squall_search::{DEFAULT, StrategyInfo, strategies};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Spaces, strategies and budgets of a replay.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayRequest {
    /// Measured spaces: Kernel Tuner's cache files or T4 results.
    pub files: Vec<PathBuf>,
    /// Strategies by name, or `all`; the default one if none.
    pub strategies: Vec<String>,
    /// Runs of each strategy on each space; their seeds count from 0.
    pub seeds: u64,
    /// Trials of a run.
    pub evaluations: usize,
    /// Seconds that a run's trials may have cost, as recorded.
    pub seconds: Option<f64>,
}

/// Spaces, and the searches that were replayed on them.
pub struct Replayed {
    request: ReplayRequest,
    /// The spaces.
    pub spaces: Vec<RecordedSpace>,
    /// The strategies.
    pub strategies: Vec<&'static StrategyInfo>,
    /// Threads that worked at it.
    pub threads: usize,
    /// The runs, in order of strategy, space and seed.
    pub runs: Vec<Run>,
    /// Seconds that it took.
    pub seconds: f64,
}

impl Replayed {
    /// The conditions of the runs.
    pub fn replay(&self) -> Replay<'_> {
        Replay {
            spaces: &self.spaces,
            strategies: &self.strategies,
            seeds: self.request.seeds,
            evaluations: self.request.evaluations,
            seconds: self.request.seconds,
            threads: self.threads,
        }
    }
}

/// Replays searches on all cores until all runs or `stop` ended them. `tick` is called after
/// each run, on its thread, with the number of all.
pub fn replay(
    request: &ReplayRequest,
    stop: &AtomicBool,
    tick: &(dyn Fn(u64) + Sync),
) -> Result<Replayed, Error> {
    let strategies = chosen(&request.strategies)?;
    let spaces: Vec<RecordedSpace> =
        request.files.iter().map(|f| RecordedSpace::open(f)).collect::<Result<_, _>>()?;
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let all = (spaces.len() * strategies.len()) as u64 * request.seeds;
    let (request, runs, seconds) = (request.clone(), Vec::new(), 0.0);
    let mut done = Replayed { request, spaces, strategies, threads, runs, seconds };
    let began = Instant::now();
    done.runs = done.replay().run(stop, &|| tick(all))?;
    done.seconds = began.elapsed().as_secs_f64();
    Ok(done)
}

/// The strategies of these names.
fn chosen(names: &[String]) -> Result<Vec<&'static StrategyInfo>, Error> {
    if names.iter().any(|n| n == "all") {
        return Ok(strategies().iter().collect());
    }
    let wanted = if names.is_empty() { &[DEFAULT.to_string()] } else { names };
    let find = |n: &String| {
        let known = || strategies().iter().map(|s| s.name).collect::<Vec<_>>().join(", ");
        strategies().iter().find(|s| s.is_called(n)).ok_or_else(|| Error::Usage {
            message: format!("there is no strategy `{n}`"),
            hint: format!("there are {} and `all`", known()),
        })
    };
    wanted.iter().map(find).collect()
}
