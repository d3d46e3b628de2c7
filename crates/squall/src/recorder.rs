//! Writes records: what was tried, of which task, where and with what.

use crate::clock::now;
use crate::error::Error;
use squall_core::{CpuCost, Outcome, Record, RecordKind, Task};
use squall_records::{Name, Place, Store};

/// Writes the records of one place into a store.
#[derive(Clone)]
pub struct Recorder<'a> {
    /// Where they are kept.
    pub store: &'a Store,
    /// The device and the toolchain that they name.
    pub place: Place,
    /// The seed that they name.
    pub seed: u64,
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
        let record = Record {
            kind,
            task: task.id,
            name: task.name.clone(),
            workload: task.workload.to_string(),
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
