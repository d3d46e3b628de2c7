//! `cargo xtask campaign`: gives hostile inputs to the built `squall` binary and brings faults
//! about while it tunes (killed processes, full disks). Each case is drawn from a seed and runs in
//! a folder of its own, under limits of time and memory. Output: a table of verdicts; a bad case is
//! kept as a folder that shows it again. `input.rs` and `fault.rs` list the kinds of cases.

mod base;
mod fault;
mod graphs;
mod input;
mod learned;
mod network;
mod options;
mod other;
mod sandbox;
mod sealed;
mod server;
mod store;
mod task;
mod tuning;
mod verdict;

use base::Base;
use options::Options;
use sandbox::Sandbox;
use squall_fuzz::Draw;
use std::collections::HashMap;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use verdict::{Done, Verdict};

/// A case: what kind, and which of it.
#[derive(Clone, Copy)]
struct Case {
    kind: Kind,
    name: &'static str,
    seed: u64,
}

#[derive(Clone, Copy)]
enum Kind {
    Input(&'static input::Input),
    Fault(&'static fault::Fault),
}

impl Case {
    /// What it is called in the list of what is done, and as a folder.
    fn id(self) -> String {
        let kind = match self.kind {
            Kind::Input(_) => "input",
            Kind::Fault(_) => "fault",
        };
        format!("{kind}-{}-{}", self.name, self.seed)
    }

    fn run(self, base: &Base, sandbox: &Sandbox) -> Verdict {
        let mut draw = Draw::of_seed(self.seed);
        match self.kind {
            Kind::Input(i) => input::run(i, base, &mut draw, sandbox),
            Kind::Fault(f) => (f.run)(base, &mut draw, sandbox),
        }
    }
}

/// Runs a campaign; success where nothing bad was found.
pub fn campaign(root: &Path, arguments: &[&str]) -> ExitCode {
    if let ["graphs", rest @ ..] = arguments {
        return graphs::campaign(root, rest);
    }
    match Options::parse(root, arguments).and_then(|o| conduct(&o)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}

fn conduct(options: &Options) -> Result<bool, String> {
    let all = cases(options);
    if all.is_empty() {
        return Err("no case has such a name; without --only all are run".into());
    }
    std::fs::create_dir_all(options.folder.join("bad")).map_err(|e| e.to_string())?;
    if options.is_fresh {
        // Another binary may have been tried; where there is no list there is nothing to forget.
        let _ = std::fs::remove_file(options.folder.join("done"));
        let _ = std::fs::remove_dir_all(options.folder.join("base"));
    }
    let known = done_before(&options.folder.join("done"));
    let left: Vec<Case> = all.iter().copied().filter(|c| !known.contains_key(&c.id())).collect();
    println!(
        "{} cases with seed {}, {} of them done before; {}",
        all.len(),
        options.seed,
        all.len() - left.len(),
        options.binary.display()
    );
    let base = Base::make(options)?;
    let start = Instant::now();
    let new = run_all(options, &base, &left);
    let mut done = new;
    done.extend(all.iter().filter_map(|c| known.get(&c.id()).cloned()));
    print!("{}", verdict::table(&done));
    let bad = done.iter().filter(|d| d.verdict.is_bad()).count();
    println!(
        "{} of {} cases, {bad} bad, {:.0} s; seed {}; what was bad lies in {}",
        done.len(),
        all.len(),
        start.elapsed().as_secs_f64(),
        options.seed,
        options.folder.join("bad").display()
    );
    Ok(bad == 0)
}

/// The cases of a campaign, each with the seed by which it alone can be run again. Their order is
/// mixed, so that a campaign that is ended early has tried all kinds.
fn cases(options: &Options) -> Vec<Case> {
    let weight = |w: usize, all: usize, of: usize| (of * w).div_ceil(all.max(1));
    let inputs: usize = input::ALL.iter().map(|i| i.weight).sum();
    let faults: usize = fault::ALL.iter().map(|f| f.weight).sum();
    let of_inputs = input::ALL
        .iter()
        .map(|i| (Kind::Input(i), i.name, weight(i.weight, inputs, options.cases)));
    let of_faults = fault::ALL
        .iter()
        .map(|f| (Kind::Fault(f), f.name, weight(f.weight, faults, options.faults)));
    let mut all: Vec<(u64, Case)> = Vec::new();
    for (kind, name, count) in of_inputs.chain(of_faults) {
        if !options.only.as_ref().is_none_or(|o| name.contains(o.as_str())) {
            continue;
        }
        for i in 0..count {
            let seed = options.seed.wrapping_mul(1_000_000).wrapping_add(i as u64);
            // The place in the order: evenly spread over the campaign.
            let place = (i as u64 * 1_000_000) / count.max(1) as u64;
            all.push((place, Case { kind, name, seed }));
        }
    }
    all.sort_by_key(|c| c.0);
    all.into_iter().map(|c| c.1).collect()
}

/// What an earlier run of the same campaign did: lines of what is written by [`run_all`].
fn done_before(file: &Path) -> HashMap<String, Done> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().filter_map(Done::parse).map(|d| (d.id.clone(), d)).collect()
}

fn run_all(options: &Options, base: &Base, cases: &[Case]) -> Vec<Done> {
    let (next, all) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let list = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open(options.folder.join("done"))
        .map(Mutex::new);
    let end = options.seconds.map(|s| Instant::now() + Duration::from_secs(s));
    std::thread::scope(|scope| {
        for worker in 0..options.jobs {
            let (next, all, list) = (&next, &all, &list);
            scope.spawn(move || {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = cases.get(i) else { return };
                    if end.is_some_and(|e| Instant::now() >= e) {
                        return;
                    }
                    let done = one(options, base, *case, worker);
                    if let Ok(Ok(mut list)) = list.as_ref().map(Mutex::lock) {
                        // Without the list the case is run again another time.
                        let _ = writeln!(list, "{}", done.line());
                    }
                    if done.verdict.is_bad() {
                        println!("{}: {}", done.id, done.verdict);
                    } else if i % 500 == 499 {
                        println!("{} of {} cases", i + 1, cases.len());
                    }
                    all.lock().unwrap_or_else(|p| p.into_inner()).push(done);
                }
            });
        }
    });
    all.into_inner().unwrap_or_else(|p| p.into_inner())
}

/// Runs a case in a fresh folder, which is kept where the case is bad.
fn one(options: &Options, base: &Base, case: Case, worker: usize) -> Done {
    let start = Instant::now();
    let folder = options.folder.join(format!("work-{worker}"));
    let verdict = match Sandbox::make(&folder, &options.binary) {
        Ok(sandbox) => {
            let verdict = case.run(base, &sandbox);
            let verdict = if verdict.is_right() { sandbox.left_as_it_was() } else { verdict };
            if verdict.is_bad() {
                sandbox.keep(&options.folder.join("bad").join(case.id()), &verdict);
            }
            verdict
        }
        Err(e) => Verdict::Unrun(e),
    };
    Done { id: case.id(), name: case.name.into(), verdict, seconds: start.elapsed().as_secs_f64() }
}
