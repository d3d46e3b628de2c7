//! The verb behind `squall import`: takes measurements of other tuners into a store. A file may be
//! a recording (Kernel Tuner's cache file, T4 results), a T1 description, a performance database of
//! MIOpen or a find database; its contents decide. Trials, examples of predictors and lines for
//! choosers come of them.

use crate::base::error::Error;
use crate::base::files::holds_json;
use crate::predict::{find, forecast};
use crate::task::exchange;
use squall_records::Store;
use std::path::PathBuf;

/// Files to import.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportRequest {
    /// Recordings, descriptions of their spaces, databases of tuned parameters; their contents tell
    /// them apart.
    pub files: Vec<PathBuf>,
    /// The device of databases whose names do not say it.
    pub device: Option<String>,
    /// The store that takes them.
    pub store: PathBuf,
}

/// The result of an import, by kind of file.
pub struct Imports {
    /// Recordings, whose configurations are trials now.
    pub recordings: Vec<exchange::Imported>,
    /// Databases, whose rows are examples now.
    pub databases: Vec<forecast::Imported>,
    /// Find databases, whose lines a chooser learns from.
    pub find: Vec<find::FindImported>,
}

/// Takes files into a store; all are read before any recording is stored.
pub fn import(request: &ImportRequest) -> Result<Imports, Error> {
    let (recordings, databases): (Vec<_>, Vec<_>) =
        request.files.iter().cloned().partition(|f| holds_json(f));
    let recordings = exchange::read(&recordings)?;
    let device = request.device.as_deref();
    let (mut found, mut tuned) = (Vec::new(), Vec::new());
    for file in databases {
        match find::open(&file, device)? {
            Some(database) => found.push((file, database)),
            None => tuned.push(file),
        }
    }
    let databases = tuned;
    let databases = match databases.as_slice() {
        [] => Vec::new(),
        files => forecast::import(&request.store, files, device)?,
    };
    let recordings = match recordings.as_slice() {
        [] => Vec::new(),
        all => {
            let store = Store::open(&request.store)?;
            let take = |(stem, r): &(String, _)| exchange::import(r, stem, &store);
            all.iter().map(take).collect::<Result<_, Error>>()?
        }
    };
    let take = |(file, database)| find::import(&request.store, file, database);
    let find = found.into_iter().map(take).collect::<Result<_, Error>>()?;
    Ok(Imports { recordings, databases, find })
}
