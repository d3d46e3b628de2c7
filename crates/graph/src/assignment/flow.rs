//! The steps of an assignment as a graph for pictures and reports: for each step the operators that
//! it computes, its task, and the steps whose values it reads. Input: an assignment; output: a list
//! of [`FlowStep`]s in order of execution.

use super::{Assignment, Step, operator, reads};
use crate::candidate::root;
use squall_core::TaskId;
use std::collections::HashMap;

/// A step with the operators that it computes.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowStep {
    /// The names of its nodes and their operators, in order.
    pub nodes: Vec<(String, String)>,
    /// Its task; `None` for a node without a kernel.
    pub task: Option<TaskId>,
    /// The steps whose values it reads, each once, ascending.
    pub from: Vec<usize>,
}

impl Assignment {
    /// The steps in order of execution. A value that several steps write in parts comes from the
    /// last of them.
    pub fn flow(&self) -> Vec<FlowStep> {
        let (all, model) = (&self.candidates, self.model());
        let mut writer = HashMap::new();
        let mut steps = Vec::new();
        for (i, step) in self.choice.steps.iter().enumerate() {
            let (nodes, outputs) = match *step {
                Step::Kernel(k) => (all.list[k].nodes.clone(), all.list[k].outputs.clone()),
                Step::Node(n) => (vec![n], model.nodes[n].outputs.clone()),
            };
            let mut from: Vec<usize> =
                reads(all, step).iter().filter_map(|v| writer.get(v).copied()).collect();
            from.sort_unstable();
            from.dedup();
            let named = |n: &usize| (model.nodes[*n].name.clone(), operator(&model.nodes[*n]));
            let nodes = nodes.iter().map(named).collect();
            steps.push(FlowStep { nodes, task: self.task_of_step(i), from });
            outputs.into_iter().for_each(|v| _ = writer.insert(root(model, v), i));
        }
        steps
    }
}
