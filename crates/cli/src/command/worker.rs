//! `squall worker`: this machine works for a fleet.

use super::fleet::ServerArgs;
use super::tune::seconds;
use crate::failure::Failure;
use crate::interrupt::interruptible;
use crate::option::{JsonArgs, StoreArgs, TargetArgs, ThreadArgs, context};
use crate::progress::Shown;
use crate::terminal::{percent, say};
use serde_json::json;
use squall::Caches;
use squall::fleet::WorkerRequest;
use squall::report::html::duration;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Work for a fleet: lease slices of jobs, tune them here, send what was found
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  squall worker --server postgres://w@db/squall --store own.squall
  squall worker --server postgres://w@db/squall --until-idle       ends where nothing is left to do
  squall worker --server postgres://w@db/squall --target cuda

Everything is kept in the own store before it is sent: where the server is down, the worker goes on
with its slice and sends its records once the server is back. Ctrl-C gives the slice back and ends.
With --json, each trial is a line {\"trial\": ..} once it stands in the own store.
A worker takes kernels that Squall generates from a task's expression, never sources of users.")]
pub struct Args {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    threads: ThreadArgs,
    /// What the caches hold when a call is timed: `warm` or `cold`
    #[arg(long, value_name = "STATE", default_value = "warm")]
    caches: Caches,
    /// Seed of everything random
    #[arg(long, value_name = "K", default_value_t = 0)]
    seed: u64,
    /// End where no slice is left to do
    #[arg(long)]
    until_idle: bool,
    /// Seconds after which a lease that is not renewed is another worker's
    #[arg(long, value_name = "S", default_value = "60", value_parser = seconds)]
    lease: f64,
    #[command(flatten)]
    json: JsonArgs,
}

/// Runs it.
pub fn run(a: &Args) -> Result<u8, Failure> {
    let request = WorkerRequest {
        target: a.target.request()?,
        threads: a.threads.threads.into(),
        caches: a.caches,
        seed: a.seed,
        until_idle: a.until_idle,
        lease: Duration::from_secs_f64(a.lease.clamp(0.5, 86_400.0)),
        ..WorkerRequest::new(&a.server.server, &a.store.store)
    };
    let stop = interruptible()?;
    let mut shown = Shown::new(a.json.json, &stop);
    let worked = squall::fleet::work(&context(), &request, &stop, &mut |event| shown.event(&event));
    let w = shown.finish(worked)?;
    if a.json.json {
        say(json!({
            "slices": w.slices, "trials": w.trials, "shipped": w.shipped,
            "server_seconds": w.server_seconds, "seconds": w.seconds,
        }))?;
    } else {
        say(format_args!(
            "{} slices, {} trials in {}; {} records were new to the fleet, whose server took {} of \
             the time",
            w.slices,
            w.trials,
            duration(w.seconds),
            w.shipped,
            percent(w.server_seconds / w.seconds.max(1e-9))
        ))?;
    }
    Ok(if stop.load(Ordering::Relaxed) { 130 } else { 0 })
}
