//! Measures how fast the candidates are that a predictor of tasks proposes, beside other ways to
//! choose candidates ([`WAYS`]). Input: a predictor, the tuned tasks of a store and a measurer;
//! output: for each task the times of each way's candidates, in order. `squall evaluate` prints the
//! shares of the tuned time that the first 1, 5 and 10 reach.

use super::tasks::{Tuned, tuned};
use crate::base::error::Error;
use crate::target::target_context::TargetContext;
use crate::task::task_kernels::TaskKernels;
use crate::task::trials::{Limits, NoRecords, Rounds, SYMBOL, realize, run_trials};
use squall_core::{Candidate, Measurer, median};
use squall_predict::task::{TaskModel, even, problem};
use squall_records::Store;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// The counts k for which the best of the first k candidates is reported.
pub const TRIED: [usize; 3] = [1, 5, 10];

/// The times of a task's candidates, for each way to choose them.
#[derive(Clone, Debug, PartialEq)]
pub struct Tried {
    /// The task.
    pub name: String,
    /// The nearest task that was learned from.
    pub nearest: Option<String>,
    /// The trials that it took to find the tuned time.
    pub trials: usize,
    /// Time of the tuned configuration, nanoseconds.
    pub tuned: f64,
    /// For each of [`WAYS`] the times of its candidates, in its order; infinite where one failed.
    pub times: Vec<Vec<f64>>,
    /// Time of the winner in another store, where one was given and has the task.
    pub rival: Option<f64>,
}

/// The ways to choose candidates that are measured against each other.
pub const WAYS: [&str; 3] = ["predictor", "nearest task", "random"];

impl Tried {
    /// The share of the tuned speed that a way reaches with its first `k`.
    pub fn share(&self, way: usize, k: usize) -> f64 {
        self.tuned / self.times[way].iter().take(k).copied().fold(f64::INFINITY, f64::min)
    }
}

/// The tasks and settings of a [`measure`] run.
#[derive(Clone, Copy)]
pub struct Trying<'a> {
    /// The predictor.
    pub model: &'a TaskModel,
    /// The store whose tasks it did not learn from.
    pub store: &'a Path,
    /// A store whose winners run beside them.
    pub against: Option<&'a Path>,
    /// How often each candidate is measured; the median counts.
    pub rounds: usize,
    /// The seed of random candidates and of inputs.
    pub seed: u64,
}

/// Measures a predictor's candidates on the tasks of a store that it did not learn from, beside
/// each task's winner, the best of the nearest learned tasks and random candidates; all take
/// turns. `said` is called with each task's name before the task is measured.
pub fn measure(
    trying: &Trying,
    at: &TargetContext,
    stop: &AtomicBool,
    said: &mut dyn FnMut(&str),
) -> Result<Vec<Tried>, Error> {
    let store = Store::open_read_only(trying.store)?;
    let known = &trying.model.facts().known;
    let unseen = |t: &Tuned| known.iter().all(|k| k.problem.key != t.task.id.to_string());
    let all: Vec<Tuned> = tuned(&store, at)?.into_iter().filter(unseen).collect();
    if all.is_empty() {
        let message = format!(
            "the predictor learned from every task of `{}`: give a store of others",
            store.path().display()
        );
        return Err(Error::Nothing(message));
    }
    let others = trying
        .against
        .map(|path| tuned(&Store::open_read_only(path)?, at))
        .transpose()?
        .unwrap_or_default();
    let mut measurer = at.measurer()?;
    let mut out = Vec::new();
    for t in &all {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        said(&t.task.name);
        let rival = others.iter().find(|o| o.task.id == t.task.id);
        out.extend(one(trying, at, &mut *measurer, t, rival, stop)?);
    }
    Ok(out)
}

/// Measures one task; `None` where it cannot be compared.
fn one(
    trying: &Trying,
    at: &TargetContext,
    measurer: &mut dyn Measurer,
    t: &Tuned,
    rival: Option<&Tuned>,
    stop: &AtomicBool,
) -> Result<Option<Tried>, Error> {
    let (model, seed) = (trying.model, trying.seed);
    let kernels = TaskKernels::generated(&t.task, &at.target);
    let most = TRIED[TRIED.len() - 1];
    let Some(problem) = problem(t.task.id, &t.task.workload, &at.device_name()) else {
        return Ok(None);
    };
    let proposed = model.propose(&problem, &kernels.tunables, most)?;
    let lists: [Vec<Candidate>; 3] = [
        proposed.into_iter().map(|p| p.candidate).collect(),
        model.neighbours(&problem, &kernels.tunables, most),
        even(&kernels.tunables, most, seed ^ t.task.id.number()),
    ];
    let Some(winner) = t.holder(&kernels) else { return Ok(None) };
    let rival = rival.and_then(|o| o.holder(&kernels));
    let mut candidates: Vec<Candidate> = vec![winner.clone()];
    for c in rival.iter().chain(lists.iter().flatten()) {
        if !candidates.contains(c) {
            candidates.push(c.clone());
        }
    }
    candidates.retain(|c| realize(&kernels.tunables, c, SYMBOL).is_ok());
    measurer.set_task(&kernels.setup(&t.task, seed))?;
    let mut rounds = Rounds::new(candidates, trying.rounds);
    let limits = Limits::new(rounds.len(), rounds.batch(), stop);
    run_trials(measurer, &kernels.tunables, &mut rounds, &mut NoRecords, &limits)?;
    let times = rounds.into_times();
    let time = |c: &Candidate| {
        times.iter().find(|(x, _)| x == c).map_or(f64::INFINITY, |(_, t)| median(t.iter().copied()))
    };
    let tuned = time(&winner);
    Ok(tuned.is_finite().then(|| Tried {
        name: t.task.name.clone(),
        nearest: model.similar_tasks(&problem).first().map(|k| k.name.clone()),
        trials: t.standings.ranking().len() + t.failed.len(),
        tuned,
        times: lists.iter().map(|list| list.iter().map(time).collect()).collect(),
        rival: rival.as_ref().map(time),
    }))
}

/// The geometric mean over all tasks of [`Tried::share`].
pub fn mean_share(all: &[Tried], way: usize, k: usize) -> f64 {
    let logs: f64 = all.iter().map(|t| t.share(way, k).max(1e-9).ln()).sum();
    (logs / all.len().max(1) as f64).exp()
}
