//! What an import gives.

use crate::graph::Graph;
use squall_core::{Task, TaskId};
use std::collections::{HashMap, HashSet};

/// An input turned into tasks.
#[derive(Clone, Debug, Default)]
pub struct Import {
    /// The distinct kernels with their counts, in order of first use.
    pub tasks: Vec<Task>,
    /// Operators that are not tuned, in the graph's order.
    pub untuned: Vec<Untuned>,
    /// Nodes that leave nothing to run: constants, identities and what nobody reads.
    pub folded: Vec<String>,
    /// The order of execution, of models whose inputs have known shapes.
    pub graph: Option<Graph>,
}

/// An operator that is not tuned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Untuned {
    /// The node's name.
    pub node: String,
    /// Its operator.
    pub op: String,
    /// Why it is not tuned.
    pub reason: String,
}

/// Collects tasks: equal ones are one, and names are unique.
#[derive(Default)]
pub(crate) struct Tasks {
    tasks: Vec<Task>,
    known: HashMap<TaskId, usize>,
    names: HashSet<String>,
}

impl Tasks {
    /// Adds a kernel that covers the given nodes.
    pub fn add(&mut self, name: String, workload: squall_core::Workload, nodes: Vec<String>) -> TaskId {
        let mut task = Task::new(name, workload);
        let id = task.id;
        match self.known.get(&id) {
            Some(&i) => {
                self.tasks[i].count += 1;
                self.tasks[i].nodes.extend(nodes);
            }
            None => {
                task.name = self.unique(&task.name);
                task.nodes = nodes;
                self.known.insert(id, self.tasks.len());
                self.tasks.push(task);
            }
        }
        id
    }

    fn unique(&mut self, wanted: &str) -> String {
        let mut name = wanted.to_string();
        let mut n = 1;
        while !self.names.insert(name.clone()) {
            n += 1;
            name = format!("{wanted}_{n}");
        }
        name
    }

    pub fn finish(self) -> Vec<Task> {
        self.tasks
    }
}
