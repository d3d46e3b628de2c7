//! Runs rematches on this machine: two kernels are timed in alternating windows, in fresh worker
//! processes, until the sequential test of `../rematch.rs` can tell whether the challenger is
//! faster than the incumbent.

use super::LocalMeasurer;
use super::worker::Answer;
use crate::artifact::Built;
use crate::cpu::{Reply, unexpected};
use crate::rematch::Sequential;
use squall_core::measurer::MessageVersion;
use squall_core::{
    CpuCost, FailStage, KernelSource, Measurement, MeasurerError, Nanos, Rematch, Verdict,
};
use squall_runtime::HostPlan;
use squall_runtime::protocol::{self, Ready, Request, Side};
use std::time::Duration;

/// The time in nanoseconds that all pairs of a rematch should take at most, after the test's first
/// look.
const REMATCH_NANOS: f64 = 4e9;

impl LocalMeasurer {
    /// Measures two kernels in alternating windows.
    ///
    /// Where a process's buffers happen to lie can favour one of two equal kernels by more than
    /// the minimum effect. Each look of the test is therefore fed by two fresh processes, which
    /// ran no trials, and in which the two have changed places.
    pub(super) fn compare(
        &mut self,
        incumbent: &KernelSource,
        challenger: &KernelSource,
    ) -> Result<Rematch, MeasurerError> {
        self.task()?;
        if self.host.device.is_emulated() {
            return Err(MeasurerError::Device(
                "kernels that run under an emulator have no times to compare".into(),
            ));
        }
        let mut cost = CpuCost::default();
        let plans = self.contenders(incumbent, challenger, &mut cost)?;
        let mut sides = [(); 2].map(|()| Measurement {
            samples: Vec::new(),
            calls: 0,
            error: 0.0,
            gpu: None,
            pace: None,
        });
        let mut test: Option<Sequential> = None;
        let mut swapped = false;
        let test = loop {
            let pair = self.load_pair(&plans, swapped, &mut cost)?;
            let mut t = test
                .take()
                .unwrap_or_else(|| Sequential::new((REMATCH_NANOS / pair.nanos.max(1.0)) as usize));
            let count = if swapped { t.wanted() } else { t.wanted().div_ceil(2) };
            for times in self.time_pair(&pair, count, &mut cost)? {
                t.give(times[0], times[1]);
                for (side, time) in sides.iter_mut().zip(times) {
                    side.samples.push(Nanos(time));
                }
            }
            for (i, side) in sides.iter_mut().enumerate() {
                side.calls = pair.calls[i];
                side.error = side.error.max(pair.errors[i]);
            }
            if t.wanted() == 0 {
                break t;
            }
            swapped = !swapped;
            test = Some(t);
        };
        let [incumbent, challenger] = sides;
        Ok(Rematch {
            version: MessageVersion,
            incumbent,
            challenger,
            verdict: test.verdict().unwrap_or(Verdict::Tie),
            ratio: test.ratio(),
            confidence: test.confidence(),
            cost,
        })
    }

    /// Builds both kernels; their plans.
    fn contenders(
        &mut self,
        incumbent: &KernelSource,
        challenger: &KernelSource,
        cost: &mut CpuCost,
    ) -> Result<[HostPlan; 2], MeasurerError> {
        let task = self.task()?.clone();
        let mut ready = |kernel, challenger| {
            let (built, cpu) = self.build(kernel)?;
            cost.build += cpu;
            match built {
                Built::Library(file) => task.plan(self.folder.path(), &file, kernel),
                Built::Refused(detail) => Err(MeasurerError::Contender { challenger, detail }),
            }
        };
        Ok([ready(incumbent, false)?, ready(challenger, true)?])
    }

    /// Loads and checks two kernels in a fresh process; with `swapped`, the challenger first.
    fn load_pair(
        &mut self,
        [incumbent, challenger]: &[HostPlan; 2],
        swapped: bool,
        cost: &mut CpuCost,
    ) -> Result<Pair, MeasurerError> {
        self.workers[0].end_process();
        let task = self.task()?.clone();
        let (a, b) = if swapped { (challenger, incumbent) } else { (incumbent, challenger) };
        // What a judge found right is compared with nothing.
        let tolerance = if task.judge.is_some() { f64::INFINITY } else { task.tolerance };
        let flush = self.limits.flush;
        let request = Request::Duel { plans: [a, b], tolerance, flush };
        let answer = self.on_first_worker(|worker, options| {
            worker.run_request(options, &task, &request, cost)
        })?;
        let Ready { mut errors, mut calls, nanos: [t0, t1] } = match succeeded(answer, swapped)? {
            protocol::Reply::Duel(ready) => ready,
            other => return Err(unexpected(&other)),
        };
        let nanos = t0 * calls[0] as f64 + t1 * calls[1] as f64;
        if swapped {
            errors.reverse();
            calls.reverse();
        }
        Ok(Pair { swapped, errors, calls, nanos })
    }

    /// Times `count` more windows of both kernels, each the incumbent's time and the challenger's.
    fn time_pair(
        &mut self,
        pair: &Pair,
        count: usize,
        cost: &mut CpuCost,
    ) -> Result<Vec<[f64; 2]>, MeasurerError> {
        let timeout =
            self.limits.timeout + Duration::from_secs_f64(20e-9 * pair.nanos * count as f64);
        let answer = self.on_first_worker(|worker, options| {
            match worker.ask(options, &Request::Pairs(count), timeout)? {
                Reply::Answer(reply, cpu) => {
                    cost.measure += cpu;
                    worker.judge(reply)
                }
                Reply::Died(detail, _) => {
                    worker.end_process();
                    Ok(Answer::Failed { stage: FailStage::Launch, side: None, detail })
                }
                Reply::Late(_) => {
                    worker.end_process();
                    let detail = "did not end in time".into();
                    Ok(Answer::Failed { stage: FailStage::Timeout, side: None, detail })
                }
            }
        })?;
        let mut times = match succeeded(answer, pair.swapped)? {
            protocol::Reply::Pairs(times) if times.len() == count => times,
            protocol::Reply::Pairs(_) => {
                return Err(MeasurerError::Runner("its answer has the wrong length".into()));
            }
            other => return Err(unexpected(&other)),
        };
        if pair.swapped {
            times.iter_mut().for_each(|t| t.reverse());
        }
        Ok(times)
    }
}

/// Two kernels that are loaded in one process; the incumbent's figures come first.
struct Pair {
    /// Whether the process calls the challenger `a`.
    swapped: bool,
    errors: [f64; 2],
    calls: [u64; 2],
    /// The time of a window of both kernels.
    nanos: f64,
}

/// What an answer about two kernels says, or the error that tells which of them failed. Where the
/// process does not say which, it is taken to be the challenger.
fn succeeded(answer: Answer, swapped: bool) -> Result<protocol::Reply, MeasurerError> {
    match answer {
        Answer::Reply(reply) => Ok(reply),
        Answer::Failed { detail, side, .. } => {
            let challenger = side.is_none_or(|side| (side == Side::A) == swapped);
            Err(MeasurerError::Contender { challenger, detail })
        }
    }
}
