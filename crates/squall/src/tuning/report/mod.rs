//! The report of a tuning session: the facts ([`Report`], with a [`TaskReport`] for each task),
//! printed as JSON ([`json`]) or as one page ([`html`]). `session.rs` and `task_search.rs` fill it.
//! A [`Roof`] holds the machine's measured peak and bandwidths and gives the bound of a kernel, as
//! in the roofline model.

mod bars;
mod graph;
pub mod html;
pub mod json;
pub mod svg;

pub use crate::base::page::STYLE;
pub use crate::inference::kernel_graph::{GraphKernel, KernelGraph};
pub use crate::inference::network::{PlainRow, PlainSteps, PlainTime, StepWork};
pub use crate::inference::timed::Inference;
pub use crate::target::roof::{Factors, Roof, RoofLevel};
pub use crate::task::task_kernels::baseline;

use crate::task::task_kernels::PLAIN;
use squall_core::{CpuCost, FailStage, Nanos, Outcome, TaskId};
use std::path::PathBuf;

/// Why the trials of a task or a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The trials of the budget were made.
    Trials,
    /// The time of the budget is over.
    Seconds,
    /// Every configuration has a record.
    Exhausted,
    /// The user interrupted the session.
    Interrupted,
    /// The task's reference cannot be built or run.
    Unmeasurable,
}

impl StopReason {
    /// The spelling in reports.
    pub fn name(self) -> &'static str {
        match self {
            StopReason::Trials => "trials",
            StopReason::Seconds => "seconds",
            StopReason::Exhausted => "exhausted",
            StopReason::Interrupted => "interrupted",
            StopReason::Unmeasurable => "unmeasurable",
        }
    }
}

/// A kind of failure and how often it occurred.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureClass {
    /// `infeasible`, or the stage that failed.
    pub stage: String,
    /// The message of its first failure.
    pub detail: String,
    /// The number of failures.
    pub count: u64,
}

/// The candidate that holds a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Winner {
    /// Its tunable.
    pub tunable: String,
    /// The values of its knobs.
    pub configuration: String,
}

/// What was found for one task.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskReport {
    /// The task.
    pub id: TaskId,
    /// Its name in the input.
    pub name: String,
    /// Its kind of kernel.
    pub kind: String,
    /// How often the model calls it.
    pub count: u64,
    /// The graph nodes that it covers.
    pub nodes: Vec<String>,
    /// Operations of a call, as the expression says it.
    pub flop: u64,
    /// Operations of a call of the winner: fewer where its algorithm is another, as Winograd's is.
    /// Rates and shares count these.
    pub operations: u64,
    /// Bytes that a call must move.
    pub bytes: u64,
    /// The kind of the winner's factors.
    pub factors: Factors,
    /// The name of its baseline: see [`baseline`].
    pub baseline: &'static str,
    /// Time of the baseline.
    pub untuned: Option<Nanos>,
    /// Time of the winner.
    pub best: Option<Nanos>,
    /// The winner.
    pub winner: Option<Winner>,
    /// Trials made in this session.
    pub trials: u64,
    /// Trials of this session that have no time.
    pub failed: u64,
    /// Trials of this session that were right under an emulator, where there are no times.
    pub right: u64,
    /// Trials of this session that were timed while the GPU's clocks were throttled, and the
    /// reasons, in the order in which they first occurred.
    pub throttled: (u64, Vec<&'static str>),
    /// Trials that the store knew already.
    pub known: u64,
    /// Trials of this session that a predictor proposed.
    pub predicted: u64,
    /// Why its trials ended.
    pub stop: StopReason,
    /// Pairs of a number of trials and the best time after them, a pair for each improvement.
    /// Trials that the store knew already come first.
    pub curve: Vec<(u64, Nanos)>,
    /// Classes of failures, the most frequent first.
    pub failures: Vec<FailureClass>,
    /// CPU time of this session.
    pub cost: CpuCost,
}

impl TaskReport {
    /// Rate of the winner, by the operations of its algorithm.
    pub fn gflops(&self) -> Option<f64> {
        self.best.map(|t| t.giga_rate(self.operations as f64))
    }

    /// How many times faster than the baseline.
    pub fn gain(&self) -> Option<f64> {
        Some(self.untuned?.0 / self.best?.0)
    }

    /// The least time in which the roof allows the winner's algorithm.
    pub fn bound(&self, roof: &Roof) -> Nanos {
        roof.bound(roof.paced(self.operations, self.factors), self.bytes)
    }

    /// The limit that sets that bound.
    pub fn limit<'r>(&self, roof: &'r Roof) -> &'r str {
        roof.limit(roof.paced(self.operations, self.factors), self.bytes)
    }

    /// The share of what the roof allows its algorithm that the winner reaches.
    pub fn share(&self, roof: &Roof) -> Option<f64> {
        Some(self.bound(roof).0 / self.best?.0)
    }
}

/// An operator of the model that is not tuned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UntunedNode {
    /// Its name.
    pub node: String,
    /// Its operator.
    pub op: String,
    /// Why it is not tuned.
    pub reason: String,
}

/// The result of a tuning session.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The input's name.
    pub input: String,
    /// The device on which it was measured.
    pub device: String,
    /// The toolchain that built its kernels.
    pub toolchain: String,
    /// Threads of a kernel.
    pub threads: usize,
    /// The machine's limits.
    pub roof: Option<Roof>,
    /// The strategy that chose candidates.
    pub strategy: String,
    /// The seed.
    pub seed: u64,
    /// When it began, in seconds since 1970.
    pub started: f64,
    /// How long it took.
    pub seconds: f64,
    /// Why it ended.
    pub stop: StopReason,
    /// The store that holds the records.
    pub store: PathBuf,
    /// One report for each task, in the input's order.
    pub tasks: Vec<TaskReport>,
    /// The operators that are not tuned.
    pub untuned: Vec<UntunedNode>,
    /// The time of whole inferences of a model with the winners, or why there is none; nothing
    /// where it was not asked for.
    pub inference: Option<Result<Inference, String>>,
}

impl Report {
    /// Time of one pass through the tasks that have both times: (best, untuned).
    pub fn totals(&self) -> (Nanos, Nanos) {
        let both =
            self.tasks.iter().filter_map(|t| Some((t.count as f64, t.best?.0, t.untuned?.0)));
        let (best, untuned) =
            both.fold((0.0, 0.0), |(b, u), (n, best, untuned)| (b + n * best, u + n * untuned));
        (Nanos(best), Nanos(untuned))
    }

    /// One pass through the tasks that ran: the winners' time, and the share of it that the roof
    /// would allow their algorithms.
    pub fn pass(&self) -> Option<(Nanos, Option<f64>)> {
        let timed = || self.tasks.iter().filter_map(|t| Some((t, t.count as f64 * t.best?.0)));
        let all: f64 = timed().map(|(_, time)| time).sum();
        let bound =
            |roof: &Roof| timed().map(|(t, _)| t.count as f64 * t.bound(roof).0).sum::<f64>() / all;
        (all > 0.0).then(|| (Nanos(all), self.roof.as_ref().map(bound)))
    }

    /// Whether gains are counted from a kernel that is an alternative: a user's own with its
    /// defaults. Plain loops are what an expression says, and no alternative.
    pub fn has_alternative(&self) -> bool {
        self.tasks.iter().all(|t| t.baseline != PLAIN)
    }

    /// What is said first, one line each: the whole inference, the share of the bound, other
    /// libraries.
    pub fn headline(&self) -> Vec<String> {
        let mut lines = Vec::new();
        match &self.inference {
            Some(Ok(i)) => lines.push(format!(
                "{}: one inference {} (median {} of {}), by {}",
                self.input, i.best, i.median, i.inferences, i.kernels
            )),
            Some(Err(why)) => lines.push(format!("{}: not timed as a whole: {why}", self.input)),
            None => {}
        }
        if let Some(Ok(i)) = &self.inference {
            lines.extend(i.notes());
        }
        if let Some((time, share)) = self.pass().filter(|_| self.tasks.len() > 1) {
            let share = share.map_or(String::new(), |s| {
                format!(", {:.0} % of what the machine allows", s * 100.0)
            });
            lines.push(format!("{}: all tasks once through {time}{share}", self.input));
        }
        lines
    }

    /// The name of the tasks' baseline; `untuned` where tasks have different ones.
    pub fn baseline(&self) -> &'static str {
        match self.tasks.first().map(|t| t.baseline) {
            Some(b) if self.tasks.iter().all(|t| t.baseline == b) => b,
            _ => "untuned",
        }
    }

    /// How many times faster one pass is with the winners than with the baselines.
    pub fn gain(&self) -> Option<f64> {
        let (best, untuned) = self.totals();
        (best.0 > 0.0).then(|| untuned.0 / best.0)
    }

    /// Trials made in this session, and those of them that have no time.
    pub fn trials(&self) -> (u64, u64) {
        self.tasks.iter().fold((0, 0), |(n, f), t| (n + t.trials, f + t.failed))
    }

    /// The tasks that never had a trial because the budget was over before their turn.
    pub fn untried(&self) -> usize {
        let is_untried = |t: &&TaskReport| {
            t.trials + t.known == 0 && matches!(t.stop, StopReason::Trials | StopReason::Seconds)
        };
        self.tasks.iter().filter(is_untried).count()
    }

    /// A note for the user where tasks never had a trial.
    pub fn budget_note(&self) -> Option<String> {
        let (untried, tasks) = (self.untried(), self.tasks.len());
        (untried > 0).then(|| {
            format!(
                "The budget was too small: {untried} of {tasks} tasks had no trial. The others \
                 are expected to take most of the time."
            )
        })
    }

    /// Under an emulator, where checking is all that is done: the classes of kernels that gave a
    /// wrong answer or crashed, in words.
    pub fn wrong(&self) -> Option<String> {
        let checked = self.tasks.iter().filter(|t| t.right > 0);
        let named = [FailStage::WrongAnswer, FailStage::Launch, FailStage::Timeout];
        let of = |t: &TaskReport| {
            let wrong = t.failures.iter().filter(|f| named.iter().any(|s| s.name() == f.stage));
            wrong.map(|f| format!("{} ({}x): {}", t.name, f.count, f.detail)).collect::<Vec<_>>()
        };
        let all: Vec<String> = checked.flat_map(of).take(3).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    /// CPU time of this session.
    pub fn cost(&self) -> CpuCost {
        self.tasks.iter().fold(CpuCost::default(), |mut all, t| {
            all += t.cost;
            all
        })
    }
}

/// Collects failures into classes. Messages that differ in numbers and paths alone are one class.
#[derive(Default)]
pub(crate) struct Failures(Vec<(String, FailureClass)>);

impl Failures {
    /// Adds an outcome, if it is a failure.
    pub fn add(&mut self, outcome: &Outcome) {
        let (stage, detail) = match outcome {
            Outcome::Measured(_) | Outcome::Right { .. } => return,
            Outcome::Infeasible(why) => ("infeasible", why),
            Outcome::Failed { stage, detail } => (stage.name(), detail),
        };
        let line = detail
            .lines()
            .map(str::trim)
            .find(|l| l.contains("error"))
            .or(detail.lines().next())
            .unwrap_or("")
            .trim();
        let key: String = line
            .split_whitespace()
            .filter(|w| !w.contains('/'))
            .map(|w| w.chars().filter(|c| !c.is_ascii_digit()).collect::<String>() + " ")
            .collect();
        let key = format!("{stage} {key}");
        match self.0.iter_mut().find(|(k, _)| *k == key) {
            Some((_, class)) => class.count += 1,
            None => self
                .0
                .push((key, FailureClass { stage: stage.into(), detail: line.into(), count: 1 })),
        }
    }

    /// The most frequent classes.
    pub fn top(&self, n: usize) -> Vec<FailureClass> {
        let mut all: Vec<FailureClass> = self.0.iter().map(|(_, c)| c.clone()).collect();
        all.sort_by_key(|c| std::cmp::Reverse(c.count));
        all.truncate(n);
        all
    }
}
