//! Version 3 of a store's schema adds a table of blocks of MIOpen's find databases: which solvers
//! others timed for which problems (`find_block.rs`). A block holds the lines that one import
//! added, as they stood in the file, packed by zlib. Of a key that stands in several blocks the
//! newest line is valid.

/// The statements that upgrade version 2.
pub const UPGRADE: &str = "
CREATE TABLE find_block (
    seq      INTEGER PRIMARY KEY,
    device   TEXT NOT NULL,
    origin   TEXT NOT NULL,
    problems INTEGER NOT NULL,
    rows     INTEGER NOT NULL,
    body     BLOB NOT NULL
) STRICT;
CREATE TRIGGER find_block_is_never_changed BEFORE UPDATE ON find_block
BEGIN SELECT RAISE(ABORT, 'blocks are never changed'); END;
CREATE TRIGGER find_block_is_never_deleted BEFORE DELETE ON find_block
BEGIN SELECT RAISE(ABORT, 'blocks are never deleted'); END;
";

/// Adds a block.
pub const INSERT: &str =
    "INSERT INTO find_block (device, origin, problems, rows, body) VALUES (?1, ?2, ?3, ?4, ?5)";
