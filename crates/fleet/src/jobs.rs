//! Jobs of a fleet, as queries on its server: submit the tasks that a user wants tuned, with trials
//! and weights; cancel a job; open its failed or cancelled slices again; and let workers end after
//! their slice (drain).

use crate::connection::Fleet;
use crate::error::FleetError;
use squall_core::Task;

/// A task of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskOrder {
    /// The task.
    pub task: Task,
    /// Trials of it.
    pub trials: u64,
    /// The task's share of the work, by which tasks are ordered until they have times.
    pub weight: f64,
}

/// A job that was submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// Its number.
    pub job: i64,
    /// Tasks.
    pub tasks: usize,
    /// Trials of all of them.
    pub trials: u64,
}

/// A task's first slice comes before every later one of any task: its gain counts so much more.
const FIRST: f64 = 1e30;

impl Fleet {
    /// Puts a job in for a class; a slice is `slice` trials.
    pub fn submit(
        &mut self,
        input: &str,
        class: i32,
        slice: u64,
        orders: &[TaskOrder],
    ) -> Result<Submitted, FleetError> {
        let of = |f: &dyn Fn(&TaskOrder) -> i64| orders.iter().map(f).collect::<Vec<i64>>();
        let ids = of(&|o| o.task.id.number() as i64);
        let names: Vec<&str> = orders.iter().map(|o| o.task.name.as_str()).collect();
        let workloads: Vec<String> = orders.iter().map(|o| o.task.workload.to_string()).collect();
        let (counts, budgets) = (of(&|o| o.task.count as i64), of(&|o| o.trials as i64));
        let gains: Vec<f64> = orders.iter().map(|o| FIRST * (1.0 + o.weight)).collect();
        let sql = "SELECT squall.submit($1, $2, $3, $4, $5, $6, $7, $8, $9)";
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 9] =
            [&input, &class, &(slice as i64), &ids, &names, &workloads, &counts, &budgets, &gains];
        let job = self.client.query_one(sql, &values).map_err(|e| self.error(&e))?.get(0);
        let trials = orders.iter().map(|o| o.trials).sum();
        Ok(Submitted { job, tasks: orders.len(), trials })
    }

    /// Ends a job; how many slices were still to do.
    pub fn cancel(&mut self, job: i64) -> Result<u64, FleetError> {
        self.changed("SELECT squall.cancel($1)", job)
    }

    /// Opens again what failed or was cancelled; how many slices.
    pub fn retry(&mut self, job: i64) -> Result<u64, FleetError> {
        self.changed("SELECT squall.retry($1)", job)
    }

    fn changed(&mut self, sql: &str, job: i64) -> Result<u64, FleetError> {
        let row = self.client.query_one(sql, &[&job]).map_err(|e| self.error(&e))?;
        match row.get::<_, Option<i64>>(0) {
            Some(n) => Ok(n as u64),
            None => Err(FleetError::Nothing(format!("there is no job {job} of yours"))),
        }
    }

    /// Lets workers whose name begins so end after their slice, or work again; how many.
    pub fn drain(&mut self, worker: &str, is_draining: bool) -> Result<u64, FleetError> {
        let escaped = worker.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
        let sql = "SELECT squall.drain($1, $2)";
        let row = self.client.query_one(sql, &[&format!("{escaped}%"), &is_draining]);
        match row.map_err(|e| self.error(&e))?.get::<_, i64>(0) {
            0 => Err(FleetError::Nothing(format!("no worker's name begins with `{worker}`"))),
            n => Ok(n as u64),
        }
    }
}
