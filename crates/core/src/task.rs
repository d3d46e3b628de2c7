//! A task: a workload (tensor expression or user kernel) to tune for an objective. Its [`TaskId`]
//! is a hash of the workload's text, so the same kernel has the same id on all machines and in all
//! stores, whichever model it came from.

use crate::workload::Workload;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The quantity that tuning minimises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Objective {
    /// Least time of one call.
    #[default]
    Time,
}

/// A stable name: 16 hex digits of a hash over workload text and objective. The device and the
/// number of threads are not part of it; records keep them beside it, so that the same kernel
/// has one name on all machines.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TaskId(u64);

impl TaskId {
    /// The id of a workload tuned for an objective.
    pub fn of(workload: &Workload, objective: Objective) -> TaskId {
        TaskId::of_text(&workload.to_string(), objective)
    }

    /// The id of a workload's text, or of the text that describes a kernel without a workload.
    pub fn of_text(text: &str, objective: Objective) -> TaskId {
        let objective = match objective {
            Objective::Time => "time",
        };
        let hash = blake3::hash(format!("squall task 1\n{objective}\n{text}").as_bytes());
        let mut first = [0; 8];
        first.copy_from_slice(&hash.as_bytes()[..8]);
        TaskId(u64::from_be_bytes(first))
    }

    /// The id as a number, for seeding.
    pub fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for TaskId {
    type Err = String;
    fn from_str(s: &str) -> Result<TaskId, String> {
        if s.len() != 16 {
            return Err(format!("`{s}` is not a task id (16 hex digits)"));
        }
        u64::from_str_radix(s, 16)
            .map(TaskId)
            .map_err(|_| format!("`{s}` is not a task id (16 hex digits)"))
    }
}

impl TryFrom<String> for TaskId {
    type Error = String;
    fn try_from(s: String) -> Result<TaskId, String> {
        s.parse()
    }
}

impl From<TaskId> for String {
    fn from(id: TaskId) -> String {
        id.to_string()
    }
}

/// What to tune: a workload for an objective, with what users know about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Stable identity.
    pub id: TaskId,
    /// A readable name, unique within one input: the user's, or made from kind and shape.
    pub name: String,
    /// The computation.
    pub workload: Workload,
    /// The objective.
    pub objective: Objective,
    /// How often the model calls it; 1 for single kernels.
    pub count: u64,
    /// The graph nodes that it covers.
    pub nodes: Vec<String>,
}

impl Task {
    /// A task that the model calls once.
    pub fn new(name: impl Into<String>, workload: Workload) -> Task {
        let objective = Objective::Time;
        Task {
            id: TaskId::of(&workload, objective),
            name: name.into(),
            workload,
            objective,
            count: 1,
            nodes: Vec::new(),
        }
    }
}
