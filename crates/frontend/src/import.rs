//! What an import gives: distinct tasks with counts, and what is not tuned.

use crate::graph::Graph;
use squall_core::{Task, Workload};
use std::collections::{HashMap, HashSet};

/// A network or a list of kernels, as tasks.
#[derive(Clone, Debug, Default)]
pub struct Import {
    /// The distinct kernels; equal ones are merged, with their count and their nodes.
    pub tasks: Vec<Task>,
    /// What is not tuned, and why.
    pub untuned: Vec<Untuned>,
    /// The order of execution, of models.
    pub graph: Option<Graph>,
    /// Nodes that need no execution: their results are known, or they do nothing.
    pub folded: Vec<String>,
}

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
#[derive(Default)]
pub(crate) struct Tasks {
    tasks: Vec<Task>,
    by_id: HashMap<squall_core::TaskId, usize>,
    names: HashSet<String>,
}

impl Tasks {
    /// Adds a kernel that covers the given nodes.
    pub fn add(
        &mut self,
        name: &str,
        workload: Workload,
        nodes: Vec<String>,
    ) -> squall_core::TaskId {
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
pub(crate) fn named(stem: &str, tags: &[String]) -> String {
    let steps = tags.join("_").replace("div_erf_add_mul_mul", "gelu");
    match (stem.is_empty(), steps.is_empty()) {
        (_, true) => stem.to_string(),
        (true, false) => steps,
        // Long chains would make names that nobody reads.
        (false, false) if tags.len() > 6 => format!("{stem}_{}_steps", tags.len()),
        (false, false) => format!("{stem}_{steps}"),
    }
}
