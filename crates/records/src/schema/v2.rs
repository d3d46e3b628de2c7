//! Version 2 of a store's schema adds a table of examples: problems that others tuned, from which
//! predictors learn (`example.rs`). `problem` is the problem in JSON; the other columns repeat the
//! fields that queries choose by. A problem that is tuned again gets another row, and its newest
//! row is valid.

/// The statements that upgrade version 1.
pub const UPGRADE: &str = "
CREATE TABLE example (
    seq     INTEGER PRIMARY KEY,
    solver  TEXT NOT NULL,
    device  TEXT NOT NULL,
    key     TEXT NOT NULL,
    answer  TEXT NOT NULL,
    problem TEXT NOT NULL,
    UNIQUE (solver, device, key, answer)
) STRICT;
CREATE TRIGGER example_is_never_changed BEFORE UPDATE ON example
BEGIN SELECT RAISE(ABORT, 'examples are never changed'); END;
CREATE TRIGGER example_is_never_deleted BEFORE DELETE ON example
BEGIN SELECT RAISE(ABORT, 'examples are never deleted'); END;
";

/// Adds an example unless it is known.
pub const INSERT: &str = "INSERT OR IGNORE INTO example (solver, device, key, answer, problem) \
                          VALUES (?1, ?2, ?3, ?4, ?5)";
