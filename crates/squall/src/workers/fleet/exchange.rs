//! Moves records between a store (a file of trials) and a fleet's server: [`push`] sends a store's
//! records, [`pull`] merges the server's into a store as `squall records merge` does between
//! stores, and [`pull_and_check`] then measures each winner that is new to the store against its
//! runner-up on this machine. `squall fleet push` and `pull` call this.

use super::Fleet;
use super::class::this_boot;
use crate::base::error::Error;
use crate::decide::verify::{Choice, Verified, verify};
use crate::target::target_context::Context;
use squall_core::{Record, TaskId};
use squall_fleet::WorkerName;
use squall_records::{Query, Store, Taken};
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// How many records were moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Records that the other side did not have.
    pub new: u64,
    /// Records in all.
    pub all: u64,
}

/// The server's records of the tasks whose names match, as a store in memory.
pub fn fetch(server: &str, name: &str) -> Result<Store, Error> {
    let records = Fleet::connect(server)?.all_records(name, &this_boot())?;
    Ok(Store::of_records(server, records)?)
}

/// Which records are taken from a server, and where to.
#[derive(Clone, Copy, Debug)]
pub struct PullRequest<'a> {
    /// The server.
    pub server: &'a str,
    /// Records of tasks whose name matches.
    pub name: &'a str,
    /// The store's file.
    pub store: &'a Path,
}

/// Takes the fleet's records of tasks whose name matches into a store, without those that cannot
/// be right.
pub fn pull(from: PullRequest<'_>) -> Result<Taken, Error> {
    let fetched = fetch(from.server, from.name)?;
    Ok(Store::open(from.store)?.merge(&fetched)?)
}

/// The result of a pull whose new winners were measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PulledAndChecked {
    /// The records.
    pub taken: Taken,
    /// The tasks that others' candidates hold now, measured again here.
    pub checked: Vec<Verified>,
}

/// Does the same, and then measures each new winner against its runner-up on this machine, so that
/// a winner falls whose time was a lie or comes from a machine of another kind. Only tasks with
/// records of the target that `choice` names are measured.
pub fn pull_and_check(
    context: &Context,
    from: PullRequest<'_>,
    choice: &Choice,
    stop: &AtomicBool,
    heard: &mut dyn FnMut(&Verified),
) -> Result<PulledAndChecked, Error> {
    let fetched = fetch(from.server, from.name)?;
    let store = Store::open(from.store)?;
    let place = context.target(choice.target, choice.threads)?.place;
    let holders = |store: &Store| -> Result<HashMap<TaskId, (String, String)>, Error> {
        let held = store.best(&place.records())?.into_iter();
        Ok(held.map(|r| (r.task, (r.tunable, r.configuration))).collect())
    };
    let before = holders(&store)?;
    let mut done = PulledAndChecked { taken: store.merge(&fetched)?, checked: Vec::new() };
    let now = holders(&store)?;
    for (task, _) in now.iter().filter(|(task, winner)| before.get(task) != Some(*winner)) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let one = Choice { task: Some(*task), only: None, ..choice.clone() };
        done.checked.extend(verify(context, &store, &one, stop, heard)?.tasks);
    }
    Ok(done)
}

/// Sends a store's records of tasks whose name matches to the fleet.
pub fn push(server: &str, name: &str, store: &Path) -> Result<Moved, Error> {
    let query = Query { name: Some(name.into()), ..Query::default() };
    let records = Store::open_read_only(store)?.query(&query)?;
    let mut fleet = Fleet::connect(server)?;
    let mut moved = Moved { new: 0, all: records.len() as u64 };
    for (device, toolchain) in places(&records) {
        let class = fleet.class_of_records(&this_boot(), device, toolchain)?;
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
