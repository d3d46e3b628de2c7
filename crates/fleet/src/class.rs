//! Classes of a fleet: sets of devices among which measured times compare. A device's name is not
//! enough, since two rented machines of one name are not one device; measured rates decide, too.
//! Input: a device's [`Fingerprint`]; output: the number of its class. A machine keeps its class
//! until it is booted again, however busy it is when it is asked later.

use crate::connection::Fleet;
use crate::error::FleetError;
use serde::Serialize;
use squall_core::DeviceIdentity;
use std::collections::BTreeMap;

/// The properties of a device that its name does not tell.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Fingerprint {
    /// Properties that all machines of a class share, by name: caches, instructions.
    pub facts: BTreeMap<String, String>,
    /// What was measured, by name, all positive: `peak` in FLOP/s, `calibration` in FLOP/s of a
    /// generated kernel, `read LEVEL` in bytes/s. The first two are like within a tenth, the others
    /// within a quarter.
    pub rates: BTreeMap<String, f64>,
}

/// A device of a machine.
#[derive(Clone, Copy, Debug)]
pub struct DeviceOfMachine<'a> {
    /// The id of the machine's present boot.
    pub boot: &'a str,
    /// The device's name.
    pub device: &'a str,
    /// The toolchain's name.
    pub toolchain: &'a str,
}

impl Fleet {
    /// The class that a device was given since its machine started; none where it has none yet.
    pub fn class_since_boot(&mut self, d: DeviceOfMachine) -> Result<Option<i32>, FleetError> {
        let sql = "SELECT class FROM squall.machine WHERE boot = $1 AND device = $2 AND toolchain \
                   = $3";
        let row = self.client.query_opt(sql, &[&d.boot, &d.device, &d.toolchain]);
        row.map(|r| r.map(|r| r.get(0))).map_err(|e| self.error(&e))
    }

    /// The class of a device: the one that it has, else the first of its name that is like it, else
    /// a new one.
    pub fn class(
        &mut self,
        d: DeviceOfMachine,
        fingerprint: &Fingerprint,
    ) -> Result<i32, FleetError> {
        let text = |v: serde_json::Result<String>| v.unwrap_or_default();
        let facts = text(serde_json::to_string(&fingerprint.facts));
        let rates = text(serde_json::to_string(&fingerprint.rates));
        let sql = "SELECT squall.class_of($1, $2, $3, $4::text::jsonb, $5::text::jsonb)";
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
            [&d.boot, &d.device, &d.toolchain, &facts, &rates];
        self.client.query_one(sql, &values).map(|r| r.get(0)).map_err(|e| self.error(&e))
    }

    /// The class of records that came from somewhere: that of the numbered machine where the device
    /// names one, that of the machine whose present run is `boot` where it has one, else the first
    /// of that name.
    pub fn class_of_records(
        &mut self,
        boot: &str,
        device: &str,
        toolchain: &str,
    ) -> Result<i32, FleetError> {
        if let Some((bare, number)) = DeviceIdentity::parse(device).number() {
            let sql = "SELECT id FROM squall.class WHERE device = $1 AND toolchain = $2 AND \
                       variant = $3";
            let row = self.client.query_opt(sql, &[&bare.to_string(), &toolchain, &number]);
            if let Some(row) = row.map_err(|e| self.error(&e))? {
                return Ok(row.get(0));
            }
        }
        if let Some(own) = self.class_since_boot(DeviceOfMachine { boot, device, toolchain })? {
            return Ok(own);
        }
        let sql = "SELECT squall.class_of(NULL, $1, $2, NULL, NULL)";
        let row = self.client.query_one(sql, &[&device, &toolchain]);
        row.map(|r| r.get(0)).map_err(|e| self.error(&e))
    }

    /// Whether a worker's class has slices that no worker holds, as it has while others work on
    /// their tasks; a worker that is drained is told of none.
    pub fn is_work_left(&mut self, worker: i32, class: i32) -> Result<bool, FleetError> {
        let sql = "SELECT EXISTS (SELECT FROM squall.slice WHERE class = $2 AND state = 'ready') \
                   AND NOT (SELECT draining FROM squall.worker WHERE id = $1)";
        let row = self.client.query_one(sql, &[&worker, &class]);
        row.map(|r| r.get(0)).map_err(|e| self.error(&e))
    }

    /// The other classes that have work now, while this one has none: numbers and names.
    pub fn work_of_others(&mut self, class: i32) -> Result<Vec<(i32, String)>, FleetError> {
        let sql = "SELECT DISTINCT c.id, c.device FROM squall.slice s JOIN squall.class c ON c.id \
                   = s.class WHERE s.state = 'ready' AND s.class <> $1 ORDER BY c.id";
        let rows = self.client.query(sql, &[&class]).map_err(|e| self.error(&e))?;
        Ok(rows.iter().map(|r| (r.get(0), r.get(1))).collect())
    }
}
