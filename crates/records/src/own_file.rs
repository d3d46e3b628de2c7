//! The file of lines that one process writes in a folder of records (`folder.rs`): created under a
//! name that no other process has, flushed once a transaction, and written anew elsewhere where the
//! folder went away. The list of files that such a folder holds is here, too.

use crate::error::StoreError;
use crate::wait::identity;
use std::cell::{Cell, RefCell};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The ending of files of lines in a folder, both of processes and of users who put files there.
const LINES: &str = "jsonl";
/// The ending of stores in a folder, which are only read.
pub(crate) const STORES: &str = "squall";

/// Whether a path names a folder of records: it says so by a slash at its end, or it is a folder in
/// which records lie, or nothing. Other folders are no stores: a mistyped path should not fill one.
pub(crate) fn is_folder(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().ends_with(b"/")
        || path.is_dir()
            && (files_of(path).is_ok_and(|files| !files.is_empty())
                || std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none()))
}

/// The file of one process in a folder: no other writes it.
pub(crate) struct OwnFile {
    file: File,
    pub path: PathBuf,
    /// As its file system knows it.
    identity: Option<(u64, u64)>,
    /// Bytes of whole lines that stand in it.
    written: Cell<u64>,
    /// Lines of a transaction that has not ended.
    pending: RefCell<Vec<u8>>,
}

impl OwnFile {
    /// Makes a file that no other process has: its name holds host, process and moment.
    pub fn create(folder: &Path) -> Result<OwnFile, StoreError> {
        let fail = |e: std::io::Error| match e.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                StoreError::ReadOnly { path: folder.into() }
            }
            ErrorKind::StorageFull => StoreError::Full { path: folder.into() },
            _ => StoreError::Open { path: folder.into(), detail: e.to_string() },
        };
        std::fs::create_dir_all(folder).map_err(fail)?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let name = format!("{}-{}-{}.{LINES}", host(), std::process::id(), since.as_nanos());
        let path = folder.join(name);
        let file = OpenOptions::new().read(true).append(true).create_new(true).open(&path);
        let file = file.map_err(fail)?;
        let identity = identity(&path);
        let pending = RefCell::default();
        Ok(OwnFile { file, path, identity, written: Cell::new(0), pending })
    }

    /// Keeps a line for the end of the transaction.
    pub fn add(&self, line: &str) {
        let mut pending = self.pending.borrow_mut();
        pending.extend_from_slice(line.as_bytes());
        pending.push(b'\n');
    }

    /// Forgets what was added since the last transaction ended.
    pub fn forget(&self) {
        self.pending.borrow_mut().clear();
    }

    /// Writes what was added: all of it, or nothing.
    pub fn flush(&self) -> Result<(), StoreError> {
        let pending = std::mem::take(&mut *self.pending.borrow_mut());
        if pending.is_empty() {
            return Ok(());
        }
        if let Err(e) = (&self.file).write_all(&pending) {
            // A line that was begun would be passed over by readers; without it the next one that
            // is written would be whole again.
            let _ = self.file.set_len(self.written.get());
            return Err(match e.kind() {
                ErrorKind::StorageFull | ErrorKind::FileTooLarge | ErrorKind::QuotaExceeded => {
                    StoreError::Full { path: self.path.clone() }
                }
                _ => StoreError::Write(e),
            });
        }
        self.written.set(self.written.get() + pending.len() as u64);
        Ok(())
    }

    /// Whether the path still names the file that is written, with all that was written.
    pub fn is_there(&self) -> bool {
        identity(&self.path) == self.identity
            && self.file.metadata().is_ok_and(|m| m.len() >= self.written.get())
    }

    /// Writes its lines into another file, which must not be there.
    pub fn rescue(&self, to: &Path) -> std::io::Result<()> {
        let mut lines = Vec::new();
        let mut from = &self.file;
        from.seek(SeekFrom::Start(0))?;
        from.take(self.written.get()).read_to_end(&mut lines)?;
        OpenOptions::new().write(true).create_new(true).open(to)?.write_all(&lines)
    }
}

impl Drop for OwnFile {
    /// A process that made no record leaves no file.
    fn drop(&mut self) {
        if self.written.get() == 0 && self.is_there() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The files of a folder that hold records.
pub(crate) fn files_of(folder: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let fail = |e: std::io::Error| StoreError::Open { path: folder.into(), detail: e.to_string() };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        let known = path.extension().is_some_and(|e| e == LINES || e == STORES);
        // Opening a pipe would wait for its other end.
        if known && std::fs::metadata(&path).is_ok_and(|m| m.is_file()) {
            files.push(path);
        }
    }
    Ok(files)
}

/// This machine's name, of letters that file names have everywhere.
fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let name: String = name.trim().chars().map(plain).take(40).collect();
    if name.is_empty() { "host".into() } else { name }
}
