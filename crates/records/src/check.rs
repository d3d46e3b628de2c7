//! Checks the records of others before a store takes them over: a false time would be the best one
//! for ever. Input: a record; output: the reason why it cannot be right (an impossible time or
//! date, an id that is not the workload's), or nothing. [`Taken`] counts the new, known and refused
//! records of an import.

use crate::error::StoreError;
use squall_core::space::pieces;
use squall_core::{DeviceIdentity, Objective, Outcome, Record, TaskId, Workload, is_untuned};

/// The longest time of a kernel that is taken over, in nanoseconds: eleven days.
const LONGEST: f64 = 1e15;
/// The first moment that no record is of, in seconds since 1970: the year 10000.
const NEVER: f64 = 253_402_300_800.0;
/// The most reasons that are listed one by one.
const TOLD: usize = 5;

/// The result of taking records over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Records that were new.
    pub new: u64,
    /// Records that the store had.
    pub known: u64,
    /// Records that cannot be right and were left out.
    pub refused: u64,
    /// Why, of the first few of them.
    pub reasons: Vec<String>,
}

impl Taken {
    /// New and known records.
    pub fn counts(&self) -> (u64, u64) {
        (self.new, self.known)
    }

    /// Adds what came of others.
    pub fn add(&mut self, other: Taken) {
        self.new += other.new;
        self.known += other.known;
        self.refused += other.refused;
        self.reasons.extend(other.reasons);
        self.reasons.truncate(TOLD);
    }

    /// Counts a record that was left out.
    pub(crate) fn refuse(&mut self, r: &Record, why: &str) {
        self.refused += 1;
        if self.reasons.len() < TOLD {
            self.reasons.push(format!("{} of {} ({}): {why}", r.kind.name(), r.name, r.task));
        }
    }

    /// Counts a record that was taken over, or else was known.
    pub(crate) fn count(&mut self, is_new: bool) {
        if is_new {
            self.new += 1;
        } else {
            self.known += 1;
        }
    }
}

/// Why a record cannot be right, where that can be told from it alone: its times are no times, its
/// task is not that of its workload, or its configuration has not the form of one. Whether the
/// configuration is legal only the task's space can tell, where a winner is chosen.
pub fn fault(r: &Record) -> Option<String> {
    if let Outcome::Measured(m) = &r.outcome {
        if DeviceIdentity::parse(&r.device).is_emulated() {
            return Some("it is a time under an emulator, which says nothing".into());
        }
        if m.samples.is_empty() {
            return Some("it is measured and has no sample".into());
        }
        if let Some(bad) = m.samples.iter().find(|s| !(s.0 > 0.0 && s.0 <= LONGEST)) {
            return Some(format!("{} ns is no time", bad.0));
        }
        if m.pace.is_some_and(|p| !(p > 0.0 && p <= LONGEST)) {
            return Some("its pace is not positive".into());
        }
        if !(m.error >= 0.0 && m.error.is_finite()) {
            return Some("its error is no number of at least 0".into());
        }
    }
    let seconds = [r.cost.build, r.cost.measure, r.cost.search, r.time];
    if !seconds.iter().all(|s| (0.0..NEVER).contains(s)) {
        return Some("its cost or its date is no number of seconds".into());
    }
    if !belongs(r) {
        return Some("its task id is not that of its workload".into());
    }
    if [&r.device, &r.toolchain, &r.tunable].into_iter().any(|t| t.trim().is_empty()) {
        return Some("its device, toolchain or tunable has no name".into());
    }
    form(r).err()
}

/// Whether the task's id is that of the workload's text, or of what this Squall reads from a text
/// of an older one.
fn belongs(r: &Record) -> bool {
    TaskId::of_text(&r.workload, Objective::Time) == r.task
        || Workload::parse(&r.workload).is_ok_and(|w| TaskId::of(&w, Objective::Time) == r.task)
}

/// Whether the configuration is a list of distinct knobs with values.
fn form(r: &Record) -> Result<(), String> {
    if r.configuration.is_empty() || is_untuned(&r.tunable) {
        return Ok(());
    }
    let mut knobs: Vec<&str> = Vec::new();
    for part in pieces(&r.configuration) {
        match part.split_once('=') {
            Some((knob, _)) if !knob.trim().is_empty() => knobs.push(knob),
            _ => return Err("its configuration is no list of KNOB=VALUE".into()),
        }
    }
    let count = knobs.len();
    knobs.sort_unstable();
    knobs.dedup();
    match knobs.len() == count {
        true => Ok(()),
        false => Err("its configuration names a knob twice".into()),
    }
}

/// A record of others or an error while it was read.
pub(crate) type Other = Result<Record, StoreError>;

#[cfg(test)]
mod tests {
    use super::*;
    use squall_core::{CpuCost, Measurement, Nanos, RecordKind};

    fn record(samples: &[f64]) -> Record {
        let samples = samples.iter().map(|s| Nanos(*s)).collect();
        Record {
            kind: RecordKind::Trial,
            task: TaskId::of_text("w", Objective::Time),
            name: "w".into(),
            workload: "w".into(),
            device: "cpu".into(),
            toolchain: "gcc".into(),
            tunable: "tile".into(),
            configuration: "a=1,b=2x3".into(),
            outcome: Outcome::Measured(Measurement {
                samples,
                calls: 1,
                error: 0.0,
                gpu: None,
                pace: None,
            }),
            cost: CpuCost::default(),
            seed: 0,
            time: 1.7e9,
        }
    }

    #[test]
    fn only_what_can_be_right_passes() {
        assert_eq!(fault(&record(&[1.0, 2.5e9])), None);
        for bad in [&[][..], &[-5.0], &[0.0], &[f64::NAN], &[f64::INFINITY], &[1.0, 1e308]] {
            assert!(fault(&record(bad)).is_some(), "{bad:?}");
        }
        let good = record(&[1.0]);
        let other = Record { task: TaskId::of_text("v", Objective::Time), ..good.clone() };
        assert!(fault(&other).is_some_and(|f| f.contains("task id")));
        for text in ["a", "=1", "a=1,a=2", "a=1,,b=2"] {
            let r = Record { configuration: text.into(), ..good.clone() };
            assert!(fault(&r).is_some_and(|f| f.contains("configuration")), "{text}");
        }
        for time in [-1.0, f64::NAN, 1e300] {
            assert!(fault(&Record { time, ..good.clone() }).is_some(), "{time}");
        }
    }
}
