//! The store's file: opening, appending, reading, merging. Each record is a transaction; the
//! write-ahead log lets readers and one writer work at once, and other writers wait.

use crate::error::StoreError;
use crate::query::Query;
use crate::schema::{self, APPLICATION_ID, CURRENT, v1};
use crate::wire;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior, params_from_iter};
use squall_core::{Outcome, Record, TaskId};
use std::io::{BufRead, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a writer waits for others before it gives up.
const PATIENCE: Duration = Duration::from_secs(60);
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

/// An open store.
pub struct Store {
    pub(crate) connection: Connection,
    path: PathBuf,
}

impl Store {
    /// Opens a store for reading and writing; creates it where there is none.
    pub fn open(path: impl AsRef<Path>) -> Result<Store, StoreError> {
        Store::open_with(path, Durability::default())
    }

    /// Opens or creates a store with a chosen durability.
    pub fn open_with(path: impl AsRef<Path>, durability: Durability) -> Result<Store, StoreError> {
        let path = path.as_ref();
        refuse_foreign(path)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection =
            Connection::open_with_flags(path, flags).map_err(|e| cannot_open(path, e))?;
        let mut store = Store { connection, path: path.to_path_buf() };
        store.connection.busy_timeout(PATIENCE).map_err(|e| store.error(e))?;
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
        Ok(store)
    }

    /// Opens an existing store for reading, also where neither file nor folder can be written.
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Store, StoreError> {
        let path = path.as_ref();
        if !path.exists() {
            return Err(StoreError::Missing { path: path.to_path_buf() });
        }
        refuse_foreign(path)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let attempt = |connection: rusqlite::Result<Connection>| {
            let connection = connection.map_err(|e| cannot_open(path, e))?;
            connection.busy_timeout(PATIENCE).map_err(|e| StoreError::from_sqlite(path, e))?;
            let store = Store { connection, path: path.to_path_buf() };
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

    /// Adds a record in a transaction of its own; returns false where the store has its identity.
    pub fn append(&self, record: &Record) -> Result<bool, StoreError> {
        self.insert(record)
    }

    /// Adds records in one transaction; returns how many were new and how many known.
    pub fn append_all(
        &self,
        records: impl IntoIterator<Item = Result<Record, StoreError>>,
    ) -> Result<(u64, u64), StoreError> {
        let transaction =
            rusqlite::Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate);
        let transaction = transaction.map_err(|e| self.error(e))?;
        let (mut new, mut known) = (0, 0);
        for r in records {
            if self.insert(&r?)? {
                new += 1;
            } else {
                known += 1;
            }
        }
        transaction.commit().map_err(|e| self.error(e))?;
        Ok((new, known))
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

    /// Adds the records of another store; returns how many were new and how many known.
    pub fn merge(&self, other: &Store) -> Result<(u64, u64), StoreError> {
        // All records are read before the first is written, so that a store that is merged into
        // itself does not wait for its own lock.
        let records = other.query(&Query::default())?;
        self.append_all(records.into_iter().map(Ok))
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

    /// Adds the records in lines of [`Store::export`], all or none; returns how many were new and
    /// how many known.
    pub fn import(&self, lines: &mut dyn BufRead) -> Result<(u64, u64), StoreError> {
        let records = lines.lines().enumerate().filter_map(|(i, line)| match line {
            Ok(l) if l.trim().is_empty() => None,
            Ok(l) => {
                Some(wire::decode(&l).map_err(|detail| StoreError::Line { line: i + 1, detail }))
            }
            Err(e) => Some(Err(StoreError::Read(e))),
        });
        self.append_all(records)
    }

    /// Reads the whole file, checks its structure and every record, and returns the number of
    /// records.
    pub fn verify(&self) -> Result<u64, StoreError> {
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

    fn insert(&self, r: &Record) -> Result<bool, StoreError> {
        let body = wire::encode(r).map_err(StoreError::Unstorable)?;
        let outcome = match r.outcome {
            Outcome::Measured(_) => "measured",
            Outcome::Infeasible(_) => "infeasible",
            Outcome::Failed { .. } => "failed",
        };
        let run = || {
            self.connection.prepare_cached(v1::INSERT)?.execute(rusqlite::params![
                r.identity(),
                r.kind.name(),
                r.task.to_string(),
                r.name,
                r.device,
                r.toolchain,
                r.tunable,
                r.configuration,
                outcome,
                r.outcome.time().map(|t| t.0),
                r.time,
                body
            ])
        };
        run().map(|changed| changed == 1).map_err(|e| self.error(e))
    }

    pub(crate) fn decode(&self, body: &str) -> Result<Record, StoreError> {
        wire::decode(body).map_err(|detail| StoreError::Damaged {
            path: self.path.clone(),
            detail: format!("a record does not read: {detail}"),
        })
    }

    pub(crate) fn error(&self, e: rusqlite::Error) -> StoreError {
        StoreError::from_sqlite(&self.path, e)
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
        Ok(())
    }

    /// Sets the journal up and brings the schema to the current version.
    fn prepare(&mut self, durability: Durability) -> Result<(), StoreError> {
        // SQLite's switch to the write-ahead log does not wait for other processes.
        let until = Instant::now() + PATIENCE;
        loop {
            match self.connection.pragma_update(None, "journal_mode", "WAL") {
                Ok(()) => break,
                Err(e) if is_busy(&e) && Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(5))
                }
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
        let path = self.path.clone();
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate);
        let transaction = transaction.map_err(|e| StoreError::from_sqlite(&path, e))?;
        // Another process may have upgraded it while this process waited for the lock.
        let done = transaction
            .pragma_query_value(None, "user_version", |r| r.get::<_, i64>(0))
            .and_then(|from| {
                if from < CURRENT {
                    schema::upgrade(&transaction, from)?;
                }
                transaction.commit()
            });
        done.map_err(|e| StoreError::from_sqlite(&path, e))
    }
}

/// Refuses a file that is no database before SQLite makes a journal beside it. An empty file is a
/// store that was being made when its process died.
fn refuse_foreign(path: &Path) -> Result<(), StoreError> {
    if path.is_dir() {
        return Err(StoreError::Open { path: path.to_path_buf(), detail: "it is a folder".into() });
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
