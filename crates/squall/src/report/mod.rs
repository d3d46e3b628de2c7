//! The report of a tuning session: the facts ([`Report`], with a [`TaskReport`] for each task),
//! printed as JSON ([`json`]) or as one page ([`html`]). `session.rs` and `task_search.rs` fill it.
//! A [`Roof`] holds the machine's measured peak and bandwidths and gives the bound of a kernel, as
//! in the roofline model.

mod bars;
mod graph;
pub mod html;
mod inference;
pub mod json;
pub mod svg;

pub use graph::{GraphKernel, KernelGraph};
pub use inference::Inference;

use squall_compiler::by_pairs;
use squall_core::{CpuCost, FailStage, Nanos, Outcome, TaskId, Workload};
use std::path::PathBuf;

/// The style of all pages.
pub const STYLE: &str = include_str!("style.css");

/// The machine's measured limits (roofline model).
#[derive(Clone, Debug, PartialEq)]
pub struct Roof {
    /// Floating-point operations per nanosecond, with all threads of the session.
    pub peak_gflops: f64,
    /// The number of operations on bytes that take the time of one on 32-bit floats.
    pub byte_pace: f64,
    /// The number of operations on pairs of bf16 that take the time of one on 32-bit floats.
    pub pair_pace: f64,
    /// Bytes per nanosecond from main memory.
    pub memory_gbs: f64,
    /// The caches, innermost first.
    pub levels: Vec<RoofLevel>,
}

/// A cache and its bandwidth.
#[derive(Clone, Debug, PartialEq)]
pub struct RoofLevel {
    /// `L1`, `L2`, `L3`.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Bytes per nanosecond.
    pub gbs: f64,
}

impl Roof {
    /// The least time in which this machine can do this work: all operations at the peak, or all
    /// bytes moved, each from the innermost level that still has room for it, since a tuned
    /// kernel is timed with its data where the last call left them.
    pub fn bound(&self, flop: u64, bytes: u64) -> Nanos {
        Nanos(self.arithmetic(flop).max(self.moving(bytes)))
    }

    /// The bound of a workload, by an algorithm that takes `operations`.
    pub fn bound_of(&self, w: &Workload, operations: u64) -> Nanos {
        self.bound(self.paced(operations, Factors::of(w, operations)), w.bytes().0)
    }

    /// How many operations on factors take the time of one on floats.
    pub fn pace(&self, of: Factors) -> f64 {
        match of {
            Factors::Floats => 1.0,
            Factors::Pairs => self.pair_pace,
            Factors::Bytes => self.byte_pace,
        }
    }

    /// Operations on floats that take as long as these.
    pub fn paced(&self, operations: u64, of: Factors) -> u64 {
        (operations as f64 / self.pace(of)) as u64
    }

    /// The limit that sets that bound: `arithmetic`, or the farthest level that bytes come from.
    pub fn limit(&self, flop: u64, bytes: u64) -> &str {
        if self.arithmetic(flop) >= self.moving(bytes) {
            return "arithmetic";
        }
        self.levels.iter().find(|l| bytes <= l.bytes).map_or("memory", |l| &l.name)
    }

    fn arithmetic(&self, flop: u64) -> f64 {
        flop as f64 / self.peak_gflops
    }

    fn moving(&self, bytes: u64) -> f64 {
        let (mut held, mut moving) = (0, 0.0);
        for level in &self.levels {
            let here = bytes.min(level.bytes).saturating_sub(held);
            moving += here as f64 / level.gbs.max(self.memory_gbs);
            held += here;
        }
        moving + (bytes - held) as f64 / self.memory_gbs
    }
}

/// The kind of a kernel's factors; each kind has a peak rate of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Factors {
    /// Floats of 32 bits, or nothing.
    Floats,
    /// Numbers of bf16, by pairs where the CPU can.
    Pairs,
    /// Bytes.
    Bytes,
}

impl Factors {
    /// The factors of a workload, by an algorithm that takes `operations`. An algorithm with fewer
    /// operations than the expression (Winograd) multiplies floats.
    pub fn of(w: &Workload, operations: u64) -> Factors {
        match w.multiplies_bytes() {
            true => Factors::Bytes,
            false if operations >= w.flop() && by_pairs(w).is_some() => Factors::Pairs,
            false => Factors::Floats,
        }
    }
}

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

/// The baseline of expressions.
const PLAIN: &str = "plain loops";

/// The name of the baseline, from which gains are counted: plain loops made from the expression,
/// or a user's kernel with its default configuration.
pub fn baseline(workload: &Workload) -> &'static str {
    if workload.foreign.is_some() { "knobs' defaults" } else { PLAIN }
}

/// The result for one task.
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
