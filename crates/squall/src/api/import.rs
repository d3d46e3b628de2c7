//! Importing: what others measured or tuned, taken into the store.

use crate::base::error::Error;
use crate::base::files::holds_json;
use crate::predict::{find, forecast};
use crate::task::exchange;
use squall_records::Store;
use std::path::PathBuf;

/// What to import.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportRequest {
    /// Recordings, descriptions of their spaces, databases of tuned parameters; told apart by what
    /// is in them.
    pub files: Vec<PathBuf>,
    /// The device that databases are for, where their names do not say.
    pub device: Option<String>,
    /// The store that takes them.
    pub store: PathBuf,
}

/// What came of an import.
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
