//! Which values of a model are never negative, such as the results of `Relu`, `Sigmoid` or `Abs`.
//! The minimum in a dynamic quantisation's range is then 0 and needs no pass over the tensor
//! (`dynamic.rs`). Input: a model; output: one boolean for each value, by the sign that each
//! operator's row in `core/src/operators` says.

use crate::view::{View, float, input, int, ints, runs};
use squall_core::graph::Node;
use squall_core::operators::{Sign, standard};

/// For each value of a model, whether no element of it can be below zero.
pub(super) fn never_negative(view: &View<'_>) -> Vec<bool> {
    let model = view.model;
    // Among constants only single numbers are looked at, such as the bounds of `Clip` and `Max`.
    let known = |v: usize| view.scalar(v).is_some_and(|x| x >= 0.0);
    let mut above: Vec<bool> = (0..model.values.len()).map(known).collect();
    for n in &model.nodes {
        if is_above(view, &above, n) {
            n.outputs.iter().for_each(|&o| above[o] = true);
        }
    }
    // An alias has the sign of its root.
    (0..above.len()).map(|v| above[v] || above[view.root(v)]).collect()
}

/// Whether a node's results are never negative.
fn is_above(view: &View<'_>, above: &[bool], n: &Node) -> bool {
    let is = |v: usize| above[v] || above[view.root(v)];
    let mut operands = n.inputs.iter().flatten().map(|&v| is(v));
    let first = input(n, 0).is_some_and(is);
    if runs(n, "Clip") {
        // Where the bounds cross, the upper one holds.
        let low = input(n, 1).map_or(float(n, "min", -1.0) >= 0.0, is);
        let high = input(n, 2).map_or(float(n, "max", 1.0) >= 0.0, is);
        return (first || low) && high;
    }
    if runs(n, "Max") {
        return operands.any(|a| a);
    }
    if runs(n, "MaxPool") {
        return first && has_an_element(n);
    }
    match standard(&n.op).filter(|row| runs(n, row.name)).map(|row| row.sign) {
        Some(Sign::NeverNegative) => true,
        Some(Sign::OfFirst) => first,
        Some(Sign::OfAll) => operands.all(|a| a),
        Some(Sign::Any) | None => false,
    }
}

/// Whether each window of a pool has an element of the image: one of a border alone has none.
fn has_an_element(n: &Node) -> bool {
    let kernel = ints(n, "kernel_shape").unwrap_or_default();
    let pads = ints(n, "pads").unwrap_or_default();
    let at_once = ints(n, "dilations").is_none_or(|d| d.iter().all(|d| *d == 1));
    let narrow = pads.iter().zip(kernel.iter().cycle()).all(|(pad, window)| pad < window);
    at_once && narrow && int(n, "ceil_mode", 0) == 0
}
