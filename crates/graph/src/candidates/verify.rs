//! Checks fusion candidates (sets of nodes that may be one kernel) against their model: each covers
//! existing nodes once, reads values that exist before it runs, gives a value of one of its nodes,
//! and its workload has tensors of the model's sizes. Input: candidates, usually just parsed;
//! output: nothing, or the first fault in words.

use super::Candidates;
use crate::candidate::{FusionCandidate, root};
use crate::feed::Feed;
use squall_core::TensorKind;
use squall_core::graph::{MOST_ELEMENTS, Model};

impl Candidates {
    /// Checks all candidates against the model; the error says which one is wrong and why.
    pub fn verify(&self) -> Result<(), String> {
        for c in &self.list {
            verify(&self.model, c).map_err(|e| format!("candidate `{}`: {e}", c.name))?;
        }
        Ok(())
    }
}

/// Checks one candidate.
fn verify(m: &Model, c: &FusionCandidate) -> Result<(), String> {
    let mut nodes = c.nodes.clone();
    nodes.sort_unstable();
    nodes.dedup();
    if nodes.is_empty() || nodes.len() < c.nodes.len() {
        return Err("it covers no node, or one twice".into());
    }
    if let Some(&n) = nodes.iter().find(|&&n| m.nodes[n].folded) {
        return Err(format!("node `{}` needs no execution", m.nodes[n].name));
    }
    c.workload.check().map_err(|e| e.to_string())?;
    let size = |shape: &[i64]| shape.iter().map(|&e| e as f64).product::<f64>();
    let inputs = c.workload.inputs.iter().map(|i| size(&i.shape));
    let stages = c.workload.stages.iter().map(|s| size(&s.shape()));
    if inputs.chain(stages).any(|n| n > MOST_ELEMENTS as f64) {
        return Err("its workload has a tensor of more than 2^40 elements".into());
    }
    if c.workload.foreign.is_some() {
        return Err("its workload is a kernel of the user's own".into());
    }
    if c.feeds.len() != c.workload.inputs.len() {
        let (feeds, inputs) = (c.feeds.len(), c.workload.inputs.len());
        return Err(format!("it reads {feeds} tensors, its workload {inputs}"));
    }
    for (feed, input) in c.feeds.iter().zip(&c.workload.inputs) {
        let wrong = |what: &str| Err(format!("input `{}`: {what}", input.name));
        let constant = |&v: &usize| {
            let value = &m.values[root(m, v)];
            m.values[v].weight || value.weight || value.constant.is_some()
        };
        let all_constant = feed.values().iter().all(constant);
        if !all_constant && (feed.is_made() || input.kind == TensorKind::Weight) {
            return wrong("it is computed at run time, and has to be known before");
        }
        let each = input.dtype.packed() as i64;
        if feed.elements(m) != Some(input.shape.iter().product::<i64>() * each) {
            return wrong("the model has another number of elements for it");
        }
        if let Feed::Value(v) = feed
            && nodes.iter().any(|&n| m.nodes[n].outputs.contains(&root(m, *v)))
        {
            return wrong("it is computed by the kernel itself");
        }
    }
    let [output] = c.outputs[..] else {
        return Err("a workload gives one value".into());
    };
    if !nodes.iter().any(|&n| m.nodes[n].outputs.contains(&output)) {
        return Err(format!("none of its nodes gives `{}`", m.values[output].name));
    }
    let said: Option<i64> = m.values[output].shape.as_ref().map(|s| s.iter().product());
    if said != Some(c.workload.output().elements() as i64) {
        return Err("the model has another number of elements for its result".into());
    }
    let known = c.find_layouts(m);
    match c.layouts.iter().find(|l| !known.contains(l)) {
        Some((v, l)) => Err(format!("`{}` cannot lie as {} for it", m.values[*v].name, l.name())),
        None => Ok(()),
    }
}
