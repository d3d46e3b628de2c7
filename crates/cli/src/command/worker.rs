//! `squall worker`: makes this machine work for others. For a fleet (`--server`) it tunes slices of
//! jobs, or with `--build` compiles for other workers; with `--polite` it tunes the wishes of its
//! own store (tasks that were used untuned) while the machine is idle.

#[cfg(feature = "fleet")]
use super::tune::seconds;
use crate::failure::Failure;
use crate::interrupt::interruptible;
use crate::option::{JsonArgs, StoreArgs, TargetArgs, ThreadArgs, context};
#[cfg(feature = "fleet")]
use crate::progress::Shown;
use crate::progress::listen;
#[cfg(feature = "fleet")]
use crate::terminal::percent;
use crate::terminal::say;
use serde_json::json;
use squall::Caches;
use squall::polite::{Hours, PoliteRequest, serve_wishes};
use squall::report::html::duration;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Tune while this machine is idle, or for a fleet
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  squall worker --polite --store tuned.squall                      wishes, while others are idle
  squall worker --polite --store tuned.squall --hours 22-6 --until-idle
  squall worker --server postgres://w@db/squall --store own.squall     for a fleet
  squall worker --server postgres://w@db/squall --until-idle       ends where nothing is left to do
  squall worker --build --server postgres://w@db/squall            compiles for other workers
  squall worker --polite --server postgres://w@db/squall           wishes first, then jobs

A kernel that `run`, `bench`, `export` or `advise` used without its being tuned left a wish in the
store. A polite worker tunes wishes, the most costly first, at the lowest priority, and only while
others keep fewer than --busy cores busy; within a second of a load it kills what it runs. Trials
are kept as they are made.

For a fleet (a build with `--features fleet`): everything is kept in the own store before it is
sent: where the server is down, the worker goes on with its slice and sends its records once the
server is back. Ctrl-C gives the slice back and ends. With --json, each trial is a line
{\"trial\": ..} once it stands in the own store. A worker takes kernels that Squall generates from a
task's expression, never sources of users.

A builder (--build) measures nothing: it compiles what workers with its compiler and level of
instructions (--isa) will want, and may lack their device. Workers run objects that builders of
their own user of the server made, and of those that --builds-of names; what no builder has made
they compile themselves.")]
pub struct Args {
    /// Serve the store's wishes while nothing else wants the machine
    #[arg(long)]
    polite: bool,
    /// Work in these hours of the day only, by this machine's clock
    #[arg(long, value_name = "FROM-TO", requires = "polite")]
    hours: Option<Hours>,
    /// Give way where others keep more cores busy than this
    #[arg(
        long,
        value_name = "CORES",
        default_value = "0.3",
        requires = "polite",
        value_parser = cores,
    )]
    busy: f64,
    /// Seconds for which others must have been idle before work begins
    #[arg(long, value_name = "S", default_value = "5", requires = "polite", value_parser = cores)]
    calm: f64,
    /// Trials after which a wish is served
    #[arg(
        long,
        value_name = "N",
        default_value_t = 192,
        requires = "polite",
        value_parser = clap::value_parser!(u64).range(1..),
    )]
    trials: u64,
    /// The fleet's server: postgres://USER@HOST/DATABASE; beyond a socket or this machine the
    /// connection is encrypted and the server's certificate checked (sslrootcert=FILE names an
    /// authority); the password is PGPASSWORD's
    #[cfg(feature = "fleet")]
    #[arg(long, value_name = "URL", env = "SQUALL_FLEET", hide_env_values = true)]
    server: Option<String>,
    /// Compile for other workers of the fleet and measure nothing
    #[cfg(feature = "fleet")]
    #[arg(long, conflicts_with = "polite")]
    build: bool,
    /// Compilers at once [default: one for each core]
    #[cfg(feature = "fleet")]
    #[arg(
        long,
        value_name = "N",
        requires = "build",
        value_parser = clap::value_parser!(u16).range(1..=1024),
    )]
    jobs: Option<u16>,
    /// Run objects that builders of this user of the server made, too; may be repeated
    #[cfg(feature = "fleet")]
    #[arg(long, value_name = "USER", conflicts_with = "build")]
    builds_of: Vec<String>,
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
    #[cfg(feature = "fleet")]
    #[arg(long, value_name = "K", default_value_t = 0)]
    seed: u64,
    /// End where no slice or wish is left to do
    #[arg(long)]
    until_idle: bool,
    /// Seconds after which a lease that is not renewed is another worker's
    #[cfg(feature = "fleet")]
    #[arg(long, value_name = "S", default_value = "60", value_parser = seconds)]
    lease: f64,
    #[command(flatten)]
    json: JsonArgs,
}

fn cores(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(n) if (0.0..=1e6).contains(&n) => Ok(n),
        _ => Err("expected a number of at least 0".into()),
    }
}

/// Runs it.
pub fn run(a: &Args) -> Result<u8, Failure> {
    let stop = interruptible()?;
    if a.polite {
        return polite(a, &stop);
    }
    for_fleet(a, &stop)
}

/// Serves wishes.
fn polite(a: &Args, stop: &AtomicBool) -> Result<u8, Failure> {
    let program = std::env::current_exe()?;
    let request = PoliteRequest {
        target: a.target.request()?,
        threads: a.threads.threads.into(),
        caches: a.caches,
        trials: a.trials,
        hours: a.hours,
        busy: a.busy,
        calm: Duration::from_secs_f64(a.calm),
        until_served: a.until_idle,
        otherwise: otherwise(a)?,
        environment: server(a),
        ..PoliteRequest::new(program, &a.store.store)
    };
    let p = serve_wishes(&context(), &request, stop, &mut listen)?;
    if a.json.json {
        say(json!({
            "slices": p.slices, "gave_way": p.gave_way, "trials": p.trials, "served": p.served,
            "seconds": p.seconds,
        }))?;
    } else {
        say(format_args!(
            "{} slices, {} trials in {}; {} slices gave way to others; {} wishes are served",
            p.slices,
            p.trials,
            duration(p.seconds),
            p.gave_way,
            p.served
        ))?;
    }
    Ok(if stop.load(Ordering::Relaxed) { 130 } else { 0 })
}

/// What a polite worker does where no wish is left: the fleet's jobs.
#[cfg(feature = "fleet")]
fn otherwise(a: &Args) -> Result<Option<Vec<String>>, Failure> {
    if a.server.is_none() {
        return Ok(None);
    }
    let isa = a.target.isa.one()?.map_or("native".into(), |i| i.to_string());
    let words = [
        "worker",
        "--until-idle",
        "--json",
        "--store",
        &a.store.store.to_string_lossy(),
        "--threads",
        &a.threads.threads.to_string(),
        "--isa",
        &isa,
        "--lease",
        &a.lease.to_string(),
        "--caches",
        if a.caches == Caches::Cold { "cold" } else { "warm" },
        "--seed",
        &a.seed.to_string(),
    ];
    let trusted = a.builds_of.iter().flat_map(|user| ["--builds-of", user]);
    Ok(Some(words.into_iter().chain(trusted).map(String::from).collect()))
}

/// The server's address, which may hold a password: other users see the words of a command.
#[cfg(feature = "fleet")]
fn server(a: &Args) -> Vec<(String, String)> {
    a.server.iter().map(|s| ("SQUALL_FLEET".into(), s.clone())).collect()
}

#[cfg(not(feature = "fleet"))]
fn server(_: &Args) -> Vec<(String, String)> {
    Vec::new()
}

#[cfg(not(feature = "fleet"))]
fn otherwise(_: &Args) -> Result<Option<Vec<String>>, Failure> {
    Ok(None)
}

#[cfg(not(feature = "fleet"))]
fn for_fleet(_: &Args, _: &AtomicBool) -> Result<u8, Failure> {
    let hint = "say --polite to serve the store's wishes, or build with `--features fleet` and \
                name a --server";
    Err(Failure::new("this squall was built without fleets", Some(hint.into())))
}

#[cfg(feature = "fleet")]
fn for_fleet(a: &Args, stop: &AtomicBool) -> Result<u8, Failure> {
    use squall::fleet::WorkerRequest;
    let Some(server) = &a.server else {
        let hint = "name the fleet's --server, or say --polite to serve the store's wishes";
        return Err(Failure::new("there is nothing to work for", Some(hint.into())));
    };
    if a.build {
        return build(a, server, stop);
    }
    let request = WorkerRequest {
        trusted_builders: a.builds_of.clone(),
        target: a.target.request()?,
        threads: a.threads.threads.into(),
        caches: a.caches,
        seed: a.seed,
        until_idle: a.until_idle,
        lease: Duration::from_secs_f64(a.lease.clamp(0.5, 86_400.0)),
        ..WorkerRequest::new(server, &a.store.store)
    };
    let mut shown = Shown::new(a.json.json, stop);
    let worked = squall::fleet::work(&context(), &request, stop, &mut |event| shown.event(&event));
    let w = shown.finish(worked)?;
    if a.json.json {
        say(json!({
            "slices": w.slices, "trials": w.trials, "shipped": w.shipped, "fetched": w.fetched,
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

/// Compiles for other workers.
#[cfg(feature = "fleet")]
fn build(a: &Args, server: &str, stop: &AtomicBool) -> Result<u8, Failure> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let request = squall::fleet::BuilderRequest {
        server: server.into(),
        target: a.target.request()?,
        jobs: a.jobs.map_or(cores, usize::from),
        until_idle: a.until_idle,
    };
    let b = squall::fleet::build(&context(), &request, stop, &mut listen)?;
    if a.json.json {
        say(json!({ "built": b.built, "refused": b.refused, "seconds": b.seconds }))?;
    } else {
        say(format_args!(
            "{} objects in {}; {} candidates could not be made here",
            b.built,
            duration(b.seconds),
            b.refused
        ))?;
    }
    Ok(if stop.load(Ordering::Relaxed) { 130 } else { 0 })
}
