//! Summaries of a store: for each task, device and toolchain the number of trials, the baseline's
//! time, and the record that holds the task, that is, of the best candidate by the rules of
//! `standings.rs`. Input: a [`Query`]; output: summaries or records. Exports, reports and runs of
//! networks take their kernels from these records.

use crate::error::StoreError;
use crate::query::Query;
use crate::standings::{Name, Standings};
use crate::store::Store;
use rusqlite::params_from_iter;
use squall_core::{Nanos, Record, RecordKind, TaskId};
use std::collections::HashMap;

/// A summary of the records of one task on one device with one toolchain.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// The task.
    pub task: TaskId,
    /// Its name in the newest record.
    pub name: String,
    /// The device.
    pub device: String,
    /// The toolchain.
    pub toolchain: String,
    /// The number of trials, with any outcome.
    pub trials: u64,
    /// The number of trials without a time.
    pub failed: u64,
    /// Time of the baseline.
    pub untuned: Option<Nanos>,
    /// Time of the candidate that holds the task.
    pub best: Option<Nanos>,
    /// When the newest record was made, in seconds since 1970.
    pub last: f64,
    /// Number of the record that holds the best time.
    seq: Option<i64>,
}

/// The fields of a record by which the best is chosen.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its task.
    pub task: TaskId,
    /// Its device.
    pub device: &'a str,
    /// Its tunable and its configuration.
    pub candidate: &'a Name,
    /// Its time, where it ran.
    pub time: Option<Nanos>,
}

/// Whether a record counts when the best is chosen: it does not where its configuration is not in
/// the task's space, or where its time cannot be.
pub type Accept<'a> = dyn FnMut(Entry<'_>) -> bool + 'a;

impl Store {
    /// One summary for each task, device and toolchain among the chosen records, in the order
    /// that they were first tried; [`Query::limit`] has no meaning here.
    pub fn summaries(&self, query: &Query) -> Result<Vec<Summary>, StoreError> {
        self.summaries_of(query, &mut |_| true)
    }

    /// The same where only the accepted records may hold a task; the others are counted.
    fn summaries_of(
        &self,
        query: &Query,
        accept: &mut Accept<'_>,
    ) -> Result<Vec<Summary>, StoreError> {
        self.begin();
        let (filter, values) = query.filter();
        let sql = format!(
            "SELECT seq, kind, task, name, device, toolchain, tunable, configuration, time_ns, \
             recorded FROM record {filter} ORDER BY recorded, identity"
        );
        let mut statement = self.connection.prepare_cached(&sql).map_err(|e| self.error(e))?;
        let mut rows = statement.query(params_from_iter(values)).map_err(|e| self.error(e))?;
        let mut places: HashMap<(String, String, String), usize> = HashMap::new();
        let mut found: Vec<(Summary, Standings<i64>)> = Vec::new();
        while let Some(row) = rows.next().map_err(|e| self.error(e))? {
            let text = |i: usize| row.get::<_, String>(i).map_err(|e| self.error(e));
            let (task, device, toolchain) = (text(2)?, text(4)?, text(5)?);
            let id: TaskId = task.parse().map_err(|detail| StoreError::Damaged {
                path: self.path().to_path_buf(),
                detail,
            })?;
            let place =
                *places.entry((task, device.clone(), toolchain.clone())).or_insert(found.len());
            if place == found.len() {
                let (name, untuned, best) = (String::new(), None, None);
                let s = Summary {
                    task: id,
                    name,
                    device,
                    toolchain,
                    trials: 0,
                    failed: 0,
                    untuned,
                    best,
                    last: 0.0,
                    seq: None,
                };
                found.push((s, Standings::default()));
            }
            let (s, group) = &mut found[place];
            let seq: i64 = row.get(0).map_err(|e| self.error(e))?;
            let time: Option<f64> = row.get(8).map_err(|e| self.error(e))?;
            s.name = text(3)?;
            s.last = row.get(9).map_err(|e| self.error(e))?;
            let (candidate, time) = ((text(6)?, text(7)?), time.map(Nanos));
            let kind = RecordKind::named(&text(1)?);
            match kind {
                RecordKind::Rematch | RecordKind::Network => {}
                RecordKind::Untuned => s.untuned = time.or(s.untuned),
                RecordKind::Trial => {
                    s.trials += 1;
                    s.failed += u64::from(time.is_none());
                }
            }
            // What older builds took over may be no time.
            let is_time = time.is_none_or(|t| t.0 > 0.0 && t.0.is_finite());
            let entry = Entry { task: s.task, device: &s.device, candidate: &candidate, time };
            if is_time && accept(entry) {
                group.add(kind, candidate, time, seq);
            }
        }
        Ok(found
            .into_iter()
            .map(|(mut s, group)| {
                if let Some((_, time, seq)) = group.winner() {
                    s.seq = Some(seq);
                    s.best = Some(time);
                }
                s
            })
            .collect())
    }

    /// For each task, device and toolchain among the chosen records, the record with the best
    /// verified time. The baseline counts as a candidate.
    pub fn best(&self, query: &Query) -> Result<Vec<Record>, StoreError> {
        self.best_of(query, &mut |_| true)
    }

    /// The same of the accepted records.
    pub fn best_of(
        &self,
        query: &Query,
        accept: &mut Accept<'_>,
    ) -> Result<Vec<Record>, StoreError> {
        let mut best = Vec::new();
        for seq in self.summaries_of(query, accept)?.into_iter().filter_map(|s| s.seq) {
            let body: String = self
                .connection
                .query_row("SELECT body FROM record WHERE seq = ?1", [seq], |r| r.get(0))
                .map_err(|e| self.error(e))?;
            best.push(self.decode(&body)?);
        }
        Ok(best)
    }
}
