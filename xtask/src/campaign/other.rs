//! Faults of a campaign that do not concern tuning: a network's program that is killed while it is
//! timed, merges and exports that are killed in the middle, a cache that a power cut damaged.
//! `fault.rs` lists them.

use super::base::Base;
use super::sandbox::Sandbox;
use super::tuning::{LONG, STORE, Tuning, descendants, ended};
use super::verdict::{Verdict, first};
use squall_fuzz::{Draw, mutate};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Kills the program of a network while it is timed: an error, and nothing is left behind.
pub fn dead_runner(base: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Verdict {
    let model = base.model_path.to_string_lossy();
    let mut c = sandbox.command(&["bench", &model, "--seconds", "2"], &Sandbox::limits());
    c.env("XDG_CACHE_HOME", &base.cache);
    let mut t = match Tuning::of(c, sandbox) {
        Ok(t) => t,
        Err(v) => return v,
    };
    let (end, mut is_struck) = (Instant::now() + LONG, false);
    let signal = draw.one(&["-KILL", "-SEGV"]);
    while !is_struck && Instant::now() < end {
        let found = descendants(t.child.id()).into_iter().find(|c| c.1 == "network");
        if let Some((pid, name)) = found {
            std::thread::sleep(Duration::from_millis(draw.below(300) as u64));
            sandbox.note(&format!("{signal} to {name} ({pid})\n"));
            let _ = std::process::Command::new("kill").args([signal, &pid.to_string()]).output();
            is_struck = true;
        }
        if t.is_over() {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let (outcome, _) = t.end(sandbox, LONG);
    let told = match (is_struck, outcome.code) {
        (true, Some(1)) | (false, Some(0)) => Verdict::Right,
        // It may have been done already when the signal came.
        (true, Some(0)) => Verdict::Right,
        (_, other) => Verdict::Wrong(format!("a dead runner ends it with {other:?}")),
    };
    first([outcome.basics(), told])
}

/// Lines of many records, each of its own: they differ in their dates, which trials do not go by.
fn many(base: &Base, count: usize) -> Vec<u8> {
    const DATE: &str = "\"time\":";
    let text = String::from_utf8_lossy(&base.lines).into_owned();
    let is_dated = |l: &&str| l.contains(DATE) && !l.starts_with("{\"kind\":\"trial\"");
    let lines: Vec<&str> = text.lines().filter(is_dated).collect();
    let mut out = String::new();
    for i in 0..count {
        let Some(line) = lines.get(i % lines.len().max(1)) else { break };
        let Some((head, tail)) = line.rsplit_once(DATE) else { continue };
        let rest = tail.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        out += &format!("{head}{DATE}{}{rest}\n", 1_700_000_000 + i);
    }
    out.into_bytes()
}

/// Starts a command and kills it after a while.
fn killed(sandbox: &Sandbox, arguments: &[&str], after: Duration) {
    sandbox.note(&format!("squall {arguments:?} killed after {after:?}\n"));
    let mut c = sandbox.command(arguments, &Sandbox::limits());
    if let Ok(mut child) = c.stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
        std::thread::sleep(after);
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// The records of a store as lines.
fn lines(sandbox: &Sandbox, store: &str) -> Result<Vec<String>, Verdict> {
    let ran = sandbox.squall(&["records", "export", "--store", store], LONG.as_secs());
    if !ran.status.is_some_and(|s| s.success()) {
        return Err(Verdict::Missing(format!("{store} cannot be read: {}", ran.err)));
    }
    let mut all: Vec<String> = ran.out.lines().map(String::from).collect();
    all.sort();
    Ok(all)
}

/// A merge that is killed leaves a store that is right, and the same merge again completes it.
pub fn killed_merge(base: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Verdict {
    sandbox.put("many.jsonl", &many(base, 1500));
    sandbox.put(STORE, &base.store);
    let merge = ["records", "merge", "many.jsonl", "--store", STORE];
    for _ in 0..1 + draw.below(3) {
        killed(sandbox, &merge, Duration::from_millis(draw.below(1000) as u64));
    }
    let half = match lines(sandbox, STORE) {
        Ok(all) => all,
        Err(v) => return v,
    };
    sandbox.note(&format!("{} records after the kill\n", half.len()));
    let done = sandbox.squall(&merge, LONG.as_secs());
    if !done.status.is_some_and(|s| s.success()) {
        return Verdict::Wrong(format!("after a kill nothing can be merged: {}", done.err));
    }
    sandbox.put("whole.squall", &base.store);
    let again = ["records", "merge", "many.jsonl", "--store", "whole.squall"];
    let _ = sandbox.squall(&again, LONG.as_secs());
    match (lines(sandbox, STORE), lines(sandbox, "whole.squall")) {
        (Ok(a), Ok(b)) if a == b && half.iter().all(|l| b.binary_search(l).is_ok()) => {
            Verdict::Right
        }
        (Ok(a), Ok(b)) => {
            let (found, all) = (a.len(), b.len());
            Verdict::Missing(format!("of {all} records {found} are there after a kill"))
        }
        (Err(v), _) | (_, Err(v)) => v,
    }
}

/// An export that is killed leaves the file that was there, or the whole new one.
pub fn killed_export(base: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Verdict {
    sandbox.put("many.jsonl", &many(base, 1500));
    sandbox.put(STORE, &base.store);
    let merge = ["records", "merge", "many.jsonl", "--store", STORE];
    let export = |to: &'static str| ["records", "export", "--store", STORE, "--output", to];
    for words in [&merge[..], &export("whole.jsonl")] {
        let ran = sandbox.squall(words, LONG.as_secs());
        if !ran.status.is_some_and(|s| s.success()) {
            return Verdict::Wrong(format!("{words:?} fails: {}", ran.err));
        }
    }
    let read = |name: &str| std::fs::read(sandbox.inside().join(name)).ok();
    let whole = read("whole.jsonl");
    let before = draw.once_in(2).then(|| b"{}\n".to_vec());
    for _ in 0..4 {
        match &before {
            Some(b) => sandbox.put("o.jsonl", b),
            None => _ = std::fs::remove_file(sandbox.inside().join("o.jsonl")),
        }
        killed(sandbox, &export("o.jsonl"), Duration::from_millis(draw.below(120) as u64));
        let found = read("o.jsonl");
        if found != before && found != whole {
            let bytes = found.map_or(0, |f| f.len());
            return Verdict::Wrong(format!("a killed export leaves {bytes} bytes"));
        }
    }
    Verdict::Right
}

/// Compiled files that a power cut left empty, short or full of something else.
pub fn damaged_cache(base: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Verdict {
    base.warm(sandbox);
    let mut files: Vec<_> = std::fs::read_dir(sandbox.objects())
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.is_file())
        .collect();
    files.sort();
    for path in &files {
        let whole = std::fs::read(path).unwrap_or_default();
        let bytes = match draw.below(5) {
            0 => Vec::new(),
            1 => whole[..draw.below(whole.len())].to_vec(),
            2 => vec![0; whole.len()],
            3 => mutate(draw, &whole),
            _ => continue,
        };
        sandbox.note(&format!("{} has {} bytes\n", path.display(), bytes.len()));
        let _ = std::fs::write(path, bytes);
    }
    let t = match Tuning::start(sandbox, 2, &Sandbox::limits(), &[]) {
        Ok(t) => t,
        Err(v) => return v,
    };
    let (outcome, verdict) = ended(t, sandbox, STORE);
    let told = match outcome.code {
        Some(0) => Verdict::Right,
        other => Verdict::Wrong(format!("a damaged cache ends it with {other:?}: {}", outcome.err)),
    };
    first([verdict, told])
}
