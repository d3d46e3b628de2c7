//! Checks that a choice of kernels and layouts is a legal cover of a model: every node that has to
//! run is in a step, every value is computed once and before it is read, and all steps that touch a
//! value agree on its layout and site. Input: fusion candidates (sets of nodes that may be one
//! kernel) and a choice; output: nothing, or the first fault in words. `Assignment::new` calls it.

use super::moving::carried;
use super::{Choice, Step, reads, workload};
use crate::candidate::root;
use crate::candidates::Candidates;
use crate::layout::Layout;
use crate::moves::is_seen_through;
use crate::view::View;
use squall_core::DType;
use squall_core::graph::{Model, ValueId};
use std::collections::{BTreeSet, HashSet};

/// Checks a choice; the error says the first fault.
pub fn verify(candidates: &Candidates, choice: &Choice) -> Result<(), String> {
    let m = &candidates.model;
    order(candidates, choice)?;
    let covered: HashSet<usize> = choice.steps.iter().flat_map(|s| nodes(candidates, s)).collect();
    if let Some(n) = (0..m.nodes.len()).find(|n| !m.nodes[*n].folded && !covered.contains(n)) {
        return Err(format!("node `{}` is covered by no step", m.nodes[n].name));
    }
    sites(candidates, choice)?;
    layouts(candidates, choice)
}

/// The nodes of a step.
fn nodes(candidates: &Candidates, step: &Step) -> Vec<usize> {
    match *step {
        Step::Kernel(i) => candidates.list.get(i).map_or(Vec::new(), |c| c.nodes.clone()),
        Step::Node(n) => vec![n],
    }
}

/// The name of a step in messages.
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
    let movable = |s: &Step| match *s {
        Step::Kernel(i) => candidates.list[i].outputs.clone(),
        Step::Node(n) if is_seen_through(&m.nodes[n]) => m.nodes[n].outputs.clone(),
        Step::Node(_) => Vec::new(),
    };
    let given: HashSet<ValueId> = choice.steps.iter().flat_map(movable).collect();
    for (&v, layout) in choice.layouts.iter().filter(|(v, _)| moved(**v)) {
        let wrong =
            |why: &str| Err(format!("`{}` cannot lie as {}: {why}", name(v), layout.name()));
        if !given.contains(&v) {
            return wrong("no kernel and no move gives it");
        }
        if choice.sites.contains_key(&v) {
            return wrong("it lies in the memory of another value");
        }
        if m.outputs.iter().any(|&o| root(m, o) == v) {
            return wrong("the model gives it to its caller");
        }
    }
    for step in &choice.steps {
        match *step {
            // Values that nodes read are checked with the moves of the node.
            Step::Node(_) => {}
            Step::Kernel(i) => {
                let made = candidates.list[i].feeds.iter().filter(|f| f.is_made());
                let in_made = made.flat_map(|f| f.values()).any(|v| !choice.is_plain(root(m, v)));
                if in_made || workload(candidates, choice, i).is_none() {
                    let reader = named(candidates, step);
                    return Err(format!("{reader} cannot have its values in these layouts"));
                }
            }
        }
    }
    Ok(())
}

/// Whether each node that moves data can do so where its values lie, and each value that lies in
/// the memory of another is there what moves make it: then no element has two values.
fn sites(candidates: &Candidates, choice: &Choice) -> Result<(), String> {
    let m: &Model = &candidates.model;
    if choice.sites.is_empty() && choice.layouts.is_empty() {
        return Ok(());
    }
    let name = |v: ValueId| &m.values[v].name;
    for (&v, site) in &choice.sites {
        let wrong =
            |why: &str| Err(format!("`{}` cannot lie in `{}`: {why}", name(v), name(site.host)));
        let host = &m.values[site.host];
        if root(m, v) != v || root(m, site.host) != site.host || site.host == v {
            return wrong("one of the two is another name of a value");
        }
        if choice.sites.contains_key(&site.host) {
            return wrong("that lies in the memory of another value itself");
        }
        if m.values[v].dtype != Some(DType::F32) || host.dtype != Some(DType::F32) {
            return wrong("only values of 32-bit floats do");
        }
        if host.weight || host.constant.is_some() {
            return wrong("that is a constant");
        }
        if m.inputs.contains(&v) || m.outputs.iter().any(|&o| root(m, o) == v) {
            return wrong("its memory is the caller's");
        }
        let shape = m.values[v].shape.as_deref().unwrap_or_default();
        let room = host.shape.as_ref().map(|s| s.iter().product::<i64>());
        if site.shape() != shape || shape.iter().any(|e| *e < 1) || !site.fits(room) {
            return wrong("it does not fit there");
        }
    }
    let view = View::new(m);
    // Moves that leave everything where it is tie values to hosts.
    let mut ties: Vec<(ValueId, ValueId)> = Vec::new();
    for step in &choice.steps {
        let Step::Node(n) = *step else { continue };
        let outputs = m.nodes[n].outputs.iter().copied();
        if reads(candidates, step)
            .into_iter()
            .chain(outputs)
            .all(|v| choice.layout(v) == Layout::Model && !choice.sites.contains_key(&v))
        {
            continue;
        }
        let made = carried(&view, choice, n)
            .map_err(|e| format!("{} cannot have its values so: {e}", named(candidates, step)))?;
        ties.extend(
            made.into_iter()
                .filter(|c| c.is_done())
                .map(|c| (m.nodes[n].inputs[c.operand].map_or(c.result, |v| root(m, v)), c.result)),
        );
    }
    let mut tied: BTreeSet<ValueId> = choice.sites.values().map(|s| s.host).collect();
    loop {
        let before = tied.len();
        for &(x, y) in &ties {
            for (a, b) in [(x, y), (y, x)] {
                if tied.contains(&a) && choice.sites.contains_key(&b) {
                    tied.insert(b);
                }
            }
        }
        if tied.len() == before {
            break;
        }
    }
    match choice.sites.iter().find(|(v, _)| !tied.contains(v)) {
        Some((&v, site)) => Err(format!(
            "`{}` cannot lie in `{}`: no move makes the two one there",
            name(v),
            name(site.host)
        )),
        None => Ok(()),
    }
}
