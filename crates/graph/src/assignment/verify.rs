//! Whether a choice is a legal cover: every value is there when it is read, every result is given
//! once, and all that touch a value agree on its layout.

use super::{Choice, Step, reads, workload};
use crate::candidate::root;
use crate::candidates::Candidates;
use crate::layout::Layout;
use squall_core::graph::{Model, ValueId};
use std::collections::HashSet;

/// Says what is wrong with a choice.
pub fn verify(candidates: &Candidates, choice: &Choice) -> Result<(), String> {
    let m = &candidates.model;
    order(candidates, choice)?;
    let covered: HashSet<usize> = choice.steps.iter().flat_map(|s| nodes(candidates, s)).collect();
    if let Some(n) = (0..m.nodes.len()).find(|n| !m.nodes[*n].folded && !covered.contains(n)) {
        return Err(format!("node `{}` is covered by no step", m.nodes[n].name));
    }
    layouts(candidates, choice)
}

fn nodes(candidates: &Candidates, step: &Step) -> Vec<usize> {
    match *step {
        Step::Kernel(i) => candidates.list.get(i).map_or(Vec::new(), |c| c.nodes.clone()),
        Step::Node(n) => vec![n],
    }
}

/// A step as messages name it.
fn named(candidates: &Candidates, step: &Step) -> String {
    match *step {
        Step::Kernel(i) => format!("kernel `{}`", candidates.list[i].name),
        Step::Node(n) => format!("node `{}`", candidates.model.nodes[n].name),
    }
}

/// Whether each value is given once, and before it is read.
fn order(candidates: &Candidates, choice: &Choice) -> Result<(), String> {
    let m = &candidates.model;
    let executed: HashSet<ValueId> =
        m.nodes.iter().filter(|n| !n.folded).flat_map(|n| n.outputs.clone()).collect();
    let mut given = HashSet::new();
    let there = |v: ValueId, given: &HashSet<ValueId>| !executed.contains(&v) || given.contains(&v);
    for step in &choice.steps {
        let outputs = match *step {
            Step::Kernel(i) => match candidates.list.get(i) {
                Some(c) => &c.outputs,
                None => return Err(format!("there is no candidate {i}")),
            },
            Step::Node(n) => match m.nodes.get(n) {
                Some(node) if node.folded => {
                    return Err(format!("node `{}` needs no execution", node.name));
                }
                Some(node) if !candidates.refused.contains_key(&n) => {
                    return Err(format!("node `{}` computes: it needs a kernel", node.name));
                }
                Some(node) => &node.outputs,
                None => return Err(format!("there is no node {n}")),
            },
        };
        let wrong = |what: &str, v: ValueId| {
            Err(format!("{} {what} `{}`", named(candidates, step), m.values[v].name))
        };
        if let Some(v) = reads(candidates, step).into_iter().find(|&v| !there(v, &given)) {
            return wrong("reads a value that no step before it gives,", v);
        }
        for &v in outputs {
            if !given.insert(v) {
                return wrong("gives what another step gives already,", v);
            }
        }
    }
    match m.outputs.iter().map(|&v| root(m, v)).find(|&v| !there(v, &given)) {
        Some(v) => Err(format!("no step gives the output `{}`", m.values[v].name)),
        None => Ok(()),
    }
}

/// Whether all that touch a value can have it as it lies.
fn layouts(candidates: &Candidates, choice: &Choice) -> Result<(), String> {
    let m: &Model = &candidates.model;
    let name = |v: ValueId| &m.values[v].name;
    let moved = |v: ValueId| choice.layout(v) != Layout::Model;
    let by_kernels: HashSet<ValueId> = choice
        .steps
        .iter()
        .filter_map(
            |s| if let Step::Kernel(i) = s { Some(&candidates.list[*i].outputs) } else { None },
        )
        .flatten()
        .copied()
        .collect();
    for (&v, layout) in choice.layouts.iter().filter(|(v, _)| moved(**v)) {
        let wrong =
            |why: &str| Err(format!("`{}` cannot lie as {}: {why}", name(v), layout.name()));
        if !by_kernels.contains(&v) {
            return wrong("no kernel gives it");
        }
        if m.outputs.iter().any(|&o| root(m, o) == v) {
            return wrong("the model gives it to its caller");
        }
    }
    for step in &choice.steps {
        match *step {
            Step::Node(_) => {
                if let Some(&v) = reads(candidates, step).iter().find(|v| moved(**v)) {
                    let reader = named(candidates, step);
                    return Err(format!(
                        "{reader} reads `{}`, which does not lie as it expects",
                        name(v)
                    ));
                }
            }
            Step::Kernel(i) => {
                let made = candidates.list[i].feeds.iter().filter(|f| f.is_made());
                let in_made = made.flat_map(|f| f.values()).any(|v| moved(root(m, v)));
                if in_made || workload(candidates, choice, i).is_none() {
                    let reader = named(candidates, step);
                    return Err(format!("{reader} cannot have its values in these layouts"));
                }
            }
        }
    }
    Ok(())
}
