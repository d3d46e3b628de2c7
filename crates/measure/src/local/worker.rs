//! A worker: a process that runs kernels on the CPU or on one GPU, started again when it died.

use super::pace::{Pacemaker, Slowness};
use super::task::LocalTask;
use crate::cpu::{Device, Reply, Runner, STARTS};
use squall_core::{
    CpuCost, FailStage, GpuState, KernelSource, Measurement, MeasurerError, Nanos, Outcome,
};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long a reference may take: it is plain loops, which may be slow.
const REFERENCE_TIMEOUT: Duration = Duration::from_secs(600);

/// What the process said about a kernel.
pub(super) enum Answer {
    Numbers(Vec<f64>),
    Failed { stage: FailStage, detail: String },
}

/// How kernels are run: the same for all workers of a measurer.
pub(super) struct RunOptions<'a> {
    pub folder: &'a Path,
    /// For a kernel's whole trial, beside eight times the reference's time.
    pub timeout: Duration,
    /// A kernel slower than the best by this factor is timed briefly.
    pub reject: f64,
    /// Bytes to walk through before each call.
    pub flush: u64,
}

/// A process that runs kernels, and what it knows.
pub(super) struct Worker {
    /// The cores of its process.
    device: Device,
    /// The GPU's number.
    gpu: Option<u32>,
    runner: Option<Runner>,
    /// The number of the task that the process knows.
    task: Option<usize>,
    /// The pacemaker that the process has loaded.
    pacemaker: Option<String>,
}

impl Worker {
    /// A worker whose process is started now.
    pub fn start(folder: &Path, device: Device, gpu: Option<u32>) -> Result<Worker, MeasurerError> {
        Ok(Worker {
            runner: Some(Runner::start(folder, &device, gpu)?),
            device,
            gpu,
            task: None,
            pacemaker: None,
        })
    }

    /// Ends the process; the next command starts a fresh one.
    pub fn end_process(&mut self) {
        self.runner = None;
        self.task = None;
        self.pacemaker = None;
    }

    /// Gives a command to the process, which is started if need be.
    pub fn ask(
        &mut self,
        options: &RunOptions,
        command: &str,
        timeout: Duration,
    ) -> Result<Reply, MeasurerError> {
        if self.runner.is_none() {
            self.end_process();
            self.runner = Some(Runner::start(options.folder, &self.device, self.gpu)?);
        }
        match &mut self.runner {
            Some(runner) => runner.ask(command, timeout),
            None => Err(MeasurerError::Runner("it is not running".into())),
        }
    }

    /// Sets a task. Its outputs are computed by the reference in `library`, or else read from the
    /// file where they lie. Gives the seconds that the reference took, and CPU seconds in all.
    pub fn set_task(
        &mut self,
        options: &RunOptions,
        task: &LocalTask,
        library: Option<&str>,
    ) -> Result<(f64, f64), MeasurerError> {
        let command = format!("{} {} {}", task.head, library.unwrap_or("- - 0 0"), task.tail);
        (self.task, self.pacemaker) = (None, None);
        let mut reply = self.ask(options, &command, REFERENCE_TIMEOUT)?;
        for _ in 1..STARTS {
            // No kernel runs when a known task is set. So a process that died was killed from
            // outside, which need not happen again.
            if library.is_none() && matches!(reply, Reply::Died(..)) {
                self.end_process();
                reply = self.ask(options, &command, REFERENCE_TIMEOUT)?;
            }
        }
        match reply {
            Reply::Answer(words, cpu) => match words.split_once(' ').unwrap_or((&words, "")) {
                ("task", numbers) => {
                    self.task = Some(task.number);
                    Ok((numbers.split(' ').next().and_then(|s| s.parse().ok()).unwrap_or(0.0), cpu))
                }
                ("failed", why) => Err(self.task_failed(options, why)),
                _ => Err(MeasurerError::Runner(format!("it answers `{words}`"))),
            },
            Reply::Died(how, _) => {
                self.end_process();
                Err(MeasurerError::Reference(how))
            }
            Reply::Late(_) => {
                self.end_process();
                let limit = REFERENCE_TIMEOUT.as_secs();
                Err(MeasurerError::Reference(format!("it did not end within {limit} s")))
            }
        }
    }

    /// Why a task could not be set, by the place and the message that the process says.
    fn task_failed(&mut self, options: &RunOptions, why: &str) -> MeasurerError {
        let (place, message) = why.split_once(' ').unwrap_or(("", why));
        if place == "fault" {
            self.end_process();
        }
        match place {
            "file" => MeasurerError::Folder { path: options.folder.into(), reason: message.into() },
            _ => MeasurerError::Reference(message.into()),
        }
    }

    /// Gives a command that runs kernels of a task. A crash in a process that ran others before is
    /// tried again in a fresh one: an earlier kernel may have damaged the process without showing
    /// it.
    pub fn run_command(
        &mut self,
        options: &RunOptions,
        task: &LocalTask,
        command: &str,
        verb: &str,
        cost: &mut CpuCost,
    ) -> Result<Answer, MeasurerError> {
        loop {
            if self.runner.is_none() || self.task != Some(task.number) {
                cost.measure += self.set_task(options, task, None)?.1;
            }
            let fresh = self.runner.as_mut().is_none_or(|r| !std::mem::replace(&mut r.used, true));
            let timeout =
                options.timeout + Duration::from_secs_f64((8.0 * task.reference_seconds).min(1e6));
            match self.ask(options, command, timeout)? {
                Reply::Answer(words, cpu) => {
                    cost.measure += cpu;
                    return self.parse_answer(&words, verb);
                }
                Reply::Late(cpu) => {
                    cost.measure += cpu;
                    self.end_process();
                    let detail = format!("did not end within {:.1} s", timeout.as_secs_f64());
                    return Ok(Answer::Failed { stage: FailStage::Timeout, detail });
                }
                Reply::Died(detail, cpu) => {
                    cost.measure += cpu;
                    self.end_process();
                    if fresh {
                        return Ok(Answer::Failed { stage: FailStage::Launch, detail });
                    }
                }
            }
        }
    }

    /// Reads an answer, whose first word is `verb` or `failed`.
    pub fn parse_answer(&mut self, words: &str, verb: &str) -> Result<Answer, MeasurerError> {
        let strange = || MeasurerError::Runner(format!("it answers `{words}`"));
        let (first, rest) = words.split_once(' ').ok_or_else(strange)?;
        if first == verb {
            let numbers: Result<Vec<f64>, _> = rest.split(' ').map(str::parse).collect();
            return Ok(Answer::Numbers(numbers.map_err(|_| strange())?));
        }
        match (first, rest.split_once(' ')) {
            ("failed", Some((place, detail))) => {
                let stage = match place {
                    "damage" | "wrong" => FailStage::WrongAnswer,
                    _ => FailStage::Launch,
                };
                if place == "damage" || place == "fault" {
                    // A kernel that wrote beside its buffers may have hit the process's own
                    // memory; a fault of a GPU ends the process's context.
                    self.end_process();
                }
                Ok(Answer::Failed { stage, detail: detail.to_string() })
            }
            _ => Err(strange()),
        }
    }

    /// Loads the task's pacemaker into the process. One that fails is the pacemaker no longer.
    fn load_pacemaker(
        &mut self,
        options: &RunOptions,
        task: &LocalTask,
        cost: &mut CpuCost,
    ) -> Result<(), MeasurerError> {
        let Some(wanted) = task.pacemaker().as_ref().map(|p| p.interface.clone()) else {
            return Ok(());
        };
        if self.runner.is_some()
            && self.task == Some(task.number)
            && self.pacemaker.as_ref() == Some(&wanted)
        {
            return Ok(());
        }
        let command = format!("pace {wanted} {} {}", task.tolerance, options.flush);
        match self.run_command(options, task, &command, "paced", cost)? {
            Answer::Numbers(_) => self.pacemaker = Some(wanted),
            Answer::Failed { .. } => *task.pacemaker() = None,
        }
        Ok(())
    }

    /// Checks and times a kernel that was built. Where there is a pacemaker, gives the machine's
    /// slowness meanwhile.
    pub fn measure(
        &mut self,
        options: &RunOptions,
        task: &LocalTask,
        interface: &str,
        cost: &mut CpuCost,
    ) -> Result<(Outcome, Option<Slowness>), MeasurerError> {
        let best = f64::from_bits(task.best.load(Ordering::Relaxed));
        let limit = if best.is_finite() && options.reject.is_finite() {
            best * options.reject
        } else {
            0.0
        };
        self.load_pacemaker(options, task, cost)?;
        let command = format!("run {interface} {} {limit:.0} {}", task.tolerance, options.flush);
        match self.run_command(options, task, &command, "measured", cost)? {
            Answer::Failed { stage, detail } => Ok((Outcome::Failed { stage, detail }, None)),
            Answer::Numbers(numbers) => {
                let (mut m, rest) = measurement(&numbers)?;
                let mut slowness = None;
                let mut pacemaker = task.pacemaker();
                if let (Some(p), &[nanos]) = (pacemaker.as_mut(), rest) {
                    slowness = p.slowness(nanos);
                    slowness.into_iter().for_each(|slowness| p.correct(&mut m, slowness));
                }
                let time = m.median().0.max(0.0);
                task.best.fetch_min(time.to_bits(), Ordering::Relaxed);
                if self.gpu.is_none() {
                    Pacemaker::propose(&mut pacemaker, interface, time);
                }
                Ok((Outcome::Measured(m), slowness))
            }
        }
    }
}

/// A measurement from the numbers that the process says: the error, the calls, the count of
/// samples, the samples; behind them a GPU's state or the pacemaker's time, which are given too.
fn measurement(numbers: &[f64]) -> Result<(Measurement, &[f64]), MeasurerError> {
    match numbers {
        [error, calls, count, rest @ ..] if *count > 0.0 && rest.len() >= *count as usize => {
            let (samples, rest) = rest.split_at(*count as usize);
            let m = Measurement {
                samples: samples.iter().map(|s| Nanos(*s)).collect(),
                calls: *calls as u64,
                error: *error,
                gpu: gpu_state(rest),
                pace: None,
            };
            Ok((m, rest))
        }
        _ => Err(MeasurerError::Runner("its answer is too short".into())),
    }
}

/// What the process says of a GPU.
fn gpu_state(words: &[f64]) -> Option<GpuState> {
    let &[device, sm, memory, throttle] = words else { return None };
    Some(GpuState {
        device: device as u32,
        sm_mhz: sm as u32,
        memory_mhz: memory as u32,
        throttle: throttle as u32,
    })
}

/// What the process needs to call a kernel.
pub(super) fn interface(library: &str, kernel: &KernelSource) -> String {
    format!("./{library} {} {} {}", kernel.symbol, kernel.prepared.0, kernel.workspace.0)
}
