//! Trials and their results: a trial is one attempt at a candidate (a configuration of a tunable)
//! and its outcome, which is measured, infeasible, or failed at a stage such as build or wrong
//! answer. A [`Record`] is a trial with its task, device and toolchain; the store keeps it for
//! ever, and it can be read without any other record. Measurers make outcomes, the trial loop
//! (`squall/src/task/trials.rs`) records them, and searches learn from them.

use crate::algorithm::is_untuned;
use crate::kernel::Candidate;
use crate::task::TaskId;
use crate::units::Nanos;
use serde::{Deserialize, Serialize};

/// The measured times of a kernel, over repeated windows of one or more calls after warm-up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Time of one call in each window, in the order measured; divided by the pace, where there is
    /// one.
    pub samples: Vec<Nanos>,
    /// Calls in each window.
    pub calls: u64,
    /// Largest absolute error against the reference over the largest reference value.
    pub error: f64,
    /// The GPU's state right after the timing, where one ran the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuState>,
    /// The slowdown of the machine during the measurement against its best, by another kernel of
    /// the task that was timed right before and after. The samples times the pace are the measured
    /// times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace: Option<f64>,
}

/// The GPU that ran a kernel, and its clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuState {
    /// The driver's number of the device.
    pub device: u32,
    /// MHz of the multiprocessors; 0 where the management library does not say.
    pub sm_mhz: u32,
    /// MHz of memory; 0 where the management library does not say.
    pub memory_mhz: u32,
    /// The bits of NVML's throttle reasons; 0 where nothing slowed the clocks down.
    pub throttle: u32,
}

impl GpuState {
    /// The throttle reasons in words.
    pub fn throttled_by(self) -> Vec<&'static str> {
        let known = [
            (0x4, "power cap"),
            (0x8, "hardware slowdown"),
            (0x20, "heat, by software"),
            (0x40, "heat, by hardware"),
            (0x80, "power brake"),
        ];
        known
            .into_iter()
            .filter(|(bit, _)| self.throttle & bit != 0)
            .map(|(_, word)| word)
            .collect()
    }
}

/// The median; infinite without samples.
pub fn median(samples: impl IntoIterator<Item = f64>) -> f64 {
    let mut s: Vec<f64> = samples.into_iter().collect();
    s.sort_by(f64::total_cmp);
    match s.len() {
        0 => f64::INFINITY,
        n if n % 2 == 1 => s[n / 2],
        n => (s[n / 2 - 1] + s[n / 2]) / 2.0,
    }
}

impl Measurement {
    /// Median of the windows, the figure that kernels are ranked by.
    pub fn median(&self) -> Nanos {
        Nanos(median(self.samples.iter().map(|n| n.0)))
    }

    /// The fastest window.
    pub fn fastest(&self) -> Nanos {
        Nanos(self.samples.iter().map(|n| n.0).fold(f64::INFINITY, f64::min))
    }

    /// Median absolute deviation from the median, as a share of the median.
    pub fn spread(&self) -> f64 {
        let m = self.median().0;
        let deviations = self.samples.iter().map(|s| Nanos((s.0 - m).abs())).collect();
        Measurement { samples: deviations, calls: 1, error: 0.0, gpu: None, pace: None }.median().0
            / m
    }
}

/// Where a candidate failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailStage {
    /// The compiler refused it, crashed or took too long.
    Build,
    /// It could not be loaded, returned an error or crashed.
    Launch,
    /// It did not end in time.
    Timeout,
    /// Its output differs from the reference, or it wrote outside its output.
    WrongAnswer,
}

impl FailStage {
    /// The spelling in records and reports.
    pub fn name(self) -> &'static str {
        match self {
            FailStage::Build => "build",
            FailStage::Launch => "launch",
            FailStage::Timeout => "timeout",
            FailStage::WrongAnswer => "wrong_answer",
        }
    }
}

/// The result of a trial. A failure is data, never an exception and never a sentinel time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It ran, its output was right, and this is how long it took.
    Measured(Measurement),
    /// It ran and its output was right, where a time says nothing of any machine: under an
    /// emulator. No time is kept, so none can enter a comparison.
    Right {
        /// Largest absolute error against the reference over the largest reference value.
        error: f64,
    },
    /// It was known to be impossible before anything was built.
    Infeasible(String),
    /// It failed.
    Failed {
        /// The stage at which it failed.
        stage: FailStage,
        /// The message of the compiler, the loader or the check.
        detail: String,
    },
}

impl Outcome {
    /// Whether it ran and its output was right, timed or not.
    pub fn is_right(&self) -> bool {
        matches!(self, Outcome::Measured(_) | Outcome::Right { .. })
    }

    /// The time that kernels are ranked by, if it ran.
    pub fn time(&self) -> Option<Nanos> {
        match self {
            Outcome::Measured(m) => Some(m.median()),
            _ => None,
        }
    }
}

/// CPU seconds, user and system together.
#[derive(Clone, Copy, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct CpuCost {
    /// Seconds in the compiler.
    pub build: f64,
    /// Seconds in the measured process: loading, checking, timing.
    pub measure: f64,
    /// Seconds in the search and its cost model.
    pub search: f64,
}

impl CpuCost {
    /// The sum.
    pub fn total(self) -> f64 {
        self.build + self.measure + self.search
    }
}

impl std::ops::AddAssign for CpuCost {
    fn add_assign(&mut self, o: CpuCost) {
        self.build += o.build;
        self.measure += o.measure;
        self.search += o.search;
    }
}

/// One measurement of a candidate, or the attempt at one.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// The candidate.
    pub candidate: Candidate,
    /// Its outcome.
    pub outcome: Outcome,
    /// The CPU time that it took.
    pub cost: CpuCost,
}

/// Why a record exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordKind {
    /// The search proposed it.
    Trial,
    /// It is the task's baseline, from which gains are counted.
    Untuned,
    /// A challenger and the incumbent were measured again, interleaved; its time supersedes the
    /// trial's.
    Rematch,
    /// Both were timed as steps of a whole network, which decided between them; the times are those
    /// of the steps, and compare with those of no other network.
    Network,
}

impl RecordKind {
    /// The spelling in stores.
    pub fn name(self) -> &'static str {
        match self {
            RecordKind::Trial => "trial",
            RecordKind::Untuned => "untuned",
            RecordKind::Rematch => "rematch",
            RecordKind::Network => "network",
        }
    }

    /// The kind with this spelling; [`RecordKind::Trial`] where no other kind has it.
    pub fn named(name: &str) -> RecordKind {
        [RecordKind::Untuned, RecordKind::Rematch, RecordKind::Network]
            .into_iter()
            .find(|k| k.name() == name)
            .unwrap_or(RecordKind::Trial)
    }
}

/// A trial as it is kept for ever. It can be read alone: it refers to no other record, no index and
/// no program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Why the record exists.
    pub kind: RecordKind,
    /// The task.
    pub task: TaskId,
    /// The task's readable name when it was recorded.
    pub name: String,
    /// The workload's text.
    pub workload: String,
    /// The device: CPU, vector width, threads. Times compare only within one device.
    pub device: String,
    /// Code generator's version, compiler's version and flags. Equal candidates give equal
    /// machine code within one toolchain.
    pub toolchain: String,
    /// The tunable's name.
    pub tunable: String,
    /// The configuration's text.
    pub configuration: String,
    /// Its outcome.
    pub outcome: Outcome,
    /// The CPU time that it took.
    pub cost: CpuCost,
    /// The seed of the run.
    pub seed: u64,
    /// Seconds since 1970, UTC.
    pub time: f64,
}

impl Record {
    /// Whether its kernel is the task's baseline, from which gains are counted.
    pub fn is_untuned(&self) -> bool {
        is_untuned(&self.tunable)
    }

    /// The identity of the record: a hash over the candidate, the device and the toolchain. A store
    /// keeps one trial of each identity. It keeps every record of another kind, so their identities
    /// cover the time and the outcome too.
    pub fn identity(&self) -> String {
        let mut text = format!(
            "squall record 1\n{}\n{}\n{}\n{}\n{}\n{}\n",
            self.kind.name(),
            self.task,
            self.device,
            self.toolchain,
            self.tunable,
            self.configuration
        );
        if self.kind != RecordKind::Trial {
            // Records of the first version must keep their identities, so it covers only those
            // parts of a measurement that the first version had.
            let outcome = match &self.outcome {
                Outcome::Measured(m) => {
                    format!(
                        "Measured(Measurement {{ samples: {:?}, calls: {}, error: {:?} }})",
                        m.samples, m.calls, m.error
                    )
                }
                other => format!("{other:?}"),
            };
            text.push_str(&format!("{}\n{outcome}", self.time));
        }
        blake3::hash(text.as_bytes()).to_hex()[..32].to_string()
    }
}
