//! The last step of rewriting a model: nodes whose results nothing reads are removed, and values
//! are numbered anew in the order that `Model` requires. Input: the old model, all values and the
//! rewritten nodes; output: a model. The rewritings `bytes`, `ranges` and `halves` end with it.

use squall_core::DType;
use squall_core::graph::{Constant, Model, Node, Value, ValueId};
use std::collections::HashSet;
use std::sync::Arc;

/// The model of these nodes and values, with the inputs and outputs of the old model.
pub fn numbered(old: &Model, values: Vec<Value>, mut nodes: Vec<Node>) -> Model {
    let mut wanted: HashSet<ValueId> = HashSet::new();
    let read = nodes.iter().flat_map(|n| n.inputs.iter().flatten().chain(&n.outputs));
    for &v in read.chain(&old.outputs).chain(&old.inputs) {
        wanted.extend([v, root(&values, v)]);
    }
    // An alias stands behind the value that it names: results in the order of their nodes, after
    // all other values.
    let results: Vec<ValueId> = nodes.iter().flat_map(|n| n.outputs.clone()).collect();
    let made: HashSet<ValueId> = results.iter().copied().collect();
    let others = (0..values.len()).filter(|v| wanted.contains(v) && !made.contains(v));
    let order: Vec<ValueId> = others.chain(results).collect();
    let mut to = vec![0; values.len()];
    order.iter().enumerate().for_each(|(new, &old)| to[old] = new);
    let mut olds: Vec<Option<Value>> = values.into_iter().map(Some).collect();
    let mut values: Vec<Value> = order.iter().filter_map(|&v| olds[v].take()).collect();
    values.iter_mut().for_each(|v| v.alias = v.alias.map(|a| to[a]));
    for n in &mut nodes {
        n.inputs.iter_mut().flatten().for_each(|v| *v = to[*v]);
        n.outputs.iter_mut().for_each(|v| *v = to[*v]);
    }
    let moved = |list: &[ValueId]| list.iter().map(|&v| to[v]).collect();
    Model {
        nodes,
        values,
        inputs: moved(&old.inputs),
        outputs: moved(&old.outputs),
        opset: old.opset,
        name: old.name.clone(),
    }
}

/// The nodes that the outputs depend on.
pub fn needed(values: &[Value], outputs: &[ValueId], nodes: Vec<Node>) -> Vec<Node> {
    let both = |&v: &ValueId| [v, root(values, v)];
    let mut wanted: HashSet<ValueId> = outputs.iter().flat_map(both).collect();
    let mut kept = Vec::new();
    for n in nodes.into_iter().rev() {
        if n.outputs.iter().any(|o| wanted.contains(o)) {
            wanted.extend(n.inputs.iter().flatten().flat_map(both));
            kept.push(n);
        }
    }
    kept.reverse();
    kept
}

/// Adds a value for the rewriting called `by`; a value whose elements are known is a weight.
pub fn add_value(
    values: &mut Vec<Value>,
    by: &str,
    dtype: Option<DType>,
    shape: Vec<i64>,
    constant: Option<Constant>,
) -> ValueId {
    let name = format!("squall/{by}/{}", values.len());
    let weight = constant.is_some();
    values.push(Value {
        name,
        dtype,
        shape: Some(shape),
        constant: constant.map(Arc::new),
        weight,
        alias: None,
    });
    values.len() - 1
}

/// The value that a value is an alias of, or the value itself.
pub fn root(values: &[Value], v: ValueId) -> ValueId {
    values[v].alias.unwrap_or(v)
}
