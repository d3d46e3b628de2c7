//! The errors of a store that cannot be opened, read or written ([`StoreError`]). Each message
//! names the file, and `remedy` says what the user can do. SQLite's own errors become one of these
//! variants, so callers never see them.

use crate::wait::{holders, named};
use rusqlite::ErrorCode;
use std::path::{Path, PathBuf};

/// A store that cannot be opened, read or written.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say what the fields are
pub enum StoreError {
    #[error("`{}` is not a Squall store", path.display())]
    NotAStore { path: PathBuf },
    #[error("`{}` was written by a newer Squall: its schema is {found}, this program knows up to \
             {known}", path.display())]
    Newer { path: PathBuf, found: i64, known: i64 },
    #[error("there is no store `{}`", path.display())]
    Missing { path: PathBuf },
    #[error("`{}` is empty: there is no store in it yet", path.display())]
    Empty { path: PathBuf },
    #[error("the store `{}` cannot be written: file or folder is read-only", path.display())]
    ReadOnly { path: PathBuf },
    #[error("no space is left for the store `{}`", path.display())]
    Full { path: PathBuf },
    #[error("the store `{}` stayed locked by {}", path.display(), named(holders))]
    Locked { path: PathBuf, holders: Vec<String> },
    #[error("ended while the store `{}` was locked by another program", path.display())]
    Stopped { path: PathBuf },
    #[error("the store `{}` holds {what}, which no Squall makes", path.display())]
    Foreign { path: PathBuf, what: String },
    #[error("the store `{}` was removed or replaced while it was written to; {}", path.display(),
            kept(rescued.as_deref()))]
    Replaced { path: PathBuf, rescued: Option<PathBuf> },
    #[error("the store `{}` is damaged: {detail}", path.display())]
    Damaged { path: PathBuf, detail: String },
    #[error("cannot open the store `{}`: {detail}", path.display())]
    Open { path: PathBuf, detail: String },
    #[error("the store `{}`: {detail}", path.display())]
    Database { path: PathBuf, detail: String },
    #[error("line {line}: {detail}")]
    Line { line: usize, detail: String },
    #[error("line {line} of `{}`, in a folder of records: {detail}", path.display())]
    FolderLine { path: PathBuf, line: usize, detail: String },
    #[error("`{}` is a folder of records, and {what} are kept in a file", path.display())]
    InFolder { path: PathBuf, what: &'static str },
    #[error("a record cannot be kept: {0}")]
    Unstorable(String),
    #[error("cannot write records: {0}")]
    Write(std::io::Error),
    #[error("cannot read records: {0}")]
    Read(std::io::Error),
}

impl StoreError {
    /// What the user can do about it.
    pub fn remedy(&self) -> String {
        match self {
            StoreError::NotAStore { .. } => "name another file; a store that does not exist yet \
                                             is created"
                .into(),
            StoreError::Newer { .. } => "use the newer Squall, or another store".into(),
            StoreError::Missing { .. } => "`squall tune` creates one; check the path".into(),
            StoreError::Empty { .. } => {
                "check the path: `squall tune` and `squall import` fill it; if one of them is at \
                 it just now, ask again"
                    .into()
            }
            StoreError::ReadOnly { path } => {
                format!(
                    "name a store in a folder that you can write, for instance a copy: cp \
                         '{}' ~/",
                    path.display()
                )
            }
            StoreError::Full { path } => {
                format!(
                    "free space on its disk (df -h '{}'); everything reported so far is \
                         kept",
                    folder(path).display()
                )
            }
            StoreError::Locked { path, .. } => {
                format!(
                    "wait for it or end it, and try again (fuser '{}' says who)",
                    path.display()
                )
            }
            StoreError::Stopped { .. } => "try again once it is free".into(),
            StoreError::Foreign { .. } => {
                "its SQL would run here, so it is not read; ask for its records as lines \
                 (`squall records export`)"
                    .into()
            }
            StoreError::Replaced { path, rescued: Some(saved) } => format!(
                "see what took its place, then bring both together: squall records merge '{}' \
                 --store '{}'",
                saved.display(),
                path.display()
            ),
            StoreError::Replaced { .. } => "keep the store in a folder of its own while tuning \
                                            and tune again"
                .into(),
            StoreError::Damaged { path, .. } => {
                format!(
                    "take a backup, or save what can be read: sqlite3 '{}' .recover | sqlite3 \
                         rescued.db",
                    path.display()
                )
            }
            StoreError::Open { path, .. } | StoreError::Database { path, .. } => {
                format!(
                    "check that `{}` exists and that you may write \
                         there",
                    folder(path).display()
                )
            }
            StoreError::Line { .. } => {
                "each line is one record as `squall records export` writes it".into()
            }
            StoreError::FolderLine { path, .. } => format!(
                "take the line out, or move the file out of the folder: mv '{}' ..",
                path.display()
            ),
            StoreError::InFolder { .. } => "name a file with --store".into(),
            StoreError::Unstorable(_) => "please report this: it is a fault of Squall's".into(),
            StoreError::Write(_) | StoreError::Read(_) => "check the file that was named".into(),
        }
    }

    /// The variant that a database error means for the store at `path`.
    pub(crate) fn from_sqlite(path: &Path, e: rusqlite::Error) -> StoreError {
        let (path, detail) = (path.to_path_buf(), e.to_string());
        match e.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => StoreError::NotAStore { path },
            Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
                StoreError::ReadOnly { path }
            }
            Some(ErrorCode::DiskFull) => StoreError::Full { path },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                let holders = holders(&path);
                StoreError::Locked { path, holders }
            }
            Some(ErrorCode::DatabaseCorrupt) => StoreError::Damaged { path, detail },
            Some(ErrorCode::OperationInterrupted) => StoreError::Damaged {
                path,
                detail: "reading it takes more steps than its size explains".into(),
            },
            Some(ErrorCode::CannotOpen) => StoreError::Open { path, detail },
            _ => StoreError::Database { path, detail },
        }
    }
}

/// The fate of the records of a store that is gone, in words.
fn kept(rescued: Option<&Path>) -> String {
    match rescued {
        Some(p) => format!("all its records stand in `{}`", p.display()),
        None => "what was reported since then is lost".into(),
    }
}

/// The folder that a file lies in.
fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    }
}
