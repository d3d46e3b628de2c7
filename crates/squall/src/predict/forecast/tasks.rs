//! Predictors of Squall's own tasks (kernels to tune). [`train_on_records`] turns the records of a
//! store into lessons (a task with its measured candidates) and fits a model; [`proposals`] returns
//! the candidates that the model would try first for a task that was never tuned. Sessions
//! (`session.rs`) and guesses (`predict/guess.rs`) ask for proposals.

use crate::base::error::Error;
use crate::target::target_context::TargetContext;
use crate::task::task_kernels::TaskKernels;
use squall_core::{Candidate, RecordKind, Target, Task, TaskId, Tunable, Workload, find_tunable};
use squall_predict::task::{MeasuredCandidate, Proposal, TaskModel, TunedTask, problem};
use squall_predict::{Options, PredictError, Predictor, Progress};
use squall_records::{Name, Query, Standings, Store};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;
use std::sync::Arc;

/// The most candidates of a task that are learned from; more of them lengthen training and improve
/// little. The fastest candidates take a third of these places, an even selection of the others the
/// rest.
const ROWS: usize = 600;

/// A tuned task of a store.
pub(super) struct Tuned {
    pub task: Task,
    pub standings: Standings<()>,
    /// Candidates that failed.
    pub failed: Vec<Name>,
}

impl Tuned {
    /// The task's incumbent (its best candidate), if today's tunables can still make it.
    pub fn holder(&self, kernels: &TaskKernels) -> Option<Candidate> {
        let (name, ..) = self.standings.winner()?;
        kernels.candidate(&name.0, &name.1)
    }
}

/// A device's tasks in a store, without those whose kernel a user wrote: predictors learn from
/// generated kernels alone.
pub(super) fn tuned(store: &Store, at: &TargetContext) -> Result<Vec<Tuned>, Error> {
    let mut records = store.query(&at.place.records())?;
    records.sort_by(|a, b| a.time.total_cmp(&b.time));
    let mut all: BTreeMap<TaskId, Tuned> = BTreeMap::new();
    for r in records {
        let name: Name = (r.tunable, r.configuration);
        let t = match all.entry(r.task) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                // A user's kernel and a workload in a text of an older Squall are left out.
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
            (RecordKind::Trial, None) => t.failed.push(name),
            (kind, time) => t.standings.add(kind, name, time, ()),
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
            at.place.device,
            at.place.toolchain
        )));
    }
    Ok(all.into_values().collect())
}

/// The training data in a store's records of a device. Sketches are derived anew, so candidates of
/// an older Squall that no sketch has any more are left out.
pub fn lessons(store: &Store, at: &TargetContext) -> Result<Vec<TunedTask>, Error> {
    Ok(tuned(store, at)?.iter().filter_map(|t| lesson(t, at)).collect())
}

fn lesson(t: &Tuned, at: &TargetContext) -> Option<TunedTask> {
    let problem = problem(t.task.id, &t.task.workload, &at.device_name())?;
    let tunables = TaskKernels::generated(&t.task, &at.target).tunables;
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
    at: &TargetContext,
    options: &Options,
    out: &Path,
    progress: &mut dyn FnMut(&Progress) -> bool,
) -> Result<Predictor, Error> {
    let lessons = lessons(&Store::open_read_only(store)?, at)?;
    let predictor = Predictor::train_on_tasks(&at.device_name(), &lessons, options, progress)?;
    predictor.save(out).map_err(|e| Error::Predictor { path: out.into(), source: Box::new(e) })?;
    Ok(predictor)
}

/// The candidates of a task that are worth trying first.
///
/// # Errors
/// Where the predictor is of another device, or learned from no task like it.
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

/// The same for a task whose kernels Squall generates.
pub fn proposals_for(
    model: &TaskModel,
    task: &Task,
    target: &Target,
    device: &str,
    n: usize,
) -> Result<Vec<Proposal>, PredictError> {
    proposals(model, task, &TaskKernels::generated(task, target).tunables, device, n)
}
