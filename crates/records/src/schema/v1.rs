//! Version 1 of a store's schema: one table of records, which triggers protect from changes. `body`
//! is the whole record in its wire form (`wire.rs`); the other columns repeat the fields that
//! queries choose and order by.

/// The statements that make the schema.
pub const CREATE: &str = "
CREATE TABLE record (
    seq           INTEGER PRIMARY KEY,
    identity      TEXT NOT NULL UNIQUE,
    kind          TEXT NOT NULL,
    task          TEXT NOT NULL,
    name          TEXT NOT NULL,
    device        TEXT NOT NULL,
    toolchain     TEXT NOT NULL,
    tunable       TEXT NOT NULL,
    configuration TEXT NOT NULL,
    outcome       TEXT NOT NULL,
    time_ns       REAL,
    recorded      REAL NOT NULL,
    body          TEXT NOT NULL
) STRICT;
CREATE INDEX record_by_task ON record (task, device, toolchain);
CREATE TRIGGER record_is_never_changed BEFORE UPDATE ON record
BEGIN SELECT RAISE(ABORT, 'records are never changed'); END;
CREATE TRIGGER record_is_never_deleted BEFORE DELETE ON record
BEGIN SELECT RAISE(ABORT, 'records are never deleted'); END;
";

/// Adds a record unless its identity is known.
pub const INSERT: &str = "
INSERT OR IGNORE INTO record
    (identity, kind, task, name, device, toolchain, tunable, configuration, outcome, time_ns, \
    recorded, body)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
