//! Faults while tuning: signals, dead children, stores and disks that go away, compilers that lie,
//! limits, pipes, many writers. After each of them all that was reported must be in the store.

use super::base::{Base, SMALL, script};
use super::sandbox::Sandbox;
use super::tuning::{Outcome, STORE, Tuning, holds};
use super::verdict::Verdict;
use rusqlite::Connection;
use squall_fuzz::Draw;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// A fault and how often it is tried.
pub struct Fault {
    /// Its name.
    pub name: &'static str,
    /// Its share.
    pub weight: usize,
    /// Brings it about; what came of it.
    pub run: fn(&Base, &mut Draw<'_>, &Sandbox) -> Verdict,
}

/// All faults.
pub const ALL: &[Fault] = &[
    Fault { name: "signal_at_start", weight: 8, run: signal_at_start },
    Fault { name: "signal_in_trials", weight: 8, run: signal_in_trials },
    Fault { name: "dead_child", weight: 6, run: dead_child },
    Fault { name: "full_disk", weight: 3, run: full_disk },
    Fault { name: "read_only_disk", weight: 2, run: read_only_disk },
    Fault { name: "locked_store", weight: 3, run: locked_store },
    Fault { name: "removed_store", weight: 4, run: removed_store },
    Fault { name: "bad_compiler", weight: 6, run: bad_compiler },
    Fault { name: "hanging_compiler", weight: 2, run: hanging_compiler },
    Fault { name: "limits", weight: 6, run: limits },
    Fault { name: "pipes", weight: 4, run: pipes },
    Fault { name: "writers", weight: 3, run: writers },
];

/// How long any of it may take on a busy machine.
const LONG: Duration = Duration::from_secs(240);

/// The first of some verdicts that is bad.
fn first(all: impl IntoIterator<Item = Verdict>) -> Verdict {
    all.into_iter().find(|v| !v.is_right()).unwrap_or(Verdict::Right)
}

/// Ends a session and looks at the basics and at the store.
fn ended(t: Tuning, sandbox: &Sandbox, store: &str) -> (Outcome, Verdict) {
    let (outcome, reported) = t.end(sandbox, LONG);
    let verdict = first([outcome.basics(), holds(sandbox, store, &reported)]);
    (outcome, verdict)
}

/// Whether folders that a killed session left are removed by the next one.
fn swept(sandbox: &Sandbox) -> Verdict {
    let left = || std::fs::read_dir(sandbox.temporary()).map_or(0, Iterator::count);
    if left() == 0 {
        return Verdict::Right;
    }
    // Its children end a moment after it.
    std::thread::sleep(Duration::from_millis(500));
    let ran = sandbox.run(
        sandbox.command(&["tune", SMALL, "--trials", "1", "--store", "again.squall"], ""),
        LONG.as_secs(),
    );
    match (ran.status.is_some_and(|s| s.success()), left()) {
        (true, 0) => Verdict::Right,
        (false, _) => Verdict::Wrong(format!("after it nothing can be tuned: {}", ran.err)),
        (true, n) => Verdict::Wrong(format!("{n} folders of dead processes stay")),
    }
}

fn signal_at_start(_: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Verdict {
    let signal = *["-INT", "-TERM", "-HUP", "-KILL"].get(draw.below(4)).unwrap_or(&"-INT");
    let after = Duration::from_millis(draw.below(4000) as u64);
    let t = match Tuning::start(sandbox, 20, &Sandbox::limits(), &[]) {
        Ok(t) => t,
        Err(v) => return v,
    };
    std::thread::sleep(after);
    sandbox.note(&format!("{signal} after {after:?}\n"));
    t.signal(signal);
    let (outcome, verdict) = ended(t, sandbox, STORE);
    first([verdict, stopped(&outcome, signal), swept(sandbox)])
}

/// Whether a session ended as its signal says. It may be over before, and may die of the signal
/// before it hears of signals.
fn stopped(outcome: &Outcome, signal: &str) -> Verdict {
    let is_right = match (outcome.code, outcome.signal) {
        (Some(0 | 130), _) => true,
        (None, Some(s)) => {
            [("-INT", 2), ("-TERM", 15), ("-HUP", 1), ("-KILL", 9)].contains(&(signal, s))
        }
        _ => false,
    };
    if is_right {
        return Verdict::Right;
    }
    Verdict::Wrong(format!("{signal} ends it with {:?}: {}", outcome.code, outcome.err))
}

fn signal_in_trials(_: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Verdict {
    let signal = *["-INT", "-TERM", "-HUP", "-KILL"].get(draw.below(4)).unwrap_or(&"-INT");
    let mut t = match Tuning::start(sandbox, 100_000, &Sandbox::limits(), &[]) {
        Ok(t) => t,
        Err(v) => return v,
    };
    t.until(1 + draw.below(8), LONG);
    std::thread::sleep(Duration::from_millis(draw.below(60) as u64));
    t.signal(signal);
    let (outcome, verdict) = ended(t, sandbox, STORE);
    first([verdict, stopped(&outcome, signal), swept(sandbox)])
}

/// The children of a process, and theirs: number and name.
fn descendants(of: u32) -> Vec<(u32, String)> {
    let mut all: Vec<(u32, u32, String)> = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let text = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // The name stands in brackets and may hold any characters.
        let (Some((head, tail)), Some(open)) = (text.rsplit_once(')'), text.find('(')) else {
            continue;
        };
        let (pid, parent) = (text[..open].trim().parse(), tail.split_whitespace().nth(1));
        if let (Ok(pid), Some(Ok(parent))) = (pid, parent.map(str::parse)) {
            all.push((pid, parent, head[open + 1..].to_string()));
        }
    }
    let mut found: Vec<(u32, String)> = Vec::new();
    let mut next = vec![of];
    while let Some(parent) = next.pop() {
        for (pid, _, name) in all.iter().filter(|p| p.1 == parent) {
            found.push((*pid, name.clone()));
            next.push(*pid);
        }
    }
    found
}

/// Kills the runner or a compiler while trials are made: tuning goes on.
fn dead_child(_: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Verdict {
    let mut t = match Tuning::start(sandbox, 12, &Sandbox::limits(), &[]) {
        Ok(t) => t,
        Err(v) => return v,
    };
    for _ in 0..1 + draw.below(3) {
        let known = t.reported.len();
        t.until(known + 1, LONG);
        let children = descendants(t.child.id());
        if let Some((pid, name)) = children.get(draw.below(children.len())) {
            sandbox.note(&format!("kills {name} ({pid})\n"));
            let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).output();
        }
    }
    let (outcome, verdict) = ended(t, sandbox, STORE);
    let went_on = match outcome.code {
        Some(0) => Verdict::Right,
        other => Verdict::Wrong(format!("a dead child ends it with {other:?}: {}", outcome.err)),
    };
    first([verdict, went_on])
}

/// A small file system at `in/disk`, while `f` runs; nothing where this machine mounts none.
fn on_disk(sandbox: &Sandbox, options: &str, f: &dyn Fn(&Path) -> Verdict) -> Verdict {
    let disk = sandbox.inside().join("disk");
    let _ = std::fs::create_dir(&disk);
    let mount = |options: &str| {
        let done =
            Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&disk).output();
        done.is_ok_and(|o| o.status.success())
    };
    if !mount(options) {
        return Verdict::Unrun("a small file system cannot be mounted here".into());
    }
    let verdict = f(&disk);
    let _ = Command::new("umount").arg("-l").arg(&disk).output();
    verdict
}

/// A session whose store lies on the disk.
fn on_store(sandbox: &Sandbox, trials: &str) -> Result<Tuning, Verdict> {
    let arguments =
        ["tune", SMALL, "--trials", trials, "--json", "--store", "disk/a.squall", "--report", "r"];
    Tuning::of(sandbox.command(&arguments, &Sandbox::limits()), sandbox)
}

fn full_disk(_: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Verdict {
    let size = format!("size={}k", 40 + 4 * draw.below(60));
    on_disk(sandbox, &size, &|_| match on_store(sandbox, "300") {
        Err(v) => v,
        Ok(t) => {
            let (outcome, verdict) = ended(t, sandbox, "disk/a.squall");
            let told = match outcome.code {
                Some(1) | Some(0) => Verdict::Right,
                other => Verdict::Wrong(format!("a full disk ends it with {other:?}")),
            };
            first([verdict, told])
        }
    })
}

fn read_only_disk(_: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Verdict {
    let at_start = draw.once_in(2);
    let trials = 1 + draw.below(3);
    on_disk(sandbox, "size=8m", &|disk| {
        let read_only = || {
            let mut c = Command::new("mount");
            let done = c.args(["-o", "remount,ro"]).arg(disk).output();
            done.is_ok_and(|o| o.status.success())
        };
        if at_start && !read_only() {
            return Verdict::Unrun("a file system cannot be made read-only here".into());
        }
        let mut t = match on_store(sandbox, "30") {
            Ok(t) => t,
            Err(v) => return v,
        };
        if !at_start {
            t.until(trials, LONG);
            // With open files it may be refused, and then tuning goes on.
            read_only();
        }
        let (outcome, verdict) = ended(t, sandbox, "disk/a.squall");
        let told = match (at_start, outcome.code) {
            (true, Some(1)) | (false, Some(0 | 1)) => Verdict::Right,
            (_, other) => Verdict::Wrong(format!("a read-only disk ends it with {other:?}")),
        };
        first([verdict, told])
    })
}

fn locked_store(base: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Verdict {
    sandbox.put(STORE, &base.store);
    let begin = draw.one(&["BEGIN EXCLUSIVE", "BEGIN IMMEDIATE"]).to_string();
    let lock = || -> rusqlite::Result<Connection> {
        let c = Connection::open(sandbox.inside().join(STORE))?;
        c.execute_batch(&begin)?;
        Ok(c)
    };
    let holder = match lock() {
        Ok(c) => c,
        Err(e) => return Verdict::Unrun(e.to_string()),
    };
    let frees = draw.once_in(2);
    let t = match Tuning::start(sandbox, 4, &Sandbox::limits(), &[]) {
        Ok(t) => t,
        Err(v) => return v,
    };
    std::thread::sleep(Duration::from_millis(500 + draw.below(9000) as u64));
    if frees {
        drop(holder);
        let (outcome, verdict) = ended(t, sandbox, STORE);
        return match outcome.code {
            Some(0) => verdict,
            other => first([verdict, Verdict::Wrong(format!("a lock ends it with {other:?}"))]),
        };
    }
    t.signal("-INT");
    let (outcome, reported) = t.end(sandbox, Duration::from_secs(30));
    drop(holder);
    first([outcome.basics(), stopped(&outcome, "-INT"), holds(sandbox, STORE, &reported)])
}

fn removed_store(base: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Verdict {
    let mut t = match Tuning::start(sandbox, 100_000, &Sandbox::limits(), &[]) {
        Ok(t) => t,
        Err(v) => return v,
    };
    t.until(1 + draw.below(5), LONG);
    let store = sandbox.inside().join(STORE);
    match draw.below(3) {
        0 => _ = std::fs::remove_file(&store),
        1 => _ = std::fs::rename(&store, sandbox.inside().join("elsewhere")),
        _ => {
            sandbox.put("other", &base.recorded);
            let _ = std::fs::rename(sandbox.inside().join("other"), &store);
        }
    }
    let (outcome, reported) = t.end(sandbox, LONG);
    let told = match outcome.code {
        Some(1) => Verdict::Right,
        other => Verdict::Wrong(format!("a store that goes away ends it with {other:?}")),
    };
    first([outcome.basics(), told, holds(sandbox, "tuned.squall.rescued", &reported)])
}

/// Compilers that are none, fail, crash, say too much, or claim success.
const COMPILERS: &[&str] = &[
    "exit 1\n",
    "exit 0\n",
    "kill -SEGV $$\n",
    "echo garbage\nout=\nwhile [ $# -gt 0 ]; do [ \"$1\" = -o ] && out=$2; shift; done\n[ -n \
     \"$out\" ] && echo garbage > \"$out\"\nexit 0\n",
    "yes error: no | head -c 30000000 >&2\nexit 1\n",
    "cc \"$@\" || exit 1\nout=\nwhile [ $# -gt 0 ]; do [ \"$1\" = -o ] && out=$2; shift; done\n[ \
    -n \
     \"$out\" ] && printf '\\267\\000' | dd of=\"$out\" bs=1 seek=18 conv=notrunc \
     2>/dev/null\nexit \
     0\n",
    "for a in \"$@\"; do case \"$a\" in *.c) grep -q squall_kernel \"$a\" && exit 1;; esac; \
    done\nexec \
     cc \"$@\"\n",
    "cc \"$@\" || exit 1\nout=\nwhile [ $# -gt 0 ]; do [ \"$1\" = -o ] && out=$2; shift; done\n[ \
    -n \
     \"$out\" ] && truncate -s 4096 \"$out\"\nexit 0\n",
    "echo 'No space left on device' >&2\nexit 1\n",
];

fn bad_compiler(_: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Verdict {
    let path = sandbox.inside().join("cc");
    let which = draw.below(COMPILERS.len() + 2);
    if let Some(text) = COMPILERS.get(which)
        && let Err(e) = script(&path, &format!("#!/bin/sh\n{text}"))
    {
        return Verdict::Unrun(e);
    }
    if which == COMPILERS.len() {
        sandbox.put("cc", b"\x7fELF, but no program");
    }
    let cc = [("CC", path.to_string_lossy().into_owned())];
    let t = match Tuning::start(sandbox, 3, &Sandbox::limits(), &cc) {
        Ok(t) => t,
        Err(v) => return v,
    };
    let (outcome, verdict) = ended(t, sandbox, STORE);
    let told = match outcome.code {
        Some(1) => Verdict::Right,
        other => Verdict::Garbage(format!("compiler {which} ends it with {other:?}")),
    };
    first([verdict, told])
}

fn hanging_compiler(_: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Verdict {
    let path = sandbox.inside().join("cc");
    let texts = [
        "sleep 600\n",
        "trap '' TERM INT HUP\nwhile :; do sleep 1; done\n",
        "for a in \"$@\"; do case \"$a\" in *.c) grep -q squall_kernel \"$a\" && sleep 600;; esac; \
         done\nexec cc \"$@\"\n",
    ];
    let text = format!("#!/bin/sh\n{}", texts[draw.below(texts.len())]);
    if let Err(e) = script(&path, &text) {
        return Verdict::Unrun(e);
    }
    let cc = [("CC", path.to_string_lossy().into_owned())];
    let t = match Tuning::start(sandbox, 3, &Sandbox::limits(), &cc) {
        Ok(t) => t,
        Err(v) => return v,
    };
    std::thread::sleep(Duration::from_millis(300 + draw.below(8000) as u64));
    let signal = *["-INT", "-TERM", "-HUP", "-KILL"].get(draw.below(4)).unwrap_or(&"-INT");
    t.signal(signal);
    let (outcome, reported) = t.end(sandbox, Duration::from_secs(30));
    let ended = [outcome.basics(), stopped(&outcome, signal), holds(sandbox, STORE, &reported)];
    first([first(ended), swept(sandbox)])
}

fn limits(_: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Verdict {
    let limit = match draw.below(4) {
        0 => format!("ulimit -v {}", 40_000 + 8_000 * draw.below(100)),
        1 => format!("ulimit -f {}", draw.below(400)),
        2 => format!("ulimit -n {}", 3 + draw.below(40)),
        _ => format!("ulimit -t {}", 1 + draw.below(5)),
    };
    let is_time = limit.contains("-t");
    let t = match Tuning::start(sandbox, 4, &limit, &[]) {
        Ok(t) => t,
        Err(v) => return v,
    };
    let (outcome, reported) = t.end(sandbox, LONG);
    // Too little memory or too few files to start at all is the loader's word, not ours; the limit
    // of CPU time kills.
    let loader = outcome.err.contains("error while loading shared libraries")
        || outcome.err.contains("cannot allocate")
        || outcome.err.contains("memory allocation of")
        || (is_time && outcome.signal.is_some());
    let basics = if loader { Verdict::Right } else { outcome.basics() };
    let held = match holds(sandbox, STORE, &reported) {
        v if reported.is_empty() => first([Verdict::Right, v]),
        v => v,
    };
    first([basics, held])
}

fn pipes(_: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Verdict {
    let tune = format!("tune '{SMALL}' --trials 6 --json");
    let (line, right): (String, &[i32]) = match draw.below(6) {
        0 => (format!("\"$0\" {tune} >&-"), &[0, 1]),
        1 => (format!("\"$0\" {tune} > /dev/full"), &[1]),
        2 => (format!("\"$0\" {tune} 2>&- > out.json"), &[0]),
        3 => (format!("\"$0\" {tune} 2> /dev/full > out.json"), &[0]),
        4 => (format!("\"$0\" {tune} | head -1 > out.json"), &[0]),
        _ => (format!("\"$0\" tasks '{SMALL}' | true"), &[0]),
    };
    let mut c = Command::new("sh");
    c.args(["-c", &line]).arg(sandbox.binary());
    sandbox.note(&format!("{line}\n"));
    let ran = sandbox.run(sandbox.prepared(c), LONG.as_secs());
    let said: String = ran.err.chars().take(300).collect();
    if ran.err.contains("panicked at") {
        return Verdict::Panic(said);
    }
    let out = std::fs::read_to_string(sandbox.inside().join("out.json")).unwrap_or_default();
    let reported: Vec<String> = out
        .lines()
        .filter_map(|l| l.split_once("\"identity\":\"")?.1.split('"').next().map(String::from))
        .collect();
    match ran.status.map(|s| s.code()) {
        None => Verdict::Hang(said),
        Some(Some(code)) if right.contains(&code) => holds(sandbox, STORE, &reported),
        Some(other) => Verdict::Wrong(format!("`{line}` ends with {other:?}: {said}")),
    }
}

fn writers(_: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Verdict {
    let count = if draw.once_in(2) { 2 } else { 8 };
    let mut all = Vec::new();
    for i in 0..count {
        let seed = i.to_string();
        let arguments = ["tune", SMALL, "--trials", "4", "--json", "--seed", &seed];
        match Tuning::of(sandbox.command(&arguments, ""), sandbox) {
            Ok(t) => all.push(t),
            Err(v) => return v,
        }
    }
    // Some of them are killed in the middle.
    let killed = draw.below(count);
    for t in all.iter_mut().take(killed) {
        t.until(1, LONG);
        t.signal("-KILL");
    }
    let mut reported = Vec::new();
    let mut worst = Verdict::Right;
    for (i, t) in all.into_iter().enumerate() {
        let (outcome, seen) = t.end(sandbox, LONG);
        reported.extend(seen);
        let end = match outcome.code {
            Some(0) => Verdict::Right,
            _ if i < killed => Verdict::Right,
            other => Verdict::Wrong(format!("writer {i} ends with {other:?}: {}", outcome.err)),
        };
        worst = first([worst, outcome.basics(), end]);
    }
    first([worst, holds(sandbox, STORE, &reported), swept(sandbox)])
}
