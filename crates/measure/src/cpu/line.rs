//! The channel to a running program (the runner, or the roof's program): pipes to a process of this
//! machine, or the connection to a board on which the program runs. `runner.rs` sends requests and
//! receives output over it, without a difference between the two.

use super::program;
use crate::board::{Board, Frame};
use crate::process::{Process, describe};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use squall_core::MeasurerError;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// The time beyond the program's own deadline after which a board's answer is given up.
const SLACK: Duration = Duration::from_secs(30);

/// News of a program.
pub(crate) enum Heard {
    /// It printed this.
    Said(Vec<u8>),
    /// Nothing until the end of the wait.
    Nothing,
    /// It ended: how, in words, whether by itself, and its CPU seconds.
    Ended { how: String, by_itself: bool, cpu: f64 },
    /// The board killed it because it gave no answer in time; its CPU seconds.
    Late(f64),
}

/// A program that runs.
pub(crate) enum Line {
    /// Here.
    Here { process: Process, input: ChildStdin, output: ChildStdout },
    /// On a board, with the folder here from which files are sent.
    There { board: Board, folder: PathBuf },
}

impl Line {
    /// Speaks to a process that is about to be started here; `path` is the program.
    pub fn here(command: &mut Command, path: &Path) -> Result<Line, MeasurerError> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let path = path.to_path_buf();
        let mut process = program::start(command).map_err(|e| match e.kind() {
            io::ErrorKind::PermissionDenied => {
                MeasurerError::Folder { path, reason: "programs cannot be run from there".into() }
            }
            _ => MeasurerError::Folder { path, reason: e.to_string() },
        })?;
        let (Some(input), Some(output)) = (process.child.stdin.take(), process.child.stdout.take())
        else {
            return Err(MeasurerError::Runner("it has no pipes".into()));
        };
        Ok(Line::Here { process, input, output })
    }

    /// Starts a program of a folder on a board.
    pub fn there(
        board: &Board,
        path: &Path,
        arguments: &[String],
        environment: &[(String, String)],
    ) -> Result<Line, MeasurerError> {
        board.start(path, arguments, environment)?;
        let folder = path.parent().unwrap_or(Path::new(".")).to_path_buf();
        Ok(Line::There { board: board.clone(), folder })
    }

    /// Says something that needs these files of the folder; those that are not there are the
    /// program's to make.
    pub fn say(
        &mut self,
        text: &str,
        files: &[&str],
        patience: Duration,
    ) -> Result<(), MeasurerError> {
        match self {
            Line::Here { input, .. } => {
                // A program that died meanwhile cannot be written to; listening tells how it died.
                let _ = input.write_all(text.as_bytes());
                Ok(())
            }
            Line::There { board, folder } => {
                let mut link = board.link();
                for name in files.iter().map(|f| f.trim_start_matches("./")) {
                    let path = folder.join(name);
                    if path.is_file() {
                        link.send_file(name, &path)?;
                    }
                }
                link.say(text.as_bytes(), patience)
            }
        }
    }

    /// When an answer is late, as this end sees it: a board looks after its programs itself.
    pub fn end_of(&self, patience: Duration) -> Instant {
        Instant::now()
            + match self {
                Line::Here { .. } => patience,
                Line::There { .. } => patience + SLACK,
            }
    }

    /// Waits for what comes next.
    pub fn hear(&mut self, most: Duration) -> Result<Heard, MeasurerError> {
        match self {
            Line::Here { process, output, .. } => hear_process(process, output, most),
            Line::There { board, .. } => {
                let seconds = |cpu: String| cpu.parse().unwrap_or(0.0);
                Ok(match board.link().next(Instant::now() + most)? {
                    None | Some(Frame::Started) => Heard::Nothing,
                    Some(Frame::Said(bytes)) => Heard::Said(bytes),
                    Some(Frame::Late(cpu)) => Heard::Late(seconds(cpu)),
                    Some(Frame::Ended { signal, number, cpu }) => {
                        use std::os::unix::process::ExitStatusExt;
                        let raw = if signal { number } else { number << 8 };
                        let how = describe(std::process::ExitStatus::from_raw(raw));
                        Heard::Ended { how, by_itself: !signal, cpu: seconds(cpu) }
                    }
                })
            }
        }
    }

    /// Ends the program; its CPU seconds, as far as they are known.
    pub fn kill(&mut self) -> Result<f64, MeasurerError> {
        match self {
            Line::Here { process, .. } => {
                Ok(process.kill().map_err(|e| MeasurerError::Runner(e.to_string()))?.cpu)
            }
            Line::There { board, .. } => {
                board.link().end_program();
                Ok(0.0)
            }
        }
    }
}

impl Drop for Line {
    /// A process ends with its handle.
    fn drop(&mut self) {
        if let Line::There { board, .. } = self {
            board.link().end_program();
        }
    }
}

fn hear_process(
    process: &mut Process,
    output: &mut ChildStdout,
    most: Duration,
) -> Result<Heard, MeasurerError> {
    let fault = |e: io::Error| MeasurerError::Runner(e.to_string());
    let left = Timespec {
        tv_sec: most.as_secs().min(1 << 30) as i64,
        tv_nsec: i64::from(most.subsec_nanos()),
    };
    match poll(&mut [PollFd::new(&*output, PollFlags::IN)], Some(&left)) {
        Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(Heard::Nothing),
        Ok(_) => {}
        Err(e) => return Err(fault(e.into())),
    }
    let mut chunk = [0; 4096];
    match output.read(&mut chunk) {
        Ok(0) => {}
        Ok(n) => return Ok(Heard::Said(chunk[..n].to_vec())),
        Err(e) if e.kind() == io::ErrorKind::Interrupted => return Ok(Heard::Nothing),
        Err(e) => return Err(fault(e)),
    }
    let soon = Instant::now() + Duration::from_secs(1);
    let ended = match process.wait(soon, None).map_err(fault)? {
        Some(ended) => ended,
        None => process.kill().map_err(fault)?,
    };
    let how = describe(ended.status);
    Ok(Heard::Ended { how, by_itself: ended.status.code().is_some(), cpu: ended.cpu })
}

/// Runs a program of a folder on a board to its end; what it printed, or how it failed.
pub(super) fn run_there(
    board: &Board,
    path: &Path,
    arguments: &[String],
    patience: Duration,
) -> Result<Result<String, String>, MeasurerError> {
    let mut line = Line::there(board, path, arguments, &[])?;
    let end = line.end_of(patience);
    let mut printed = Vec::new();
    loop {
        if squall_core::is_stopped() {
            return Err(MeasurerError::Stopped);
        }
        if Instant::now() >= end {
            return Ok(Err(format!("did not end within {} s", patience.as_secs())));
        }
        match line.hear(Duration::from_millis(200))? {
            Heard::Said(bytes) => printed.extend(bytes),
            Heard::Nothing => {}
            Heard::Late(_) => return Ok(Err("was late".into())),
            Heard::Ended { how, .. } if how != "exit status 0" => return Ok(Err(how)),
            Heard::Ended { .. } => return Ok(Ok(String::from_utf8_lossy(&printed).into_owned())),
        }
    }
}
