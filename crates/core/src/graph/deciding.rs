//! Finds the inputs of a model whose values decide shapes, such as the target shape of a `Reshape`
//! that is computed from an input. Input: a model; output: these inputs.
//! `squall/src/input/given.rs` makes the values that a user gives for them constants of the network
//! before it runs.

use super::{Model, Node, ValueId};
use crate::text::shown;
use std::collections::HashSet;

/// The end of the message by which inference refuses an operand whose elements are not known; the
/// operand's name stands before it.
pub const NOT_KNOWN: &str = "is not known before the model runs";

/// The inputs on whose elements the shapes of nodes wait, in the model's order: where they are
/// given and become constants, more shapes can be inferred.
pub fn deciding_inputs(model: &Model) -> Vec<ValueId> {
    let mut producer = vec![None; model.values.len()];
    for (i, node) in model.nodes.iter().enumerate() {
        for &o in &node.outputs {
            producer[o] = Some(i);
        }
    }
    let mut open: Vec<ValueId> = model.nodes.iter().flat_map(|n| waited_for(model, n)).collect();
    let mut seen: HashSet<ValueId> = HashSet::new();
    while let Some(id) = open.pop() {
        if !seen.insert(id) {
            continue;
        }
        // The extents of a tensor are known without its elements.
        let maker = producer[id].map(|n: usize| &model.nodes[n]);
        if let Some(n) = maker.filter(|n| !matches!(n.op.as_str(), "Shape" | "Size")) {
            open.extend(n.inputs.iter().flatten());
        }
    }
    model.inputs.iter().copied().filter(|i| seen.contains(i)).collect()
}

/// The operands whose elements a node's shapes wait for: all where the problem names none.
fn waited_for(model: &Model, node: &Node) -> Vec<ValueId> {
    let Some(problem) = node.problem.as_ref().filter(|p| p.contains(NOT_KNOWN)) else {
        return Vec::new();
    };
    let named = |id: &ValueId| {
        let name = shown(&model.values[*id].name);
        problem.contains(&format!("its input `{name}` ("))
    };
    let operands: Vec<ValueId> = node.inputs.iter().flatten().copied().collect();
    let waited: Vec<ValueId> = operands.iter().copied().filter(named).collect();
    if waited.is_empty() { operands } else { waited }
}
