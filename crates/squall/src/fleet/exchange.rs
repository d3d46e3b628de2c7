//! Records between stores and a server, as `records merge` moves them between stores.

use super::Fleet;
use crate::error::Error;
use squall_core::Record;
use squall_fleet::WorkerName;
use squall_records::{Query, Store, Taken};
use std::path::Path;

/// What was moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Records that the other side did not have.
    pub new: u64,
    /// Records in all.
    pub all: u64,
}

/// The fleet's records of tasks whose name matches, as a store in memory.
pub fn fetch(server: &str, name: &str) -> Result<Store, Error> {
    let records = Fleet::connect(server)?.all_records(name)?;
    Ok(Store::of_records(server, records)?)
}

/// Takes the fleet's records of tasks whose name matches into a store, without those that cannot
/// be right.
pub fn pull(server: &str, name: &str, store: &Path) -> Result<Taken, Error> {
    let fetched = fetch(server, name)?;
    Ok(Store::open(store)?.merge(&fetched)?)
}

/// Sends a store's records of tasks whose name matches to the fleet.
pub fn push(server: &str, name: &str, store: &Path) -> Result<Moved, Error> {
    let query = Query { name: Some(name.into()), ..Query::default() };
    let records = Store::open_read_only(store)?.query(&query)?;
    let mut fleet = Fleet::connect(server)?;
    let mut moved = Moved { new: 0, all: records.len() as u64 };
    for (device, toolchain) in places(&records) {
        let class = fleet.class(device, toolchain, None)?;
        let name = WorkerName(format!("push:{}", super::work::process_name()));
        let worker = fleet.join(name, class, env!("CARGO_PKG_VERSION"))?;
        let here: Vec<Record> = records
            .iter()
            .filter(|r| r.device == *device && r.toolchain == *toolchain)
            .cloned()
            .collect();
        moved.new += fleet.ship(worker.id, class, &here)?;
    }
    Ok(moved)
}

/// The devices and toolchains of records.
fn places(records: &[Record]) -> Vec<(&str, &str)> {
    let mut all: Vec<(&str, &str)> =
        records.iter().map(|r| (r.device.as_str(), r.toolchain.as_str())).collect();
    all.sort_unstable();
    all.dedup();
    all
}
