//! [`Query`], a choice of records of a store, by task, name, kind, device, toolchain and number.
//! Input: the caller's wishes; output: the `WHERE` clause of the SQL statement by which `store.rs`
//! and `best.rs` read records.

use squall_core::{RecordKind, TaskId};

/// A choice of records; an empty one chooses all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Query {
    /// Records of this task.
    pub task: Option<TaskId>,
    /// Records of tasks whose name matches: with `*` or `?` the pattern stands for the whole name,
    /// without them it may stand anywhere in it.
    pub name: Option<String>,
    /// Records of this kind.
    pub kind: Option<RecordKind>,
    /// Records of this device.
    pub device: Option<String>,
    /// Records of this toolchain.
    pub toolchain: Option<String>,
    /// Only records with a time, whose kernel ran and was right.
    pub verified: bool,
    /// At most this number of records, the newest; they still come oldest first.
    pub limit: Option<u64>,
}

impl Query {
    /// Records of one task.
    pub fn task(task: TaskId) -> Query {
        Query { task: Some(task), ..Query::default() }
    }

    /// The `WHERE` clause and its parameters.
    pub(crate) fn filter(&self) -> (String, Vec<String>) {
        let mut clauses = Vec::new();
        let mut values = Vec::new();
        let mut add = |clause: &str, value: String| {
            values.push(value);
            clauses.push(format!("{clause} ?{}", values.len()));
        };
        if let Some(t) = self.task {
            add("task =", t.to_string());
        }
        if let Some(p) = &self.name {
            add("name GLOB", glob(p));
        }
        if let Some(k) = self.kind {
            add("kind =", k.name().into());
        }
        if let Some(d) = &self.device {
            add("device =", d.clone());
        }
        if let Some(t) = &self.toolchain {
            add("toolchain =", t.clone());
        }
        if self.verified {
            clauses.push("time_ns IS NOT NULL".into());
        }
        let text = if clauses.is_empty() {
            String::new()
        } else {
            format!("WHERE {}", clauses.join(" AND "))
        };
        (text, values)
    }
}

/// A name pattern as SQLite's `GLOB` spells it. `[` is escaped, since it would open a class of
/// characters.
fn glob(pattern: &str) -> String {
    let escaped = pattern.replace('[', "[[]");
    if pattern.contains(['*', '?']) { escaped } else { format!("*{escaped}*") }
}
