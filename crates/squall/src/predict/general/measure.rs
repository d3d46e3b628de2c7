//! Measures how fast the general predictor's first candidates are, in turns with the tuned winner
//! and with the cost formula's first candidates. Input: a predictor, a store of winners, a number
//! of rounds; output: a [`GeneralTried`] for each task. `squall evaluate` prints the shares of the
//! winner's speed.

use super::ask::{Effort, formula_outlook};
use super::file::GeneralPredictor;
use crate::base::error::Error;
use crate::target::target_context::TargetContext;
use crate::task::task_kernels::TaskKernels;
use crate::task::trials::{Limits, NoRecords, Rounds, SYMBOL, realize, run_trials};
use squall_core::{Candidate, Measurer, RecordKind, Task, TaskId, Workload, median};
use squall_records::{Name, Standings, Store};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// The ways to choose first candidates that are measured against each other.
pub const GENERAL_WAYS: [&str; 2] = ["general", "formula"];
/// First candidates of each way.
pub const FIRST: usize = 4;

/// The measurement's store and settings.
#[derive(Clone, Debug)]
pub struct GeneralTrying {
    /// The store with the tuned winners.
    pub store: PathBuf,
    /// How often each candidate is measured; the median counts.
    pub rounds: usize,
    /// The seed of the kernels' random inputs.
    pub seed: u64,
}

/// The times of a task's candidates.
#[derive(Clone, Debug, PartialEq)]
pub struct GeneralTried {
    /// The task.
    pub name: String,
    /// Trials that the tuned time took.
    pub trials: usize,
    /// Time of the tuned configuration, nanoseconds.
    pub tuned: f64,
    /// Processor seconds that the predictor's answer took.
    pub asked: f64,
    /// For each of [`GENERAL_WAYS`] the times of its candidates, in its order; infinite where one
    /// failed.
    pub times: Vec<Vec<f64>>,
    /// The candidates, as records name them.
    pub candidates: Vec<Vec<String>>,
}

impl GeneralTried {
    /// The share of the tuned speed that a way reaches with its first `k`.
    pub fn share(&self, way: usize, k: usize) -> f64 {
        self.tuned / self.times[way].iter().take(k).copied().fold(f64::INFINITY, f64::min)
    }
}

/// The geometric mean over all tasks of [`GeneralTried::share`].
pub fn general_share(all: &[GeneralTried], way: usize, k: usize) -> f64 {
    let logs: f64 = all.iter().map(|t| t.share(way, k).max(1e-3).ln()).sum();
    (logs / all.len().max(1) as f64).exp()
}

/// A tuned task.
pub(super) struct Tuned {
    pub task: Task,
    pub standings: Standings<()>,
    pub trials: usize,
}

/// The tuned tasks of a store on this device; an error where it has none.
pub(super) fn tuned(store: &Store, at: &TargetContext) -> Result<Vec<Tuned>, Error> {
    let mut records = store.query(&at.place.records())?;
    records.sort_by(|a, b| a.time.total_cmp(&b.time));
    let mut all: BTreeMap<TaskId, Tuned> = BTreeMap::new();
    for r in records.into_iter().filter(|r| r.kind != RecordKind::Untuned) {
        let t = match all.entry(r.task) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(free) => {
                let known = Workload::parse(&r.workload).ok().filter(|w| w.foreign.is_none());
                let Some(workload) = known else { continue };
                let task = Task::new(r.name.clone(), workload);
                free.insert(Tuned { task, standings: Standings::default(), trials: 0 })
            }
        };
        t.trials += usize::from(r.kind == RecordKind::Trial);
        let name: Name = (r.tunable, r.configuration);
        t.standings.add(r.kind, name, r.outcome.time(), ());
    }
    if all.is_empty() {
        return Err(Error::Nothing(format!(
            "`{}` holds no tuned task of this device and toolchain (`{}`, `{}`)",
            store.path().display(),
            at.place.device,
            at.place.toolchain
        )));
    }
    Ok(all.into_values().collect())
}

/// Measures on all tasks of a store that were tuned here. `said` is called with each task's result
/// as soon as it is known.
pub fn measure_general(
    predictor: &GeneralPredictor,
    trying: &GeneralTrying,
    at: &TargetContext,
    stop: &AtomicBool,
    said: &mut dyn FnMut(&GeneralTried),
) -> Result<Vec<GeneralTried>, Error> {
    let store = Store::open_read_only(&trying.store)?;
    let all = tuned(&store, at)?;
    let mut measurer = at.measurer()?;
    let mut out = Vec::new();
    for t in &all {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        if let Some(tried) = one(predictor, trying, at, &mut *measurer, t, stop)? {
            said(&tried);
            out.push(tried);
        }
    }
    Ok(out)
}

/// Measures one task; `None` where what tuning found is not made any more.
fn one(
    predictor: &GeneralPredictor,
    trying: &GeneralTrying,
    at: &TargetContext,
    measurer: &mut dyn Measurer,
    t: &Tuned,
    stop: &AtomicBool,
) -> Result<Option<GeneralTried>, Error> {
    let kernels = TaskKernels::generated(&t.task, &at.target);
    let holder = t.standings.winner().map(|w| w.0);
    let Some(winner) = holder.and_then(|n| kernels.candidate(&n.0, &n.1)) else { return Ok(None) };
    let before = crate::base::clock::cpu_time();
    let general = predictor.ask(&t.task, &kernels.tunables, &at.target, Effort::Much, FIRST);
    let asked = crate::base::clock::cpu_time() - before;
    let lists =
        [general, formula_outlook(&t.task, &kernels.tunables, Effort::Much, FIRST).candidates];
    let mut candidates: Vec<Candidate> = vec![winner.clone()];
    for c in lists.iter().flatten() {
        if !candidates.contains(c) {
            candidates.push(c.clone());
        }
    }
    candidates.retain(|c| realize(&kernels.tunables, c, SYMBOL).is_ok());
    measurer.set_task(&kernels.setup(&t.task, trying.seed))?;
    let mut rounds = Rounds::new(candidates, trying.rounds);
    let limits = Limits::new(rounds.len(), rounds.batch(), stop);
    run_trials(measurer, &kernels.tunables, &mut rounds, &mut NoRecords, &limits)?;
    let times = rounds.into_times();
    let time = |c: &Candidate| {
        times.iter().find(|(x, _)| x == c).map_or(f64::INFINITY, |(_, t)| median(t.iter().copied()))
    };
    let tuned = time(&winner);
    Ok(tuned.is_finite().then(|| GeneralTried {
        name: t.task.name.clone(),
        trials: t.trials,
        tuned,
        asked,
        times: lists.iter().map(|list| list.iter().map(time).collect()).collect(),
        candidates: lists.iter().map(|l| l.iter().map(Candidate::to_string).collect()).collect(),
    }))
}
