//! The connection to a board: an `ssh` process, over whose pipes files, programs and their output
//! go in order, as framed messages. `runtime/host/keeper.c` is the other end and lists the
//! messages; `mod.rs` and `cpu/line.rs` use the connection.
//!
//! Each end notices when the other is gone: `ssh` asks for a sign of life every few seconds and
//! ends without one, and the keeper ends when it hears nothing.

use super::{BoardAddress, Facts};
use crate::folder::TemporaryFolder;
use crate::process::Process;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use squall_core::MeasurerError;
use squall_core::is_stopped;
use std::collections::{HashMap, VecDeque};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// The version of the messages.
const VERSION: &str = "keeper 1";
/// The longest wait for an answer that does not depend on a program's run.
const PATIENCE: Duration = Duration::from_secs(60);
/// The pause between two signs of life to the other end.
const ALIVE: Duration = Duration::from_secs(5);
/// How often it is looked at whether the user stopped us.
const LOOK: Duration = Duration::from_millis(200);
/// Kernels, and other files beside them, that stay on the board; its folder may be in its memory.
const FILES: usize = 64;
/// No line is longer, and no piece of what a program says.
const LONGEST: usize = 1 << 20;
/// Makes a folder, takes the keeper into it and becomes it. Nothing is sent before the shell asked.
const SHELL: &str = "sh -c 'd=$(mktemp -d \"${TMPDIR:-/tmp}/squall-board-XXXXXXXX\") && \
                     cd \"$d\" || exit 97; trap \"rm -rf \\\"\\$d\\\"\" EXIT; \
                     echo \"squall-board $(uname -m) $d\"; \
                     read n && head -c \"$n\" > keeper && chmod 700 keeper && exec ./keeper'";
/// The beginning of the shell's line; a login may print other lines before it.
const GREETING: &str = "squall-board ";

/// A message of the keeper.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// The program printed this.
    Said(Vec<u8>),
    /// The program ended; how, and a text of its CPU seconds.
    Ended { signal: bool, number: i32, cpu: String },
    /// The program gave no line in time and was killed.
    Late(String),
    /// The program was started.
    Started,
}

/// An open connection.
pub(crate) struct Link {
    address: BoardAddress,
    facts: Facts,
    process: Process,
    input: Arc<Mutex<ChildStdin>>,
    output: ChildStdout,
    unread: Vec<u8>,
    /// The files that lie there, by the paths from which they came.
    sent: HashMap<String, PathBuf>,
    /// Their names, the one that was used last at the end: kernels, and others.
    recent: [VecDeque<String>; 2],
    /// Holds what `ssh` complains of.
    folder: TemporaryFolder,
}

impl Link {
    /// Connects, brings the keeper that `build` makes for the board's machine, and hears what the
    /// board is.
    pub fn open(
        address: &BoardAddress,
        build: &dyn Fn(&Facts, &Path) -> Result<PathBuf, MeasurerError>,
    ) -> Result<Link, MeasurerError> {
        let folder = TemporaryFolder::new("board")?;
        let said = folder.path().join("said");
        let errors = File::create(&said).map_err(|e| MeasurerError::folder(&said, &e))?;
        let mut command = ssh(address);
        command.arg(SHELL).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let mut process = Process::spawn(&mut command).map_err(|e| {
            let words = command.get_program().to_string_lossy().into_owned();
            MeasurerError::Device(format!(
                "`{words}` cannot be started: {e}; `apt-get install openssh-client` gives ssh, and \
                 SQUALL_SSH names another command"
            ))
        })?;
        let (Some(input), Some(output)) = (process.child.stdin.take(), process.child.stdout.take())
        else {
            return Err(MeasurerError::Connection(format!("{address} has no pipes")));
        };
        let mut link = Link {
            address: address.clone(),
            facts: Facts::default(),
            process,
            input: Arc::new(Mutex::new(input)),
            output,
            unread: Vec::new(),
            sent: HashMap::new(),
            recent: Default::default(),
            folder,
        };
        link.greet(build)?;
        keep_alive(Arc::downgrade(&link.input));
        Ok(link)
    }

    pub fn address(&self) -> &BoardAddress {
        &self.address
    }

    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Brings the keeper over and hears its facts.
    fn greet(
        &mut self,
        build: &dyn Fn(&Facts, &Path) -> Result<PathBuf, MeasurerError>,
    ) -> Result<(), MeasurerError> {
        let end = Instant::now() + PATIENCE;
        let greeting = loop {
            let line = self.line(end)?.ok_or_else(|| self.silent())?;
            if let Some(rest) = line.strip_prefix(GREETING) {
                break rest.to_string();
            }
        };
        self.facts.machine = greeting.split(' ').next().unwrap_or_default().to_string();
        let keeper = build(&self.facts, self.folder.path())?;
        let bytes = fs::read(&keeper).map_err(|e| MeasurerError::folder(&keeper, &e))?;
        self.write(format!("{}\n", bytes.len()).as_bytes(), &bytes)?;
        let end = Instant::now() + PATIENCE;
        loop {
            let line = self.line(end)?.ok_or_else(|| self.silent())?;
            let words: Vec<&str> = line.splitn(3, ' ').collect();
            match words[..] {
                ["ready"] => return Ok(()),
                ["fact", bytes, path] => {
                    let bytes = bytes.parse().ok().filter(|b| *b <= LONGEST);
                    let bytes = bytes.ok_or_else(|| self.strange(&line))?;
                    let text = self.bytes(bytes, end)?;
                    let text = String::from_utf8_lossy(&text).into_owned();
                    self.facts.files.insert(path.into(), text);
                }
                ["cores", list] => {
                    self.facts.cores = list.split(',').filter_map(|c| c.parse().ok()).collect();
                }
                ["keeper", _] if line == VERSION => {}
                _ => return Err(self.strange(&line)),
            }
        }
    }

    /// Puts a file there, unless it is there; what cannot be read here is an error. Of kernels, and
    /// of other files, those that were not used for longest make place.
    pub fn send_file(&mut self, name: &str, path: &Path) -> Result<(), MeasurerError> {
        let kind = usize::from(!name.ends_with(".so"));
        self.recent[kind].retain(|n| n != name);
        self.recent[kind].push_back(name.into());
        if self.sent.get(name).is_some_and(|from| from == path) {
            return Ok(());
        }
        let bytes = fs::read(path).map_err(|e| MeasurerError::folder(path, &e))?;
        self.write(format!("file {name} {}\n", bytes.len()).as_bytes(), &bytes)?;
        self.sent.insert(name.into(), path.into());
        if self.recent[kind].len() > FILES
            && let Some(oldest) = self.recent[kind].pop_front()
        {
            self.sent.remove(&oldest);
            self.write(format!("drop {oldest}\n").as_bytes(), &[])?;
        }
        Ok(())
    }

    /// Starts a program there in the place of the one that runs.
    pub fn start(&mut self, words: &[String]) -> Result<(), MeasurerError> {
        self.write(format!("start {}\n", words.join(" ")).as_bytes(), &[])?;
        let end = Instant::now() + PATIENCE;
        loop {
            match self.next(end)? {
                Some(Frame::Started) => return Ok(()),
                // What the one before still said.
                Some(_) => {}
                None => return Err(self.silent()),
            }
        }
    }

    /// Says something to the program, which is killed there unless it answers in time.
    pub fn say(&mut self, bytes: &[u8], patience: Duration) -> Result<(), MeasurerError> {
        let head = format!("say {} {}\n", patience.as_millis().max(1), bytes.len());
        self.write(head.as_bytes(), bytes)
    }

    /// Ends the program.
    pub fn end_program(&mut self) {
        // Where the connection is lost, the keeper ends it.
        let _ = self.write(b"stop\n", &[]);
    }

    /// The next message about the program; none where none came in time.
    pub fn next(&mut self, end: Instant) -> Result<Option<Frame>, MeasurerError> {
        let Some(line) = self.line(end)? else { return Ok(None) };
        let words: Vec<&str> = line.split(' ').collect();
        let frame = match words[..] {
            ["said", bytes] => {
                let bytes = bytes.parse().ok().filter(|b| *b <= LONGEST);
                let bytes = bytes.ok_or_else(|| self.strange(&line))?;
                Frame::Said(self.bytes(bytes, Instant::now() + PATIENCE)?)
            }
            ["ended", how, number, cpu] => Frame::Ended {
                signal: how == "signal",
                number: number.parse().map_err(|_| self.strange(&line))?,
                cpu: cpu.into(),
            },
            ["late", cpu] => Frame::Late(cpu.into()),
            ["started"] => Frame::Started,
            ["refused", ..] => {
                // A file that was refused is not there; which one the line says in words alone.
                self.sent.clear();
                let why = line.trim_start_matches("refused ");
                return Err(MeasurerError::Device(format!(
                    "{}: {why} (TMPDIR on the board names another place)",
                    self.address
                )));
            }
            _ => return Err(self.strange(&line)),
        };
        Ok(Some(frame))
    }

    /// A line without its end; none where it did not come in time.
    fn line(&mut self, end: Instant) -> Result<Option<String>, MeasurerError> {
        loop {
            if let Some(at) = self.unread.iter().position(|&b| b == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=at).collect();
                return Ok(Some(String::from_utf8_lossy(&line[..at]).into_owned()));
            }
            if self.unread.len() > LONGEST {
                return Err(self.strange("a line without an end"));
            }
            if !self.fill(end)? {
                return Ok(None);
            }
        }
    }

    fn bytes(&mut self, n: usize, end: Instant) -> Result<Vec<u8>, MeasurerError> {
        while self.unread.len() < n {
            if !self.fill(end)? {
                return Err(self.silent());
            }
        }
        Ok(self.unread.drain(..n).collect())
    }

    /// Reads what is there; whether anything came in time.
    fn fill(&mut self, end: Instant) -> Result<bool, MeasurerError> {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let is_late = left.is_zero();
            let left = left.min(LOOK);
            let left =
                Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            let ready = match poll(&mut [PollFd::new(&self.output, PollFlags::IN)], Some(&left)) {
                Ok(n) => n,
                Err(rustix::io::Errno::INTR) => continue,
                Err(e) => return Err(self.lost(&e.to_string())),
            };
            if ready == 0 && is_stopped() && self.facts.cores.is_empty() {
                // Nothing was begun there.
                return Err(MeasurerError::Stopped);
            }
            if ready == 0 && is_late {
                return Ok(false);
            }
            if ready == 0 {
                continue;
            }
            let mut chunk = [0; 1 << 14];
            return match self.output.read(&mut chunk) {
                Ok(0) => Err(self.lost("it was closed")),
                Ok(n) => {
                    self.unread.extend_from_slice(&chunk[..n]);
                    Ok(true)
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => Err(self.lost(&e.to_string())),
            };
        }
    }

    fn write(&mut self, head: &[u8], body: &[u8]) -> Result<(), MeasurerError> {
        let done = {
            let mut input = self.input.lock().unwrap_or_else(PoisonError::into_inner);
            input.write_all(head).and_then(|()| input.write_all(body))
        };
        done.map_err(|e| self.lost(&e.to_string()))
    }

    /// The connection ended: before the keeper spoke, the board cannot be reached.
    fn lost(&mut self, how: &str) -> MeasurerError {
        let end = Instant::now() + Duration::from_secs(2);
        let _ = self.process.wait(end, None);
        let said = fs::read_to_string(self.folder.path().join("said")).unwrap_or_default();
        let said: Vec<&str> = said.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
        let why = said.last().map_or(how, |line| line);
        let BoardAddress { host, port } = &self.address;
        if self.facts.cores.is_empty() {
            let port = port.map_or_else(String::new, |p| format!(" -p {p}"));
            return MeasurerError::Connection(format!(
                "{} cannot be used: {why}; `ssh{port} {host} true` must work without a question \
                 (a key, its host known), and programs must run from the board's TMPDIR",
                self.address
            ));
        }
        MeasurerError::Connection(format!(
            "{} is lost: {why}; what was measured is kept, and the same command again goes on \
             from there",
            self.address
        ))
    }

    fn silent(&self) -> MeasurerError {
        MeasurerError::Connection(format!(
            "{} gives no answer; what was measured is kept, and the same command again goes on \
             from there",
            self.address
        ))
    }

    fn strange(&self, what: &str) -> MeasurerError {
        let what: String = what.chars().take(100).collect();
        MeasurerError::Connection(format!("{} answers `{what}`", self.address))
    }
}

/// The client, as the system or the user has it.
fn ssh(address: &BoardAddress) -> Command {
    let named = std::env::var("SQUALL_SSH").ok().filter(|s| !s.trim().is_empty());
    let named = named.unwrap_or_else(|| "ssh".into());
    let mut words = named.split_whitespace();
    let mut command = Command::new(words.next().unwrap_or("ssh"));
    command.args(words).args(["-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15"]);
    command.args(["-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=4"]);
    if let Some(port) = address.port {
        command.args(["-p", &port.to_string()]);
    }
    command.arg("--").arg(&address.host);
    command
}

/// Tells the other end that this one lives, as long as the connection is used.
fn keep_alive(input: Weak<Mutex<ChildStdin>>) {
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(ALIVE);
            let Some(input) = input.upgrade() else { return };
            let mut input = input.lock().unwrap_or_else(PoisonError::into_inner);
            if input.write_all(b"alive\n").is_err() {
                return;
            }
        }
    });
}
