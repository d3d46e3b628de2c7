//! Predictors of Squall's own tasks: what the records of a store teach, candidates for a task that
//! nobody tuned, and what those are worth, measured.

use crate::aim::Aimed;
use crate::desk::realize;
use crate::error::Error;
use crate::kit::Kit;
use crate::session::SYMBOL;
use squall_core::{
    Candidate, Job, Measurer, Outcome, RecordKind, Target, Task, TaskId, TaskSetup, Tunable,
    Workload, find_candidate, find_tunable, median,
};
use squall_predict::task::{MeasuredCandidate, Proposal, TaskModel, TunedTask, even, problem};
use squall_predict::{Options, PredictError, Predictor, Progress};
use squall_records::{Name, Query, Standings, Store};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// More candidates of a task than this teach no more than they cost: the fastest third of so many
/// are kept, and of the others an even selection.
const ROWS: usize = 600;

/// A tuned task of a store.
struct Tuned {
    task: Task,
    standings: Standings<()>,
    /// Candidates that failed.
    failed: Vec<Name>,
}

impl Tuned {
    /// The candidate that holds the task, if it can still be made.
    fn holder(&self, tunables: &[Arc<dyn Tunable>]) -> Option<Candidate> {
        let (name, ..) = self.standings.winner()?;
        find_candidate(tunables, &name.0, &name.1)
    }
}

/// What a store knows of a device's tasks that are made by rule.
fn tuned(store: &Store, at: &Aimed) -> Result<Vec<Tuned>, Error> {
    let query = Query {
        device: Some(at.id.clone()),
        toolchain: Some(at.tools.clone()),
        ..Query::default()
    };
    let mut records = store.query(&query)?;
    records.sort_by(|a, b| a.time.total_cmp(&b.time));
    let mut all: BTreeMap<TaskId, Tuned> = BTreeMap::new();
    for r in records {
        let name: Name = (r.tunable, r.configuration);
        let t = match all.entry(r.task) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                // What only a description is known of, or an older Squall wrote, is no lesson.
                let Some(workload) =
                    Workload::parse(&r.workload).ok().filter(|w| w.foreign.is_none())
                else {
                    continue;
                };
                place.insert(Tuned {
                    task: Task::new(r.name, workload),
                    standings: Standings::default(),
                    failed: Vec::new(),
                })
            }
        };
        match (r.kind, r.outcome.time()) {
            (RecordKind::Untuned, _) => {}
            (RecordKind::Rematch, time) => t.standings.rematch(name, time, ()),
            (RecordKind::Trial, Some(time)) => t.standings.trial(name, Some(time), ()),
            (RecordKind::Trial, None) => t.failed.push(name),
        }
    }
    if all.is_empty() {
        let others: Vec<String> =
            store.summaries(&Query::default())?.into_iter().map(|s| s.device).collect();
        let mut others: Vec<&str> = others.iter().map(String::as_str).collect();
        others.sort_unstable();
        others.dedup();
        let others = if others.is_empty() {
            "it holds none at all".into()
        } else {
            format!("it has records of {}", others.join("; "))
        };
        return Err(Error::Nothing(format!(
            "`{}` holds no tuned task of this device and toolchain (`{}`, `{}`); {others}; \
             `squall tune --store` makes some",
            store.path().display(),
            at.id,
            at.tools
        )));
    }
    Ok(all.into_values().collect())
}

/// What a store's records of a device teach. Sketches are derived anew, so what an older Squall
/// proposed and none proposes now is left out.
pub fn lessons(store: &Store, at: &Aimed) -> Result<Vec<TunedTask>, Error> {
    Ok(tuned(store, at)?.iter().filter_map(|t| lesson(t, at)).collect())
}

fn lesson(t: &Tuned, at: &Aimed) -> Option<TunedTask> {
    let problem = problem(t.task.id, &t.task.workload, &at.id)?;
    let tunables = Kit::generated(&t.task, &at.target).tunables;
    let ranking = t.standings.ranking();
    let row = |name: &Name, time: Option<f64>| {
        let tunable = find_tunable(&tunables, &name.0)?;
        let configuration = tunable.space().parse(&name.1).ok()?;
        let features = tunable.features(&configuration);
        (!features.is_empty()).then(|| MeasuredCandidate {
            tunable: tunable.name().into(),
            configuration,
            features,
            time,
        })
    };
    let front = ROWS / 3;
    let behind = ranking.len().saturating_sub(front).div_ceil(ROWS - front).max(1);
    let chosen = ranking
        .iter()
        .enumerate()
        .filter(|(i, _)| *i < front || (i - front).is_multiple_of(behind));
    let mut rows: Vec<MeasuredCandidate> =
        chosen.filter_map(|(_, (name, time))| row(name, Some(time.0))).collect();
    rows.extend(t.failed.iter().take(ROWS / 6).filter_map(|name| row(name, None)));
    Some(TunedTask { problem, name: t.task.name.clone(), rows })
}

/// Trains a predictor on a store's records of a device, and writes its file, as a whole or not at
/// all.
pub fn train_on_records(
    store: &Path,
    at: &Aimed,
    options: &Options,
    out: &Path,
    progress: &mut dyn FnMut(&Progress) -> bool,
) -> Result<Predictor, Error> {
    let lessons = lessons(&Store::open_read_only(store)?, at)?;
    let predictor = Predictor::train_on_tasks(&at.id, &lessons, options, progress)?;
    predictor.save(out).map_err(|e| Error::Predictor { path: out.into(), source: Box::new(e) })?;
    Ok(predictor)
}

/// The candidates of a task that are worth trying first.
///
/// # Errors
/// Where the predictor is of another device, or knows no task like it.
pub fn proposals(
    model: &TaskModel,
    task: &Task,
    tunables: &[Arc<dyn Tunable>],
    device: &str,
    n: usize,
) -> Result<Vec<Proposal>, PredictError> {
    match problem(task.id, &task.workload, device) {
        Some(p) => model.propose(&p, tunables, n),
        None => Err(PredictError::Kind {
            kind: "kernel of one's own".into(),
            known: model.kinds().join(", "),
        }),
    }
}

/// The same for a task that is made by rule.
pub fn proposals_for(
    model: &TaskModel,
    task: &Task,
    target: &Target,
    device: &str,
    n: usize,
) -> Result<Vec<Proposal>, PredictError> {
    proposals(model, task, &Kit::generated(task, target).tunables, device, n)
}

/// How many candidates a measurement looks at.
pub const TRIED: [usize; 3] = [1, 5, 10];

/// What candidates of a task were worth.
#[derive(Clone, Debug, PartialEq)]
pub struct Tried {
    /// The task.
    pub name: String,
    /// The nearest task that was learned from.
    pub nearest: Option<String>,
    /// Trials that the tuned time took.
    pub trials: usize,
    /// Time of the tuned configuration, nanoseconds.
    pub tuned: f64,
    /// Of each way ([`WAYS`]) the times of its candidates, in its order; infinite where one failed.
    pub times: Vec<Vec<f64>>,
    /// Time of what holds the task in another store, if that was asked for and knows the task.
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

/// Measures what a predictor's candidates are worth on a store's tasks that it did not learn from:
/// beside what holds each task, the nearest learned tasks' best and random ones, all in turn,
/// `rounds` times, the median of each counting. What holds the tasks in the store `against` runs
/// with them. `said` hears of each task before its turn.
#[allow(clippy::too_many_arguments)] // an experiment's conditions, named at its only caller
pub fn measure(
    model: &TaskModel,
    store: &Path,
    against: Option<&Path>,
    at: &Aimed,
    rounds: usize,
    seed: u64,
    stop: &AtomicBool,
    said: &mut dyn FnMut(&str),
) -> Result<Vec<Tried>, Error> {
    let store = Store::open_read_only(store)?;
    let unseen =
        |t: &Tuned| model.facts().known.iter().all(|k| k.problem.key != t.task.id.to_string());
    let all: Vec<Tuned> = tuned(&store, at)?.into_iter().filter(unseen).collect();
    if all.is_empty() {
        let message = format!(
            "the predictor learned from every task of `{}`: give a store of others",
            store.path().display()
        );
        return Err(Error::Nothing(message));
    }
    let others = against
        .map(|path| tuned(&Store::open_read_only(path)?, at))
        .transpose()?
        .unwrap_or_default();
    let mut lab = at.lab()?;
    let mut out = Vec::new();
    for t in &all {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        said(&t.task.name);
        let kit = Kit::generated(&t.task, &at.target);
        let most = TRIED[TRIED.len() - 1];
        let Some(problem) = problem(t.task.id, &t.task.workload, &at.id) else { continue };
        let predicted = model
            .propose(&problem, &kit.tunables, most)?
            .into_iter()
            .map(|p| p.candidate)
            .collect();
        let near = model.neighbours(&problem, &kit.tunables, most);
        let lists: [Vec<Candidate>; 3] =
            [predicted, near, even(&kit.tunables, most, seed ^ t.task.id.number())];
        let Some(winner) = t.holder(&kit.tunables) else { continue };
        let rival =
            others.iter().find(|o| o.task.id == t.task.id).and_then(|o| o.holder(&kit.tunables));
        let mut candidates: Vec<Candidate> = vec![winner.clone()];
        for c in rival.iter().chain(lists.iter().flatten()) {
            if !candidates.contains(c) {
                candidates.push(c.clone());
            }
        }
        let sources: Vec<_> =
            candidates.iter().map(|c| realize(&kit.tunables, c, SYMBOL)).collect();
        let reference = kit.reference(&t.task, "squall_reference");
        lab.set_task(&TaskSetup::new(t.task.workload.clone(), reference, seed))?;
        let mut times: Vec<Vec<f64>> = vec![Vec::new(); candidates.len()];
        let places: Vec<usize> = (0..candidates.len()).filter(|&i| sources[i].is_ok()).collect();
        let jobs: Vec<Job> = candidates
            .iter()
            .zip(sources)
            .filter_map(|(c, source)| Some(Job::new(c.into(), source.ok()?)))
            .collect();
        for round in 0..rounds {
            // Every round begins elsewhere, so that a disturbance does not always meet the same.
            let turn = round * jobs.len() / rounds.max(1);
            let order: Vec<usize> = (0..jobs.len()).map(|i| (i + turn) % jobs.len()).collect();
            let turned: Vec<_> = order.iter().map(|&i| jobs[i].clone()).collect();
            lab.run(&turned, stop, &mut |r| {
                if let Outcome::Measured(m) = &r.outcome {
                    times[places[order[r.job]]].push(m.median().0);
                }
            })?;
        }
        let time = |c: &Candidate| {
            candidates
                .iter()
                .position(|x| x == c)
                .map_or(f64::INFINITY, |i| median(times[i].iter().copied()))
        };
        let tuned = time(&winner);
        if tuned.is_finite() {
            let nearest = model.similar_tasks(&problem).first().map(|k| k.name.clone());
            out.push(Tried {
                name: t.task.name.clone(),
                nearest,
                trials: t.standings.ranking().len() + t.failed.len(),
                tuned,
                times: lists.iter().map(|list| list.iter().map(time).collect()).collect(),
                rival: rival.as_ref().map(time),
            });
        }
    }
    Ok(out)
}

/// The geometric mean of what a way reaches over all tasks with its first `k`.
pub fn mean_share(all: &[Tried], way: usize, k: usize) -> f64 {
    let logs: f64 = all.iter().map(|t| t.share(way, k).max(1e-9).ln()).sum();
    (logs / all.len().max(1) as f64).exp()
}
