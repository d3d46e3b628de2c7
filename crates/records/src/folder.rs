//! A folder as a store, for processes that share no server: each process writes lines of records
//! ([`wire`]) into a file of its own, and reads the files of all others when it opens the folder.
//!
//! No file ever has two writers, and lines are only appended, so the folder may lie on a network's
//! disk, where SQLite's locks cannot be trusted. The records that a process has read are held in
//! memory as a store of the usual form, so every question is answered as by a file. A process that
//! was killed leaves whole lines and at most one unfinished line, which readers pass over.

use crate::check::fault;
use crate::error::StoreError;
use crate::own_file::{OwnFile, STORES, files_of};
use crate::store::Store;
use crate::wire;
use squall_core::Record;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// The longest line of a stranger's file that may hold a record.
const LONGEST_LINE: u64 = 64 << 20;

impl Store {
    /// Opens a folder: all that its files hold, and where `writes`, a file of this process's own.
    pub(crate) fn open_folder(path: &Path, writes: bool) -> Result<Store, StoreError> {
        let own = if writes { Some(OwnFile::create(path)?) } else { None };
        let store = Store::in_memory(path)?;
        let mut files = files_of(path)?;
        // The same folder gives the same order of records everywhere.
        files.sort();
        let mut read = 0;
        for file in files.iter().filter(|f| own.as_ref().is_none_or(|o| o.path != **f)) {
            read += store.take_file(file)?;
        }
        if !writes && read == 0 {
            return Err(StoreError::Empty { path: path.into() });
        }
        Ok(store.with_own(own))
    }

    /// Records as a store in memory, under a name for messages; without those that cannot be right.
    pub fn of_records(
        name: impl AsRef<Path>,
        records: impl IntoIterator<Item = Record>,
    ) -> Result<Store, StoreError> {
        let store = Store::in_memory(name.as_ref())?;
        store.append_merged(records.into_iter().map(Ok))?;
        Ok(store)
    }

    /// Takes over what one file of a folder holds; how many records it has.
    fn take_file(&self, file: &Path) -> Result<u64, StoreError> {
        if file.extension().is_some_and(|e| e == STORES) {
            return match Store::open_read_only(file) {
                Ok(other) => self.merge(&other).map(|t| t.new + t.known),
                // Another process is making it.
                Err(StoreError::Empty { .. }) => Ok(0),
                Err(e) => Err(e),
            };
        }
        let fail =
            |e: std::io::Error| StoreError::Open { path: file.into(), detail: e.to_string() };
        let mut lines = BufReader::new(File::open(file).map_err(fail)?);
        let mut records: Vec<Record> = Vec::new();
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            let length = Read::by_ref(&mut lines)
                .take(LONGEST_LINE)
                .read_until(b'\n', &mut line)
                .map_err(fail)?;
            // What has no end is being written, or was when its process died.
            if length == 0 || (length as u64) < LONGEST_LINE && line.last() != Some(&b'\n') {
                break;
            }
            let read = std::str::from_utf8(&line).map_err(|e| e.to_string()).and_then(|text| {
                let record = wire::decode(text)?;
                fault(&record).map_or(Ok(record), Err)
            });
            let wrong = |detail| StoreError::FolderLine { path: file.into(), line: number, detail };
            records.push(read.map_err(wrong)?);
        }
        self.append_merged(records.into_iter().map(Ok)).map(|t| t.new + t.known)
    }
}
