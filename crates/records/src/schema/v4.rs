//! Version 4 of a store's schema adds a table of wishes: tasks whose kernels were used on a device
//! without a trial there (`wish.rs`). A wish is no measurement, so its counts grow in place.

/// The statements that upgrade version 3.
pub const UPGRADE: &str = "
CREATE TABLE wish (
    task     TEXT NOT NULL,
    device   TEXT NOT NULL,
    name     TEXT NOT NULL,
    workload TEXT NOT NULL,
    uses     INTEGER NOT NULL,
    seconds  REAL NOT NULL,
    last     REAL NOT NULL,
    PRIMARY KEY (task, device)
) STRICT;
";

/// Adds uses to a wish, or makes it.
pub const ADD: &str = "
INSERT INTO wish (task, device, name, workload, uses, seconds, last)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
ON CONFLICT (task, device) DO UPDATE SET
    uses = uses + excluded.uses, seconds = seconds + excluded.seconds,
    last = max(last, excluded.last)";
