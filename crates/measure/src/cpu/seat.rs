//! Where kernels run: a process on the CPU or on one GPU, which is started again when it died.

use super::Device;
use super::pace::{Pacemaker, Slowness};
use super::runner::{Reply, Runner, STARTS};
use crate::MeasureError;
use squall_core::{CpuCost, FailStage, GpuState, KernelSource, Measurement, Nanos, Outcome};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A task that was set up in this laboratory before; its reference outputs lie in the folder.
#[derive(Clone)]
pub(super) struct TaskState {
    /// Its number in the laboratory.
    pub number: usize,
    /// The runner's command without the library: seed, file.
    pub head: String,
    /// Sizes.
    pub tail: String,
    pub tolerance: f64,
    pub reference_seconds: f64,
    /// The best time measured, for rejecting hopeless ones quickly: the bits of a positive number,
    /// which are in the order of the numbers.
    pub best: Arc<AtomicU64>,
    /// The kernel that every other is timed beside; none for GPUs.
    pub pacemaker: Arc<Mutex<Option<Pacemaker>>>,
}

impl TaskState {
    /// A task that nothing was measured of.
    pub fn new(
        number: usize,
        head: String,
        tail: String,
        tolerance: f64,
        reference_seconds: f64,
    ) -> TaskState {
        let best = Arc::new(AtomicU64::new(f64::INFINITY.to_bits()));
        TaskState {
            number,
            head,
            tail,
            tolerance,
            reference_seconds,
            best,
            pacemaker: Arc::default(),
        }
    }

    fn pacemaker(&self) -> MutexGuard<'_, Option<Pacemaker>> {
        self.pacemaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Two looks at one kernel become one; the second is left out where nothing makes the pace any
    /// more.
    pub fn join(
        &self,
        (first, before): (&mut Measurement, Slowness),
        second: (Measurement, Slowness),
    ) {
        let best = first.median().0.to_bits();
        if let Some(p) = self.pacemaker().as_mut() {
            p.join((first, before), second);
        }
        // A best that the moment had flattered is none.
        let joined = first.median().0.to_bits();
        let _ = self.best.compare_exchange(best, joined, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// What the runner said about a kernel.
pub(super) enum Said {
    Words(Vec<f64>),
    Failed { stage: FailStage, detail: String },
}

/// What all seats of a laboratory have in common.
pub(super) struct Rules<'a> {
    pub folder: &'a Path,
    pub patience: Duration,
    pub reject: f64,
    pub flush: u64,
}

/// One place where kernels run.
pub(super) struct Seat {
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

impl Seat {
    /// A seat whose process is started now.
    pub fn take(folder: &Path, device: Device, gpu: Option<u32>) -> Result<Seat, MeasureError> {
        Ok(Seat {
            runner: Some(Runner::start(folder, &device, gpu)?),
            device,
            gpu,
            task: None,
            pacemaker: None,
        })
    }

    /// Ends the process; the next command starts a fresh one.
    pub fn renew(&mut self) {
        self.runner = None;
        self.task = None;
        self.pacemaker = None;
    }

    /// A command to the runner, which is started if need be.
    pub fn ask(
        &mut self,
        rules: &Rules,
        command: &str,
        patience: Duration,
    ) -> Result<Reply, MeasureError> {
        if self.runner.is_none() {
            self.renew();
            self.runner = Some(Runner::start(rules.folder, &self.device, self.gpu)?);
        }
        match &mut self.runner {
            Some(runner) => runner.ask(command, patience),
            None => Err(MeasureError::Runner("it is not running".into())),
        }
    }

    /// Sets a task, by the command that computes its reference with `library`, or else by the file
    /// where that lies; seconds that the reference took, and CPU seconds in all.
    pub fn set(
        &mut self,
        rules: &Rules,
        task: &TaskState,
        library: Option<&str>,
    ) -> Result<(f64, f64), MeasureError> {
        let command = format!("{} {} {}", task.head, library.unwrap_or("- - 0 0"), task.tail);
        (self.task, self.pacemaker) = (None, None);
        // A reference is plain loops and may take long, but not for ever.
        let mut reply = self.ask(rules, &command, Duration::from_secs(600))?;
        for _ in 1..STARTS {
            // No code of anybody's runs when a known task is set: who killed it may not do so
            // again.
            if library.is_none() && matches!(reply, Reply::Died(..)) {
                self.renew();
                reply = self.ask(rules, &command, Duration::from_secs(600))?;
            }
        }
        match reply {
            Reply::Answer(words, cpu) => match words.split_once(' ').unwrap_or((&words, "")) {
                ("task", numbers) => {
                    self.task = Some(task.number);
                    Ok((numbers.split(' ').next().and_then(|s| s.parse().ok()).unwrap_or(0.0), cpu))
                }
                ("failed", why) => {
                    let (place, message) = why.split_once(' ').unwrap_or(("", why));
                    if place == "fault" {
                        self.renew();
                    }
                    Err(match place {
                        "file" => MeasureError::Folder {
                            path: rules.folder.into(),
                            reason: message.into(),
                        },
                        _ => MeasureError::Reference(message.into()),
                    })
                }
                _ => Err(MeasureError::Runner(format!("it answers `{words}`"))),
            },
            Reply::Died(how, _) => {
                self.renew();
                Err(MeasureError::Reference(how))
            }
            Reply::Late(_) => {
                self.renew();
                Err(MeasureError::Reference("it did not end within 600 s".into()))
            }
        }
    }

    /// A command that runs kernels of a task. A crash in a runner that ran others before is tried
    /// again in a fresh one: an earlier kernel may have damaged the process without showing it.
    pub fn try_kernel(
        &mut self,
        rules: &Rules,
        task: &TaskState,
        command: &str,
        verb: &str,
        cost: &mut CpuCost,
    ) -> Result<Said, MeasureError> {
        loop {
            if self.runner.is_none() || self.task != Some(task.number) {
                cost.measure += self.set(rules, task, None)?.1;
            }
            let fresh = self.runner.as_mut().is_none_or(|r| !std::mem::replace(&mut r.used, true));
            let patience =
                rules.patience + Duration::from_secs_f64((8.0 * task.reference_seconds).min(1e6));
            match self.ask(rules, command, patience)? {
                Reply::Answer(words, cpu) => {
                    cost.measure += cpu;
                    return self.understand(&words, verb);
                }
                Reply::Late(cpu) => {
                    cost.measure += cpu;
                    self.renew();
                    let detail = format!("did not end within {:.1} s", patience.as_secs_f64());
                    return Ok(Said::Failed { stage: FailStage::Timeout, detail });
                }
                Reply::Died(detail, cpu) => {
                    cost.measure += cpu;
                    self.renew();
                    if fresh {
                        return Ok(Said::Failed { stage: FailStage::Launch, detail });
                    }
                }
            }
        }
    }

    /// What an answer means.
    pub fn understand(&mut self, words: &str, verb: &str) -> Result<Said, MeasureError> {
        let strange = || MeasureError::Runner(format!("it answers `{words}`"));
        let (first, rest) = words.split_once(' ').ok_or_else(strange)?;
        if first == verb {
            let numbers: Result<Vec<f64>, _> = rest.split(' ').map(str::parse).collect();
            return Ok(Said::Words(numbers.map_err(|_| strange())?));
        }
        match (first, rest.split_once(' ')) {
            ("failed", Some((place, detail))) => {
                let stage = match place {
                    "damage" | "wrong" => FailStage::WrongAnswer,
                    _ => FailStage::Launch,
                };
                if place == "damage" || place == "fault" {
                    // Who wrote beside its buffers may have hit the runner's own memory; a fault of
                    // a GPU ends the process's context.
                    self.renew();
                }
                Ok(Said::Failed { stage, detail: detail.to_string() })
            }
            _ => Err(strange()),
        }
    }

    /// Lets the process know the task's pacemaker. One that fails makes no pace any more.
    fn find_pace(
        &mut self,
        rules: &Rules,
        task: &TaskState,
        cost: &mut CpuCost,
    ) -> Result<(), MeasureError> {
        let Some(wanted) = task.pacemaker().as_ref().map(|p| p.interface.clone()) else {
            return Ok(());
        };
        if self.runner.is_some()
            && self.task == Some(task.number)
            && self.pacemaker.as_ref() == Some(&wanted)
        {
            return Ok(());
        }
        let command = format!("pace {wanted} {} {}", task.tolerance, rules.flush);
        match self.try_kernel(rules, task, &command, "paced", cost)? {
            Said::Words(_) => self.pacemaker = Some(wanted),
            Said::Failed { .. } => *task.pacemaker() = None,
        }
        Ok(())
    }

    /// Checks and times a kernel that was built; where there is a pacemaker, how slow that was
    /// beside it.
    pub fn measure(
        &mut self,
        rules: &Rules,
        task: &TaskState,
        kernel: &KernelSource,
        library: &str,
        cost: &mut CpuCost,
    ) -> Result<(Outcome, Option<Slowness>), MeasureError> {
        let best = f64::from_bits(task.best.load(Ordering::Relaxed));
        let limit =
            if best.is_finite() && rules.reject.is_finite() { best * rules.reject } else { 0.0 };
        self.find_pace(rules, task, cost)?;
        let command = format!(
            "run {} {} {limit:.0} {}",
            interface(library, kernel),
            task.tolerance,
            rules.flush
        );
        match self.try_kernel(rules, task, &command, "measured", cost)? {
            Said::Failed { stage, detail } => Ok((Outcome::Failed { stage, detail }, None)),
            Said::Words(numbers) => match numbers.as_slice() {
                [error, calls, count, rest @ ..]
                    if *count > 0.0 && rest.len() >= *count as usize =>
                {
                    let (samples, rest) = rest.split_at(*count as usize);
                    let samples = samples.iter().map(|s| Nanos(*s)).collect();
                    let mut m = Measurement {
                        samples,
                        calls: *calls as u64,
                        error: *error,
                        gpu: state(rest),
                        pace: None,
                    };
                    let mut slowness = None;
                    let mut pacemaker = task.pacemaker();
                    if let (Some(p), &[nanos]) = (pacemaker.as_mut(), rest) {
                        slowness = p.slowness(nanos);
                        slowness.into_iter().for_each(|slowness| p.correct(&mut m, slowness));
                    }
                    let time = m.median().0.max(0.0);
                    task.best.fetch_min(time.to_bits(), Ordering::Relaxed);
                    if self.gpu.is_none() {
                        Pacemaker::propose(&mut pacemaker, &interface(library, kernel), time);
                    }
                    Ok((Outcome::Measured(m), slowness))
                }
                _ => Err(MeasureError::Runner("its answer is too short".into())),
            },
        }
    }
}

/// What the runner says of a GPU.
fn state(words: &[f64]) -> Option<GpuState> {
    let &[device, sm, memory, throttle] = words else { return None };
    Some(GpuState {
        device: device as u32,
        sm_mhz: sm as u32,
        memory_mhz: memory as u32,
        throttle: throttle as u32,
    })
}

/// What the runner needs to call a kernel.
pub(super) fn interface(library: &str, kernel: &KernelSource) -> String {
    format!("./{library} {} {} {}", kernel.symbol, kernel.prepared.0, kernel.workspace.0)
}
