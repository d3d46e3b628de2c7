//! The training data of the general predictor. Input: stores of records from several machines and
//! the models of those machines; output: one [`Lesson`] per device and task, whose rows are
//! candidates with features (`relative.rs`, computed for the machine that timed them) and times.
//! `train.rs` learns from the lessons.

use super::relative::{Relative, estimate};
use crate::base::error::Error;
use crate::target::target_context::TargetContext;
use crate::task::task_kernels::TaskKernels;
use squall_core::{
    Bytes, Caches, DeviceIdentity, Machine, MachineModel, RecordKind, Target, Task, TaskId,
    Workload, find_tunable,
};
use squall_records::{Name, Query, Standings, Store};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// A machine whose records are learned from, and its model.
#[derive(Clone, Debug, PartialEq)]
pub struct KnownMachine {
    /// The processor, as records name it.
    pub model: String,
    /// Its machine model; the vector width comes from the records.
    pub machine: MachineModel,
}

impl KnownMachine {
    /// This machine, where it is a CPU.
    pub fn of(at: &TargetContext) -> Option<KnownMachine> {
        match &at.place.device.machine {
            Machine::Cpu { model, .. } => {
                Some(KnownMachine { model: model.clone(), machine: at.target.machine.clone() })
            }
            _ => None,
        }
    }
}

/// A tuned task on a machine.
#[derive(Clone, Debug)]
pub struct Lesson {
    /// The machine, as records name it.
    pub device: String,
    /// The model of it.
    pub machine: MachineModel,
    /// The task.
    pub task: Task,
    /// Its measured candidates, fastest first.
    pub rows: Vec<LessonRow>,
}

/// A measured candidate.
#[derive(Clone, Debug)]
pub struct LessonRow {
    /// Its tunable and configuration.
    pub name: Name,
    /// Its features.
    pub features: Vec<f32>,
    /// The natural logarithm of the cycles that the cost formula expects.
    pub estimate: f32,
    /// Its time in nanoseconds; infinite where it failed.
    pub time: f64,
}

/// A store that was read.
#[derive(Clone, Debug)]
pub struct LessonSource {
    /// The file.
    pub path: PathBuf,
    /// The devices and tasks of its records.
    pub tasks: BTreeSet<(String, TaskId)>,
    /// When the newest of them was made, in seconds since 1970.
    pub newest: f64,
}

/// The vector registers of a CPU of this vector width.
fn registers(vector_bytes: usize) -> usize {
    if vector_bytes >= 64 { 32 } else { 16 }
}

/// The model of a machine that has records; nothing for GPUs and devices that others named.
fn target(device: &str, known: &[KnownMachine]) -> Option<Result<Target, Error>> {
    let identity = DeviceIdentity::parse(device);
    let is_emulated = identity.is_emulated();
    let Machine::Cpu { model, vector_bytes, threads, isa } = identity.machine else {
        return None;
    };
    if identity.caches != Caches::Warm || is_emulated {
        return None;
    }
    let Some(k) = known.iter().find(|k| k.model == model) else {
        return Some(Err(Error::Usage {
            message: format!("there are records of `{model}`, of which no machine model is known"),
            hint: format!(
                "run `squall doctor --json` on it, keep what it prints in FILE, and say \
                 --machine '{model}=FILE'"
            ),
        }));
    };
    let caches: Vec<Bytes> = k.machine.caches.iter().map(|c| c.size).collect();
    let mut target = match isa {
        Some(isa) => Target::at_level(isa, &caches),
        None => Target::cpu(vector_bytes, registers(vector_bytes), &caches),
    };
    // What is known of the machine holds where its vectors are used in full.
    if target.machine.vectors == k.machine.vectors {
        target.machine = k.machine.clone();
    }
    target.threads = threads;
    Some(Ok(target))
}

/// The trials of a task on a device.
struct Tuned {
    task: Task,
    standings: Standings<()>,
    failed: BTreeSet<Name>,
}

/// All lessons of the stores, but of the tasks in `without`, in the order of devices and tasks, and
/// what each store gave.
pub fn lessons(
    stores: &[PathBuf],
    machines: &[KnownMachine],
    without: &BTreeSet<TaskId>,
) -> Result<(Vec<Lesson>, Vec<LessonSource>), Error> {
    let mut sources = Vec::new();
    let mut all: BTreeMap<(String, TaskId), Tuned> = BTreeMap::new();
    for path in stores {
        let store = Store::open_read_only(path)?;
        let mut records = store.query(&Query::default())?;
        records.sort_by(|a, b| a.time.total_cmp(&b.time));
        let newest = records.last().map_or(0.0, |r| r.time);
        let mut tasks = BTreeSet::new();
        for r in records.into_iter().filter(|r| !without.contains(&r.task)) {
            let key = (r.device, r.task);
            if !all.contains_key(&key) {
                let known = Workload::parse(&r.workload).ok().filter(|w| w.foreign.is_none());
                let Some(workload) = known else { continue };
                let task = Task::new(r.name, workload);
                let (standings, failed) = Default::default();
                all.insert(key.clone(), Tuned { task, standings, failed });
            }
            let Some(t) = all.get_mut(&key) else { continue };
            tasks.insert(key);
            let name: Name = (r.tunable, r.configuration);
            match (r.kind, r.outcome.time()) {
                (RecordKind::Untuned, _) => {}
                (RecordKind::Trial, None) => {
                    t.failed.insert(name);
                }
                (kind, time) => t.standings.add(kind, name, time, ()),
            }
        }
        sources.push(LessonSource { path: path.clone(), tasks, newest });
    }
    let mut out = Vec::new();
    for ((device, _), tuned) in all {
        if let Some(target) = target(&device, machines) {
            out.extend(lesson(device, tuned, &target?));
        }
    }
    Ok((out, sources))
}

/// The lesson of a task; none where fewer than two candidates ran, which have no order.
fn lesson(device: String, tuned: Tuned, target: &Target) -> Option<Lesson> {
    let Tuned { task, standings, failed } = tuned;
    let relative = Relative::new(&task.workload, &target.machine);
    let tunables = TaskKernels::generated(&task, target).tunables;
    let row = |name: &Name, time: f64| {
        let tunable = find_tunable(&tunables, &name.0)?;
        let features = tunable.features(&tunable.space().parse(&name.1).ok()?);
        (!features.is_empty()).then(|| LessonRow {
            name: (tunable.name().into(), name.1.clone()),
            features: relative.row(&features),
            estimate: estimate(&features),
            time,
        })
    };
    let mut rows: Vec<LessonRow> =
        standings.ranking().into_iter().filter_map(|(n, t)| row(n, t.0)).collect();
    if rows.len() < 2 {
        return None;
    }
    rows.extend(failed.iter().filter_map(|name| row(name, f64::INFINITY)));
    Some(Lesson { device, machine: target.machine.clone(), task, rows })
}
