//! Protects this process from databases that a stranger wrote: a view, a trigger or a computed
//! column in the place of one of our tables would run the stranger's SQL. The schema is checked to
//! hold plain tables only, and the steps of each statement are bounded. `store.rs` calls this for
//! every file that it opens.

use crate::error::StoreError;
use crate::schema::{v1, v2, v3, v4};
use rusqlite::Connection;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The names of a store's tables.
const TABLES: [&str; 4] = ["record", "example", "find_block", "wish"];
/// Steps of SQLite's machine between two looks at the limit.
const SLICE: i32 = 100_000;
/// The steps that any statement may take, and those for each byte of the file. Reading a record
/// takes less than one step a byte; checking the whole file takes a few.
const STEPS: (u64, u64) = (200_000_000, 200);

/// Counts a connection's steps within one operation.
#[derive(Clone, Default)]
pub(crate) struct Steps(Arc<AtomicU64>);

impl Steps {
    /// A new operation begins.
    pub fn restart(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Makes a connection run nothing of what the file says, and no statement for ever.
pub(crate) fn distrust(connection: &mut Connection, path: &Path) -> rusqlite::Result<Steps> {
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "cell_size_check", true)?;
    let steps = Steps::default();
    let (count, file) = (steps.clone(), path.to_path_buf());
    connection.progress_handler(
        SLICE,
        Some(move || {
            let n = count.0.fetch_add(SLICE as u64, Ordering::Relaxed);
            // The file grows while it is written to.
            let bytes = || std::fs::metadata(&file).map_or(0, |m| m.len());
            n > STEPS.0 && n > STEPS.0.saturating_add(STEPS.1.saturating_mul(bytes()))
        }),
    )?;
    Ok(steps)
}

/// Refuses a schema that holds views, triggers of others, or something else than a plain table
/// where a table of ours should be.
pub(crate) fn check_schema(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let fail = |e| StoreError::from_sqlite(path, e);
    let foreign = |what: String| StoreError::Foreign { path: path.into(), what };
    let mut statement =
        connection.prepare("SELECT type, name, sql FROM sqlite_schema").map_err(fail)?;
    let mut rows = statement.query([]).map_err(fail)?;
    while let Some(row) = rows.next().map_err(fail)? {
        let text = |i: usize| row.get::<_, Option<String>>(i).map(Option::unwrap_or_default);
        let (kind, name) = (text(0).map_err(fail)?, text(1).map_err(fail)?);
        let sql = text(2).map_err(fail)?;
        let upper = sql.to_ascii_uppercase();
        let ours = [v1::CREATE, v2::UPGRADE, v3::UPGRADE, v4::UPGRADE];
        let is_ours = ours.iter().any(|text| text.contains(&sql));
        let is_known = TABLES.iter().any(|t| t.eq_ignore_ascii_case(&name));
        let is_plain = upper.starts_with("CREATE TABLE")
            && !upper.contains("GENERATED")
            && !upper.contains(" AS (")
            && !upper.contains(" AS(");
        match kind.as_str() {
            "view" => return Err(foreign(format!("a view `{name}`"))),
            "trigger" if !is_ours => return Err(foreign(format!("a trigger `{name}`"))),
            "table" if is_known && !is_ours && !is_plain => {
                return Err(foreign(format!("a table `{name}` that computes what it holds")));
            }
            _ => {}
        }
    }
    Ok(())
}
