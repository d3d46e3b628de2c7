//! Nodes that only move data (`Transpose`, `Slice`, `Concat`, `Split`, `Gather` by known indices,
//! and renames such as `Reshape`) as relations of places: given where an operand lies in memory,
//! where the result lies as a part of it (`pushed`), and the reverse (`pulled`). With such a place
//! (`site.rs`) nothing needs to be copied. `assignment/moving.rs` and `solvers/in_place.rs` use it.

use crate::site::Site;
use crate::view::{View, axis, input, int, ints};
use squall_core::graph::{Node, ValueId};
use squall_core::operators::standard;

/// Whether a node's result has the elements of its first operand in the same order.
pub fn renames(node: &Node) -> bool {
    let known = matches!(node.domain.as_str(), "" | "ai.onnx");
    known && standard(&node.op).is_some_and(|row| row.renames)
}

/// Whether a node's move can be expressed as a place in memory, without a copy.
pub fn is_seen_through(node: &Node) -> bool {
    let known = matches!(node.domain.as_str(), "" | "ai.onnx");
    let moves = ["Transpose", "Concat", "Slice", "Split", "Gather"].contains(&node.op.as_str());
    (known && moves) || renames(node)
}

/// The pairs of an operand's position and a result's position between which a node moves data.
pub fn joints(node: &Node) -> Vec<(usize, usize)> {
    match node.op.as_str() {
        "Concat" => (0..node.inputs.len()).map(|i| (i, 0)).collect(),
        "Split" => (0..node.outputs.len()).map(|o| (0, o)).collect(),
        _ => vec![(0, 0)],
    }
}

/// The place of a result as a part of its operand, whose place is `from`.
pub fn pushed(view: &View<'_>, node: &Node, result: usize, from: &Site) -> Option<Site> {
    let (x, xs) = shaped(view, input(node, 0)?)?;
    let (_, ys) = shaped(view, *node.outputs.get(result)?)?;
    if from.shape() != xs {
        return None;
    }
    match node.op.as_str() {
        _ if renames(node) => from.reshaped(ys),
        "Transpose" => from.permuted(&order(node, xs.len())?),
        "Slice" => slice(view, node, x, ys, from),
        "Split" => {
            let at = axis(int(node, "axis", 0), xs.len()).ok()?;
            let before = node.outputs.iter().take(result).map(|&o| Some(shaped(view, o)?.1[at]));
            from.part(at, before.sum::<Option<i64>>()?, ys[at])
        }
        "Gather" => {
            let at = axis(int(node, "axis", 0), xs.len()).ok()?;
            let (id, indices) = (input(node, 1)?, view.ints(input(node, 1)?)?);
            let first = *indices.first()?;
            let first = if first < 0 { first + xs[at] } else { first };
            let in_order = indices.windows(2).all(|w| w[1] == w[0] + 1);
            let inside = first >= 0 && first + indices.len() as i64 <= xs[at];
            // One list of indices, or a number, which removes the dimension.
            let rank = view.model.values[id].shape.as_ref()?.len();
            if !in_order || !inside || rank > 1 {
                return None;
            }
            let mut site = from.part(at, first, indices.len() as i64)?;
            if rank == 0 {
                site.dims.remove(at);
            }
            (site.shape() == ys).then_some(site)
        }
        _ => None,
    }
}

/// The place of an operand as a part of the first result, whose place is `to`.
pub fn pulled(view: &View<'_>, node: &Node, operand: usize, to: &Site) -> Option<Site> {
    let (_, xs) = shaped(view, input(node, operand)?)?;
    match node.op.as_str() {
        _ if renames(node) && operand == 0 => to.reshaped(xs),
        "Transpose" => {
            let order = order(node, xs.len())?;
            let mut back = vec![0; order.len()];
            order.iter().enumerate().for_each(|(i, &d)| back[d] = i);
            to.permuted(&back)
        }
        "Concat" => {
            let at = axis(int(node, "axis", 0), xs.len()).ok()?;
            let mut start = 0;
            for i in 0..operand {
                start += shaped(view, input(node, i)?)?.1.get(at)?;
            }
            to.part(at, start, xs[at])
        }
        _ => None,
    }
}

/// A value with its extents.
fn shaped<'a>(view: &View<'a>, id: ValueId) -> Option<(ValueId, &'a [i64])> {
    Some((id, view.shape(id)?))
}

/// The permutation of a Transpose.
fn order(node: &Node, rank: usize) -> Option<Vec<usize>> {
    let order: Vec<usize> = match ints(node, "perm") {
        Some(list) => list.iter().map(|&d| axis(d, rank).ok()).collect::<Option<_>>()?,
        None => (0..rank).rev().collect(),
    };
    let mut sorted = order.clone();
    sorted.sort_unstable();
    (sorted == (0..rank).collect::<Vec<_>>()).then_some(order)
}

/// A Slice by steps of 1 whose limits are known.
fn slice(view: &View<'_>, node: &Node, x: ValueId, ys: &[i64], from: &Site) -> Option<Site> {
    let xs = view.shape(x)?;
    let list = |i: usize, name: &str| match input(node, i) {
        Some(id) => view.ints(id),
        None => ints(node, name),
    };
    let starts = list(1, "starts")?;
    let all: Vec<i64> = (0..starts.len() as i64).collect();
    let axes = list(3, "axes").unwrap_or(&all);
    if input(node, 4).is_some_and(|id| view.ints(id).is_none_or(|s| s.iter().any(|s| *s != 1))) {
        return None;
    }
    let mut site = from.clone();
    for (&start, &a) in starts.iter().zip(axes) {
        let at = axis(a, xs.len()).ok()?;
        let start = if start < 0 { start.saturating_add(xs[at]) } else { start };
        let start = start.clamp(0, xs[at]);
        if start + ys[at] > xs[at] {
            return None;
        }
        site = site.part(at, start, ys[at])?;
    }
    (site.shape() == ys).then_some(site)
}
