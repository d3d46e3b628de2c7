//! The solver `unfused`, which covers a model without fusion: each node that computes is a kernel
//! of its own. It is the baseline from which the gain of fusion is counted. `mod.rs` lists the
//! solvers.

use super::Cost;
use crate::assignment::{Choice, Step};
use crate::candidates::Candidates;

/// See [`super::Solve`].
pub fn solve(all: &Candidates, _: Choice, _: &Cost<'_>) -> Choice {
    let by_first = all.by_first_node();
    let step = |node: usize| {
        let smallest = by_first[node].iter().min_by_key(|&&i| all.list[i].nodes.len());
        smallest.map_or(Step::Node(node), |&i| Step::Kernel(i))
    };
    let nodes = (0..all.model.nodes.len()).filter(|&n| !all.model.nodes[n].folded);
    Choice { steps: nodes.map(step).collect(), ..Choice::default() }
}
