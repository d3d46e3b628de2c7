//! How a polite worker stays out of the way of other programs on its machine: [`Others`] measures
//! how much CPU time everything else uses, and [`Gentle`] is a child process at the lowest priority
//! that can be frozen, continued and ended with all its children. `squall/src/polite` uses both.

use crate::process::{Ended, Process};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

/// A child process that, with all processes that it starts, gives way to everything else.
pub struct Gentle {
    process: Process,
}

impl Gentle {
    /// Starts a command at the lowest priority. It dies with the thread that starts it.
    pub fn spawn(command: &mut Command) -> io::Result<Gentle> {
        give_way(command);
        Ok(Gentle { process: Process::spawn_bound(command)? })
    }

    /// The standard output, once.
    pub fn output(&mut self) -> Option<std::process::ChildStdout> {
        self.process.child.stdout.take()
    }

    /// Whether it ended, and then whether it succeeded.
    pub fn ended(&mut self) -> io::Result<Option<bool>> {
        let ended: Option<Ended> = self.process.wait(Instant::now(), None)?;
        Ok(ended.map(|e| e.status.success()))
    }

    /// Asks it to end by itself.
    pub fn ask_to_end(&self) {
        signal(self.process.child.id(), Signal::TERM);
    }

    /// Stops it and all that it started where they are; they take no time until they go on.
    pub fn freeze(&self) {
        self.each(Signal::STOP);
    }

    /// Lets them go on.
    pub fn thaw(&self) {
        self.each(Signal::CONT);
    }

    /// Ends it and all that it started now. It dies before they do, so that it takes none of their
    /// deaths for the fault of what they ran.
    pub fn end(mut self) {
        // Where it ended by itself its number may be another's by now.
        if self.ended().is_ok_and(|e| e.is_some()) {
            return;
        }
        let others = tree(self.process.child.id());
        let _ = self.process.kill();
        for pid in others.keys().filter(|p| **p != self.process.child.id()) {
            signal(*pid, Signal::KILL);
        }
    }

    /// CPU seconds so far of it and all that it started.
    pub fn cpu(&self) -> f64 {
        tree(self.process.child.id()).values().sum()
    }

    fn each(&self, how: Signal) {
        // The first one must not start others meanwhile.
        signal(self.process.child.id(), how);
        tree(self.process.child.id()).keys().for_each(|pid| signal(*pid, how));
    }
}

/// Asks the system for the time that nothing else wants.
#[allow(unsafe_code)]
fn give_way(command: &mut Command) {
    // SAFETY: between fork and exec the closure makes two system calls and allocates nothing.
    unsafe {
        command.pre_exec(|| {
            // A system that refuses leaves it at the priority that it has.
            libc::setpriority(libc::PRIO_PROCESS, 0, 19);
            #[cfg(target_os = "linux")]
            {
                let parameters = libc::sched_param { sched_priority: 0 };
                libc::sched_setscheduler(0, libc::SCHED_IDLE, &parameters);
            }
            Ok(())
        });
    }
}

fn signal(pid: u32, how: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // A process that ended meanwhile needs no signal.
        let _ = kill_process(pid, how);
    }
}

/// Ticks of the system's accounting in a second.
#[allow(unsafe_code)]
fn ticks() -> f64 {
    // SAFETY: the call reads a constant of the system.
    let n = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    if n > 0 { n as f64 } else { 100.0 }
}

/// The minute of the day, by the clock on the wall where this machine is.
#[allow(unsafe_code)]
pub fn minute_of_day() -> u32 {
    // SAFETY: `time` takes no pointer, and `localtime_r` writes the struct that it is given, of
    // which all bytes zero is a value.
    let local = unsafe {
        let now = libc::time(std::ptr::null_mut());
        let mut local: libc::tm = std::mem::zeroed();
        libc::localtime_r(&now, &mut local);
        local
    };
    (local.tm_hour * 60 + local.tm_min).clamp(0, 1439) as u32
}

/// CPU seconds that this machine spent on anything since it started.
fn busy() -> Option<f64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let fields = text.lines().next()?.strip_prefix("cpu ")?;
    let ticks_of: Vec<f64> = fields.split_whitespace().map_while(|f| f.parse().ok()).collect();
    // user, nice, system, (idle, waiting for disks,) interrupts; guests are part of user.
    let at = |i: usize| ticks_of.get(i).copied().unwrap_or(0.0);
    Some((at(0) + at(1) + at(2) + at(5) + at(6)) / ticks())
}

/// A process and what it started, with the CPU seconds of each and of its children that ended.
fn tree(root: u32) -> HashMap<u32, f64> {
    let mut all: Vec<(u32, u32, f64)> = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let Ok(text) = fs::read_to_string(entry.path().join("stat")) else { continue };
        all.extend(stat(&text).map(|(parent, seconds)| (pid, parent, seconds)));
    }
    let mut found = HashMap::new();
    let mut next = vec![root];
    while let Some(pid) = next.pop() {
        let Some(seconds) = all.iter().find(|p| p.0 == pid).map(|p| p.2) else { continue };
        if found.insert(pid, seconds).is_none() {
            next.extend(all.iter().filter(|p| p.1 == pid).map(|p| p.0));
        }
    }
    found
}

/// The parent of a process and the CPU seconds of it and its children, by its line in /proc.
fn stat(text: &str) -> Option<(u32, f64)> {
    // Its name stands in brackets and may hold anything.
    let fields: Vec<&str> = text.rsplit_once(") ")?.1.split_whitespace().collect();
    let number = |i: usize| fields.get(i)?.parse::<f64>().ok();
    let all = number(11)? + number(12)? + number(13)? + number(14)?;
    Some((fields.get(1)?.parse().ok()?, all / ticks()))
}

/// Looks at the CPU time that others take, between two looks.
pub struct Others {
    last: Option<(Instant, f64)>,
}

impl Default for Others {
    fn default() -> Others {
        Others::new()
    }
}

impl Others {
    /// Begins to look.
    pub fn new() -> Others {
        Others { last: busy().map(|b| (Instant::now(), b - own())) }
    }

    /// How many cores others kept busy since the last look: everything on this machine but this
    /// process and `ours`. Where the system does not say, none.
    pub fn look(&mut self, ours: Option<&Gentle>) -> f64 {
        let ours = own() + ours.map_or(0.0, Gentle::cpu);
        let now = busy().map(|b| (Instant::now(), b - ours));
        let seen = match (self.last, now) {
            (Some((before, then)), Some((at, now))) => {
                let passed = (at - before).max(Duration::from_millis(1)).as_secs_f64();
                ((now - then) / passed).max(0.0)
            }
            _ => 0.0,
        };
        self.last = now;
        seen
    }

    /// Begins anew: what is ours has changed.
    pub fn restart(&mut self, ours: Option<&Gentle>) {
        self.last = busy().map(|b| (Instant::now(), b - own() - ours.map_or(0.0, Gentle::cpu)));
    }
}

/// CPU seconds of this process.
fn own() -> f64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

    #[test]
    fn lines_of_proc_are_read_whatever_a_process_is_called() {
        let line = "77 (a) b) (c) S 5 77 77 0 -1 4194304 1 2 3 4 100 50 30 20 20 0 1 0 9\n";
        let (parent, seconds) = stat(line).unwrap();
        assert_eq!((parent, seconds), (5, 200.0 / ticks()));
        assert_eq!(stat("77 (a"), None);
        assert!(minute_of_day() < 1440);
    }

    #[test]
    fn a_gentle_child_is_counted_frozen_and_ended_with_what_it_started() {
        let script = "(while :; do :; done) & while :; do :; done";
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(Stdio::null());
        let child = Gentle::spawn(&mut command).unwrap();
        let end = Instant::now() + Duration::from_secs(60);
        while child.cpu() < 0.2 {
            assert!(Instant::now() < end, "{} CPU-seconds", child.cpu());
            std::thread::sleep(Duration::from_millis(50));
        }
        let pids: Vec<u32> = tree(child.process.child.id()).into_keys().collect();
        assert!(pids.len() >= 2, "{pids:?}");
        child.freeze();
        std::thread::sleep(Duration::from_millis(50));
        let frozen = child.cpu();
        std::thread::sleep(Duration::from_millis(300));
        assert!(child.cpu() - frozen < 0.05);
        child.thaw();
        child.end();
        let end = Instant::now() + Duration::from_secs(10);
        let lives = |pid: &u32| {
            let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            state.rsplit_once(") ").is_some_and(|(_, s)| !s.starts_with('Z'))
        };
        while pids.iter().any(lives) {
            assert!(Instant::now() < end, "{pids:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
