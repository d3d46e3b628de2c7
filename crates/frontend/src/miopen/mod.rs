//! Readers of the files of MIOpen, AMD's library of convolutions, and writers of its databases.
//! Text ([`text`]) and SQLite ([`sqlite`]) databases of tuned kernel parameters and lines of
//! MIOpenDriver ([`driver`]) become problems and examples for the predictors; predictions become
//! rows of a user's database again. Find databases ([`find`]) say which solvers were timed for a
//! problem, and how long they take.
//!
//! The facts about kernels stand in `family/*.toml` ([`families`]): knobs, rules of legality and
//! tuner spaces in the constraint language. Every row is checked against its family; a row that
//! breaks a rule is reported with its line and left out.

mod convolution;
pub mod driver;
mod family;
pub mod find;
mod kernels;
pub mod sqlite;
#[cfg(test)]
mod tests;
pub mod text;

pub use convolution::{Convolution, Device};
pub use family::{families, family};
pub use kernels::{is_problem, kernels};

use crate::error::shown;
use crate::packed::Packing;
use squall_core::forecast::{Example, Family, FamilyError};
use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::path::Path;

/// Why a database cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{name}: {what}; {remedy}")]
pub struct DatabaseError {
    /// The file.
    pub name: String,
    /// What is wrong.
    pub what: String,
    /// What the user can do.
    pub remedy: String,
}

pub(crate) fn fault(
    name: &str,
    what: impl Into<String>,
    remedy: impl Into<String>,
) -> DatabaseError {
    DatabaseError { name: name.into(), what: what.into(), remedy: remedy.into() }
}

/// A row that was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRow {
    /// Its line in a text database, its `id` in a SQLite one.
    pub row: u64,
    /// What is wrong with it.
    pub what: String,
}

/// What a database holds.
#[derive(Debug, Default)]
pub struct Database {
    /// Well-formed rows, in the file's order.
    pub examples: Vec<Example>,
    /// The others.
    pub bad: Vec<BadRow>,
    /// Rows that leave the size of the output open (SQLite, backward with a stride): the larger
    /// one was taken where the stride divides it.
    pub assumed: u64,
}

impl Database {
    /// Well-formed rows of each solver.
    pub fn counts(&self) -> BTreeMap<&str, u64> {
        let mut counts = BTreeMap::new();
        for e in &self.examples {
            *counts.entry(e.problem.solver.as_str()).or_default() += 1;
        }
        counts
    }
}

/// Whether bytes may begin a database: text, SQLite, or an archive of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Lines of text.
    Text,
    /// A SQLite database.
    Sqlite,
}

/// What a file holds, unpacked where it is an archive. A plain SQLite database stays where it is,
/// for others may be writing it.
pub fn unpack(name: &str, bytes: Vec<u8>) -> Result<(Form, Vec<u8>), DatabaseError> {
    let out = match Packing::of(&bytes) {
        Some(packing) => {
            packing.unpack(&bytes).map_err(|(what, remedy)| fault(name, what, remedy))?
        }
        None => bytes,
    };
    let form = if out.starts_with(sqlite::MAGIC) { Form::Sqlite } else { Form::Text };
    Ok((form, out))
}

/// The device that is given, or that the file's name says.
fn device_of(name: &str, path: &Path, device: Option<&str>) -> Result<Device, DatabaseError> {
    match device {
        Some(d) => Device::parse(d)
            .map_err(|what| fault(name, what, "name a device like gfx906 or gfx906_60")),
        None => Device::of_file(path).ok_or_else(|| {
            fault(
                name,
                "the file's name says no device",
                "name it as MIOpen does, gfx906_60.cd.pdb.txt, or give the device: --device \
                 gfx906_60",
            )
        }),
    }
}

/// Reads a database: text, plain or packed by gzip or bzip2, or SQLite, plain or packed. The device
/// is what the file's name says unless one is given.
pub fn read(path: &Path, device: Option<&str>) -> Result<Database, DatabaseError> {
    let name = path.display().to_string();
    let device = device_of(&name, path, device)?;
    let unreadable = |e: std::io::Error| {
        fault(&name, format!("it cannot be read: {e}"), "check the path and that you may read it")
    };
    // Opening a pipe would wait for its other end.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(fault(&name, "this is no file", "save what it gives to a file and name that"));
    }
    let mut head = Vec::new();
    std::fs::File::open(path)
        .and_then(|f| f.take(16).read_to_end(&mut head))
        .map_err(unreadable)?;
    let rows = if head == sqlite::MAGIC {
        sqlite::read_file(&name, path, &device)?
    } else {
        let (form, bytes) = unpack(&name, std::fs::read(path).map_err(unreadable)?)?;
        match form {
            Form::Sqlite => sqlite::read_bytes(&name, &bytes, &device)?,
            Form::Text => {
                let not_text = || {
                    fault(
                        &name,
                        "this is neither a text nor a SQLite database",
                        "give one of MIOpen's performance databases",
                    )
                };
                text::read(&name, std::str::from_utf8(&bytes).map_err(|_| not_text())?, &device)?
            }
        }
    };
    check(rows)
}

/// What a reader found: examples with their rows, and rows that are none.
#[derive(Default)]
pub(crate) struct Rows {
    pub examples: Vec<(u64, Example)>,
    pub bad: Vec<BadRow>,
    pub assumed: u64,
}

/// A row's parameters as numbers.
pub(crate) fn parameters(text: &str) -> Result<Vec<i64>, String> {
    text.split(',')
        .map(|v| v.parse().map_err(|_| format!("`{}` is no list of whole numbers", shown(text))))
        .collect()
}

/// Leaves out what breaks the rules of its family, or has not as many values as its solver's
/// others.
fn check(rows: Rows) -> Result<Database, DatabaseError> {
    let known = families()
        .map_err(|e: FamilyError| fault("squall", e.to_string(), "please report this"))?;
    let known: HashMap<&str, &Family> = known.iter().map(|f| (f.solver(), &**f)).collect();
    let mut widths: HashMap<String, HashMap<usize, usize>> = HashMap::new();
    for (_, e) in
        rows.examples.iter().filter(|(_, e)| !known.contains_key(e.problem.solver.as_str()))
    {
        *widths.entry(e.problem.solver.clone()).or_default().entry(e.values.len()).or_default() +=
            1;
    }
    let usual: HashMap<String, usize> = widths
        .into_iter()
        .filter_map(|(s, w)| Some((s, w.into_iter().map(|(l, n)| (n, l)).max()?.1)))
        .collect();
    let mut out = Database {
        examples: Vec::with_capacity(rows.examples.len()),
        bad: rows.bad,
        assumed: rows.assumed,
    };
    for (row, e) in rows.examples {
        let solver = &e.problem.solver;
        let width = known
            .get(solver.as_str())
            .map_or(usual.get(solver).copied(), |f| Some(f.spec().knobs.len()));
        let what = if width != Some(e.values.len()) {
            format!("{solver} has {} values here, not {}", e.values.len(), width.unwrap_or(0))
        } else {
            match known.get(solver.as_str()).map(|f| f.instance(&e.problem)) {
                Some(Err(why)) => why.to_string(),
                Some(Ok(i)) if !i.is_legal(&e.values) => {
                    format!(
                        "{solver} cannot run with `{}` on this problem",
                        squall_core::forecast::serialised(&e.values)
                    )
                }
                _ => {
                    out.examples.push(e);
                    continue;
                }
            }
        };
        out.bad.push(BadRow { row, what });
    }
    out.bad.sort_by_key(|b| b.row);
    Ok(out)
}
