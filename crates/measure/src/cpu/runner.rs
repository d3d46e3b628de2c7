//! Starts and talks to the runner, the C process that runs kernels (`runtime/host/runner.c`).
//! Input: requests of `squall_runtime::protocol`, each with a deadline; output: replies, or how the
//! process died (crash, hang, exit), which becomes the outcome of a trial. `../local/worker.rs`
//! keeps one alive.

use super::device::distinct;
use super::line::{Heard, Line};
use super::{Device, Execution, Toolchain, program};
use squall_core::MeasurerError;
use squall_core::is_stopped;
use squall_runtime::host;
use squall_runtime::protocol::{self, Clock, Request, Start};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The environment variable that says how OpenMP's threads wait (spinning or sleeping).
pub const WAIT_POLICY: &str = "OMP_WAIT_POLICY";
const NAME: &str = "runner";
/// The longest wait for an answer after the user stopped the program.
const STOPPING: Duration = Duration::from_secs(10);
/// The pause between two looks whether the user stopped the program.
const LOOK: Duration = Duration::from_millis(200);
/// The most bytes that it may print without ending a line.
const MOST_UNREAD: usize = 1 << 20;
/// The number of failed starts after which a start is an error.
pub(crate) const STARTS: usize = 3;

/// The result of a request, with the CPU seconds that it took.
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
    line: Line,
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
        // One thread is timed by its CPU time: being preempted on a shared machine does not count.
        let clock = if device.target.threads == 1 { Clock::CpuTime } else { Clock::Wall };
        let on = gpu.map_or(clock, Clock::Gpu);
        let start = Start::Kernels { cores: cores.clone(), on };
        let mut tries = 0;
        loop {
            let line = match &device.execution {
                Execution::Board(board) => {
                    let environment: Vec<(String, String)> = openmp_environment(&cores)
                        .into_iter()
                        .map(|(name, value)| (name.to_string(), value))
                        .collect();
                    Line::there(board, &folder.join(NAME), &start.arguments(), &environment)?
                }
                _ => {
                    let mut command = device.command(&folder.join(NAME));
                    command
                        .args(start.arguments())
                        .current_dir(folder)
                        .envs(openmp_environment(&cores))
                        .env_remove("OMP_THREAD_LIMIT")
                        .env_remove("GOMP_CPU_AFFINITY");
                    Line::here(&mut command, &folder.join(NAME))?
                }
            };
            let mut runner = Runner::over(line);
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
        let path = folder.join(NAME);
        let mut command = Command::new(&path);
        command.args(start.arguments()).current_dir(folder);
        Ok(Runner::over(Line::here(&mut command, &path)?))
    }

    fn over(line: Line) -> Runner {
        Runner { line, unread: Vec::new(), reported: 0.0, used: false }
    }

    /// Waits for what it says unasked.
    pub fn hear(&mut self, patience: Duration) -> Result<Reply, MeasurerError> {
        self.listen(self.line.end_of(patience))
    }

    /// Makes a request and waits for the answer. After anything but an answer the runner is dead.
    pub fn ask(
        &mut self,
        request: &Request<'_>,
        patience: Duration,
    ) -> Result<Reply, MeasurerError> {
        self.line.say(&request.encode(), &request.files(), patience)?;
        self.listen(self.line.end_of(patience))
    }

    fn listen(&mut self, deadline: Instant) -> Result<Reply, MeasurerError> {
        let mut crash = None;
        let mut stopped: Option<Instant> = None;
        loop {
            while let Some(end) = self.unread.iter().position(|&b| b == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                match protocol::Line::parse(&String::from_utf8_lossy(&line)) {
                    protocol::Line::Crash(how) => crash = Some(how),
                    protocol::Line::Reply(reply, cpu) => {
                        self.reported += cpu;
                        return Ok(Reply::Answer(reply, cpu));
                    }
                    protocol::Line::Strange(words) => {
                        return Err(MeasurerError::Runner(format!("it answers `{words}`")));
                    }
                    // A kernel that writes to descriptors that it did not open: no line of the
                    // runner's.
                    protocol::Line::Noise => {}
                }
            }
            // What is measured while the user stops us is finished, if that is soon.
            if is_stopped() && stopped.get_or_insert_with(Instant::now).elapsed() >= STOPPING {
                self.line.kill()?;
                return Err(MeasurerError::Stopped);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let (how, by_itself, cpu) = match self.line.hear(left.min(LOOK))? {
                Heard::Nothing if left.is_zero() => {
                    let cpu = self.line.kill()?;
                    return Ok(Reply::Late((cpu - self.reported).max(0.0)));
                }
                Heard::Nothing => continue,
                Heard::Late(cpu) => return Ok(Reply::Late((cpu - self.reported).max(0.0))),
                Heard::Said(bytes) => {
                    self.unread.extend_from_slice(&bytes);
                    if self.unread.len() <= MOST_UNREAD {
                        continue;
                    }
                    ("it printed without end".into(), true, self.line.kill()?)
                }
                Heard::Ended { how, by_itself, cpu } => (how, by_itself, cpu),
            };
            let detail = crash.unwrap_or_else(|| match by_itself {
                true => format!("the kernel ended the process ({how})"),
                false => how,
            });
            return Ok(Reply::Died(detail, (cpu - self.reported).max(0.0)));
        }
    }
}

/// The variables that hold OpenMP to some cores, a thread to each; with a core that stands there
/// more than once, threads wait without keeping it busy: each would keep the other from working.
pub fn openmp_environment(cores: &[usize]) -> Vec<(&'static str, String)> {
    let places: Vec<String> = cores.iter().map(|c| format!("{{{c}}}")).collect();
    let mut all = vec![
        ("OMP_NUM_THREADS", cores.len().to_string()),
        ("OMP_PROC_BIND", "true".into()),
        ("OMP_PLACES", places.join(",")),
        ("OMP_DYNAMIC", "false".into()),
    ];
    if distinct(cores).len() < cores.len() {
        all.push((WAIT_POLICY, "passive".into()));
    }
    all
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
