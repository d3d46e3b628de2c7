//! `squall train --find`: trains a chooser of MIOpen's solvers from the find databases of a store
//! and writes its file (`squall::find`).

use crate::failure::Failure;
use crate::interrupt::interruptible;
use crate::terminal::{note, say, table};
use serde_json::json;
use squall::find::train;
use squall::{FindStep, FindTraining};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// The command's options that concern a chooser.
pub struct Asked<'a> {
    /// The store.
    pub store: &'a Path,
    /// Only this GPU.
    pub device: Option<&'a str>,
    /// The salt of what is held out.
    pub salt: Option<&'a str>,
    /// GPUs that are left out.
    pub leave_out: &'a [String],
    /// Threads.
    pub threads: Option<u16>,
    /// Trees of a forest.
    pub rounds: Option<u16>,
    /// Of everything random.
    pub seed: u64,
    /// The file.
    pub out: &'a Path,
    /// Whether JSON is printed.
    pub json: bool,
}

/// Runs it.
pub fn run(a: &Asked<'_>) -> Result<u8, Failure> {
    let stop = interruptible()?;
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let mut request = FindTraining {
        salt: a.salt.map(String::from),
        left_out: a.leave_out.to_vec(),
        threads: a.threads.map_or(threads, usize::from),
        seed: a.seed,
        ..FindTraining::default()
    };
    if let Some(n) = a.rounds {
        request.rounds = n.into();
    }
    let began = Instant::now();
    let go_on = || !stop.load(Ordering::Relaxed);
    let trained = train(a.store, a.device, &request, a.out, &go_on, &mut |s| {
        let on = |gpu: Option<&str>| gpu.map_or("others' measurements".into(), String::from);
        let text = match s {
            FindStep::Neighbours(n, gpu) => format!("{}: neighbours of {n} problems", on(gpu)),
            FindStep::Trees(n, gpu) => format!("{}: trees from {n} candidates", on(gpu)),
        };
        note(format_args!("{:6.0} s  {text}", began.elapsed().as_secs_f64()));
    })?;
    let Some(chooser) = trained else {
        note("stopped; nothing was written");
        return Ok(130);
    };
    let seconds = began.elapsed().as_secs_f64();
    let bytes = std::fs::metadata(a.out).map_or(0, |m| m.len());
    if a.json {
        let learned: Vec<_> = chooser
            .info
            .learned
            .iter()
            .map(|(device, n)| json!({"device": device, "problems": n}))
            .collect();
        say(json!({
            "chooser": a.out, "seconds": seconds, "bytes": bytes, "learned": learned,
            "salt": chooser.info.salt, "left_out": chooser.info.left_out,
        }))?;
        return Ok(0);
    }
    let mut t = table(&["GPU", "problems"]);
    for (device, n) in &chooser.info.learned {
        t.add_row([device.clone(), n.to_string()]);
    }
    say(t)?;
    let megabytes = bytes as f64 * 1e-6;
    say(format_args!("{seconds:.0} s, {megabytes:.1} MB: {}", a.out.display()))?;
    Ok(0)
}
