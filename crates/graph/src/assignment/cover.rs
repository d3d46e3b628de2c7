//! The cover of a model as one line of text: which kernels compute it, without layouts. Example:
//! `0+1,-2,3+4+5` is a kernel of nodes 0 and 1, node 2 without a kernel, and a kernel of nodes 3 to
//! 5. Records keep a network's choice of kernels as such a line, and `covered_by` turns it back
//! into an assignment.

use super::{Assignment, Choice, Step};
use std::collections::HashMap;

impl Assignment {
    /// The steps in order of execution, separated by commas: a kernel by the numbers of its nodes
    /// with a plus between them, a node without a kernel by its number with a minus ahead.
    pub fn cover_line(&self) -> String {
        let word = |s: &Step| match *s {
            Step::Kernel(i) => {
                let nodes = self.candidates.list[i].nodes.iter().map(usize::to_string);
                nodes.collect::<Vec<_>>().join("+")
            }
            Step::Node(n) => format!("-{n}"),
        };
        self.choice.steps.iter().map(word).collect::<Vec<_>>().join(",")
    }

    /// The assignment of the model by the kernels of a line, with all values in the model's layout;
    /// an error where the line belongs to another model or is no legal cover.
    pub fn covered_by(&self, line: &str) -> Result<Assignment, String> {
        let numbers = |word: &str| -> Result<Vec<usize>, String> {
            let one = |n: &str| n.parse().map_err(|_| format!("`{n}` is no number of a node"));
            word.split('+').map(one).collect()
        };
        let list = self.candidates.list.iter().enumerate();
        let by_nodes: HashMap<&[usize], usize> =
            list.rev().map(|(i, c)| (c.nodes.as_slice(), i)).collect();
        let step = |word: &str| match word.strip_prefix('-') {
            Some(node) => match numbers(node)?[..] {
                [n] if n < self.model().nodes.len() => Ok(Step::Node(n)),
                _ => Err(format!("`{word}` is no node of the model")),
            },
            None => match by_nodes.get(numbers(word)?.as_slice()) {
                Some(&i) => Ok(Step::Kernel(i)),
                None => Err(format!("no kernel covers just the nodes {word}")),
            },
        };
        let steps = line.split(',').map(step).collect::<Result<Vec<Step>, String>>()?;
        Assignment::new(self.candidates.clone(), Choice { steps, ..Choice::default() })
    }
}
