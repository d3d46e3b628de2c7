//! The store's file: opening, reading, merging and verifying one SQLite database of records. Each
//! record is a transaction; the write-ahead log lets readers and one writer work at once, and other
//! writers wait. A store that is removed or replaced while it is open is noticed, and its records
//! are written to a file beside it. `append.rs` adds records, `best.rs` chooses among them.

use crate::check::Taken;
use crate::error::StoreError;
use crate::own_file::{OwnFile, is_folder};
use crate::query::Query;
use crate::schema::{self, APPLICATION_ID, CURRENT};
use crate::strangers::{Steps, check_schema, distrust};
use crate::wait::{Wait, identity};
use crate::wire;
use rusqlite::{Connection, ErrorCode, OpenFlags, params_from_iter};
use squall_core::{Record, TaskId};
use std::cell::RefCell;
use std::io::{BufRead, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The number of names beside a removed store that are tried; the first free one takes its records.
const RESCUES: u32 = 100;
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// The faults that a finished append survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// The death of the process, however sudden. It costs some 20 us per record.
    #[default]
    Process,
    /// A power cut as well. Each record waits for the disk.
    PowerCut,
}

/// A file of rescued records, and the device and number by which the system knows it.
type Rescued = (PathBuf, Option<(u64, u64)>);

/// An open store.
pub struct Store {
    pub(crate) connection: Connection,
    path: PathBuf,
    /// The file that was opened for writing, as its file system knows it.
    file: Option<(u64, u64)>,
    pub(crate) steps: Steps,
    /// Whether the last wait for a lock was ended from outside.
    stopped: Arc<AtomicBool>,
    /// The longest wait for a lock, where it is another than [`Patience`](crate::Patience) says.
    limit: Option<Duration>,
    /// The identity of the record that was appended last.
    pub(crate) last: RefCell<Option<String>>,
    /// The file that took the records of a store that went away, and what its file system knows it
    /// by: what is appended later goes there, too.
    rescued: RefCell<Option<Rescued>>,
    /// Where the path is a folder that is written to: this process's file in it.
    pub(crate) own: Option<OwnFile>,
}

impl Store {
    /// Opens a store for reading and writing; creates it where there is none. A folder of records,
    /// or a path that ends with a slash, is a store of many files, of which this process writes one
    /// of its own: it holds what the folder held when it was opened, and what is appended since.
    pub fn open(path: impl AsRef<Path>) -> Result<Store, StoreError> {
        Store::open_with(path, Durability::default())
    }

    /// Opens or creates a store with a chosen durability.
    pub fn open_with(path: impl AsRef<Path>, durability: Durability) -> Result<Store, StoreError> {
        Store::open_as(path.as_ref(), durability, None)
    }

    /// As [`Store::open`], where no lock of another process is waited for longer than `limit`, now
    /// or later: what is written can be left out.
    pub fn open_within(path: impl AsRef<Path>, limit: Duration) -> Result<Store, StoreError> {
        Store::open_as(path.as_ref(), Durability::default(), Some(limit))
    }

    fn open_as(
        path: &Path,
        durability: Durability,
        limit: Option<Duration>,
    ) -> Result<Store, StoreError> {
        if is_folder(path) {
            return Store::open_folder(path, true);
        }
        refuse_foreign(path)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection =
            Connection::open_with_flags(path, flags).map_err(|e| cannot_open(path, e))?;
        let mut store = Store::new(connection, path, limit)?;
        store.recognise()?;
        if store.connection.is_readonly("main").map_err(|e| store.error(e))? {
            return Err(StoreError::ReadOnly { path: path.to_path_buf() });
        }
        store.prepare(durability).map_err(|e| match e {
            // SQLite reports a folder in which it cannot make a journal as "cannot open" at the
            // first write.
            StoreError::Open { path, .. } => StoreError::ReadOnly { path },
            e => e,
        })?;
        store.file = identity(path);
        Ok(store)
    }

    /// The same store, whose file may be removed at any time, as one in a cache may.
    pub fn expendable(mut self) -> Store {
        self.file = None;
        self
    }

    /// An empty store in memory; `path` stands for it in messages.
    pub(crate) fn in_memory(path: &Path) -> Result<Store, StoreError> {
        let connection =
            Connection::open_in_memory().map_err(|e| StoreError::from_sqlite(path, e))?;
        let mut store = Store::new(connection, path, None)?;
        // Nothing of a stranger's stands in its schema, and its size is not that of a file.
        let done = store.connection.progress_handler(0, None::<fn() -> bool>);
        done.and_then(|()| schema::upgrade(&store.connection, 0)).map_err(|e| store.error(e))?;
        Ok(store)
    }

    /// The same store, which writes what is appended from now on into a file of its own.
    pub(crate) fn with_own(self, own: Option<OwnFile>) -> Store {
        Store { own, ..self }
    }

    fn new(
        mut connection: Connection,
        path: &Path,
        limit: Option<Duration>,
    ) -> Result<Store, StoreError> {
        let fail = |e| StoreError::from_sqlite(path, e);
        let stopped = Arc::new(AtomicBool::new(false));
        let mut wait = Wait::new(path, limit, Arc::clone(&stopped));
        connection.busy_handler(Some(move |tries| wait.again(tries))).map_err(fail)?;
        let steps = distrust(&mut connection, path).map_err(fail)?;
        Ok(Store {
            connection,
            path: path.into(),
            file: None,
            steps,
            stopped,
            limit,
            last: RefCell::default(),
            rescued: RefCell::default(),
            own: None,
        })
    }

    /// Opens an existing store for reading, also where neither file nor folder can be written.
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Store, StoreError> {
        let path = path.as_ref();
        if !path.exists() {
            return Err(StoreError::Missing { path: path.to_path_buf() });
        }
        if is_folder(path) {
            return Store::open_folder(path, false);
        }
        refuse_foreign(path)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let attempt = |connection: rusqlite::Result<Connection>| {
            let connection = connection.map_err(|e| cannot_open(path, e))?;
            let store = Store::new(connection, path, None)?;
            store.recognise()?;
            // An empty store is filled when it is opened for writing; opened for reading, it has
            // nothing to read.
            match store.pragma("user_version")? {
                0 => Err(StoreError::Empty { path: path.to_path_buf() }),
                _ => Ok(store),
            }
        };
        match attempt(Connection::open_with_flags(path, flags)) {
            Err(StoreError::Open { .. } | StoreError::ReadOnly { .. }) => {
                let mut log = path.as_os_str().to_owned();
                log.push("-wal");
                if std::fs::metadata(&log).is_ok_and(|m| m.len() > 0) {
                    let detail = format!(
                        "its folder is read-only and records still stand in `{}`; copy both files \
                         to a folder that you can write",
                        PathBuf::from(log).display()
                    );
                    return Err(StoreError::Open { path: path.to_path_buf(), detail });
                }
                // Reading needs a lock file beside the store unless no other process can be
                // writing.
                attempt(Connection::open_with_flags(
                    immutable_uri(path),
                    flags | OpenFlags::SQLITE_OPEN_URI,
                ))
            }
            other => other,
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes sure that the path still names the file that was opened for writing. Where it does
    /// not, all records are written anew beside it and the error says where.
    pub fn confirm(&self) -> Result<(), StoreError> {
        if let Some(own) = &self.own {
            return if own.is_there() { Ok(()) } else { Err(self.rescue()) };
        }
        if self.file.is_none() || identity(&self.path) == self.file {
            return Ok(());
        }
        Err(self.rescue())
    }

    /// The same at the end of a session, where the file is opened afresh too: one that was written
    /// over in its place lacks what was appended last.
    pub fn confirm_all(&self) -> Result<(), StoreError> {
        self.confirm()?;
        if self.own.is_some() {
            return Ok(());
        }
        let Some(last) = self.last.borrow().clone() else { return Ok(()) };
        let sql = "SELECT count(*) FROM record WHERE identity = ?1";
        let found = Store::open_read_only(&self.path).and_then(|afresh| {
            let count = |r: &rusqlite::Row| r.get::<_, i64>(0);
            afresh.connection.query_row(sql, [&last], count).map_err(|e| afresh.error(e))
        });
        match found {
            Ok(0) | Err(StoreError::NotAStore { .. } | StoreError::Damaged { .. }) => {
                Err(self.rescue())
            }
            // Another process may hold it for itself: the record is in the file that it is in.
            _ => Ok(()),
        }
    }

    /// Writes all records anew beside the path, which is another file's now; of a folder those that
    /// this process appended. Later appends of this process go to the one file that the
    /// first error named.
    fn rescue(&self) -> StoreError {
        self.steps.restart();
        let mut known = self.rescued.borrow_mut();
        let again = known.take().filter(|(p, file)| file.is_some() && identity(p) == *file);
        let rescued = match again {
            Some((path, _)) => self.rescue_again(&path).then_some(path),
            None => self.free_names().find(|p| !p.exists()).filter(|p| self.write_anew(p)),
        };
        *known = rescued.clone().map(|p| (p.clone(), identity(&p)));
        StoreError::Replaced { path: self.path.clone(), rescued }
    }

    /// Names beside the path for the records of a store that went away.
    fn free_names(&self) -> impl Iterator<Item = PathBuf> + use<> {
        // A slash at the end of a folder's path is no part of its name.
        let beside: PathBuf = self.path.components().collect();
        (1..=RESCUES).map(move |n| {
            let mut name = beside.as_os_str().to_owned();
            name.push(if n == 1 { ".rescued".into() } else { format!(".rescued-{n}") });
            PathBuf::from(name)
        })
    }

    /// Writes all records into a file of ours anew. It has the earlier ones until the new ones
    /// stand
    /// in another file, which then takes its name.
    fn rescue_again(&self, path: &Path) -> bool {
        let mut whole = path.as_os_str().to_owned();
        whole.push(".new");
        let whole = PathBuf::from(whole);
        let _ = std::fs::remove_file(&whole);
        let done = self.write_anew(&whole) && std::fs::rename(&whole, path).is_ok();
        if !done {
            let _ = std::fs::remove_file(&whole);
        }
        done
    }

    /// Writes all records into a file that is not there yet.
    fn write_anew(&self, path: &Path) -> bool {
        if let Some(own) = &self.own {
            return own.rescue(path).is_ok();
        }
        // SQLite takes the name as bytes of text.
        let Some(text) = path.to_str() else { return false };
        self.connection.execute("VACUUM INTO ?1", [text]).is_ok()
    }

    /// The records of a task on a device with a toolchain, oldest first.
    pub fn trials(
        &self,
        task: TaskId,
        device: &str,
        toolchain: &str,
    ) -> Result<Vec<Record>, StoreError> {
        let query = Query {
            task: Some(task),
            device: Some(device.into()),
            toolchain: Some(toolchain.into()),
            ..Query::default()
        };
        self.query(&query)
    }

    /// The chosen records, oldest first.
    pub fn query(&self, query: &Query) -> Result<Vec<Record>, StoreError> {
        let mut records = Vec::new();
        self.each_body(query, &mut |body| {
            records.push(self.decode(body)?);
            Ok(())
        })?;
        Ok(records)
    }

    /// Number of records.
    pub fn len(&self) -> Result<u64, StoreError> {
        self.connection
            .query_row("SELECT count(*) FROM record", [], |r| r.get::<_, i64>(0))
            .map(|n| n as u64)
            .map_err(|e| self.error(e))
    }

    /// Whether it holds no record.
    pub fn is_empty(&self) -> Result<bool, StoreError> {
        self.len().map(|n| n == 0)
    }

    /// Adds the records of another store, without those that cannot be right ([`fault`]).
    pub fn merge(&self, other: &Store) -> Result<Taken, StoreError> {
        // All records are read before the first is written, so that a store that is merged into
        // itself does not wait for its own lock.
        let records = other.query(&Query::default())?;
        self.append_merged(records.into_iter().map(Ok))
    }

    /// Writes the chosen records as lines of JSON; returns their number.
    pub fn export(&self, query: &Query, out: &mut dyn Write) -> Result<u64, StoreError> {
        let mut n = 0;
        self.each_body(query, &mut |body| {
            n += 1;
            writeln!(out, "{body}").map_err(StoreError::Write)
        })?;
        out.flush().map_err(StoreError::Write)?;
        Ok(n)
    }

    /// Adds the records in lines of [`Store::export`], without those that cannot be right
    /// ([`fault`]). A line that is no record at all is an error, and nothing is added.
    pub fn import(&self, lines: &mut dyn BufRead) -> Result<Taken, StoreError> {
        let records = lines.lines().enumerate().filter_map(|(i, line)| match line {
            Ok(l) if l.trim().is_empty() => None,
            Ok(l) => {
                Some(wire::decode(&l).map_err(|detail| StoreError::Line { line: i + 1, detail }))
            }
            Err(e) => Some(Err(StoreError::Read(e))),
        });
        self.append_merged(records)
    }

    /// Reads the whole file, checks its structure and every record, and returns the number of
    /// records.
    pub fn verify(&self) -> Result<u64, StoreError> {
        self.steps.restart();
        let found: String = self
            .connection
            .query_row("PRAGMA integrity_check(1)", [], |r| r.get(0))
            .map_err(|e| self.error(e))?;
        if found != "ok" {
            return Err(StoreError::Damaged { path: self.path.clone(), detail: found });
        }
        let mut n = 0;
        self.each_body(&Query::default(), &mut |body| {
            n += 1;
            self.decode(body).map(|_| ())
        })?;
        Ok(n)
    }

    /// Visits the wire form of the chosen records, oldest first.
    fn each_body(
        &self,
        query: &Query,
        visit: &mut dyn FnMut(&str) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.steps.restart();
        let (filter, values) = query.filter();
        let sql = match query.limit {
            None => format!("SELECT body FROM record {filter} ORDER BY seq"),
            Some(n) => {
                let n = n.min(i64::MAX as u64);
                format!(
                    "SELECT body FROM (SELECT seq, body FROM record {filter} ORDER BY seq DESC \
                     LIMIT {n}) ORDER BY seq"
                )
            }
        };
        let mut statement = self.connection.prepare_cached(&sql).map_err(|e| self.error(e))?;
        let mut rows = statement.query(params_from_iter(values)).map_err(|e| self.error(e))?;
        while let Some(row) = rows.next().map_err(|e| self.error(e))? {
            let body = row.get_ref(0).and_then(|v| Ok(v.as_str()?)).map_err(|e| self.error(e))?;
            visit(body)?;
        }
        Ok(())
    }

    pub(crate) fn decode(&self, body: &str) -> Result<Record, StoreError> {
        wire::decode(body).map_err(|detail| StoreError::Damaged {
            path: self.path.clone(),
            detail: format!("a record does not read: {detail}"),
        })
    }

    pub(crate) fn error(&self, e: rusqlite::Error) -> StoreError {
        if is_busy(&e) && self.stopped.load(Ordering::Relaxed) {
            return StoreError::Stopped { path: self.path.clone() };
        }
        StoreError::from_sqlite(&self.path, e)
    }

    /// A new operation, whose steps are counted from 0.
    pub(crate) fn begin(&self) {
        self.steps.restart();
    }

    fn pragma(&self, name: &str) -> Result<i64, StoreError> {
        self.connection.pragma_query_value(None, name, |r| r.get(0)).map_err(|e| self.error(e))
    }

    /// Refuses databases of other programs and of newer Squalls; reads only.
    fn recognise(&self) -> Result<(), StoreError> {
        // One transaction reads all three, so that they are of one moment: another process may be
        // making the store just now.
        let moment = self.connection.unchecked_transaction().map_err(|e| self.error(e))?;
        let tables: i64 = self
            .connection
            .query_row("SELECT count(*) FROM sqlite_schema", [], |r| r.get(0))
            .map_err(|e| self.error(e))?;
        let application = self.pragma("application_id")?;
        let version = self.pragma("user_version")?;
        drop(moment);
        // A database with neither tables nor mark is a store that another process is making, or was
        // making when it was killed.
        let unborn = application == 0 && version == 0 && tables == 0;
        if application != APPLICATION_ID && !unborn {
            return Err(StoreError::NotAStore { path: self.path.clone() });
        }
        if version > CURRENT {
            return Err(StoreError::Newer {
                path: self.path.clone(),
                found: version,
                known: CURRENT,
            });
        }
        check_schema(&self.connection, &self.path)
    }

    /// Sets the journal up and brings the schema to the current version.
    fn prepare(&self, durability: Durability) -> Result<(), StoreError> {
        // SQLite's switch to the write-ahead log does not wait for other processes.
        let mut wait = Wait::new(&self.path, self.limit, Arc::clone(&self.stopped));
        for tries in 0.. {
            match self.connection.pragma_update(None, "journal_mode", "WAL") {
                Ok(()) => break,
                Err(e) if is_busy(&e) && wait.again(tries) => {}
                Err(e) => return Err(self.error(e)),
            }
        }
        let synchronous = match durability {
            Durability::Process => "NORMAL",
            Durability::PowerCut => "FULL",
        };
        self.connection
            .pragma_update(None, "synchronous", synchronous)
            .map_err(|e| self.error(e))?;
        if self.pragma("user_version")? == CURRENT {
            return Ok(());
        }
        let transaction = self.writing()?;
        // Another process may have upgraded it while this process waited for the lock.
        let done = transaction
            .pragma_query_value(None, "user_version", |r| r.get::<_, i64>(0))
            .and_then(|from| {
                if from < CURRENT {
                    schema::upgrade(&transaction, from)?;
                }
                transaction.commit()
            });
        done.map_err(|e| self.error(e))
    }
}

/// Refuses a file that is no database before SQLite makes a journal beside it. An empty file is a
/// store that was being made when its process died.
fn refuse_foreign(path: &Path) -> Result<(), StoreError> {
    // Opening a pipe would wait for its other end.
    if let Some(kind) = std::fs::metadata(path).ok().filter(|m| !m.is_file()) {
        let detail = if kind.is_dir() {
            "it is a folder without records; for one, end its path with a slash"
        } else {
            "it is a pipe, a socket or a device, and a store is a file"
        };
        return Err(StoreError::Open { path: path.to_path_buf(), detail: detail.into() });
    }
    let mut file = match std::fs::File::open(path) {
        Ok(f) => f,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(StoreError::Open { path: path.to_path_buf(), detail: e.to_string() }),
    };
    let mut head = Vec::new();
    if let Err(e) = Read::by_ref(&mut file).take(16).read_to_end(&mut head) {
        return Err(StoreError::Open { path: path.to_path_buf(), detail: e.to_string() });
    }
    if head.is_empty() || head == MAGIC {
        Ok(())
    } else {
        Err(StoreError::NotAStore { path: path.to_path_buf() })
    }
}

/// The error of a failed opening, told apart by looking at the file: SQLite has one error code for
/// many reasons.
fn cannot_open(path: &Path, e: rusqlite::Error) -> StoreError {
    match std::fs::OpenOptions::new().read(true).open(path) {
        Err(io) if io.kind() != std::io::ErrorKind::NotFound => {
            StoreError::Open { path: path.to_path_buf(), detail: io.to_string() }
        }
        Err(_) if path.parent().is_some_and(|p| !p.as_os_str().is_empty() && !p.is_dir()) => {
            StoreError::Open {
                path: path.to_path_buf(),
                detail: "its folder does not exist".into(),
            }
        }
        Err(_) => StoreError::ReadOnly { path: path.to_path_buf() },
        Ok(_) => StoreError::from_sqlite(path, e),
    }
}

fn is_busy(e: &rusqlite::Error) -> bool {
    matches!(e.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// The path as a URI that promises SQLite that no process writes.
fn immutable_uri(path: &Path) -> String {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let mut uri = String::from("file:");
    for &b in absolute.as_os_str().as_encoded_bytes() {
        match b {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                uri.push(b as char)
            }
            _ => uri.push_str(&format!("%{b:02x}")),
        }
    }
    uri + "?immutable=1"
}
