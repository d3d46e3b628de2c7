//! `squall fleet`: commands for tuning on many machines over a PostgreSQL server: make the schema,
//! submit, cancel and list jobs, move records (`squall::fleet`). The workers themselves are `squall
//! worker`.

use super::tune::seconds;
use crate::failure::Failure;
use crate::interrupt::interruptible;
use crate::option::{InputArgs, JsonArgs, StoreArgs, TargetArgs, ThreadArgs, context};
use crate::terminal::{left_out, note, say, table, three};
use clap::Subcommand;
use serde_json::json;
use squall::Caches;
use squall::fleet::{Fleet, JobStatus, PullRequest, PulledAndChecked, Status, SubmitRequest};
use squall::report::html::duration;
use squall::verify::{Choice, Verified, WinnerStanding};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Many machines on a PostgreSQL server: put jobs in, see what is done, move records
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  squall fleet init postgres://admin@db/squall           make the schema and its roles, once
  squall fleet submit model.onnx --server postgres://me@db/squall --trials-per-task 256
  squall worker --server postgres://w@db/squall --store own.squall      on each machine
  squall fleet status --server postgres://me@db/squall --watch 5
  squall fleet pull --server postgres://me@db/squall --store tuned.squall --check
  squall export model.onnx --store tuned.squall --out kernels

The server may also be named by SQUALL_FLEET. docs/fleet.md says which role may do what, what a
worker trusts, and how several machines tune without a server.")]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

/// Where the fleet is.
#[derive(clap::Args)]
pub struct ServerArgs {
    /// The fleet's server: postgres://USER@HOST/DATABASE; beyond a socket or this machine the
    /// connection is encrypted and the server's certificate checked (sslrootcert=FILE names an
    /// authority); the password is PGPASSWORD's
    #[arg(long, value_name = "URL", env = "SQUALL_FLEET", hide_env_values = true)]
    pub server: String,
}

#[derive(Subcommand)]
enum Action {
    /// Make the schema, or bring it to the newest version, and its roles
    Init {
        /// The server: postgres://USER@HOST/DATABASE; the user must own the database
        #[arg(value_name = "URL", env = "SQUALL_FLEET", hide_env_values = true)]
        server: String,
    },
    Submit(Box<SubmitArgs>),
    /// Classes, workers and jobs
    Status(StatusArgs),
    /// Jobs with their tasks
    Jobs(Listed),
    /// End a job of yours; what was measured stays
    Cancel(Job),
    /// Open again what failed or was cancelled
    Retry(Job),
    /// Let workers end after their slice
    Drain {
        /// Their names begin so
        #[arg(value_name = "WORKER")]
        worker: String,
        /// Let them work again
        #[arg(long)]
        undo: bool,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Take the fleet's records into a store
    Pull(PullArgs),
    /// Send a store's records to the fleet
    Push(Moving),
}

/// Put the tasks of an input in, for a class of machines
#[derive(clap::Args)]
struct SubmitArgs {
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    server: ServerArgs,
    /// Trials of each task
    #[arg(
        long,
        value_name = "N",
        default_value_t = 64,
        value_parser = clap::value_parser!(u64).range(1..),
    )]
    trials_per_task: u64,
    /// Trials of all tasks together, in place of --trials-per-task
    #[arg(
        long,
        value_name = "N",
        conflicts_with = "trials_per_task",
        value_parser = clap::value_parser!(u64).range(1..),
    )]
    trials: Option<u64>,
    /// Trials of a lease: what a worker takes at once
    #[arg(
        long,
        value_name = "N",
        default_value_t = 32,
        value_parser = clap::value_parser!(u64).range(1..=4096),
    )]
    slice: u64,
    /// Only tasks whose name matches (`*` and `?` stand for anything) or whose id begins so
    #[arg(long, value_name = "PATTERN")]
    only: Option<String>,
    /// The class of machines: its number (`squall fleet status`), or a pattern that one device's
    /// name matches [default: this machine's]
    #[arg(long, value_name = "CLASS")]
    class: Option<String>,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    threads: ThreadArgs,
    /// What the caches hold when a call is timed: `warm` or `cold`
    #[arg(long, value_name = "STATE", default_value = "warm")]
    caches: Caches,
    #[command(flatten)]
    json: JsonArgs,
}

#[derive(clap::Args)]
struct Listed {
    #[command(flatten)]
    server: ServerArgs,
    /// The newest so many jobs
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: u32,
    #[command(flatten)]
    json: JsonArgs,
}

#[derive(clap::Args)]
struct StatusArgs {
    #[command(flatten)]
    listed: Listed,
    /// Show it again every so many seconds, until Ctrl-C; with --json a line each time
    #[arg(long, value_name = "S", value_parser = seconds)]
    watch: Option<f64>,
}

#[derive(clap::Args)]
struct Job {
    /// Its number
    #[arg(value_name = "JOB")]
    job: i64,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(clap::Args)]
struct Moving {
    #[command(flatten)]
    server: ServerArgs,
    /// Only of tasks whose name matches (`*` and `?` stand for anything)
    #[arg(long, value_name = "PATTERN", default_value = "*")]
    only: String,
    #[command(flatten)]
    store: StoreArgs,
}

#[derive(clap::Args)]
struct PullArgs {
    #[command(flatten)]
    moving: Moving,
    /// Measure each winner that others brought against its runner-up on this machine, before the
    /// store is used
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    threads: ThreadArgs,
}

fn connect(server: &ServerArgs) -> Result<Fleet, Failure> {
    Ok(Fleet::connect(&server.server).map_err(squall::Error::from)?)
}

/// What a fleet answers, or its error.
fn asked<T>(answer: Result<T, squall::fleet::FleetError>) -> Result<T, Failure> {
    Ok(answer.map_err(squall::Error::from)?)
}

/// Runs it.
pub fn run(a: &Args) -> Result<u8, Failure> {
    match &a.action {
        Action::Init { server } => init(server)?,
        Action::Submit(s) => submit(s)?,
        Action::Status(l) => return status(l),
        Action::Jobs(l) => {
            let jobs = asked(connect(&l.server)?.jobs(l.limit))?;
            if l.json.json { say(json!({"jobs": jobs}))? } else { tasks(&jobs)? }
        }
        Action::Cancel(j) => {
            let n = asked(connect(&j.server)?.cancel(j.job))?;
            say(format_args!("job {}: cancelled, {n} slices were waiting", j.job))?;
        }
        Action::Retry(j) => {
            let n = asked(connect(&j.server)?.retry(j.job))?;
            say(format_args!("job {}: {n} slices are open again", j.job))?;
        }
        Action::Drain { worker, undo, server } => {
            let n = asked(connect(server)?.drain(worker, !undo))?;
            let what = if *undo { "work again" } else { "end after their slice" };
            say(format_args!("{n} workers {what}"))?;
        }
        Action::Pull(p) => return pull(p),
        Action::Push(m) => {
            let moved = squall::fleet::push(&m.server.server, &m.only, &m.store.store)?;
            say(format_args!("{} of {} records are new to the fleet", moved.new, moved.all))?;
        }
    }
    Ok(0)
}

/// Takes the fleet's records, and looks at their winners where that is asked for.
fn pull(p: &PullArgs) -> Result<u8, Failure> {
    let m = &p.moving;
    let (server, name) = (m.server.server.as_str(), m.only.as_str());
    let from = PullRequest { server, name, store: m.store.store.as_path() };
    let done = if p.check {
        let choice = Choice {
            task: None,
            only: None,
            target: p.target.request()?,
            threads: p.threads.threads.into(),
            rounds: 1,
        };
        let stop = interruptible()?;
        squall::fleet::pull_and_check(&context(), from, &choice, &stop, &mut |t| {
            note(format_args!("{}: {}", t.name, t.standing.name()));
        })?
    } else {
        let taken = squall::fleet::pull(from)?;
        PulledAndChecked { taken, checked: Vec::new() }
    };
    let taken = &done.taken;
    left_out(&"the fleet", taken.refused, &taken.reasons);
    say(format_args!("{} new records, {} known", taken.new, taken.known))?;
    if p.check {
        let fell = |t: &&Verified| {
            matches!(t.standing, WinnerStanding::Overtaken | WinnerStanding::Broken)
        };
        let fell = done.checked.iter().filter(fell).count();
        say(format_args!("{} winners of others checked here, {fell} fell", done.checked.len()))?;
    }
    Ok(0)
}

/// Shows the fleet, once or over and over.
fn status(a: &StatusArgs) -> Result<u8, Failure> {
    let l = &a.listed;
    let stop = interruptible()?;
    let mut fleet = connect(&l.server)?;
    loop {
        let status = asked(fleet.status(l.limit))?;
        if l.json.json {
            say(json!(status))?
        } else {
            print(&status)?
        }
        let Some(every) = a.watch else { return Ok(0) };
        let end = Instant::now() + Duration::from_secs_f64(every);
        while Instant::now() < end && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(100));
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(130);
        }
    }
}

fn init(server: &str) -> Result<(), Failure> {
    let (fleet, is_new, without_roles) = asked(Fleet::init(server))?;
    let what = if is_new { "made" } else { "there already, and up to date" };
    say(format_args!("the fleet on {} is {what}", fleet.server()))?;
    match without_roles {
        Some(why) => {
            note(format_args!("warning: no roles were made ({why}); its owner alone may use it"))
        }
        None => note(
            "roles: squall_reader, squall_worker, squall_driver, squall_admin (GRANT one to each \
             user)",
        ),
    }
    Ok(())
}

fn submit(a: &SubmitArgs) -> Result<(), Failure> {
    let request = SubmitRequest {
        server: a.server.server.clone(),
        input: a.input.request(),
        only: a.only.clone(),
        trials_per_task: a.trials.is_none().then_some(a.trials_per_task),
        trials: a.trials,
        slice: a.slice,
        class: a.class.clone(),
        target: a.target.request()?,
        threads: a.threads.threads.into(),
        caches: a.caches,
    };
    let done = squall::fleet::submit(&context(), &request)?;
    if a.json.json {
        return say(json!({"job": done.job, "tasks": done.tasks, "trials": done.trials}));
    }
    say(format_args!("job {}: {} tasks, {} trials", done.job, done.tasks, done.trials))
}

fn print(s: &Status) -> Result<(), Failure> {
    let mut t = table(&["class", "device", "machine", "peak", "toolchain"]);
    for c in &s.classes {
        t.add_row([
            c.id.to_string(),
            c.device.clone(),
            c.variant.to_string(),
            c.peak.map_or("-".into(), |p| format!("{} GFLOP/s", three(p * 1e-9))),
            c.toolchain.clone(),
        ]);
    }
    say(t)?;
    let mut t = table(&["worker", "owner", "class", "version", "up", "heard", "task", "running"]);
    for w in &s.workers {
        let heard =
            format!("{} ago{}", duration(w.silent), if w.draining { ", draining" } else { "" });
        t.add_row([
            w.name.clone(),
            w.owner.clone(),
            w.class.map_or_else(|| "builds".to_string(), |c| c.to_string()),
            w.version.clone(),
            duration(w.age),
            heard,
            w.task.clone().unwrap_or_else(|| "-".into()),
            w.running.clone().unwrap_or_else(|| "-".into()),
        ]);
    }
    say(t)?;
    let mut t =
        table(&["job", "input", "owner", "class", "age", "state", "trials", "left", "deaths"]);
    for j in &s.jobs {
        t.add_row([
            j.job.to_string(),
            j.input.clone(),
            j.owner.clone(),
            j.class.to_string(),
            duration(j.age),
            j.state.clone(),
            j.trials.to_string(),
            j.left.to_string(),
            j.deaths.to_string(),
        ]);
    }
    say(t)
}

fn tasks(jobs: &[JobStatus]) -> Result<(), Failure> {
    let head = ["job", "task", "state", "trials", "left", "leases", "deaths", "why"];
    let mut t = table(&head);
    for j in jobs {
        for s in &j.slices {
            t.add_row([
                j.job.to_string(),
                s.task.clone(),
                s.state.clone(),
                s.trials.to_string(),
                s.left.to_string(),
                s.leases.to_string(),
                s.deaths.to_string(),
                s.reason.clone().unwrap_or_else(|| "-".into()),
            ]);
        }
    }
    say(t)
}
