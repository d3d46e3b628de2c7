//! Build orders of a fleet, as queries on its server. Workers name the candidates that they will
//! measure, builders (processes that only compile) take the orders, and finished objects are stored
//! under the digest of everything that they were made from. All of it fails where the server cannot
//! be reached or refuses the user. `squall/src/workers/fleet/build.rs` and `objects.rs` call this.

use crate::connection::Fleet;
use crate::error::FleetError;
use crate::lease::{Worker, WorkerName};
use squall_core::TaskId;
use std::time::Duration;

/// A candidate that a worker will want compiled.
#[derive(Clone, Debug, PartialEq)]
pub struct BuildOrder {
    /// The task.
    pub task: TaskId,
    /// Its name.
    pub name: String,
    /// Its workload's text.
    pub workload: String,
    /// The candidate, as `TUNABLE: CONFIGURATION`.
    pub candidate: String,
    /// The machine of the worker, as JSON.
    pub machine: Option<String>,
}

/// The state of an object on the server.
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
    /// Says which code a worker wants (compiler, flags, machine, as one word of any kind), and the
    /// machine for which its kernels are generated, as JSON.
    ///
    /// # Errors
    /// See the module.
    pub fn describe(
        &mut self,
        worker: &Worker,
        code: &str,
        machine: &str,
    ) -> Result<(), FleetError> {
        let sql = "SELECT squall.describe($1, $2, $3)";
        let done = self.client.query(sql, &[&worker.id, &code, &machine]);
        done.map(|_| ()).map_err(|e| self.error(&e))
    }

    /// Introduces a builder of such code; its number.
    ///
    /// # Errors
    /// See the module.
    pub fn join_builders(
        &mut self,
        name: &WorkerName,
        version: &str,
        code: &str,
    ) -> Result<i32, FleetError> {
        let sql = "SELECT squall.join_builders($1, $2, $3)";
        let row = self.client.query_one(sql, &[&name.0, &version, &code]);
        let number: Option<i32> = row.map_err(|e| self.error(&e))?.get(0);
        number.ok_or_else(|| FleetError::Nothing("the builder's name is another user's".into()))
    }

    /// Names the candidates of a task that a worker will want, in the place of those before, and
    /// the users whose builders it trusts beside its own; whether there are any of these.
    ///
    /// # Errors
    /// See the module.
    pub fn order_builds(
        &mut self,
        worker: &Worker,
        task: TaskId,
        candidates: &[String],
        trusted: &[String],
    ) -> Result<bool, FleetError> {
        let sql = "SELECT squall.order_builds($1, $2, $3, $4)";
        let task = task.number() as i64;
        let row = self.client.query_one(sql, &[&worker.id, &task, &candidates, &trusted]);
        row.map(|r| r.get(0)).map_err(|e| self.error(&e))
    }

    /// The next candidate that a builder is to compile.
    ///
    /// # Errors
    /// See the module.
    pub fn take_build(&mut self, builder: i32) -> Result<Option<BuildOrder>, FleetError> {
        let sql = "SELECT task, name, workload, candidate, machine FROM squall.take_build($1)";
        let row = self.client.query_opt(sql, &[&builder]).map_err(|e| self.error(&e))?;
        let Some(row) = row else { return Ok(None) };
        let task = format!("{:016x}", row.get::<_, i64>(0) as u64);
        Ok(Some(BuildOrder {
            task: task.parse().map_err(FleetError::Record)?,
            name: row.get(1),
            workload: row.get(2),
            candidate: row.get(3),
            machine: row.get(4),
        }))
    }

    /// Says that a worker makes an object, for itself alone or for all; false where its user has it
    /// or makes it.
    ///
    /// # Errors
    /// See the module.
    pub fn begin_object(
        &mut self,
        worker: i32,
        key: &str,
        is_local: bool,
    ) -> Result<bool, FleetError> {
        let sql = "SELECT squall.begin_object($1, $2, $3)";
        let row = self.client.query_one(sql, &[&worker, &key, &is_local]);
        row.map(|r| r.get(0)).map_err(|e| self.error(&e))
    }

    /// Keeps an object that this worker began; none where it cannot be made.
    ///
    /// # Errors
    /// See the module.
    pub fn end_object(
        &mut self,
        worker: i32,
        key: &str,
        bytes: Option<&[u8]>,
    ) -> Result<bool, FleetError> {
        let sql = "SELECT squall.end_object($1, $2, $3)";
        let row = self.client.query_one(sql, &[&worker, &key, &bytes]);
        row.map(|r| r.get(0)).map_err(|e| self.error(&e))
    }

    /// The state of an object that this user or one of the trusted users brought.
    ///
    /// # Errors
    /// See the module.
    pub fn object(&mut self, key: &str, trusted: &[String]) -> Result<Offered, FleetError> {
        let sql = "SELECT bytes, is_coming FROM squall.object_of($1, $2)";
        let row = self.client.query_opt(sql, &[&key, &trusted]).map_err(|e| self.error(&e))?;
        Ok(match row.map(|r| (r.get::<_, Option<Vec<u8>>>(0), r.get::<_, bool>(1))) {
            Some((Some(bytes), _)) => Offered::Object(bytes),
            Some((None, true)) => Offered::Coming,
            _ => Offered::Nothing,
        })
    }

    /// Whether any slice of a class of this toolchain is still to do.
    ///
    /// # Errors
    /// See the module.
    pub fn has_slices(&mut self, toolchain: &str) -> Result<bool, FleetError> {
        let sql = "SELECT EXISTS (SELECT FROM squall.slice s JOIN squall.class c ON c.id = s.class \
                   WHERE c.toolchain = $1 AND s.state IN ('ready', 'leased'))";
        let row = self.client.query_one(sql, &[&toolchain]);
        row.map(|r| r.get(0)).map_err(|e| self.error(&e))
    }

    /// Waits for `at_most` until a worker names candidates; returns whether one did.
    ///
    /// # Errors
    /// See the module.
    pub fn wait_for_builds(&mut self, at_most: Duration) -> Result<bool, FleetError> {
        self.wait("LISTEN squall_build", at_most)
    }
}
