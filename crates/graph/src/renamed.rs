//! A rewriting of models: an elementwise operator with several operands (`Add`, `Mul`, ..) reads
//! past a chain of renames where the value before the chain broadcasts alike. Example: `x[197,
//! 768]`, reshaped to `[197, 1, 768]`, transposed to `[1, 197, 768]` and added to `y[1, 197, 768]`,
//! is `x + y`. The kernel that makes `x` can then include the addition, and the renames are
//! removed. Called by `simplify.rs`.

use crate::fuse::anchor::is_anchor;
use crate::fuse::group::without_ones;
use crate::fuse::step::is_elementwise;
use crate::moves::renames;
use crate::view::{ints, runs};
use squall_core::graph::infer::broadcast;
use squall_core::graph::{Model, Node, ValueId};

/// Operators whose operands all broadcast to the result.
const BROADCAST: &[&str] = &["Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean"];

/// The node that makes each value, and whether a value is read only once and is no output.
struct Links {
    maker: Vec<Option<usize>>,
    is_read_once: Vec<bool>,
}

impl Links {
    /// Finds the makers and counts the reads.
    fn of(model: &Model) -> Links {
        let mut maker = vec![None; model.values.len()];
        let mut reads = vec![0; model.values.len()];
        for (i, n) in model.nodes.iter().enumerate() {
            n.outputs.iter().for_each(|&v| maker[v] = Some(i));
            n.inputs.iter().flatten().for_each(|&v| reads[v] += 1);
        }
        // Readers of a value's aliases are not looked for, so that such a value counts as read more
        // than once.
        let aliases = model.values.iter().filter_map(|v| v.alias);
        model.outputs.iter().copied().chain(aliases).for_each(|v| reads[v] += 2);
        Links { maker, is_read_once: reads.into_iter().map(|n| n == 1).collect() }
    }
}

/// Lets all elementwise nodes read past renames where they can, and removes the renames; returns
/// whether there was one.
pub fn read_past_renames(model: &mut Model) -> bool {
    let (mut at, mut changed) = (0, false);
    let mut links = Links::of(model);
    while at < model.nodes.len() {
        match past(model, &links, at) {
            Some((operand, chain, begins)) => {
                model.nodes[at].inputs[operand] = Some(begins);
                take_out(model, &chain);
                links = Links::of(model);
                // The chain lay before the node.
                at -= chain.len();
                changed = true;
            }
            None => at += 1,
        }
    }
    changed
}

/// The number of an operand of a node that comes from a chain of renames, the nodes of the chain,
/// and the value that the chain begins with.
fn past(model: &Model, links: &Links, node: usize) -> Option<(usize, Vec<usize>, ValueId)> {
    let n = &model.nodes[node];
    let [result] = n.outputs[..] else { return None };
    if !BROADCAST.iter().any(|op| runs(n, op)) {
        return None;
    }
    let wanted = model.values[result].shape.as_ref()?;
    (0..n.inputs.len()).find_map(|operand| {
        let (chain, begins) = renamed(model, links, n.inputs[operand]?)?;
        let shape = |i: usize| {
            let v = if i == operand { begins } else { n.inputs[i]? };
            model.values[v].shape.clone()
        };
        let mut made: Vec<i64> = Vec::new();
        for i in 0..n.inputs.len() {
            made = broadcast(&made, &shape(i)?).ok()?;
        }
        (made == *wanted).then_some((operand, chain, begins))
    })
}

/// The chain of renames that gives a value, last first, each read once, and the value that a kernel
/// makes and nothing else reads.
fn renamed(model: &Model, links: &Links, v: ValueId) -> Option<(Vec<usize>, ValueId)> {
    let (mut chain, mut at) = (Vec::new(), v);
    while links.is_read_once[at] {
        let i = links.maker[at]?;
        let n = &model.nodes[i];
        if n.folded {
            return None;
        }
        if !(renames(n) || moves_units(model, n)) || n.outputs.len() != 1 {
            let is_kernels = is_anchor(&n.op) || is_elementwise(&n.op);
            let shape = |v: ValueId| model.values[v].shape.as_deref().map(without_ones);
            let is_same = shape(at).is_some() && shape(at) == shape(v);
            return (!chain.is_empty() && is_kernels && is_same).then_some((chain, at));
        }
        chain.push(i);
        at = (*n.inputs.first()?)?;
    }
    None
}

/// Whether a node is a transposition that leaves all elements where they are.
fn moves_units(model: &Model, n: &Node) -> bool {
    let Some(&Some(x)) = n.inputs.first() else { return false };
    let Some(shape) = model.values[x].shape.as_ref().filter(|_| runs(n, "Transpose")) else {
        return false;
    };
    let reversed = || (0..shape.len() as i64).rev().collect();
    let order: Vec<i64> = ints(n, "perm").map_or_else(reversed, <[i64]>::to_vec);
    let long: Vec<i64> = order
        .into_iter()
        .filter(|&d| shape.get(d as usize).is_none_or(|extent| *extent != 1))
        .collect();
    long.is_sorted()
}

/// Takes nodes out that nothing reads, with their results.
fn take_out(model: &mut Model, nodes: &[usize]) {
    let mut gone: Vec<ValueId> =
        nodes.iter().flat_map(|&n| model.nodes[n].outputs.clone()).collect();
    gone.sort_unstable();
    let mut number = 0;
    model.nodes.retain(|_| {
        number += 1;
        !nodes.contains(&(number - 1))
    });
    let mut number = 0;
    model.values.retain(|_| {
        number += 1;
        !gone.contains(&(number - 1))
    });
    let to = |v: ValueId| v - gone.partition_point(|g| *g < v);
    model.values.iter_mut().for_each(|v| v.alias = v.alias.map(to));
    for n in &mut model.nodes {
        n.inputs.iter_mut().flatten().for_each(|v| *v = to(*v));
        n.outputs.iter_mut().for_each(|v| *v = to(*v));
    }
    model.inputs.iter_mut().chain(&mut model.outputs).for_each(|v| *v = to(*v));
}
