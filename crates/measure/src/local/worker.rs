//! A worker: a runner process on the CPU or on one GPU, which is started again whenever it died.
//! Input: a task, kernels' plans and time limits; output: measurements, or the stage at which a
//! kernel failed (launch, timeout, wrong answer), with the reason.

use super::pace::{Pacemaker, Slowness};
use super::task::LocalTask;
use crate::cpu::{Device, Reply, Runner, STARTS, unexpected};
use squall_core::{CpuCost, FailStage, Judge, Measurement, MeasurerError, Nanos, Outcome};
use squall_runtime::HostPlan;
use squall_runtime::protocol::{self, Failure, Place, Request, Side};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The longest time of a reference, which may be slow plain loops.
const REFERENCE_TIMEOUT: Duration = Duration::from_secs(600);

/// The limit that stands for a run without timing; the C host library has the same (`RT_UNTIMED`).
const UNTIMED: f64 = 1.0;

/// The answer of the process for a kernel.
pub(super) enum Answer {
    Reply(protocol::Reply),
    /// It failed; of two kernels the process may say which.
    Failed {
        stage: FailStage,
        side: Option<Side>,
        detail: String,
    },
}

impl Answer {
    fn failed(stage: FailStage, detail: String) -> Answer {
        Answer::Failed { stage, side: None, detail }
    }
}

/// How kernels are run: the same for all workers of a measurer.
pub(super) struct RunOptions<'a> {
    pub folder: &'a Path,
    pub limits: &'a RunLimits,
}

/// Settings of how kernels are run.
pub(super) struct RunLimits {
    /// For a kernel's whole trial, beside eight times the reference's time.
    pub timeout: Duration,
    /// A kernel slower than the best by this factor is timed briefly.
    pub reject: f64,
    /// Bytes to walk through before each call.
    pub flush: u64,
    /// Whether kernels are timed; else their results are compared alone.
    pub is_timed: bool,
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
    pacemaker: Option<Arc<HostPlan>>,
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

    /// Makes a request to the process, which is started if need be.
    pub fn ask(
        &mut self,
        options: &RunOptions,
        request: &Request<'_>,
        timeout: Duration,
    ) -> Result<Reply, MeasurerError> {
        if self.runner.is_none() {
            self.end_process();
            self.runner = Some(Runner::start(options.folder, &self.device, self.gpu)?);
        }
        match &mut self.runner {
            Some(runner) => runner.ask(request, timeout),
            None => Err(MeasurerError::Runner("it is not running".into())),
        }
    }

    /// Sets a task. Its outputs are computed by the kernel of the plan `reference`, or else read
    /// from the file where they lie. Gives the seconds that the reference took, and CPU seconds in
    /// all.
    pub fn set_task(
        &mut self,
        options: &RunOptions,
        task: &LocalTask,
        reference: Option<&HostPlan>,
    ) -> Result<(f64, f64), MeasurerError> {
        let plan = reference.unwrap_or(&task.tensors);
        let request = Request::Task { seed: task.seed, file: &task.file, plan };
        (self.task, self.pacemaker) = (None, None);
        let mut reply = self.ask(options, &request, REFERENCE_TIMEOUT)?;
        for _ in 1..STARTS {
            // No kernel runs when a known task is set. So a process that died was killed from
            // outside, which need not happen again.
            if reference.is_none() && matches!(reply, Reply::Died(..)) {
                self.end_process();
                reply = self.ask(options, &request, REFERENCE_TIMEOUT)?;
            }
        }
        match reply {
            Reply::Answer(protocol::Reply::Task { seconds, .. }, cpu) => {
                self.task = Some(task.number);
                Ok((seconds, cpu))
            }
            Reply::Answer(protocol::Reply::Failed(f), _) => Err(self.task_failed(options, f)),
            Reply::Answer(other, _) => Err(unexpected(&other)),
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

    /// Why a task could not be set.
    fn task_failed(&mut self, options: &RunOptions, f: Failure) -> MeasurerError {
        if f.place == Place::Fault {
            self.end_process();
        }
        match f.place {
            Place::File => MeasurerError::Folder { path: options.folder.into(), reason: f.message },
            _ => MeasurerError::Reference(f.message),
        }
    }

    /// Makes a request that runs kernels of a task. A crash in a process that ran others before is
    /// tried again in a fresh one: an earlier kernel may have damaged the process without showing
    /// it.
    pub fn run_request(
        &mut self,
        options: &RunOptions,
        task: &LocalTask,
        request: &Request<'_>,
        cost: &mut CpuCost,
    ) -> Result<Answer, MeasurerError> {
        loop {
            if self.runner.is_none() || self.task != Some(task.number) {
                cost.measure += self.set_task(options, task, None)?.1;
            }
            let fresh = self.runner.as_mut().is_none_or(|r| !std::mem::replace(&mut r.used, true));
            let timeout = options.limits.timeout
                + Duration::from_secs_f64((8.0 * task.reference_seconds).min(1e6));
            match self.ask(options, request, timeout)? {
                Reply::Answer(reply, cpu) => {
                    cost.measure += cpu;
                    return self.judge(reply);
                }
                Reply::Late(cpu) => {
                    cost.measure += cpu;
                    self.end_process();
                    let detail = format!("did not end within {:.1} s", timeout.as_secs_f64());
                    return Ok(Answer::failed(FailStage::Timeout, detail));
                }
                Reply::Died(detail, cpu) => {
                    cost.measure += cpu;
                    self.end_process();
                    if fresh {
                        return Ok(Answer::failed(FailStage::Launch, detail));
                    }
                }
            }
        }
    }

    /// The meaning of a reply about kernels.
    pub fn judge(&mut self, reply: protocol::Reply) -> Result<Answer, MeasurerError> {
        let f = match reply {
            protocol::Reply::Failed(f) => f,
            other => return Ok(Answer::Reply(other)),
        };
        let stage = match f.place {
            Place::Damage | Place::Wrong => FailStage::WrongAnswer,
            _ => FailStage::Launch,
        };
        if matches!(f.place, Place::Damage | Place::Fault) {
            // A kernel that wrote beside its buffers may have hit the process's own memory; a
            // fault of a GPU ends the process's context.
            self.end_process();
        }
        Ok(Answer::Failed { stage, side: f.side, detail: f.message })
    }

    /// Lets a kernel compute all outputs and a judge look at them; how it failed, if it did. What
    /// was right is what this kernel's further calls are compared with: the process takes the
    /// kernel for the task's reference until another task is set.
    fn look(
        &mut self,
        options: &RunOptions,
        task: &LocalTask,
        judge: &Judge,
        plan: &HostPlan,
        cost: &mut CpuCost,
    ) -> Result<Option<Outcome>, MeasurerError> {
        let file = format!("{}-judged-{}", task.file, self.gpu.map_or(0, |n| n + 1));
        let request = Request::Task { seed: task.seed, file: &file, plan };
        let (stage, detail) = match self.run_request(options, task, &request, cost)? {
            Answer::Failed { stage, detail, .. } => (stage, detail),
            Answer::Reply(protocol::Reply::Task { .. }) => {
                let path = options.folder.join(&file);
                let both = std::fs::read(&path).map_err(|e| MeasurerError::folder(&path, &e))?;
                // One for each of the two sets of inputs, which are equal where all are given.
                let (first, second) = both.split_at(both.len() / 2);
                let again = || if first == second { Ok(()) } else { judge.look(second) };
                match judge.look(first).and_then(|()| again()) {
                    Ok(()) => return Ok(None),
                    Err(why) => (FailStage::WrongAnswer, why),
                }
            }
            Answer::Reply(other) => return Err(unexpected(&other)),
        };
        self.task = None;
        Ok(Some(Outcome::Failed { stage, detail }))
    }

    /// Loads the task's pacemaker into the process. One that fails is the pacemaker no longer.
    fn load_pacemaker(
        &mut self,
        options: &RunOptions,
        task: &LocalTask,
        cost: &mut CpuCost,
    ) -> Result<(), MeasurerError> {
        let Some(wanted) = task.pacemaker().as_ref().map(|p| Arc::clone(&p.plan)) else {
            return Ok(());
        };
        if self.runner.is_some()
            && self.task == Some(task.number)
            && self.pacemaker.as_ref() == Some(&wanted)
        {
            return Ok(());
        }
        let (tolerance, flush) = (task.tolerance, options.limits.flush);
        let request = Request::Pace { plan: &wanted, tolerance, flush };
        match self.run_request(options, task, &request, cost)? {
            Answer::Reply(_) => self.pacemaker = Some(wanted),
            Answer::Failed { .. } => *task.pacemaker() = None,
        }
        Ok(())
    }

    /// Checks a kernel that was built, where its time would say nothing.
    fn check(
        &mut self,
        options: &RunOptions,
        task: &LocalTask,
        plan: &HostPlan,
        cost: &mut CpuCost,
    ) -> Result<Outcome, MeasurerError> {
        if let Some(judge) = &task.judge {
            let failed = self.look(options, task, judge, plan, cost)?;
            return Ok(failed.unwrap_or(Outcome::Right { error: 0.0 }));
        }
        let (tolerance, limit) = (task.tolerance, UNTIMED);
        let request = Request::Run { plan, tolerance, limit, flush: 0 };
        match self.run_request(options, task, &request, cost)? {
            Answer::Failed { stage, detail, .. } => Ok(Outcome::Failed { stage, detail }),
            Answer::Reply(protocol::Reply::Measured(m)) => Ok(Outcome::Right { error: m.error }),
            Answer::Reply(other) => Err(unexpected(&other)),
        }
    }

    /// Checks and times a kernel that was built. Where there is a pacemaker, gives the machine's
    /// slowness meanwhile.
    pub fn measure(
        &mut self,
        options: &RunOptions,
        task: &LocalTask,
        plan: &Arc<HostPlan>,
        cost: &mut CpuCost,
    ) -> Result<(Outcome, Option<Slowness>), MeasurerError> {
        if self.device.is_emulated() || !options.limits.is_timed {
            let outcome = self.check(options, task, plan, cost)?;
            return Ok((outcome, None));
        }
        let best = f64::from_bits(task.best.load(Ordering::Relaxed));
        let limit = if best.is_finite() && options.limits.reject.is_finite() {
            best * options.limits.reject
        } else {
            0.0
        };
        match &task.judge {
            None => self.load_pacemaker(options, task, cost)?,
            Some(judge) => {
                if let Some(failed) = self.look(options, task, judge, plan, cost)? {
                    return Ok((failed, None));
                }
            }
        }
        let (tolerance, flush) = (task.tolerance, options.limits.flush);
        let request = Request::Run { plan, tolerance, limit, flush };
        let measured = match self.run_request(options, task, &request, cost)? {
            Answer::Failed { stage, detail, .. } => {
                return Ok((Outcome::Failed { stage, detail }, None));
            }
            Answer::Reply(protocol::Reply::Measured(m)) => m,
            Answer::Reply(other) => return Err(unexpected(&other)),
        };
        let mut m = Measurement {
            samples: measured.samples.into_iter().map(Nanos).collect(),
            calls: measured.calls,
            error: measured.error,
            gpu: measured.gpu,
            pace: None,
        };
        let may_lead = self.gpu.is_none() && task.judge.is_none();
        let slowness =
            Pacemaker::beside(&mut task.pacemaker(), plan, may_lead, &mut m, measured.pace);
        let time = m.median().0.max(0.0);
        task.best.fetch_min(time.to_bits(), Ordering::Relaxed);
        Ok((Outcome::Measured(m), slowness))
    }
}
