//! Two kernels side by side: alternating windows in fresh processes, until a sequential test can
//! tell whether the challenger is faster.

use super::LocalMeasurer;
use super::worker::{Answer, interface};
use crate::artifact::Built;
use crate::cpu::Reply;
use crate::rematch::Sequential;
use squall_core::measurer::MessageVersion;
use squall_core::{
    CpuCost, FailStage, KernelSource, Measurement, MeasurerError, Nanos, Rematch, Verdict,
};
use std::time::Duration;

/// The largest time that the pairs of a rematch shall take together, if its first look allows.
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
        let mut cost = CpuCost::default();
        let interfaces = self.contenders(incumbent, challenger, &mut cost)?;
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
            let pair = self.load_pair(&interfaces, swapped, &mut cost)?;
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

    /// Builds both kernels; what the process needs to call them.
    fn contenders(
        &mut self,
        incumbent: &KernelSource,
        challenger: &KernelSource,
        cost: &mut CpuCost,
    ) -> Result<[String; 2], MeasurerError> {
        let mut ready = |kernel, challenger| {
            let (built, cpu) = self.build(kernel)?;
            cost.build += cpu;
            match built {
                Built::Library(file) => Ok(interface(&file, kernel)),
                Built::Refused(detail) => Err(MeasurerError::Contender { challenger, detail }),
            }
        };
        Ok([ready(incumbent, false)?, ready(challenger, true)?])
    }

    /// Loads and checks two kernels in a fresh process; with `swapped`, the challenger first.
    fn load_pair(
        &mut self,
        [incumbent, challenger]: &[String; 2],
        swapped: bool,
        cost: &mut CpuCost,
    ) -> Result<Pair, MeasurerError> {
        self.workers[0].end_process();
        let task = self.task()?.clone();
        let (a, b) = if swapped { (challenger, incumbent) } else { (incumbent, challenger) };
        let command = format!("duel {} {} {a} {b}", task.tolerance, self.flush);
        let answer = self.on_first_worker(|worker, options| {
            worker.run_command(options, &task, &command, "duel", cost)
        })?;
        let numbers = numbers(answer, swapped)?;
        let &[e0, e1, c0, c1, t0, t1] = numbers.as_slice() else {
            return Err(MeasurerError::Runner("its answer is too short".into()));
        };
        let nanos = t0 * c0 + t1 * c1;
        let (errors, calls) = if swapped { ([e1, e0], [c1, c0]) } else { ([e0, e1], [c0, c1]) };
        Ok(Pair { swapped, errors, calls: calls.map(|c| c as u64), nanos })
    }

    /// Times `count` more windows of both kernels, each the incumbent's time and the challenger's.
    fn time_pair(
        &mut self,
        pair: &Pair,
        count: usize,
        cost: &mut CpuCost,
    ) -> Result<Vec<[f64; 2]>, MeasurerError> {
        let timeout = self.timeout + Duration::from_secs_f64(20e-9 * pair.nanos * count as f64);
        let answer = self.on_first_worker(|worker, options| {
            match worker.ask(options, &format!("pairs {count}"), timeout)? {
                Reply::Answer(words, cpu) => {
                    cost.measure += cpu;
                    worker.parse_answer(&words, "pairs")
                }
                Reply::Died(detail, _) => {
                    worker.end_process();
                    Ok(Answer::Failed { stage: FailStage::Launch, detail })
                }
                Reply::Late(_) => {
                    worker.end_process();
                    let detail = "did not end in time".into();
                    Ok(Answer::Failed { stage: FailStage::Timeout, detail })
                }
            }
        })?;
        let times = numbers(answer, pair.swapped)?;
        if times.len() != 2 * count {
            return Err(MeasurerError::Runner("its answer has the wrong length".into()));
        }
        Ok(times
            .chunks_exact(2)
            .map(|t| if pair.swapped { [t[1], t[0]] } else { [t[0], t[1]] })
            .collect())
    }
}

/// Two kernels that are loaded in one process; the incumbent's figures come first.
struct Pair {
    /// Whether the process calls the challenger `a`.
    swapped: bool,
    errors: [f64; 2],
    calls: [u64; 2],
    /// What a window of both takes.
    nanos: f64,
}

/// The numbers of an answer about two kernels, or the error that says which of them failed. Where
/// the process does not say which, it is taken to be the challenger.
fn numbers(answer: Answer, swapped: bool) -> Result<Vec<f64>, MeasurerError> {
    match answer {
        Answer::Numbers(numbers) => Ok(numbers),
        Answer::Failed { detail, .. } => {
            let (challenger, what) = match detail.split_once(' ') {
                Some(("a", what)) => (swapped, what.to_string()),
                Some(("b", what)) => (!swapped, what.to_string()),
                _ => (true, detail),
            };
            Err(MeasurerError::Contender { challenger, detail: what })
        }
    }
}
