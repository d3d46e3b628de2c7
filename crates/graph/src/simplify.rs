//! Rewrites a model so that more of it can be one kernel, with the same results up to rounding. A
//! scalar that multiplies an operand of a matrix product, as attention's scale does, is moved
//! behind the product, whose kernel can include it; elementwise operators read past renames
//! (`renamed.rs`). Input and output: a model. `squall/src/input/user_input.rs` calls this behind
//! the reader.

use crate::candidate::root;
use crate::fuse::anchor::is_anchor;
use crate::fuse::step::is_elementwise;
use crate::renamed::read_past_renames;
use crate::view::runs;
use squall_core::DType;
use squall_core::graph::{Model, Node, ValueId};

/// The model with all rewritings done; unchanged where one would break it.
pub fn simplify(model: Model) -> Model {
    let mut made = model.clone();
    let mut changed = false;
    while let Some((factor, product)) = factor_ahead(&made) {
        push_behind(&mut made, factor, product);
        changed = true;
    }
    if changed {
        in_order(&mut made);
    }
    changed |= read_past_renames(&mut made);
    if !changed {
        return model;
    }
    match made.verify() {
        Ok(()) => made,
        Err(_) => model,
    }
}

/// A multiplication by one number whose only reader is a matrix product, and that product.
fn factor_ahead(model: &Model) -> Option<(usize, usize)> {
    (0..model.nodes.len()).find_map(|i| {
        let n = &model.nodes[i];
        let &[Some(a), Some(b)] = &n.inputs[..] else { return None };
        let [result] = n.outputs[..] else { return None };
        let is_plain = runs(n, "Mul") && (is_number(model, a) != is_number(model, b));
        let x = if is_number(model, a) { b } else { a };
        // A known operand is multiplied ahead of the run, and one that a kernel makes is multiplied
        // in that kernel.
        let maker = model.nodes[..i].iter().rfind(|m| m.outputs.contains(&root(model, x)));
        let computed = !model.values[root(model, x)].weight
            && !maker.is_some_and(|m| !m.folded && (is_anchor(&m.op) || is_elementwise(&m.op)));
        let same = model.values[x].shape == model.values[result].shape
            && model.values[result].shape.is_some();
        if !is_plain || !computed || !same {
            return None;
        }
        let product = only_reader(model, result)?;
        runs(&model.nodes[product], "MatMul").then_some((i, product))
    })
}

/// Whether a value is one 32-bit float that is known.
fn is_number(model: &Model, v: ValueId) -> bool {
    let known = |v: ValueId| model.values[v].constant.as_ref();
    let constant = known(v).or_else(|| known(root(model, v)));
    constant.is_some_and(|c| c.len() == 1 && c.dtype() == DType::F32)
}

/// The node that reads a value, if it is the only one and reads it once.
fn only_reader(model: &Model, v: ValueId) -> Option<usize> {
    // Readers of the value's aliases are not looked for.
    let is_handed_on = model.values.iter().any(|u| u.alias == Some(v));
    if is_handed_on || model.outputs.contains(&v) {
        return None;
    }
    let reads = |n: &Node| n.inputs.iter().filter(|u| **u == Some(v)).count();
    let readers = (0..model.nodes.len()).map(|i| (i, reads(&model.nodes[i])));
    let mut readers = readers.filter(|(_, n)| *n > 0);
    let first = readers.next()?;
    (first.1 == 1 && readers.next().is_none()).then_some(first.0)
}

/// Lets a product read what a node multiplies, and the node multiply the product.
fn push_behind(model: &mut Model, factor: usize, product: usize) {
    let (scaled, given) = (model.nodes[factor].outputs[0], model.nodes[product].outputs[0]);
    let side = model.nodes[factor].inputs.iter().flatten().position(|&v| !is_number(model, v));
    let side = side.unwrap_or(0);
    let x = model.nodes[factor].inputs[side];
    // The value that was the product's becomes the multiplication's; what was scaled ahead is the
    // product now, under its own name.
    let shape = model.values[given].shape.clone();
    model.values[scaled].shape = shape;
    let node = &mut model.nodes[product];
    node.inputs.iter_mut().filter(|i| **i == Some(scaled)).for_each(|i| *i = x);
    node.outputs[0] = scaled;
    let mut moved = model.nodes.remove(factor);
    moved.inputs[side] = Some(scaled);
    moved.outputs[0] = given;
    // One place was removed before it.
    model.nodes.insert(product, moved);
}

/// Numbers the results of nodes in the nodes' order.
fn in_order(model: &mut Model) {
    let results: Vec<ValueId> = model.nodes.iter().flat_map(|n| n.outputs.clone()).collect();
    let mut places = results.clone();
    places.sort_unstable();
    let mut to: Vec<ValueId> = (0..model.values.len()).collect();
    for (result, place) in results.iter().zip(places) {
        to[*result] = place;
    }
    let mut values = model.values.clone();
    for (old, new) in to.iter().enumerate() {
        values[*new] = model.values[old].clone();
    }
    values.iter_mut().for_each(|v| v.alias = v.alias.map(|a| to[a]));
    model.values = values;
    for n in &mut model.nodes {
        n.inputs.iter_mut().flatten().for_each(|v| *v = to[*v]);
        n.outputs.iter_mut().for_each(|v| *v = to[*v]);
    }
    let ends = model.inputs.iter_mut().chain(&mut model.outputs);
    ends.for_each(|v| *v = to[*v]);
}
