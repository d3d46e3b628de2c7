//! Tuning databases in, predictions out: [`import`] takes MIOpen's databases into the store,
//! [`families`] says what is known of the solvers in it, [`questions`] reads the problems that somebody
//! asks about, and [`write`] puts answers into a user database.

mod user_database;

pub use user_database::{Row, write};

use crate::error::Error;
use squall_core::forecast::{Example, Family, FamilyError};
use squall_frontend::miopen::{self, Convolution, Database, driver};
use squall_records::Store;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A database that was taken over.
pub struct Imported {
    /// The file.
    pub file: PathBuf,
    /// What it holds.
    pub database: Database,
    /// Examples that the store did not have.
    pub new: u64,
    /// Examples that it had.
    pub known: u64,
}

/// Reads databases, and when all of them read, adds their examples to a store. The device is what a
/// file's name says unless one is given.
pub fn import(store: &Path, files: &[PathBuf], device: Option<&str>) -> Result<Vec<Imported>, Error> {
    let read = |f: &PathBuf| Ok((f.clone(), miopen::read(f, device)?));
    let databases: Vec<(PathBuf, Database)> = files.iter().map(read).collect::<Result<_, Error>>()?;
    let store = Store::open(store)?;
    let take = |(file, database): (PathBuf, Database)| {
        let (new, known) = store.add_examples(&database.examples)?;
        Ok(Imported { file, database, new, known })
    };
    databases.into_iter().map(take).collect()
}

/// The families of the solvers in `examples`: known ones, and of the others what their examples show.
pub fn families(examples: &[Example]) -> Result<Vec<Arc<Family>>, FamilyError> {
    let mut all = miopen::families()?;
    let mut others: BTreeMap<&str, Vec<&Example>> = BTreeMap::new();
    for e in examples.iter().filter(|e| all.iter().all(|f| f.solver() != e.problem.solver)) {
        others.entry(&e.problem.solver).or_default().push(e);
    }
    for (solver, examples) in others {
        all.push(Arc::new(Family::learned(solver, &examples)?.0));
    }
    Ok(all)
}

/// A problem that somebody asks about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The line it stands in.
    pub line: usize,
    /// The problem.
    pub convolution: Convolution,
}

/// Reads problems, one a line: a database key, a row of a text database, or a MIOpenDriver line,
/// which asks for each direction. Empty lines and those that begin with `#` are passed over.
pub fn questions(name: &str, text: &str) -> Result<Vec<Question>, Error> {
    let mut all = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let found = if driver::is_driver_line(line) {
            driver::read(line)
        } else {
            Convolution::parse(line.split('=').next().unwrap_or(line).trim()).map(|c| vec![c])
        };
        let fault = |message: String| Error::Input {
            place: format!("{name}:{}", i + 1),
            message,
            hint: "a line is a database key like 256-56-56-1x1-128-56-56-64-0x0-1x1-1x1-0-NCHW-FP16-F, or a MIOpenDriver line".into(),
        };
        all.extend(found.map_err(fault)?.into_iter().map(|convolution| Question { line: i + 1, convolution }));
    }
    if all.is_empty() {
        return Err(Error::Nothing(format!("{name}: there is no problem in it")));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_keys_rows_and_driver_lines() {
        let key = "256-56-56-1x1-128-56-56-64-0x0-1x1-1x1-0-NCHW-FP16-F";
        let text = format!("# mine\n{key}\n\n{key}=A:1,2\n./MIOpenDriver conv -F 3 -H 8 -W 8\n");
        let all = questions("f", &text).unwrap();
        assert_eq!(all.iter().map(|q| q.line).collect::<Vec<_>>(), [2, 4, 5, 5]);
        assert_eq!(all[1].convolution.key(), key);
        let e = questions("f", &format!("{key}\n{key}x\n")).unwrap_err().to_string();
        assert!(e.starts_with("f:2: "), "{e}");
        assert!(questions("f", "# nothing\n").is_err());
    }
}
