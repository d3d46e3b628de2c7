//! Collects the tasks of a model or of a file of operator lines: equal tasks become one with a
//! count, and names become unique. Input: workloads with names and the nodes that they cover;
//! output: a list of tasks in order of first appearance. [`Untuned`] describes a node that is not
//! tuned, with the reason for the user.

use crate::{Task, TaskId, Workload};
use std::collections::{HashMap, HashSet};

/// A node that is not tuned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Untuned {
    /// The node's name.
    pub node: String,
    /// Its operator.
    pub op: String,
    /// Why, in words for the user.
    pub reason: String,
}

/// Collects tasks: equal ones become one, names become unique.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    tasks: Vec<Task>,
    by_id: HashMap<TaskId, usize>,
    names: HashSet<String>,
}

impl Tasks {
    /// Adds a kernel that covers the given nodes.
    pub fn add(&mut self, name: &str, workload: Workload, nodes: Vec<String>) -> TaskId {
        let mut task = Task::new(name, workload);
        let id = task.id;
        match self.by_id.get(&id) {
            Some(&i) => {
                self.tasks[i].count += 1;
                self.tasks[i].nodes.extend(nodes);
            }
            None => {
                let free =
                    (1..).map(|n| if n == 1 { name.to_string() } else { format!("{name}_{n}") });
                task.name = free.into_iter().find(|n| !self.names.contains(n)).unwrap_or_default();
                task.nodes = nodes;
                self.names.insert(task.name.clone());
                self.by_id.insert(id, self.tasks.len());
                self.tasks.push(task);
            }
        }
        id
    }

    /// Whether a task has this name.
    pub fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// The tasks in order of first appearance.
    pub fn finish(self) -> Vec<Task> {
        self.tasks
    }
}

/// A name with its steps: `conv2d_64x56x56_k64_3x3` and `bias`, `relu`.
pub fn named(stem: &str, tags: &[String]) -> String {
    let steps = tags.join("_").replace("div_erf_add_mul_mul", "gelu");
    match (stem.is_empty(), steps.is_empty()) {
        (_, true) => stem.to_string(),
        (true, false) => steps,
        // A long chain would make a name too long to read.
        (false, false) if tags.len() > 6 => format!("{stem}_{}_steps", tags.len()),
        (false, false) => format!("{stem}_{steps}"),
    }
}
