//! Which kernels cover a model, as a line: what records keep of a choice of kernels. Layouts are
//! not part of it.

use super::{Assignment, Choice, Step};
use std::collections::HashMap;

impl Assignment {
    /// The steps in order of execution, divided by commas: a kernel by the numbers of its nodes
    /// with a plus between them, a node without a kernel by its own with a minus ahead.
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

    /// The same model by the kernels of such a line, everything in the model's layout; what is
    /// wrong where the line is of another model or no legal cover.
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
