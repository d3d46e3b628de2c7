//! Stored winners held against their runners-up once more: does what the store says still hold?

use crate::desk::{Desk, Idle};
use crate::error::Error;
use crate::input::name_matches;
use crate::runoff::{Met, RUNNER_UP, Scribe, meet};
use crate::session::{SYMBOL, toolchain_id};
use squall_compiler::{sketches, untuned};
use squall_core::{FailStage, Nanos, Outcome, Task, TaskId, Workload};
use squall_measure::cpu::{Device, Lab, Toolchain};
use squall_measure::rematch::MINIMUM_EFFECT;
use squall_measure::{MeasureError, Verdict};
use squall_records::{Name, Query, Store};
use std::sync::atomic::{AtomicBool, Ordering};

/// What became of a stored winner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is faster than its runner-up, or has none within reach.
    Holds,
    /// Nothing that matters separates the two; the winner stays.
    Tie,
    /// Its runner-up is faster and holds the task from now on.
    Overtaken,
    /// It does not run any more, or gives a wrong answer.
    Broken,
    /// It, or its task, cannot be made any more.
    Gone,
}

impl Standing {
    /// The spelling in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Standing::Holds => "holds",
            Standing::Tie => "tie",
            Standing::Overtaken => "overtaken",
            Standing::Broken => "broken",
            Standing::Gone => "gone",
        }
    }
}

/// A candidate with the times that the store and this measurement say.
#[derive(Clone, Debug, PartialEq)]
pub struct Contender {
    /// Its tunable.
    pub tunable: String,
    /// Its configuration.
    pub configuration: String,
    /// What stood in the store.
    pub stored: Option<Nanos>,
    /// What it took now.
    pub now: Option<Nanos>,
}

/// A task that was looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct Verified {
    /// The task.
    pub task: TaskId,
    /// Its name.
    pub name: String,
    /// The verdict.
    pub standing: Standing,
    /// Who held the task.
    pub winner: Contender,
    /// Who came next within reach.
    pub runner_up: Option<Contender>,
    /// The runner-up's time over the winner's, interleaved.
    pub ratio: Option<f64>,
    /// How sure the verdict is, from 0 to 1.
    pub confidence: Option<f64>,
    /// Pairs of windows measured.
    pub pairs: usize,
    /// What failed, where something did.
    pub detail: Option<String>,
}

/// All tasks that were looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct Verification {
    /// The device.
    pub device: String,
    /// The toolchain.
    pub toolchain: String,
    /// Differences below this share are ties.
    pub effect: f64,
    /// Task by task.
    pub tasks: Vec<Verified>,
    /// Whether it was ended before all tasks were looked at.
    pub interrupted: bool,
}

impl Verification {
    /// Whether a winner is not what the store said.
    pub fn has_fallen(&self) -> bool {
        self.tasks.iter().any(|t| matches!(t.standing, Standing::Overtaken | Standing::Broken))
    }
}

/// Which tasks to look at.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choice {
    /// The one of this id.
    pub task: Option<TaskId>,
    /// Those whose name matches or whose id begins so.
    pub only: Option<String>,
    /// Threads that a kernel may use.
    pub threads: usize,
}

/// Measures each chosen task's stored winner against its runner-up, interleaved, in processes that
/// ran nothing before, and keeps what came of it as tuning does. Only tasks with records of this
/// device and toolchain are looked at.
pub fn verify(store: &Store, choice: &Choice, stop: &AtomicBool, heard: &mut dyn FnMut(&Verified)) -> Result<Verification, Error> {
    let toolchain = Toolchain::detect()?;
    let device = Device::detect(choice.threads, &toolchain)?;
    let (device_id, tools) = (device.id(), toolchain_id(&toolchain));
    let query = Query { task: choice.task, device: Some(device_id.clone()), toolchain: Some(tools.clone()), ..Query::default() };
    let chosen = |name: &str, id: TaskId| choice.only.as_ref().is_none_or(|p| name_matches(p, name) || id.to_string().starts_with(p));
    let known = store.summaries(&query)?;
    let known: Vec<_> = known.into_iter().filter(|s| s.best.is_some() && chosen(&s.name, s.task)).collect();
    if known.is_empty() {
        return Err(Error::Nothing(format!(
            "`{}` knows no winner of a matching task on this device with this toolchain ({device_id}; {tools})",
            store.path().display()
        )));
    }
    let scribe = Scribe { store, device: &device_id, toolchain: &tools, seed: 0 };
    let mut lab = Lab::open(device, toolchain)?;
    let mut tasks = Vec::new();
    for summary in &known {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        tasks.extend(one(&mut lab, scribe, summary.task, &summary.name)?);
        if let Some(t) = tasks.last() {
            heard(t);
        }
    }
    let interrupted = tasks.len() < known.len() && stop.load(Ordering::Relaxed);
    Ok(Verification { device: device_id.clone(), toolchain: tools.clone(), effect: MINIMUM_EFFECT, tasks, interrupted })
}

/// One task; none where the store says nothing of it after all.
fn one(lab: &mut Lab, scribe: Scribe, id: TaskId, name: &str) -> Result<Option<Verified>, Error> {
    let records = scribe.store.trials(id, scribe.device, scribe.toolchain)?;
    let Some(text) = records.first().map(|r| r.workload.clone()) else { return Ok(None) };
    let Ok(workload) = Workload::parse(&text) else { return Ok(None) };
    let task = Task::new(name, workload);
    let target = lab.device().target.clone();
    let tunables = sketches(&task.workload, &target);
    let mut desk = Desk::new(&task, tunables, untuned(&task.workload, &target), Box::new(Idle));
    desk.learn(records);
    let Some(winner) = desk.standings.winner().map(|w| w.0.clone()) else { return Ok(None) };
    let contender =
        |desk: &Desk, n: &Name| Contender { tunable: n.0.clone(), configuration: n.1.clone(), stored: desk.standings.time(n), now: None };
    let mut seen = Verified {
        task: id,
        name: name.into(),
        standing: Standing::Gone,
        winner: contender(&desk, &winner),
        runner_up: None,
        ratio: None,
        confidence: None,
        pairs: 0,
        detail: None,
    };
    let Some(source) = desk.source(&winner, SYMBOL) else {
        seen.detail = Some("no sketch proposes it any more".into());
        return Ok(Some(seen));
    };
    match lab.set_task(&task.workload, &desk.reference, scribe.seed) {
        Err(MeasureError::Reference(why)) => {
            seen.detail = Some(why);
            return Ok(Some(seen));
        }
        done => done?,
    }
    let limit = desk.standings.time(&winner).map_or(f64::INFINITY, |t| t.0 * (1.0 + RUNNER_UP));
    // Another name for the same code would only measure the machine.
    let distinct = |n: &Name| desk.source(n, SYMBOL).is_some_and(|s| s.source != source.source);
    let rival = desk.standings.ranking().into_iter().find(|(n, t)| **n != winner && t.0 <= limit && distinct(n)).map(|c| c.0.clone());
    if let Some(rival) = rival {
        seen.runner_up = Some(contender(&desk, &rival));
        match meet(lab, &mut desk, scribe, &winner, &rival)? {
            Met::Measured(m) => {
                seen.standing = match m.verdict {
                    Verdict::Slower => Standing::Holds,
                    Verdict::Tie => Standing::Tie,
                    Verdict::Faster => Standing::Overtaken,
                };
                (seen.ratio, seen.confidence, seen.pairs) = (Some(m.ratio), Some(m.confidence), m.a.samples.len());
                seen.winner.now = Some(m.a.median());
                if let Some(r) = &mut seen.runner_up {
                    r.now = Some(m.b.median());
                }
            }
            Met::Failed { rival, detail } => {
                seen.standing = if rival { Standing::Holds } else { Standing::Broken };
                seen.detail = Some(format!("the {} failed: {detail}", if rival { "runner-up" } else { "winner" }));
            }
            Met::Gone => {}
        }
        return Ok(Some(seen));
    }
    // Nobody comes close: measured against itself, in the same way as the others.
    match lab.rematch(&source, &source) {
        Ok(m) => {
            (seen.standing, seen.pairs) = (Standing::Holds, m.a.samples.len());
            seen.winner.now = Some(m.a.median());
            scribe.rematch(&mut desk, &winner, Outcome::Measured(m.a))?;
        }
        Err(MeasureError::Contender { detail, .. }) => {
            seen.standing = Standing::Broken;
            seen.detail = Some(format!("the winner failed: {detail}"));
            scribe.rematch(&mut desk, &winner, Outcome::Failed { stage: FailStage::Launch, detail })?;
        }
        Err(e) => return Err(e.into()),
    }
    Ok(Some(seen))
}
