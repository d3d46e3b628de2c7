//! Builds: workers name the candidates that they will want, builders compile them, and objects are
//! kept under the digest of everything that they were made from.

use crate::connection::Fleet;
use crate::error::FleetError;
use crate::lease::{Worker, WorkerName};
use squall_core::TaskId;
use std::time::Duration;

/// A candidate that a worker will want compiled.
#[derive(Clone, Debug, PartialEq)]
pub struct BuildOrder {
    /// The class of the worker's device.
    pub class: i32,
    /// The task.
    pub task: TaskId,
    /// Its name.
    pub name: String,
    /// Its workload's text.
    pub workload: String,
    /// The candidate, as `TUNABLE: CONFIGURATION`.
    pub candidate: String,
}

/// What a fleet has of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offered {
    /// Its bytes.
    Object(Vec<u8>),
    /// A builder makes it.
    Coming,
    /// Nothing.
    Nothing,
}

impl Fleet {
    /// Says what a class's machine is, as JSON: builders that lack the device make kernels for it.
    pub fn describe(&mut self, class: i32, machine: &str) -> Result<(), FleetError> {
        let done = self.client.execute("SELECT squall.describe($1, $2)", &[&class, &machine]);
        done.map(|_| ()).map_err(|e| self.error(&e))
    }

    /// Introduces a builder; its number.
    pub fn join_builders(&mut self, name: &WorkerName, version: &str) -> Result<i32, FleetError> {
        let row =
            self.client.query_one("SELECT squall.join_builders($1, $2)", &[&name.0, &version]);
        row.map(|r| r.get(0)).map_err(|e| self.error(&e))
    }

    /// Names the candidates of a task that a worker will want, in the place of those before;
    /// whether there are builders.
    pub fn want_builds(
        &mut self,
        worker: &Worker,
        task: TaskId,
        candidates: &[String],
    ) -> Result<bool, FleetError> {
        let sql = "SELECT squall.want_builds($1, $2, $3)";
        let row = self.client.query_one(sql, &[&worker.id, &(task.number() as i64), &candidates]);
        row.map(|r| r.get(0)).map_err(|e| self.error(&e))
    }

    /// The next candidate of these classes that a builder is to compile.
    pub fn take_build(
        &mut self,
        builder: i32,
        classes: &[i32],
    ) -> Result<Option<BuildOrder>, FleetError> {
        let sql = "SELECT class, task, name, workload, candidate FROM squall.take_build($1, $2)";
        let row = self.client.query_opt(sql, &[&builder, &classes]).map_err(|e| self.error(&e))?;
        let Some(row) = row else { return Ok(None) };
        let task = format!("{:016x}", row.get::<_, i64>(1) as u64);
        Ok(Some(BuildOrder {
            class: row.get(0),
            task: task.parse().map_err(FleetError::Record)?,
            name: row.get(2),
            workload: row.get(3),
            candidate: row.get(4),
        }))
    }

    /// Says that a worker makes an object, for itself alone or for all; false where it is there or
    /// another makes it.
    pub fn begin_artifact(
        &mut self,
        worker: i32,
        key: &str,
        is_local: bool,
    ) -> Result<bool, FleetError> {
        let sql = "SELECT squall.begin_artifact($1, $2, $3)";
        let row = self.client.query_one(sql, &[&worker, &key, &is_local]);
        row.map(|r| r.get(0)).map_err(|e| self.error(&e))
    }

    /// Keeps an object that this worker began; none where it cannot be made.
    pub fn end_artifact(
        &mut self,
        worker: i32,
        key: &str,
        bytes: Option<&[u8]>,
    ) -> Result<bool, FleetError> {
        let sql = "SELECT squall.end_artifact($1, $2, $3)";
        let row = self.client.query_one(sql, &[&worker, &key, &bytes]);
        row.map(|r| r.get(0)).map_err(|e| self.error(&e))
    }

    /// What the fleet has of an object that the own user or one of these brought.
    pub fn artifact(&mut self, key: &str, owners: &[String]) -> Result<Offered, FleetError> {
        let sql = "SELECT bytes, is_coming FROM squall.artifact_of($1, $2)";
        let row = self.client.query_opt(sql, &[&key, &owners]).map_err(|e| self.error(&e))?;
        Ok(match row.map(|r| (r.get::<_, Option<Vec<u8>>>(0), r.get::<_, bool>(1))) {
            Some((Some(bytes), _)) => Offered::Object(bytes),
            Some((None, true)) => Offered::Coming,
            _ => Offered::Nothing,
        })
    }

    /// Whether any slice of these classes is still to do.
    pub fn has_slices(&mut self, classes: &[i32]) -> Result<bool, FleetError> {
        let sql = "SELECT EXISTS (SELECT FROM squall.slice WHERE class = ANY ($1) AND state IN \
                   ('ready', 'leased'))";
        let row = self.client.query_one(sql, &[&classes]);
        row.map(|r| r.get(0)).map_err(|e| self.error(&e))
    }

    /// Waits until a worker names candidates, at most so long; whether one did.
    pub fn wait_for_builds(&mut self, at_most: Duration) -> Result<bool, FleetError> {
        self.wait("LISTEN squall_build", at_most)
    }
}
