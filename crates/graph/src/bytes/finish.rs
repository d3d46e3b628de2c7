//! The end of the rewriting: nodes of which nothing is read go, values are numbered anew.

use squall_core::graph::{Model, Node, ValueId};
use std::collections::HashSet;

/// The model of these nodes, without those that nothing needs.
pub(super) fn finished(mut model: Model, nodes: Vec<Node>) -> Model {
    let root = |m: &Model, v: ValueId| m.values[v].alias.unwrap_or(v);
    let mut wanted: HashSet<ValueId> = HashSet::new();
    for &v in &model.outputs {
        wanted.extend([v, root(&model, v)]);
    }
    let mut kept = Vec::new();
    for n in nodes.into_iter().rev() {
        if n.outputs.iter().any(|o| wanted.contains(o)) {
            for &v in n.inputs.iter().flatten() {
                wanted.extend([v, root(&model, v)]);
            }
            // All of its results keep their names.
            wanted.extend(&n.outputs);
            kept.push(n);
        }
    }
    kept.reverse();
    wanted.extend(&model.inputs);
    // Aliases stand behind what they are aliases of: results in the order of their nodes, after
    // all other values.
    let results: Vec<ValueId> = kept.iter().flat_map(|n| n.outputs.clone()).collect();
    let made: HashSet<ValueId> = results.iter().copied().collect();
    let others = (0..model.values.len()).filter(|v| wanted.contains(v) && !made.contains(v));
    let order: Vec<ValueId> = others.chain(results).collect();
    let mut to = vec![0; model.values.len()];
    order.iter().enumerate().for_each(|(new, &old)| to[old] = new);
    let mut values: Vec<_> = order.iter().map(|&v| model.values[v].clone()).collect();
    values.iter_mut().for_each(|v| v.alias = v.alias.map(|a| to[a]));
    for n in &mut kept {
        n.inputs.iter_mut().flatten().for_each(|v| *v = to[*v]);
        n.outputs.iter_mut().for_each(|v| *v = to[*v]);
    }
    let ends = model.inputs.iter_mut().chain(&mut model.outputs);
    ends.for_each(|v| *v = to[*v]);
    Model { nodes: kept, values, ..model }
}
