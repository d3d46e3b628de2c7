//! The parent's end of the process that runs kernels: starts it, talks to it under a deadline, and
//! notices how it died. What is said is defined in `squall_runtime::protocol`.

use super::{Device, Toolchain, program};
use crate::process::{Process, describe};
use crate::stop::is_stopped;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use squall_core::MeasurerError;
use squall_runtime::host;
use squall_runtime::protocol::{self, Clock, Line, Request, Start};
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const NAME: &str = "runner";
/// How long an answer is waited for once the user stopped us.
const STOPPING: Duration = Duration::from_secs(10);
/// How often it is looked at whether the user did.
const LOOK: Duration = Duration::from_millis(200);
/// How often it may die on its start until that counts.
pub(crate) const STARTS: usize = 3;

/// What a request came to, with the CPU seconds that it took.
pub(crate) enum Reply {
    /// It was answered.
    Answer(protocol::Reply, f64),
    /// The process died.
    Died(String, f64),
    /// The deadline passed; the process was killed.
    Late(f64),
}

/// A living runner.
pub(crate) struct Runner {
    process: Process,
    input: ChildStdin,
    output: ChildStdout,
    unread: Vec<u8>,
    /// CPU seconds already reported in replies.
    reported: f64,
    /// Whether a kernel ran in it.
    pub used: bool,
}

impl Runner {
    /// Compiles the runner into `folder`, for kernels on a GPU too where asked; the CPU seconds
    /// that took.
    pub fn build(folder: &Path, toolchain: &Toolchain, gpu: bool) -> Result<f64, MeasurerError> {
        // Every session waits for this, and it does no work that more of it would hasten.
        let mut args = vec!["-O1", "-w"];
        if toolchain.openmp() {
            args.push("-fopenmp");
        }
        if gpu {
            args.push("-DSQUALL_CUDA");
        }
        let source = host::whole(host::RUNNER.1);
        let sources = [(host::RUNNER.0, source.as_str()), host::GPU_ROOF];
        // Before glibc 2.34 dlopen was in a library of its own; where it never was, -ldl fails.
        let mut said = String::new();
        for library in [&["-ldl"][..], &[]] {
            // It stands before the source that needs it, so the linker must keep it unasked.
            let args: Vec<&str> = args
                .iter()
                .copied()
                .chain(library.iter().flat_map(|l| ["-Wl,--no-as-needed", l]))
                .collect();
            match program::make(folder, toolchain, NAME, &sources, &args)? {
                Ok(cpu) => return Ok(cpu),
                Err(why) => said = why,
            }
        }
        Err(MeasurerError::Runner(format!("`{}` cannot build it: {said}", toolchain.command())))
    }

    /// Starts the runner built in `folder`, pinned to the device's cores; with a GPU's number, on
    /// that, where references may use all cores.
    pub fn start(
        folder: &Path,
        device: &Device,
        gpu: Option<u32>,
    ) -> Result<Runner, MeasurerError> {
        let all = device.cores.iter().chain(device.spare.iter().filter(|_| gpu.is_some()));
        let cores: Vec<usize> = all.copied().collect();
        let places: Vec<String> = cores.iter().map(|c| format!("{{{c}}}")).collect();
        // One thread is timed by its CPU time: being preempted on a shared machine does not count.
        let clock = if device.target.threads == 1 { Clock::CpuTime } else { Clock::Wall };
        let on = gpu.map_or(clock, Clock::Gpu);
        let start = Start::Kernels { cores: cores.clone(), on };
        let mut tries = 0;
        loop {
            let mut command = Runner::command(device.command(&folder.join(NAME)), folder, &start);
            command
                .env("OMP_NUM_THREADS", cores.len().to_string())
                .env("OMP_PROC_BIND", "true")
                .env("OMP_PLACES", places.join(","));
            command
                .env("OMP_DYNAMIC", "false")
                .env_remove("OMP_THREAD_LIMIT")
                .env_remove("GOMP_CPU_AFFINITY");
            let mut runner = Runner::spawn(folder, command)?;
            tries += 1;
            return match runner.hear(Duration::from_secs(60))? {
                Reply::Answer(reply, _) => ready(reply).map(|()| runner),
                // Killed from outside before it could say a word: a long run shall survive that.
                Reply::Died(..) if tries < STARTS => continue,
                Reply::Died(detail, _) => {
                    Err(MeasurerError::Runner(format!("it does not start: {detail}")))
                }
                Reply::Late(_) => {
                    Err(MeasurerError::Runner("it does not start within 60 s".into()))
                }
            };
        }
    }

    /// Starts the program built in `folder` as something else than a runner of kernels.
    pub fn begin(folder: &Path, start: &Start) -> Result<Runner, MeasurerError> {
        Runner::spawn(folder, Runner::command(Command::new(folder.join(NAME)), folder, start))
    }

    fn command(mut command: Command, folder: &Path, start: &Start) -> Command {
        command
            .args(start.arguments())
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        command
    }

    fn spawn(folder: &Path, mut command: Command) -> Result<Runner, MeasurerError> {
        let path = folder.join(NAME);
        let mut process = program::start(&mut command).map_err(|e| match e.kind() {
            io::ErrorKind::PermissionDenied => {
                MeasurerError::Folder { path, reason: "programs cannot be run from there".into() }
            }
            _ => MeasurerError::Folder { path, reason: e.to_string() },
        })?;
        let (Some(input), Some(output)) = (process.child.stdin.take(), process.child.stdout.take())
        else {
            return Err(MeasurerError::Runner("it has no pipes".into()));
        };
        Ok(Runner { process, input, output, unread: Vec::new(), reported: 0.0, used: false })
    }

    /// Waits for what it says unasked.
    pub fn hear(&mut self, patience: Duration) -> Result<Reply, MeasurerError> {
        self.listen(Instant::now() + patience)
    }

    /// Makes a request and waits for the answer. After anything but an answer the runner is dead.
    pub fn ask(
        &mut self,
        request: &Request<'_>,
        patience: Duration,
    ) -> Result<Reply, MeasurerError> {
        let deadline = Instant::now() + patience;
        // A runner that died meanwhile cannot be written to; listening tells how it died.
        let _ = self.input.write_all(request.encode().as_bytes());
        self.listen(deadline)
    }

    fn listen(&mut self, deadline: Instant) -> Result<Reply, MeasurerError> {
        let fault = |e: io::Error| MeasurerError::Runner(e.to_string());
        let mut crash = None;
        let mut stopped: Option<Instant> = None;
        loop {
            while let Some(end) = self.unread.iter().position(|&b| b == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                match Line::parse(&String::from_utf8_lossy(&line)) {
                    Line::Crash(how) => crash = Some(how),
                    Line::Reply(reply, cpu) => {
                        self.reported += cpu;
                        return Ok(Reply::Answer(reply, cpu));
                    }
                    Line::Strange(words) => {
                        return Err(MeasurerError::Runner(format!("it answers `{words}`")));
                    }
                    // A kernel that writes to descriptors that it did not open: no line of the
                    // runner's.
                    Line::Noise => {}
                }
            }
            // What is measured while the user stops us is finished, if that is soon.
            if is_stopped() && stopped.get_or_insert_with(Instant::now).elapsed() >= STOPPING {
                self.process.kill().map_err(fault)?;
                return Err(MeasurerError::Stopped);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let is_late = left.is_zero();
            let left = left.min(LOOK);
            let left = Timespec {
                tv_sec: left.as_secs().min(1 << 30) as i64,
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            let ready = match poll(&mut [PollFd::new(&self.output, PollFlags::IN)], Some(&left)) {
                Ok(n) => n,
                Err(rustix::io::Errno::INTR) => continue,
                Err(e) => return Err(fault(e.into())),
            };
            if ready == 0 && !is_late {
                continue;
            }
            if ready == 0 {
                let ended = self.process.kill().map_err(fault)?;
                return Ok(Reply::Late((ended.cpu - self.reported).max(0.0)));
            }
            let mut chunk = [0; 4096];
            let n = match self.output.read(&mut chunk) {
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(fault(e)),
            };
            self.unread.extend_from_slice(&chunk[..n]);
            if n == 0 || self.unread.len() > 1 << 20 {
                let ended = match self
                    .process
                    .wait(Instant::now() + Duration::from_secs(1), None)
                    .map_err(fault)?
                {
                    Some(ended) => ended,
                    None => self.process.kill().map_err(fault)?,
                };
                let detail = crash.unwrap_or_else(|| match ended.status.code() {
                    Some(_) => format!("the kernel ended the process ({})", describe(ended.status)),
                    None => describe(ended.status),
                });
                return Ok(Reply::Died(detail, (ended.cpu - self.reported).max(0.0)));
            }
        }
    }
}

/// Whether a first reply says that the runner is ready and speaks our version.
pub(crate) fn ready(reply: protocol::Reply) -> Result<(), MeasurerError> {
    match reply {
        protocol::Reply::Ready(protocol::VERSION) => Ok(()),
        protocol::Reply::Ready(version) => Err(MeasurerError::Runner(format!(
            "it speaks protocol {version}, and this is protocol {}",
            protocol::VERSION
        ))),
        protocol::Reply::Failed(f) => Err(MeasurerError::Runner(f.message)),
        other => Err(unexpected(&other)),
    }
}

/// A reply to another request than the one that was made.
pub(crate) fn unexpected(reply: &protocol::Reply) -> MeasurerError {
    MeasurerError::Runner(format!("it answers {reply:?}"))
}
