//! Child processes with a deadline. Each leads a process group of its own, so that the terminal's
//! Ctrl-C does not reach it and its own children die with it. Input: a command and a time limit;
//! output: exit status and CPU time. Compilers and runners are started through it.

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use squall_core::is_stopped;

/// How a process ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub status: ExitStatus,
    /// CPU seconds of the process and of those of its children that it waited for.
    pub cpu: f64,
}

/// A running process, killed with its group when dropped.
pub(crate) struct Process {
    pub child: Child,
    ended: Option<Ended>,
}

impl Process {
    pub fn spawn(command: &mut Command) -> io::Result<Process> {
        Ok(Process { child: command.process_group(0).spawn()?, ended: None })
    }

    /// The same of a process that this thread waits for: it dies with us, however we die.
    pub fn spawn_bound(command: &mut Command) -> io::Result<Process> {
        Process::spawn(end_with_us(command))
    }

    /// Waits until it ends, `deadline` has passed, `cancel` is set or the user stops us; `None` in
    /// the latter cases.
    pub fn wait(
        &mut self,
        deadline: Instant,
        cancel: Option<&AtomicBool>,
    ) -> io::Result<Option<Ended>> {
        let mut pause = Duration::from_micros(500);
        loop {
            if let Some(ended) = self.reap(false)? {
                return Ok(Some(ended));
            }
            let is_cancelled = cancel.is_some_and(|c| c.load(Ordering::Relaxed));
            if Instant::now() >= deadline || is_cancelled || is_stopped() {
                return Ok(None);
            }
            std::thread::sleep(pause);
            pause = (pause * 3 / 2).min(Duration::from_millis(4));
        }
    }

    /// Ends it and everything it started.
    pub fn kill(&mut self) -> io::Result<Ended> {
        if let Some(ended) = self.ended {
            return Ok(ended);
        }
        // The process was not reaped yet, so the id is still its own. Where the group is gone there
        // is nothing to kill.
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
        self.reap(true)?.ok_or_else(|| io::Error::other("a killed process did not end"))
    }

    fn reap(&mut self, block: bool) -> io::Result<Option<Ended>> {
        if self.ended.is_none() {
            self.ended = wait4(self.child.id(), block)?;
        }
        Ok(self.ended)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// Runs a command for `patience` at most; it and all that it started die with this process. None
/// where it was ended, because its time was over or the user stopped this process.
pub fn status_within(command: &mut Command, patience: Duration) -> io::Result<Option<ExitStatus>> {
    let ended = Process::spawn_bound(command)?.wait(Instant::now() + patience, None)?;
    Ok(ended.map(|ended| ended.status))
}

/// The file of a program: at its path where the name is one, else the first in the folders of PATH.
pub(crate) fn program_file(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| path.is_file());
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// The beginning of a command line whose process ends when the thread that starts it does, without
/// [`end_with_us`]: that copies this process's page tables for each start, which takes a large
/// process milliseconds. None where the system has no `setpriv` that does so.
pub(crate) fn bound_launcher() -> Option<&'static [&'static str]> {
    const LAUNCHER: &[&str] = &["setpriv", "--pdeathsig", "KILL", "--"];
    static WORKS: OnceLock<bool> = OnceLock::new();
    let works = || {
        let mut c = Command::new(LAUNCHER[0]);
        c.args(&LAUNCHER[1..]).arg("true");
        let quiet = c.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        quiet.status().is_ok_and(|s| s.success())
    };
    WORKS.get_or_init(works).then_some(LAUNCHER)
}

/// Makes a process that a command starts end when the thread that starts it does: no one would wait
/// for it after that. Where the system cannot do so, it ends by itself.
#[allow(unsafe_code)]
pub fn end_with_us(command: &mut Command) -> &mut Command {
    #[cfg(target_os = "linux")]
    {
        let us = rustix::process::getpid();
        // SAFETY: between fork and exec the closure makes two system calls and allocates nothing.
        unsafe {
            command.pre_exec(move || {
                rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
                // We may have died before the call.
                match rustix::process::getppid() == Some(us) {
                    true => Ok(()),
                    false => Err(io::Error::from_raw_os_error(libc::ESRCH)),
                }
            });
        }
    }
    command
}

/// Waits for a process and tells its CPU time, which the standard library does not tell; rustix
/// does not wrap this call.
#[allow(unsafe_code)]
fn wait4(pid: u32, block: bool) -> io::Result<Option<Ended>> {
    let pid = libc::pid_t::try_from(pid).map_err(io::Error::other)?;
    let mut status: libc::c_int = 0;
    loop {
        // SAFETY: rusage is a struct of integers, for which all bytes zero is a value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are to live locals of the types that the call writes.
        let got = unsafe {
            libc::wait4(pid, &mut status, if block { 0 } else { libc::WNOHANG }, &mut usage)
        };
        if got == 0 {
            return Ok(None);
        }
        if got == pid {
            let seconds = |t: libc::timeval| t.tv_sec as f64 + 1e-6 * t.tv_usec as f64;
            return Ok(Some(Ended {
                status: ExitStatus::from_raw(status),
                cpu: seconds(usage.ru_utime) + seconds(usage.ru_stime),
            }));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// How a process ended, in words.
pub(crate) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (_, Some(9)) => "killed by signal 9 (SIGKILL; out of memory?)".into(),
        (_, Some(11)) => "killed by signal 11 (SIGSEGV)".into(),
        (_, Some(6)) => "killed by signal 6 (SIGABRT)".into(),
        (_, Some(24)) => "killed by signal 24 (SIGXCPU: its limit of CPU time)".into(),
        (_, Some(25)) => "killed by signal 25 (SIGXFSZ: the limit of a file's size)".into(),
        (_, Some(signal)) => format!("killed by signal {signal}"),
        _ => "ended in an unknown way".into(),
    }
}

/// Calls a function on some cores, in a thread of its own; what it starts inherits them.
pub(crate) fn pinned<T: Send>(
    cores: &[usize],
    f: impl FnOnce() -> T + Send,
) -> std::thread::Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            pin(cores);
            f()
        });
        thread.join()
    })
}

/// Puts this thread, and what it starts, on some cores, so as not to disturb what is measured
/// meanwhile. It is no fault if the system refuses.
pub(crate) fn pin(cores: &[usize]) {
    #[cfg(target_os = "linux")]
    {
        let mut set = rustix::thread::CpuSet::new();
        for &core in cores.iter().filter(|&&c| c < rustix::thread::CpuSet::MAX_CPU) {
            set.set(core);
        }
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = cores;
}
