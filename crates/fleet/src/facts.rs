//! Moves records (trials and their results) between a store and a fleet's server. Sending the same
//! records twice changes nothing, because a record is identified by what was tried. A pull asks for
//! records since the last one, with an overlap for transactions that commit late.

use crate::connection::Fleet;
use crate::error::FleetError;
use squall_core::{
    CpuCost, DeviceIdentity, FailStage, Measurement, Nanos, Outcome, Record, RecordKind, TaskId,
};
use std::collections::HashMap;
use std::time::{Duration, SystemTime};
use tokio_postgres::Row;

/// A pull begins this long before the mark of the last one. Commits overtake each other, so a
/// record that was being written during the last pull may be dated before its mark; records that
/// are known already cost little.
const OVERLAP: Duration = Duration::from_secs(120);

const KINDS: [RecordKind; 4] =
    [RecordKind::Trial, RecordKind::Untuned, RecordKind::Rematch, RecordKind::Network];
/// The stages of failures, in the order of their numbers, from 2.
const STAGES: [FailStage; 4] =
    [FailStage::Build, FailStage::Launch, FailStage::Timeout, FailStage::WrongAnswer];

/// How far a task's records were pulled, by the server's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark(Option<SystemTime>);

/// The columns of records of one task, as the server's function takes them.
#[derive(Default)]
struct Columns {
    identities: Vec<Vec<u8>>,
    kinds: Vec<i16>,
    outcomes: Vec<i16>,
    tunables: Vec<String>,
    configurations: Vec<String>,
    samples: Vec<Option<Vec<u8>>>,
    details: Vec<Option<String>>,
    dates: Vec<f64>,
    seeds: Vec<i64>,
    calls: Vec<Option<i64>>,
    errors: Vec<Option<f64>>,
    paces: Vec<Option<f64>>,
    costs: [Vec<f64>; 3],
}

/// What a GPU adds to a measurement stands in `detail`, behind this mark.
const GPU: char = '\u{1}';

impl Columns {
    fn add(&mut self, r: &Record) -> Result<(), FleetError> {
        let identity = r.identity();
        let bytes = identity.as_bytes().chunks(2).map(|pair| {
            std::str::from_utf8(pair).ok().and_then(|t| u8::from_str_radix(t, 16).ok())
        });
        let bytes: Option<Vec<u8>> = bytes.collect();
        self.identities.push(bytes.ok_or(FleetError::Record(identity))?);
        let kind = KINDS.iter().position(|k| *k == r.kind).unwrap_or(0);
        self.kinds.push(kind as i16);
        let (mut samples, mut calls, mut error, mut pace) = (None, None, None, None);
        let (outcome, detail) = match &r.outcome {
            Outcome::Measured(m) => {
                samples = Some(m.samples.iter().flat_map(|s| s.0.to_le_bytes()).collect());
                (calls, error, pace) = (Some(m.calls as i64), Some(m.error), m.pace);
                let gpu = m.gpu.as_ref().map(serde_json::to_string).transpose();
                let gpu = gpu.map_err(|e| FleetError::Record(e.to_string()))?;
                (0, gpu.map(|text| format!("{GPU}{text}")))
            }
            Outcome::Right { .. } => {
                return Err(FleetError::Record(format!("{} is of an emulator", r.name)));
            }
            Outcome::Infeasible(why) => (1, Some(why.clone())),
            Outcome::Failed { stage, detail } => {
                let stage = STAGES.iter().position(|s| s == stage).unwrap_or(0);
                (2 + stage as i16, Some(detail.clone()))
            }
        };
        self.outcomes.push(outcome);
        // PostgreSQL's texts hold no zero bytes.
        self.details.push(detail.map(|d| d.replace('\0', "\u{fffd}")));
        self.samples.push(samples);
        self.calls.push(calls);
        self.errors.push(error);
        self.paces.push(pace);
        self.tunables.push(r.tunable.clone());
        self.configurations.push(r.configuration.clone());
        self.dates.push(r.time);
        self.seeds.push(r.seed as i64);
        for (column, cost) in
            self.costs.iter_mut().zip([r.cost.build, r.cost.measure, r.cost.search])
        {
            column.push(cost);
        }
        Ok(())
    }
}

impl Fleet {
    /// Sends records, each of a class that `class_of` numbers; how many the server did not have.
    /// Records that were sent before change nothing.
    pub fn ship(&mut self, worker: i32, class: i32, records: &[Record]) -> Result<u64, FleetError> {
        let mut tasks: Vec<TaskId> = records.iter().map(|r| r.task).collect();
        tasks.sort_unstable();
        tasks.dedup();
        let mut new = 0;
        for task in tasks {
            let mut columns = Columns::default();
            // What was right under an emulator says nothing of a class of machines.
            let is_shared =
                |r: &&Record| r.task == task && !matches!(r.outcome, Outcome::Right { .. });
            let of_task: Vec<&Record> = records.iter().filter(is_shared).collect();
            for r in &of_task {
                columns.add(r)?;
            }
            let Some(first) = of_task.first() else { continue };
            new += self.ship_task(worker, class, first, &columns)?;
        }
        Ok(new)
    }

    fn ship_task(
        &mut self,
        worker: i32,
        class: i32,
        first: &Record,
        c: &Columns,
    ) -> Result<u64, FleetError> {
        let sql = "SELECT squall.ship($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, \
                   $15, $16, $17, $18, $19, $20)";
        let task = first.task.number() as i64;
        let [builds, measures, searches] = &c.costs;
        self.client
            .query_one(
                sql,
                &[
                    &worker,
                    &class,
                    &task,
                    &first.name,
                    &first.workload,
                    &c.identities,
                    &c.kinds,
                    &c.outcomes,
                    &c.tunables,
                    &c.configurations,
                    &c.samples,
                    &c.details,
                    &c.dates,
                    &c.seeds,
                    &c.calls,
                    &c.errors,
                    &c.paces,
                    builds,
                    measures,
                    searches,
                ],
            )
            .map(|row| row.get::<_, i64>(0) as u64)
            .map_err(|e| self.error(&e))
    }

    /// The records of a task and a class that arrived since a mark, and the next mark. Some were
    /// pulled before.
    pub fn pull(
        &mut self,
        task: TaskId,
        class: i32,
        since: Mark,
    ) -> Result<(Vec<Record>, Mark), FleetError> {
        let from = since.0.map(|m| m - OVERLAP).unwrap_or(SystemTime::UNIX_EPOCH);
        let next = self.client.query_one("SELECT clock_timestamp()", &[]);
        let next: SystemTime = next.map_err(|e| self.error(&e))?.get(0);
        let condition = "r.task = $1 AND r.class = $2 AND r.arrived >= $3";
        let task = task.number() as i64;
        let records = self.records(condition, &[&task, &class, &from], false)?;
        Ok((records.into_iter().map(|(_, r)| r).collect(), Mark(Some(next))))
    }

    /// Every record of the fleet whose task's name matches (`*` and `?` stand for anything). Of
    /// several machines of one name, the one whose present run is `boot`, else the first one, has
    /// the bare name; the others' devices have their numbers ([`DeviceIdentity::numbered`]).
    pub fn all_records(&mut self, name: &str, boot: &str) -> Result<Vec<Record>, FleetError> {
        let escaped: String = name
            .chars()
            .flat_map(|c| match c {
                '*' => vec!['%'],
                '?' => vec!['_'],
                '%' | '_' | '\\' => vec!['\\', c],
                c => vec![c],
            })
            .collect();
        let mut records = self.records("t.name LIKE $1", &[&escaped], true)?;
        let numbered = self.numbered_devices(boot)?;
        for (class, r) in &mut records {
            if let Some(device) = numbered.get(class) {
                r.device.clone_from(device);
            }
        }
        Ok(records.into_iter().map(|(_, r)| r).collect())
    }

    /// The devices of classes that have no bare name where a machine looks, by class.
    fn numbered_devices(&mut self, boot: &str) -> Result<HashMap<i32, String>, FleetError> {
        let sql = "SELECT k.id, k.device, k.variant, bool_or(m.class = k.id) FROM squall.class k \
                   LEFT JOIN squall.machine m ON m.boot = $1 AND m.device = k.device AND \
                   m.toolchain = k.toolchain GROUP BY k.id, k.device, k.variant";
        let rows = self.client.query(sql, &[&boot]).map_err(|e| self.error(&e))?;
        let numbered = |r: &Row| {
            let (device, variant): (String, i32) = (r.get(1), r.get(2));
            let is_bare = r.get::<_, Option<bool>>(3).unwrap_or(variant == 1);
            let name = || DeviceIdentity::parse(&device).numbered(variant).to_string();
            (!is_bare).then(|| (r.get(0), name()))
        };
        Ok(rows.iter().filter_map(numbered).collect())
    }

    /// Records and their classes, each under its device's bare name.
    fn records(
        &mut self,
        condition: &str,
        values: &[&(dyn tokio_postgres::types::ToSql + Sync)],
        are_many: bool,
    ) -> Result<Vec<(i32, Record)>, FleetError> {
        let sql = format!(
            "SELECT r.kind, r.task, t.name, t.workload, k.device, k.toolchain, u.name, \
             r.configuration, r.outcome, r.samples, r.detail, r.recorded, r.seed, r.calls, \
             r.error, r.pace, r.build, r.measure, r.search, r.class FROM squall.record r JOIN \
             squall.task t ON t.id = r.task JOIN squall.class k ON k.id = r.class JOIN \
             squall.tunable u ON u.id = r.tunable WHERE {condition} ORDER BY r.recorded, r.identity"
        );
        let rows = match are_many {
            true => self.client.with_much_patience(|client| client.query(&sql, values)),
            false => self.client.query(&sql, values),
        };
        let rows = rows.map_err(|e| self.error(&e))?;
        let one = |row: &Row| record(row).map(|r| (row.get(19), r)).map_err(FleetError::Record);
        rows.iter().map(one).collect()
    }
}

/// A record of a row; what another program wrote there may be none.
fn record(row: &Row) -> Result<Record, String> {
    let text = |i: usize| row.try_get::<_, String>(i).map_err(|e| e.to_string());
    let float = |i: usize| row.try_get::<_, f64>(i).map_err(|e| e.to_string());
    let whole = |i: usize| row.try_get::<_, i64>(i).map_err(|e| e.to_string());
    let short = |i: usize| row.try_get::<_, i16>(i).map_err(|e| e.to_string());
    let detail: Option<String> = row.try_get(10).map_err(|e| e.to_string())?;
    let outcome = match short(8)? {
        0 => {
            let bytes: Option<Vec<u8>> = row.try_get(9).map_err(|e| e.to_string())?;
            let bytes = bytes.unwrap_or_default();
            let samples = bytes.chunks_exact(8).map(|c| {
                let mut eight = [0; 8];
                eight.copy_from_slice(c);
                Nanos(f64::from_le_bytes(eight))
            });
            let gpu = match detail.as_deref().and_then(|d| d.strip_prefix(GPU)) {
                Some(json) => Some(serde_json::from_str(json).map_err(|e| e.to_string())?),
                None => None,
            };
            let pace = row.try_get(15).map_err(|e| e.to_string())?;
            Outcome::Measured(Measurement {
                samples: samples.collect(),
                calls: whole(13)? as u64,
                error: float(14)?,
                gpu,
                pace,
            })
        }
        1 => Outcome::Infeasible(detail.unwrap_or_default()),
        n => {
            let stage = usize::try_from(n - 2).ok().and_then(|n| STAGES.get(n));
            let stage = *stage.ok_or_else(|| format!("outcome {n}"))?;
            Outcome::Failed { stage, detail: detail.unwrap_or_default() }
        }
    };
    let kind = usize::try_from(short(0)?).ok().and_then(|n| KINDS.get(n).copied());
    Ok(Record {
        kind: kind.ok_or("an unknown kind")?,
        task: format!("{:016x}", whole(1)? as u64).parse()?,
        name: text(2)?,
        workload: text(3)?,
        device: text(4)?,
        toolchain: text(5)?,
        tunable: text(6)?,
        configuration: text(7)?,
        outcome,
        cost: CpuCost { build: float(16)?, measure: float(17)?, search: float(18)? },
        seed: whole(12)? as u64,
        time: float(11)?,
    })
}
