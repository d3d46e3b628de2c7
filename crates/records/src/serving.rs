//! Which record serves a task at a place (a device with its toolchain): the one answer for exports,
//! layouts, runs of networks and reports. Input: a query and a place; output: records, the nearest
//! first.
//!
//! Of each device and toolchain a task has one record that holds it ([`Store::best`], by
//! [`Standings`](crate::Standings)). The record serves whose device is nearest to the place: the
//! same device, then the same machine with other caches, then any other; the same toolchain comes
//! before another, and of equally near records the fastest serves.

use crate::best::Accept;
use crate::error::StoreError;
use crate::query::Query;
use crate::store::Store;
use squall_core::{DeviceIdentity, Record};

/// A device and the toolchain that makes machine code for it. Times compare within one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The device.
    pub device: DeviceIdentity,
    /// The toolchain's name in records.
    pub toolchain: String,
}

/// The distance of a record's place from another place; less is nearer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nearness {
    /// 0 is the same device, 1 the same machine with other caches, 2 another machine.
    device: u8,
    /// Whether another toolchain made the kernel.
    other_toolchain: bool,
}

impl Nearness {
    /// Whether the kernel was measured on this machine with this toolchain.
    pub fn is_here(self) -> bool {
        self.device < 2 && !self.other_toolchain
    }
}

impl Place {
    /// The distance of a record's place from this one.
    pub fn nearness(&self, r: &Record) -> Nearness {
        let theirs = DeviceIdentity::parse(&r.device);
        let device = match (theirs == self.device, theirs.machine == self.device.machine) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => 2,
        };
        Nearness { device, other_toolchain: r.toolchain != self.toolchain }
    }

    /// The records of this place.
    pub fn records(&self) -> Query {
        Query {
            device: Some(self.device.to_string()),
            toolchain: Some(self.toolchain.clone()),
            ..Query::default()
        }
    }
}

impl Store {
    /// The records that may serve the chosen tasks at a place: for each device and toolchain the
    /// record that holds its task, the nearest first, equally near records by time.
    pub fn serving(
        &self,
        query: &Query,
        place: &Place,
    ) -> Result<Vec<(Nearness, Record)>, StoreError> {
        self.serving_of(query, place, &mut |_| true)
    }

    /// The same of the accepted records.
    pub fn serving_of(
        &self,
        query: &Query,
        place: &Place,
        accept: &mut Accept<'_>,
    ) -> Result<Vec<(Nearness, Record)>, StoreError> {
        let mut all: Vec<(Nearness, Record)> =
            self.best_of(query, accept)?.into_iter().map(|r| (place.nearness(&r), r)).collect();
        let time = |r: &Record| r.outcome.time().map_or(f64::INFINITY, |t| t.0);
        all.sort_by(|(p, a), (q, b)| p.cmp(q).then(time(a).total_cmp(&time(b))));
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_core::{CpuCost, Measurement, Nanos, Objective, Outcome, RecordKind, TaskId};

    fn record(device: &str, toolchain: &str, ns: f64) -> Record {
        Record {
            kind: RecordKind::Trial,
            task: TaskId::of_text("t", Objective::Time),
            name: "t".into(),
            workload: "t".into(),
            device: device.into(),
            toolchain: toolchain.into(),
            tunable: "tile".into(),
            configuration: "a=1".into(),
            outcome: Outcome::Measured(Measurement {
                samples: vec![Nanos(ns)],
                calls: 1,
                error: 0.0,
                gpu: None,
                pace: None,
            }),
            cost: CpuCost::default(),
            seed: 0,
            time: 0.0,
        }
    }

    #[test]
    fn the_nearest_serves_and_of_equally_near_ones_the_fastest() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path().join("s.squall")).unwrap();
        let device = "cpu X, 32-byte vectors, 1 thread";
        let cold = format!("{device}, cold caches");
        for (device, toolchain, ns) in [
            ("another", "gcc", 1.0),
            ("a third", "gcc", 0.5),
            (device, "clang", 2.0),
            (cold.as_str(), "gcc", 3.0),
            (device, "gcc", 4.0),
        ] {
            store.append(&record(device, toolchain, ns)).unwrap();
        }
        let task = TaskId::of_text("t", Objective::Time);
        let times = |device: &str| -> Vec<(f64, bool)> {
            let place =
                Place { device: DeviceIdentity::parse(device), toolchain: "gcc".to_string() };
            let found = store.serving(&Query::task(task), &place).unwrap();
            found.iter().map(|(n, r)| (r.outcome.time().unwrap().0, n.is_here())).collect()
        };
        let warm = [(4.0, true), (2.0, false), (3.0, true), (0.5, false), (1.0, false)];
        assert_eq!(times(device), warm);
        assert_eq!(times(&cold)[0], (3.0, true));
        let place = Place { device: DeviceIdentity::parse(device), toolchain: "gcc".into() };
        assert_eq!(store.query(&place.records()).unwrap().len(), 1);
    }
}
