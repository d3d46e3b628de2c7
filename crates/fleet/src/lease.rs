//! Leases: a worker takes a slice of a task (some of its trials) for a limited time, renews the
//! lease while it works, and ends it with what was made. A lease that is not renewed in time goes
//! to another worker; its number grows with each, so that an earlier holder is not heard.

use crate::connection::Fleet;
use crate::error::FleetError;
use squall_core::TaskId;
use std::time::Duration;

/// A worker as the fleet knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    /// Its number.
    pub id: i32,
    /// The class of its device.
    pub class: i32,
    /// Its name.
    pub name: WorkerName,
}

/// A name that no other process ever has: host, boot, process and start.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WorkerName(pub String);

/// A slice of a task that is this worker's until its time is over.
#[derive(Clone, Debug, PartialEq)]
pub struct Lease {
    /// The slice.
    pub slice: i64,
    /// The lease's number: what is said counts while it is the newest one.
    pub fence: i64,
    /// The task.
    pub task: TaskId,
    /// Its name.
    pub name: String,
    /// Its workload's text.
    pub workload: String,
    /// How often the model calls it.
    pub count: u64,
    /// Trials to make.
    pub trials: u64,
    /// Candidates (`TUNABLE: CONFIGURATION`) that ran when two workers died: they are failures.
    pub culprits: Vec<String>,
}

/// How a lease ends.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ended {
    /// Trials made.
    pub trials: u64,
    /// The expected gain of the next slice, in seconds an inference.
    pub gain: f64,
    /// Whether nothing is left to try.
    pub is_exhausted: bool,
    /// Why the task cannot be tuned here, if it cannot.
    pub failure: Option<String>,
}

impl Fleet {
    /// Introduces a worker.
    pub fn join(
        &mut self,
        name: WorkerName,
        class: i32,
        version: &str,
    ) -> Result<Worker, FleetError> {
        let row = self
            .client
            .query_one("SELECT squall.join_fleet($1, $2, $3)", &[&name.0, &class, &version]);
        let id = row.map_err(|e| self.error(&e))?.get(0);
        Ok(Worker { id, class, name })
    }

    /// Leases the slice of most expected gain, if there is any for this worker.
    pub fn claim(
        &mut self,
        worker: &Worker,
        patience: Duration,
    ) -> Result<Option<Lease>, FleetError> {
        let sql = "SELECT id, fence, task, name, workload, count, trials, culprits FROM \
                   squall.claim($1, $2)";
        let row = self.client.query_opt(sql, &[&worker.id, &patience.as_secs_f64()]);
        let Some(row) = row.map_err(|e| self.error(&e))? else { return Ok(None) };
        let task = format!("{:016x}", row.get::<_, i64>(2) as u64);
        Ok(Some(Lease {
            slice: row.get(0),
            fence: row.get(1),
            task: task.parse().map_err(FleetError::Record)?,
            name: row.get(3),
            workload: row.get(4),
            count: row.get::<_, i64>(5).max(0) as u64,
            trials: row.get::<_, i64>(6).max(0) as u64,
            culprits: row.get(7),
        }))
    }

    /// Renews a lease and says which candidate runs from now on, if that changed. False where the
    /// lease is another worker's by now, or the job was cancelled.
    pub fn renew(
        &mut self,
        lease: &Lease,
        running: Option<&str>,
        patience: Duration,
    ) -> Result<bool, FleetError> {
        let sql = "SELECT squall.renew($1, $2, $3, $4)";
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
            [&lease.slice, &lease.fence, &running, &patience.as_secs_f64()];
        self.client.query_one(sql, &values).map(|r| r.get(0)).map_err(|e| self.error(&e))
    }

    /// Gives a slice back; false where the lease was another worker's by then.
    pub fn finish(&mut self, lease: &Lease, ended: &Ended) -> Result<bool, FleetError> {
        let sql = "SELECT squall.finish($1, $2, $3, $4, $5, $6)";
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 6] = [
            &lease.slice,
            &lease.fence,
            &(ended.trials as i64),
            &ended.gain,
            &ended.is_exhausted,
            &ended.failure,
        ];
        self.client.query_one(sql, &values).map(|r| r.get(0)).map_err(|e| self.error(&e))
    }

    /// Waits for `at_most` until the server says that there may be a slice; returns whether it did.
    pub fn wait_for_work(&mut self, at_most: Duration) -> Result<bool, FleetError> {
        self.wait("LISTEN squall", at_most)
    }

    /// Waits until a channel speaks.
    pub(crate) fn wait(&mut self, listen: &str, at_most: Duration) -> Result<bool, FleetError> {
        let heard = self.client.batch_execute(listen).and_then(|()| self.client.wait(at_most));
        heard.map_err(|e| self.error(&e))
    }
}
