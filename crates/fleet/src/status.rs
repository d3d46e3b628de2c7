//! The state of a fleet for `squall fleet status`, as queries on its server: classes of devices,
//! workers that are alive, jobs with their slices.

use crate::connection::Fleet;
use crate::error::FleetError;
use serde::Serialize;

/// Everything that `squall fleet status` shows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Status {
    /// Classes of devices.
    pub classes: Vec<ClassStatus>,
    /// Workers that were heard of in the last day.
    pub workers: Vec<WorkerStatus>,
    /// Jobs, the newest first.
    pub jobs: Vec<JobStatus>,
    /// Records of all tasks, as the server estimates them.
    pub records: u64,
}

/// A class of devices.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassStatus {
    /// Its number.
    pub id: i32,
    /// The device's name.
    pub device: String,
    /// The toolchain.
    pub toolchain: String,
    /// Which of the machines of that name, from 1.
    pub variant: i32,
    /// Its measured peak, in FLOP/s.
    pub peak: Option<f64>,
}

/// A worker.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorkerStatus {
    /// Its name.
    pub name: String,
    /// The user who started it.
    pub owner: String,
    /// Its class; none of one that builds only.
    pub class: Option<i32>,
    /// Its program's version.
    pub version: String,
    /// Seconds since it started.
    pub age: f64,
    /// Seconds since it was heard of.
    pub silent: f64,
    /// Whether it ends after its slice.
    pub draining: bool,
    /// The task that it has, if any.
    pub task: Option<String>,
    /// The candidate that runs, if any.
    pub running: Option<String>,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobStatus {
    /// Its number.
    pub job: i64,
    /// The input that is tuned.
    pub input: String,
    /// The user who submitted it.
    pub owner: String,
    /// The class that it is for.
    pub class: i32,
    /// Seconds since it was put in.
    pub age: f64,
    /// `waiting`, `running`, `done`, `failed` or `cancelled`.
    pub state: String,
    /// Trials asked for.
    pub trials: u64,
    /// Trials left.
    pub left: u64,
    /// Leases that ended because their worker was not heard of.
    pub deaths: u64,
    /// Its tasks.
    pub slices: Vec<SliceStatus>,
}

/// A task of a job.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SliceStatus {
    /// The task's name.
    pub task: String,
    /// `ready`, `leased`, `done`, `failed` or `cancelled`.
    pub state: String,
    /// Why it failed.
    pub reason: Option<String>,
    /// Trials asked for.
    pub trials: u64,
    /// Trials left.
    pub left: u64,
    /// Times that it was leased.
    pub leases: u32,
    /// Leases that ended because their worker was not heard of.
    pub deaths: u32,
}

impl Fleet {
    /// What the fleet is doing; of jobs the newest `jobs`.
    pub fn status(&mut self, jobs: u32) -> Result<Status, FleetError> {
        Ok(Status {
            classes: self.classes()?,
            workers: self.workers()?,
            jobs: self.jobs(jobs)?,
            records: self.estimate()?,
        })
    }

    /// Classes of devices.
    pub fn classes(&mut self) -> Result<Vec<ClassStatus>, FleetError> {
        let sql = "SELECT id, device, toolchain, variant, peak FROM squall.class ORDER BY id";
        let rows = self.client.query(sql, &[]).map_err(|e| self.error(&e))?;
        let class = |r: &tokio_postgres::Row| ClassStatus {
            id: r.get(0),
            device: r.get(1),
            toolchain: r.get(2),
            variant: r.get(3),
            peak: r.get(4),
        };
        Ok(rows.iter().map(class).collect())
    }

    fn workers(&mut self) -> Result<Vec<WorkerStatus>, FleetError> {
        let sql = "SELECT w.name, w.owner, w.class, w.version, \
                   extract(epoch FROM clock_timestamp() - w.started)::double precision, \
                   extract(epoch FROM clock_timestamp() - w.seen)::double precision, w.draining, \
                   t.name, s.running FROM squall.worker w LEFT JOIN squall.slice s ON s.worker = \
                   w.id AND s.state = 'leased' LEFT JOIN squall.task t ON t.id = s.task WHERE \
                   w.seen > clock_timestamp() - interval '1 day' ORDER BY w.id";
        let rows = self.client.query(sql, &[]).map_err(|e| self.error(&e))?;
        let worker = |r: &tokio_postgres::Row| WorkerStatus {
            name: r.get(0),
            owner: r.get(1),
            class: r.get(2),
            version: r.get(3),
            age: r.get(4),
            silent: r.get(5),
            draining: r.get(6),
            task: r.get(7),
            running: r.get(8),
        };
        Ok(rows.iter().map(worker).collect())
    }

    /// Jobs, the newest first.
    pub fn jobs(&mut self, most: u32) -> Result<Vec<JobStatus>, FleetError> {
        let sql = "SELECT id, input, owner, cancelled, \
                   extract(epoch FROM clock_timestamp() - submitted)::double precision FROM \
                   squall.job ORDER BY id DESC LIMIT $1";
        let rows = self.client.query(sql, &[&i64::from(most)]).map_err(|e| self.error(&e))?;
        let mut jobs = Vec::new();
        for row in rows {
            let job: i64 = row.get(0);
            let (class, slices) = self.slices(job)?;
            let is = |state: &str| slices.iter().any(|s| s.state == state);
            let state = match () {
                () if row.get(3) => "cancelled",
                () if is("leased") => "running",
                () if is("ready") => "waiting",
                () if is("failed") => "failed",
                () => "done",
            };
            jobs.push(JobStatus {
                job,
                input: row.get(1),
                owner: row.get(2),
                class,
                age: row.get(4),
                state: state.into(),
                trials: slices.iter().map(|s| s.trials).sum(),
                left: slices.iter().map(|s| s.left).sum(),
                deaths: slices.iter().map(|s| u64::from(s.deaths)).sum(),
                slices,
            });
        }
        Ok(jobs)
    }

    fn slices(&mut self, job: i64) -> Result<(i32, Vec<SliceStatus>), FleetError> {
        let sql = "SELECT t.name, s.state, s.reason, s.trials, s.trials_left, s.leases, s.deaths, \
                   s.class FROM squall.slice s JOIN squall.task t ON t.id = s.task WHERE s.job = \
                   $1 ORDER BY s.id";
        let rows = self.client.query(sql, &[&job]).map_err(|e| self.error(&e))?;
        let class = rows.first().map_or(0, |r| r.get(7));
        let slice = |r: &tokio_postgres::Row| SliceStatus {
            task: r.get(0),
            state: r.get(1),
            reason: r.get(2),
            trials: r.get::<_, i64>(3).max(0) as u64,
            left: r.get::<_, i64>(4).max(0) as u64,
            leases: r.get::<_, i32>(5).max(0) as u32,
            deaths: r.get::<_, i32>(6).max(0) as u32,
        };
        Ok((class, rows.iter().map(slice).collect()))
    }

    fn estimate(&mut self) -> Result<u64, FleetError> {
        // Counting 10^7 rows takes seconds; the planner's figure is near enough.
        let sql = "SELECT coalesce(sum(greatest(c.reltuples, 0)), 0)::bigint FROM pg_class c JOIN \
                   pg_inherits i ON i.inhrelid = c.oid WHERE i.inhparent = \
                   'squall.record'::regclass";
        let row = self.client.query_one(sql, &[]).map_err(|e| self.error(&e))?;
        Ok(row.get::<_, i64>(0).max(0) as u64)
    }
}
