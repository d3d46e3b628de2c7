//! Greedy fusion, the solver `greedy`: in the model's order, each node that no kernel covers yet
//! begins the largest fusion candidate (a set of nodes that may be one kernel) whose inputs are
//! computed by then. No times are asked, so candidates of rules that only times can decide
//! (prologues, chains, attention) are left out, and an operand that is computed later, such as a
//! residual, ends a kernel. `mod.rs` lists the solvers.

use super::Cost;
use crate::assignment::{Choice, Step};
use crate::candidate::{FusionCandidate, root};
use crate::candidates::Candidates;
use crate::rules::is_for_costs;
use std::collections::HashMap;

/// See [`super::Solve`].
pub fn solve(all: &Candidates, _: Choice, _: &Cost<'_>) -> Choice {
    let m = &all.model;
    let executed = m.nodes.iter().enumerate().filter(|(_, n)| !n.folded);
    let producer: HashMap<usize, usize> =
        executed.flat_map(|(i, n)| n.outputs.iter().map(move |&v| (v, i))).collect();
    // Nodes whose results exist once the steps so far have run.
    let mut done: Vec<bool> = m.nodes.iter().map(|n| n.folded).collect();
    let is_ready = |c: &FusionCandidate, done: &[bool]| {
        let mut reads = c.feeds.iter().filter(|f| !f.is_made()).flat_map(|f| f.values());
        reads.all(|v| producer.get(&root(m, v)).is_none_or(|&p| done[p]))
            && c.nodes.iter().all(|&n| !done[n])
    };
    let by_first = all.by_first_node();
    let mut choice = Choice::default();
    for node in 0..m.nodes.len() {
        if done[node] {
            continue;
        }
        let known = |i: usize| !is_for_costs(&all.list[i]) && is_ready(&all.list[i], &done);
        let ready = by_first[node].iter().filter(|&&i| known(i));
        match ready.max_by_key(|&&i| all.list[i].nodes.len()) {
            Some(&i) => {
                all.list[i].nodes.iter().for_each(|&n| done[n] = true);
                choice.steps.push(Step::Kernel(i));
            }
            None => {
                done[node] = true;
                choice.steps.push(Step::Node(node));
            }
        }
    }
    choice
}
