//! The faults that a campaign brings about while `squall` tunes: signals, dead children, stores and
//! disks that go away, compilers that lie, limits, pipes, many writers. Each is a function that
//! starts a session in a sandbox and returns a verdict: after a fault every trial that was reported
//! must be in the store.

use super::base::{Base, SMALL, script};
use super::other;
use super::sandbox::Sandbox;
use super::server;
use super::tuning::{LONG, STORE, Tuning, descendants, ended, holds, signal_of, stopped, swept};
use super::verdict::{Verdict, first};
use rusqlite::Connection;
use squall_fuzz::Draw;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// A fault and how often it is tried.
pub struct Fault {
    /// Its name.
    pub name: &'static str,
    /// Its share.
    pub weight: usize,
    /// Brings the fault about and returns the verdict.
    pub run: fn(&Base, &mut Draw<'_>, &Sandbox) -> Verdict,
}

/// All faults.
pub const ALL: &[Fault] = &[
    Fault { name: "signal_at_start", weight: 8, run: signal_at_start },
    Fault { name: "signal_in_trials", weight: 8, run: signal_in_trials },
    Fault { name: "dead_worker", weight: 4, run: dead_worker },
    Fault { name: "dead_compiler", weight: 3, run: dead_compiler },
    Fault { name: "stopped_worker", weight: 1, run: stopped_worker },
    Fault { name: "dead_runner", weight: 1, run: other::dead_runner },
    Fault { name: "dead_server", weight: 3, run: server::dead_server },
    Fault { name: "strange_server", weight: 3, run: server::strange_server },
    Fault { name: "full_disk", weight: 3, run: full_disk },
    Fault { name: "read_only_disk", weight: 2, run: read_only_disk },
    Fault { name: "locked_store", weight: 3, run: locked_store },
    Fault { name: "removed_store", weight: 4, run: removed_store },
    Fault { name: "bad_compiler", weight: 6, run: bad_compiler },
    Fault { name: "hanging_compiler", weight: 2, run: hanging_compiler },
    Fault { name: "limits", weight: 6, run: limits },
    Fault { name: "pipes", weight: 4, run: pipes },
    Fault { name: "writers", weight: 3, run: writers },
    Fault { name: "killed_merge", weight: 4, run: other::killed_merge },
    Fault { name: "killed_export", weight: 3, run: other::killed_export },
    Fault { name: "damaged_cache", weight: 3, run: other::damaged_cache },
];

fn signal_at_start(base: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Verdict {
    let signal = signal_of(draw);
    // Half of them where the runner and the roof's program are compiled first.
    let is_warm = draw.once_in(2);
    let after = Duration::from_millis(draw.below(if is_warm { 1200 } else { 4000 }) as u64);
    if is_warm {
        base.warm(sandbox);
    }
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

fn signal_in_trials(base: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Verdict {
    let signal = signal_of(draw);
    base.warm(sandbox);
    let mut t = match Tuning::start(sandbox, 100_000, &Sandbox::limits(), &[]) {
        Ok(t) => t,
        Err(v) => return v,
    };
    t.until(1 + draw.below(5), LONG);
    std::thread::sleep(Duration::from_millis(draw.below(60) as u64));
    t.signal(signal);
    if draw.once_in(4) {
        // The second one ends it at once, and must lose nothing either.
        std::thread::sleep(Duration::from_millis(draw.below(30) as u64));
        t.signal(signal);
    }
    let (outcome, verdict) = ended(t, sandbox, STORE);
    first([verdict, stopped(&outcome, signal), swept(sandbox)])
}

/// Whether a child is where kernels run.
fn is_worker(name: &str) -> bool {
    name == "runner"
}

/// A session of some trials whose children get a signal while it makes them.
fn with_struck(
    base: &Base,
    draw: &mut Draw<'_>,
    sandbox: &Sandbox,
    signal: &str,
    is_meant: &dyn Fn(&str) -> bool,
) -> Verdict {
    base.warm(sandbox);
    let mut t = match Tuning::start(sandbox, 8, &Sandbox::limits(), &[]) {
        Ok(t) => t,
        Err(v) => return v,
    };
    for _ in 0..1 + draw.below(3) {
        let known = t.reported.len();
        t.until(known + 1, LONG);
        // What is meant may come up a little later.
        let end = Instant::now() + Duration::from_secs(1);
        while Instant::now() < end {
            let children = descendants(t.child.id());
            let meant: Vec<_> = children.iter().filter(|c| is_meant(&c.1)).collect();
            let Some((pid, name)) = meant.get(draw.below(meant.len())) else { continue };
            sandbox.note(&format!("{signal} to {name} ({pid})\n"));
            let _ = Command::new("kill").args([signal, &pid.to_string()]).output();
            break;
        }
        if signal == "-STOP" {
            break;
        }
    }
    let (outcome, verdict) = ended(t, sandbox, STORE);
    let went_on = match outcome.code {
        Some(0) => Verdict::Right,
        // The compiler that it asks whether it works at all died, too.
        Some(1) if outcome.err.contains("cannot build a trivial program") => Verdict::Right,
        other => Verdict::Wrong(format!("a dead child ends it with {other:?}: {}", outcome.err)),
    };
    first([verdict, went_on])
}

/// Kills the process in which kernels run: tuning goes on.
fn dead_worker(base: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Verdict {
    let signal = draw.one(&["-KILL", "-SEGV", "-TERM"]);
    with_struck(base, draw, sandbox, signal, &is_worker)
}

/// Kills a compiler, or what it started, while trials are made: tuning goes on.
fn dead_compiler(base: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Verdict {
    with_struck(base, draw, sandbox, "-KILL", &|name| !is_worker(name))
}

/// Stops the process in which kernels run, so that it neither answers nor ends.
fn stopped_worker(base: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Verdict {
    with_struck(base, draw, sandbox, "-STOP", &is_worker)
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

fn full_disk(base: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Verdict {
    base.warm(sandbox);
    // A record takes two kilobytes: the disk is full at the first or within some twenty trials.
    let size = format!("size={}k", 40 + 4 * draw.below(40));
    on_disk(sandbox, &size, &|_| match on_store(sandbox, "40") {
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

fn read_only_disk(base: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Verdict {
    base.warm(sandbox);
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
        let mut t = match on_store(sandbox, "8") {
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
    base.warm(sandbox);
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
    std::thread::sleep(Duration::from_millis(300 + draw.below(4500) as u64));
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
    base.warm(sandbox);
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

/// Compilers that are none, fail, crash, say too much, claim success, make code for another
/// machine, or compile something else: with each of them no kernel runs.
const COMPILERS: &[&str] = &[
    "exit 1\n",
    "exit 0\n",
    "kill -SEGV $$\n",
    "echo garbage\nout=\nwhile [ $# -gt 0 ]; do [ \"$1\" = -o ] && out=$2; shift; done\n[ -n \
     \"$out\" ] && echo garbage > \"$out\"\nexit 0\n",
    "yes error: no | head -c 30000000 >&2\nexit 1\n",
    "cc \"$@\" || exit 1\nout=\nwhile [ $# -gt 0 ]; do [ \"$1\" = -o ] && out=$2; shift; done\n[ \
     -n \"$out\" ] && printf '\\267\\000' | dd of=\"$out\" bs=1 seek=18 conv=notrunc \
     2>/dev/null\nexit 0\n",
    "for a in \"$@\"; do case \"$a\" in *.c) grep -q 'made by Squall' \"$a\" && exit 1;; esac; \
     done\nexec cc \"$@\"\n",
    "for a in \"$@\"; do case \"$a\" in *.c) grep -q 'made by Squall' \"$a\" && ! grep -q \
     _reference \"$a\" && exit 1;; esac; done\nexec cc \"$@\"\n",
    "cc \"$@\" || exit 1\nout=\nwhile [ $# -gt 0 ]; do [ \"$1\" = -o ] && out=$2; shift; done\n[ \
     -n \"$out\" ] && truncate -s 4096 \"$out\"\nexit 0\n",
    "echo 'No space left on device' >&2\nexit 1\n",
    "out=; last=\nfor a in \"$@\"; do [ \"$last\" = -o ] && out=$a; last=$a; done\nfor a in \
     \"$@\"; do case \"$a\" in *.c) grep -q 'made by Squall' \"$a\" && : > \"$out\" && exit \
     0;; esac; done\nexec cc \"$@\"\n",
    "for a in \"$@\"; do case \"$a\" in *.c) grep -q 'made by Squall' \"$a\" && ! grep -q \
     _reference \"$a\" && sed -i 's/data\\[0\\]/outputs[0]/' \"$a\";; esac; done\nexec cc \"$@\"\n",
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
        "for a in \"$@\"; do case \"$a\" in *.c) grep -q 'made by Squall' \"$a\" && sleep 600;; \
         esac; done\nexec cc \"$@\"\n",
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
    std::thread::sleep(Duration::from_millis(300 + draw.below(4000) as u64));
    let signal = signal_of(draw);
    t.signal(signal);
    let (outcome, reported) = t.end(sandbox, Duration::from_secs(30));
    let ended = [outcome.basics(), stopped(&outcome, signal), holds(sandbox, STORE, &reported)];
    first([first(ended), swept(sandbox)])
}

fn limits(base: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Verdict {
    let is_warm = draw.once_in(2);
    let kind = draw.below(5);
    let limit = match kind {
        0 => format!("ulimit -v {}", 40_000 + 8_000 * draw.below(100)),
        1 => format!("ulimit -f {}", draw.below(400)),
        2 => format!("ulimit -n {}", 3 + draw.below(40)),
        3 => format!("ulimit -u {}", 1 + draw.below(24)),
        _ => format!("ulimit -t {}", 1 + draw.below(5)),
    };
    let is_time = limit.contains("-t");
    if is_warm {
        base.warm(sandbox);
    }
    let t = match kind {
        // The superuser may start any number of processes: another user runs it.
        3 => as_another(sandbox, &limit),
        _ => Tuning::start(sandbox, 4, &limit, &[]),
    };
    let t = match t {
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

/// A session of a user of its own, of whom nothing else runs.
fn as_another(sandbox: &Sandbox, limit: &str) -> Result<Tuning, Verdict> {
    let user = (50_000 + (16 * std::process::id() + sandbox.number()) % 10_000).to_string();
    let whole = sandbox.inside().join("..");
    let owns = Command::new("chown").args(["-R", &user]).arg(&whole).output();
    if !owns.is_ok_and(|o| o.status.success()) {
        return Tuning::start(sandbox, 4, limit, &[]);
    }
    let mut c = Command::new("setpriv");
    let line = format!("{limit}\nexec \"$@\"");
    c.args(["--reuid", &user, "--clear-groups", "--", "sh", "-c", &line, "sh"]);
    c.arg(sandbox.binary()).args(["tune", SMALL, "--trials", "4", "--json"]);
    sandbox.note(&format!("as {user}: {line}\n"));
    Tuning::of(sandbox.prepared(c), sandbox)
}

fn pipes(base: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Verdict {
    base.warm(sandbox);
    let tune = format!("tune '{SMALL}' --trials 4 --json");
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

fn writers(base: &Base, draw: &mut Draw<'_>, sandbox: &Sandbox) -> Verdict {
    base.warm(sandbox);
    let count = if draw.once_in(2) { 2 } else { 8 };
    let mut all = Vec::new();
    for i in 0..count {
        let seed = i.to_string();
        let arguments = ["tune", SMALL, "--trials", "2", "--json", "--seed", &seed];
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
