//! Two kernels side by side: alternating windows in fresh processes, until a sequential test can
//! tell whether the challenger is faster.

use super::build::Built;
use super::lab::Lab;
use super::runner::Reply;
use super::seat::{Said, interface};
use crate::MeasureError;
use crate::rematch::Sequential;
use squall_core::measurer::MessageVersion;
use squall_core::{CpuCost, FailStage, KernelSource, Measurement, Nanos, Rematch, Verdict};
use std::time::Duration;

/// The largest time that the pairs of a rematch shall take together, if its first look allows.
const REMATCH_NANOS: f64 = 4e9;

impl Lab {
    /// Measures the incumbent `a` and the challenger `b` in alternating windows, until a
    /// sequential test can tell whether `b` is faster. Both must have passed [`Lab::run`] before,
    /// here or elsewhere; if one fails now, that is [`MeasureError::Contender`].
    ///
    /// Where a process's buffers happen to lie can favour one of two equal kernels by more than
    /// the minimum effect. Each look of the test is therefore fed by two fresh processes, which
    /// ran no trials, and in which the two have changed places.
    pub fn rematch(&mut self, a: &KernelSource, b: &KernelSource) -> Result<Rematch, MeasureError> {
        let mut cost = CpuCost::default();
        let mut interfaces = Vec::new();
        for (kernel, challenger) in [(a, false), (b, true)] {
            let (built, cpu) = self.build(kernel)?;
            cost.build += cpu;
            match built {
                Built::Library(file) => interfaces.push(interface(&file, kernel)),
                Built::Refused(detail) => {
                    return Err(MeasureError::Contender { challenger, detail });
                }
            }
        }
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
            let duel = self.begin_duel(&interfaces, swapped, &mut cost)?;
            let mut t = test
                .take()
                .unwrap_or_else(|| Sequential::new((REMATCH_NANOS / duel.nanos.max(1.0)) as usize));
            let count = if swapped { t.wanted() } else { t.wanted().div_ceil(2) };
            for pair in self.pairs(&duel, count, &mut cost)? {
                t.give(pair[0], pair[1]);
                for (side, time) in sides.iter_mut().zip(pair) {
                    side.samples.push(Nanos(time));
                }
            }
            for (i, side) in sides.iter_mut().enumerate() {
                side.calls = duel.calls[i];
                side.error = side.error.max(duel.errors[i]);
            }
            if t.wanted() == 0 {
                break t;
            }
            swapped = !swapped;
            test = Some(t);
        };
        let [incumbent, challenger] = sides;
        let verdict = test.verdict().unwrap_or(Verdict::Tie);
        Ok(Rematch {
            version: MessageVersion,
            incumbent,
            challenger,
            verdict,
            ratio: test.ratio(),
            confidence: test.confidence(),
            cost,
        })
    }

    /// Loads and checks two kernels in a fresh process; with `swapped`, the challenger first.
    fn begin_duel(
        &mut self,
        interfaces: &[String],
        swapped: bool,
        cost: &mut CpuCost,
    ) -> Result<Duel, MeasureError> {
        self.seats[0].renew();
        let task = self.task()?.clone();
        let mut order: Vec<&str> = interfaces.iter().map(String::as_str).collect();
        if swapped {
            order.reverse();
        }
        let command = format!("duel {} {} {}", task.tolerance, self.flush, order.join(" "));
        let said = self
            .on_first_seat(|seat, rules| seat.try_kernel(rules, &task, &command, "duel", cost))?;
        let numbers = lost(said, swapped)?;
        let &[e0, e1, c0, c1, t0, t1] = numbers.as_slice() else {
            return Err(MeasureError::Runner("its answer is too short".into()));
        };
        let nanos = t0 * c0 + t1 * c1;
        let (errors, calls) = if swapped { ([e1, e0], [c1, c0]) } else { ([e0, e1], [c0, c1]) };
        Ok(Duel { swapped, errors, calls: calls.map(|c| c as u64), nanos })
    }

    /// So many more pairs of windows of a duel, each the incumbent's time and the challenger's.
    fn pairs(
        &mut self,
        duel: &Duel,
        count: usize,
        cost: &mut CpuCost,
    ) -> Result<Vec<[f64; 2]>, MeasureError> {
        let patience = self.patience + Duration::from_secs_f64(20e-9 * duel.nanos * count as f64);
        let said = self.on_first_seat(|seat, rules| {
            match seat.ask(rules, &format!("pairs {count}"), patience)? {
                Reply::Answer(words, cpu) => {
                    cost.measure += cpu;
                    seat.understand(&words, "pairs")
                }
                Reply::Died(detail, _) => {
                    seat.renew();
                    Ok(Said::Failed { stage: FailStage::Launch, detail })
                }
                Reply::Late(_) => {
                    seat.renew();
                    Ok(Said::Failed {
                        stage: FailStage::Timeout,
                        detail: "did not end in time".into(),
                    })
                }
            }
        })?;
        let times = lost(said, duel.swapped)?;
        if times.len() != 2 * count {
            return Err(MeasureError::Runner("its answer has the wrong length".into()));
        }
        Ok(times
            .chunks_exact(2)
            .map(|t| if duel.swapped { [t[1], t[0]] } else { [t[0], t[1]] })
            .collect())
    }
}

/// Two kernels that stand ready in one process; the incumbent's figures first.
struct Duel {
    /// Whether the runner calls the challenger `a`.
    swapped: bool,
    errors: [f64; 2],
    calls: [u64; 2],
    /// What a pair of windows takes.
    nanos: f64,
}

/// A duel's answer, or which of the two failed. Where it is not said, the challenger.
fn lost(said: Said, swapped: bool) -> Result<Vec<f64>, MeasureError> {
    match said {
        Said::Words(numbers) => Ok(numbers),
        Said::Failed { detail, .. } => {
            let (challenger, what) = match detail.split_once(' ') {
                Some(("a", what)) => (swapped, what.to_string()),
                Some(("b", what)) => (!swapped, what.to_string()),
                _ => (true, detail),
            };
            Err(MeasureError::Contender { challenger, detail: what })
        }
    }
}
