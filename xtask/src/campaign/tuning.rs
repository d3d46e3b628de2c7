//! A tuning session in a campaign's sandbox: starts `squall tune`, follows the trials that it
//! reports, sends it signals, and at the end compares the reports with the records in its store.
//! The faults of `fault.rs` are built on it.

use super::base::SMALL;
use super::sandbox::{Ran, Sandbox, kill_group, wait};
use super::verdict::{Verdict, first};
use serde_json::Value;
use squall_fuzz::Draw;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The store of these sessions.
pub const STORE: &str = "tuned.squall";

/// The time that a session may take on a busy machine.
pub const LONG: Duration = Duration::from_secs(240);

/// A running session.
pub struct Tuning {
    /// Its process.
    pub child: Child,
    lines: Receiver<String>,
    /// The identities of the trials that it reported.
    pub reported: Vec<String>,
}

/// The end of a session.
pub struct Outcome {
    /// Exit code; none where it was killed or its time was over.
    pub code: Option<i32>,
    /// The signal that killed it.
    pub signal: Option<i32>,
    /// Whether its time was over.
    pub is_late: bool,
    /// The text of its error stream.
    pub err: String,
}

impl Tuning {
    /// Starts one of so many trials. `limits` are commands of a shell before it; `environment` is
    /// added.
    pub fn start(
        sandbox: &Sandbox,
        trials: usize,
        limits: &str,
        environment: &[(&str, String)],
    ) -> Result<Tuning, Verdict> {
        let trials = trials.to_string();
        let arguments = ["tune", SMALL, "--trials", &trials, "--json"];
        let mut c = sandbox.command(&arguments, limits);
        c.envs(environment.iter().map(|(k, v)| (k, v.as_str())));
        sandbox.note(&format!("{limits}; squall {arguments:?} {environment:?}\n"));
        Tuning::of(c, sandbox)
    }

    /// Follows a command that prints reports.
    pub fn of(mut c: Command, sandbox: &Sandbox) -> Result<Tuning, Verdict> {
        let unrun = |e: std::io::Error| Verdict::Unrun(e.to_string());
        let err = sandbox.inside().join(".err");
        let err = std::fs::File::options().append(true).create(true).open(err).map_err(unrun)?;
        let mut child = c.stdout(Stdio::piped()).stderr(err).spawn().map_err(unrun)?;
        let (send, lines) = channel();
        if let Some(out) = child.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(out).lines().map_while(Result::ok) {
                    if send.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Tuning { child, lines, reported: Vec::new() })
    }

    /// Reads reports until there are so many, it ends, or the time is over.
    pub fn until(&mut self, trials: usize, limit: Duration) {
        let end = Instant::now() + limit;
        while self.reported.len() < trials {
            let left = end.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => self.reported.extend(identity(&line)),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Whether it has ended.
    pub fn is_over(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends it a signal.
    pub fn signal(&self, name: &str) {
        let _ = Command::new("kill").args([name, &self.child.id().to_string()]).output();
    }

    /// Waits for its end and reads the rest of its reports.
    pub fn end(mut self, sandbox: &Sandbox, limit: Duration) -> (Outcome, Vec<String>) {
        let status = wait(&mut self.child, limit);
        self.until(usize::MAX, Duration::from_secs(2));
        let err = std::fs::read(sandbox.inside().join(".err")).unwrap_or_default();
        let err = String::from_utf8_lossy(&err).into_owned();
        let outcome = Outcome {
            code: status.and_then(|s| s.code()),
            signal: status.and_then(|s| s.signal()),
            is_late: status.is_none(),
            err,
        };
        sandbox.note(&format!("{status:?}\n{}\n", outcome.err));
        if outcome.is_late {
            kill_group(&mut self.child);
        }
        (outcome, self.reported)
    }
}

/// The identity of a reported trial.
fn identity(line: &str) -> Option<String> {
    let v: Value = serde_json::from_str(line).ok()?;
    Some(v["trial"]["identity"].as_str()?.to_string())
}

impl Outcome {
    /// What is wrong with its end whatever happened: a panic, no end, or an error without words.
    pub fn basics(&self) -> Verdict {
        let said: String = self.err.chars().take(400).collect();
        if self.err.contains("panicked at") {
            return Verdict::Panic(said);
        }
        if self.is_late {
            return Verdict::Hang(said);
        }
        if self.code.is_some_and(|c| !matches!(c, 0 | 130)) && !self.err.contains("error: ") {
            return Verdict::Silent(format!("exit {:?}: {said}", self.code));
        }
        Verdict::Right
    }
}

/// Whether a store holds all that was reported.
pub fn holds(sandbox: &Sandbox, store: &str, reported: &[String]) -> Verdict {
    if reported.is_empty() {
        return Verdict::Right;
    }
    let ran: Ran = sandbox.run(
        sandbox.command(&["records", "show", "--kind", "trial", "--json", "--store", store], ""),
        60,
    );
    if !ran.status.is_some_and(|s| s.success()) {
        return Verdict::Missing(format!("the store cannot be read: {}", ran.err));
    }
    match reported.iter().find(|id| !ran.out.contains(id.as_str())) {
        Some(id) => Verdict::Missing(format!("trial {id} was reported and is not in {store}")),
        None => Verdict::Right,
    }
}

/// Ends a session and looks at the basics and at the store.
pub fn ended(t: Tuning, sandbox: &Sandbox, store: &str) -> (Outcome, Verdict) {
    let (outcome, reported) = t.end(sandbox, LONG);
    let verdict = first([outcome.basics(), holds(sandbox, store, &reported)]);
    (outcome, verdict)
}

/// The children of a process, and theirs: number and name.
pub fn descendants(of: u32) -> Vec<(u32, String)> {
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

/// Whether a session ended as its signal says. It may be over before, and may die of the signal
/// before it hears of signals.
pub fn stopped(outcome: &Outcome, signal: &str) -> Verdict {
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

/// One of the signals that end a program. Under `nohup` a hang-up is ignored, by us and by what we
/// start, so that it is none of them.
pub fn signal_of(draw: &mut Draw<'_>) -> &'static str {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|m| u64::from_str_radix(m.trim(), 16).ok()).unwrap_or(0);
    match ["-INT", "-TERM", "-HUP", "-KILL"].get(draw.below(4)) {
        Some(&"-HUP") if ignored & 1 == 0 => "-HUP",
        Some(signal) if *signal != "-HUP" => signal,
        _ => "-INT",
    }
}

/// Whether folders that a killed session left are removed by the next one.
pub fn swept(sandbox: &Sandbox) -> Verdict {
    let left = || std::fs::read_dir(sandbox.temporary()).map_or(0, Iterator::count);
    if left() == 0 {
        return Verdict::Right;
    }
    // Its children end a moment after it, those of a compiler when they are done: what they still
    // write is removed by the session after the next one.
    let again = |wait: u64| {
        std::thread::sleep(Duration::from_millis(wait));
        let words = ["tune", SMALL, "--trials", "1", "--store", "again.squall"];
        sandbox.run(sandbox.command(&words, ""), LONG.as_secs())
    };
    let mut ran = again(500);
    if left() > 0 {
        ran = again(5_000);
    }
    match (ran.status.is_some_and(|s| s.success()), left()) {
        (true, 0) => Verdict::Right,
        (false, _) => Verdict::Wrong(format!("after it nothing can be tuned: {}", ran.err)),
        (true, n) => Verdict::Wrong(format!("{n} folders of dead processes stay")),
    }
}
