//! Choosers of MIOpen's solvers (a solver is one way to compute a convolution on an AMD GPU).
//! Input: find databases, MIOpen's lists of timed solvers for each problem. [`import`] takes them
//! into the store, [`train`] fits a chooser to them, [`choose`](crate::choose) answers with a
//! ranked list of solvers for a new problem, and [`modes`] compares the total cost of finding and
//! running under MIOpen's find modes and under ours (docs/solver-choice.md).

mod measure;
pub mod modes;
pub(crate) mod modes_page;
mod user_database;

pub use measure::{Timings, timings};
pub use user_database::write;

use crate::base::error::Error;
use squall_core::find::FindTable;
use squall_frontend::miopen::find::{FindDatabase, TableBuilder, read};
use squall_predict::FileError;
use squall_predict::find::{Chooser, FindStep, FindTraining, train as train_chooser};
use squall_records::{FindAdded, Store};
use std::io::Read;
use std::path::{Path, PathBuf};

/// A find database that was imported.
pub struct FindImported {
    /// The file.
    pub file: PathBuf,
    /// What the file holds, without its lines, which are in the store.
    pub database: FindDatabase,
    /// How many lines were new, changed or known to the store.
    pub added: FindAdded,
}

/// Reads a file, if it is a find database.
pub fn open(file: &Path, device: Option<&str>) -> Result<Option<FindDatabase>, Error> {
    Ok(read(file, device)?)
}

/// Puts a database's lines into a store.
pub fn import(
    store: &Path,
    file: PathBuf,
    mut database: FindDatabase,
) -> Result<FindImported, Error> {
    let store = Store::open(store)?;
    let lines = std::mem::take(&mut database.lines);
    let origin = file.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    let entries = |line: &str| line.bytes().filter(|b| *b == b';').count() as u64 + 1;
    let added = store.add_find_lines(&database.device, &origin, &lines, &entries)?;
    Ok(FindImported { file, database, added })
}

/// The find tables of a store: of a device, or of all.
pub fn tables(store: &Path, device: Option<&str>) -> Result<Vec<FindTable>, Error> {
    let store = Store::open_read_only(store)?;
    let known = store.find_devices()?;
    let mut all = Vec::new();
    for (name, _) in known.iter().filter(|(n, _)| device.is_none_or(|d| d == n)) {
        let mut table = TableBuilder::new(name);
        for line in store.find_lines(name)? {
            table.add(&line);
        }
        all.push(table.finish());
    }
    if all.iter().all(|t| t.problems.is_empty()) {
        let names: Vec<&str> = known.iter().map(|(n, _)| n.as_str()).collect();
        let known = match names.as_slice() {
            [] => {
                "it holds none: `squall import FILE.fdb.txt --store STORE` takes them over".into()
            }
            some => format!("it has those of {}", some.join(", ")),
        };
        return Err(Error::Nothing(format!(
            "no find database in `{}` is of that device; {known}",
            store.path().display()
        )));
    }
    Ok(all)
}

/// Trains a chooser on a store's find databases and writes its file, as a whole or not at all.
/// Nothing is written where `go_on` says no.
pub fn train(
    store: &Path,
    device: Option<&str>,
    request: &FindTraining,
    out: &Path,
    go_on: &(dyn Fn() -> bool + Sync),
    progress: &mut dyn FnMut(FindStep<'_>),
) -> Result<Option<Chooser>, Error> {
    let all = tables(store, device)?;
    if let Some(odd) = request.left_out.iter().find(|d| all.iter().all(|t| t.device != **d)) {
        return Err(Error::Usage {
            message: format!("`{odd}` is to be left out, and the store has nothing of it"),
            hint: format!(
                "it has {}",
                all.iter().map(|t| t.device.as_str()).collect::<Vec<_>>().join(", ")
            ),
        });
    }
    if all.iter().all(|t| request.left_out.contains(&t.device)) {
        return Err(Error::Nothing("every GPU of the store is left out: nothing remains".into()));
    }
    let Some(chooser) = train_chooser(all, request, go_on, progress) else { return Ok(None) };
    let failed = |e| Error::Predictor { path: out.into(), source: Box::new(e) };
    chooser.save(out).map_err(failed)?;
    Ok(Some(chooser))
}

/// Reads a chooser's file.
pub fn load(path: &Path) -> Result<Chooser, Error> {
    let failed = |e: FileError| Error::Predictor { path: path.into(), source: Box::new(e) };
    Chooser::load(path).map_err(failed)
}

/// Whether a file is a chooser's, as far as its first bytes say.
pub fn is_chooser(path: &Path) -> bool {
    let mut head = Vec::new();
    let Ok(file) = crate::base::files::open(path) else { return false };
    file.take(8).read_to_end(&mut head).is_ok() && Chooser::is_chooser(&head)
}
