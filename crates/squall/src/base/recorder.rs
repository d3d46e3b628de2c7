//! Writes records into a store. Input: a trial's task, candidate and outcome; output: a record that
//! also names the device, the toolchain, the seed and the time. Sessions, run-offs and verification
//! keep their results through a [`Recorder`].

use crate::base::clock::now;
use crate::base::error::Error;
use squall_core::{CpuCost, Outcome, Record, RecordKind, Task, TaskId};
use squall_records::{Name, Place, Store};

/// Writes the records of one place into a store.
#[derive(Clone)]
pub struct Recorder<'a> {
    /// Where they are kept.
    pub store: &'a Store,
    /// The device and the toolchain of the records.
    pub place: Place,
    /// The seed of the records.
    pub seed: u64,
}

/// A task as records name it.
#[derive(Clone, Debug)]
pub struct RecordedTask {
    /// Its id.
    pub id: TaskId,
    /// Its name in the input.
    pub name: String,
    /// The text whose hash is the id: the task's workload, or another description where there is
    /// none.
    pub workload: String,
}

impl From<&Task> for RecordedTask {
    fn from(task: &Task) -> RecordedTask {
        let workload = task.workload.to_string();
        RecordedTask { id: task.id, name: task.name.clone(), workload }
    }
}

impl Recorder<'_> {
    /// Appends a record of now; what is appended, whose date is later than those of all other
    /// records of the task here.
    ///
    /// # Errors
    /// Where the store cannot keep it, or was removed or replaced.
    pub fn keep(
        &self,
        task: &Task,
        kind: RecordKind,
        name: &Name,
        outcome: Outcome,
        cost: CpuCost,
    ) -> Result<Record, Error> {
        self.keep_of(task.into(), kind, name, outcome, cost)
    }

    /// The same of what need not be a kernel.
    ///
    /// # Errors
    /// As [`Recorder::keep`].
    pub fn keep_of(
        &self,
        task: RecordedTask,
        kind: RecordKind,
        name: &Name,
        outcome: Outcome,
        cost: CpuCost,
    ) -> Result<Record, Error> {
        let record = Record {
            kind,
            task: task.id,
            name: task.name,
            workload: task.workload,
            device: self.place.device.to_string(),
            toolchain: self.place.toolchain.clone(),
            tunable: name.0.clone(),
            configuration: name.1.clone(),
            outcome,
            cost,
            seed: self.seed,
            time: now(),
        };
        Ok(self.store.append_latest(record)?)
    }
}
