//! `cargo xtask campaign graphs`: draws random small graphs of all operators, runs them by Squall
//! as its user does, and compares the outputs with the reader's own evaluation, with the same
//! graphs unfused and hardly optimised, and with onnxruntime where it is installed.
//!
//! Several graphs are parts of one model, so that one run of the program serves many. Whether its
//! results differ is decided graph by graph.

mod bounds;
mod case;
mod compare;
mod graph;
mod numbers;
mod options;
mod peer;
mod rows;
mod shrink;
mod subject;
mod tally;
#[cfg(test)]
mod tests;
mod trial;

use case::Case;
use options::Options;
use peer::Peer;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use subject::{Subject, Way};
use tally::Tally;
use trial::Trial;

/// Graphs that are parts of one model.
const TOGETHER: u64 = 16;
/// Versions of the operators that models are of.
const OPSETS: [i64; 7] = [18, 20, 21, 22, 23, 24, 28];
/// Numbers of threads; the machine has fewer than most of them.
const THREADS: [usize; 8] = [1, 1, 2, 2, 3, 4, 7, 8];

/// Runs a campaign; success where nothing bad was found.
pub fn campaign(root: &Path, arguments: &[&str]) -> ExitCode {
    match Options::parse(root, arguments).and_then(|o| conduct(&o)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}

fn conduct(o: &Options) -> Result<bool, String> {
    if o.is_short {
        // Another binary may have been tried; where there is nothing there is nothing to forget.
        let _ = std::fs::remove_dir_all(o.folder.join("bad"));
        let _ = std::fs::remove_file(o.folder.join("tally"));
    }
    std::fs::create_dir_all(o.folder.join("bad")).map_err(|e| e.to_string())?;
    if let Some(n) = o.case {
        return Ok(one(o, n));
    }
    let tally = Tally::read(&o.folder);
    let batches = o.graphs.div_ceil(TOGETHER);
    let done = tally.batches();
    println!(
        "{} graphs with seed {}, {} of them done before; {}",
        batches * TOGETHER,
        o.seed,
        done * TOGETHER,
        o.binary.display()
    );
    let (next, tally) = (AtomicU64::new(0), Mutex::new(tally));
    let start = Instant::now();
    let end = o.seconds.map(|s| start + Duration::from_secs(s));
    std::thread::scope(|scope| {
        for worker in 0..o.jobs {
            let (next, tally) = (&next, &tally);
            scope.spawn(move || work(o, worker, next, batches, end, tally));
        }
    });
    let tally = tally.into_inner().unwrap_or_else(|p| p.into_inner());
    tally.write(&o.folder)?;
    pack(o, &tally)?;
    print!("{tally}");
    let seconds = start.elapsed().as_secs_f64();
    let new = (tally.batches() - done) * TOGETHER;
    println!(
        "{new} graphs in {seconds:.0} s, {:.1} a second; seed {}; what differs lies in {}",
        new as f64 / seconds.max(1e-3),
        o.seed,
        o.folder.join("bad").display()
    );
    Ok(tally.bad() == 0)
}

/// Takes one batch after the other until all are done or the time is over.
fn work(
    o: &Options,
    worker: usize,
    next: &AtomicU64,
    batches: u64,
    end: Option<Instant>,
    tally: &Mutex<Tally>,
) {
    let mut trial = trial(o, worker, end);
    loop {
        let n = next.fetch_add(1, Ordering::Relaxed);
        if n >= batches || trial.subject.is_over() {
            return;
        }
        let of = |t: &Mutex<Tally>, f: &mut dyn FnMut(&mut Tally)| {
            f(&mut t.lock().unwrap_or_else(|p| p.into_inner()));
        };
        let mut is_done = false;
        of(tally, &mut |t| is_done = t.has(n));
        if is_done {
            continue;
        }
        let mut found = Tally::default();
        let way = way(n);
        let cases = batch(o, n, &mut found);
        // Without onnxruntime the literal form of every model is what there is to compare with.
        let literally = !trial.has_peer() || n.is_multiple_of(8);
        if !trial.try_all(cases, &way, literally, &mut found) {
            // The batch is tried again another time; what was found bad in it is not lost.
            of(tally, &mut |t| t.keep(&found));
            return;
        }
        found.finish(n);
        of(tally, &mut |t| {
            t.add(&found);
            // What cannot be written is said at the end, too.
            let _ = t.write(&o.folder);
            // A campaign that is killed leaves what it found.
            let _ = if found.bad() > 0 { pack(o, t) } else { Ok(()) };
        });
    }
}

/// One graph alone, said in full.
fn one(o: &Options, n: u64) -> bool {
    let mut trial = trial(o, 0, None);
    let mut found = Tally::default();
    let all = batch(o, n / TOGETHER, &mut found);
    let case: Vec<Case> = all.into_iter().filter(|c| c.seed == seed_of(o, n)).collect();
    case.iter().for_each(|c| println!("{}", c.operators()));
    trial.try_all(case, &way(n / TOGETHER), true, &mut found);
    print!("{found}");
    found.bad() == 0
}

/// Puts what was found so far into two files of the folder that was asked for.
fn pack(o: &Options, tally: &Tally) -> Result<(), String> {
    let Some(out) = &o.out else { return Ok(()) };
    std::fs::create_dir_all(out).map_err(|e| format!("{}: {e}", out.display()))?;
    let file = |ending: &str| out.join(format!("graphs-{}.{ending}", o.seed));
    std::fs::write(file("txt"), tally.to_string()).map_err(|e| e.to_string())?;
    let mut tar = std::process::Command::new("tar");
    tar.arg("-czf").arg(file("tar.gz")).arg("-C").arg(&o.folder).args(["tally", "bad"]);
    match tar.status() {
        Ok(s) if s.success() => Ok(()),
        Ok(s) => Err(format!("tar: {s}")),
        Err(e) => Err(format!("tar: {e}")),
    }
}

fn trial(o: &Options, worker: usize, end: Option<Instant>) -> Trial<'_> {
    let folder = o.folder.join(format!("work-{worker}"));
    // Graphs share next to no kernels, and many writers of one store wait for each other.
    let cache = folder.join("cache");
    let cores = subject::cores();
    Trial {
        subject: Subject {
            binary: &o.binary,
            cache,
            folder,
            most: std::cell::Cell::new(usize::MAX),
            end,
            core: (o.jobs > 1).then(|| cores.get(worker % cores.len().max(1)).copied()).flatten(),
        },
        peer: Peer::start(&peer::python(o.python.as_deref()), &o.root),
        bad: o.folder.join("bad"),
        known: Default::default(),
        number: o.seed.wrapping_mul(1_000_000),
    }
}

/// How the models of a batch are run.
fn way(batch: u64) -> Way {
    let threads = THREADS[(batch % 8) as usize];
    let isa = if batch % 3 == 2 { "x86-64-v2" } else { "native" };
    let isa = if cfg!(target_arch = "x86_64") { isa } else { "native" };
    Way { threads, isa, is_symbolic: batch % 5 == 4, is_literal: false }
}

fn seed_of(o: &Options, n: u64) -> u64 {
    o.seed.wrapping_mul(1_000_000).wrapping_add(n)
}

/// The graphs of a batch.
fn batch(o: &Options, n: u64, found: &mut Tally) -> Vec<Case> {
    let opset = OPSETS[(n % 7) as usize];
    let draw = |i: u64| {
        let seed = seed_of(o, n * TOGETHER + i);
        Case::draw(seed, opset, &format!("g{i}_"), &o.without, &mut found.refused)
    };
    (0..TOGETHER).map(draw).filter(|c| !c.nodes.is_empty()).collect()
}
