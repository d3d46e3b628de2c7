//! The database's schema, one module a version. `PRAGMA user_version` says which version a file
//! has; opening a file of an older version upgrades it step by step in one transaction, so that old
//! stores load for ever. A new field of records or a new table is a new version here.

pub mod v1;
pub mod v2;
pub mod v3;
pub mod v4;

use rusqlite::Connection;

/// The schema that this program writes.
pub const CURRENT: i64 = 4;

/// Marks a database as ours (`PRAGMA application_id`): the letters SQLL.
pub const APPLICATION_ID: i64 = 0x5351_4c4c;

/// Makes the schema in an empty database or upgrades an older one; the caller holds the write
/// lock and commits.
pub fn upgrade(c: &Connection, from: i64) -> rusqlite::Result<()> {
    if from < 1 {
        c.execute_batch(v1::CREATE)?;
    }
    if from < 2 {
        c.execute_batch(v2::UPGRADE)?;
    }
    if from < 3 {
        c.execute_batch(v3::UPGRADE)?;
    }
    if from < 4 {
        c.execute_batch(v4::UPGRADE)?;
    }
    c.pragma_update(None, "application_id", APPLICATION_ID)?;
    c.pragma_update(None, "user_version", CURRENT)
}
