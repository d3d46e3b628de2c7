//! The copies that remain of a node that moves data, once its values have the layouts and sites
//! (places in another value's memory) that an assignment chose: for each operand the place of its
//! elements and the place where they belong. Where the two are equal nothing is copied. Input: a
//! choice and a node; output: a list of [`Carried`]. `plan/build.rs` turns the others into copies.

use super::Choice;
use crate::candidate::root;
use crate::moves::{is_seen_through, joints, pulled, pushed};
use crate::site::Site;
use crate::view::{View, input};
use squall_core::graph::ValueId;

/// The elements of an operand, and the place where they belong; equal places need no copy.
pub struct Carried {
    /// The operand's position.
    pub operand: usize,
    /// The result.
    pub result: ValueId,
    /// Where the elements are.
    pub from: Site,
    /// Where they go.
    pub to: Site,
}

impl Carried {
    /// Whether the elements already lie where they belong.
    pub fn is_done(&self) -> bool {
        let alike =
            |a: &Site, b: &Site| (a.host, a.offset, a.factors()) == (b.host, b.offset, b.factors());
        alike(&self.from, &self.to)
    }
}

/// The elements that a node moves, with its values where the choice has them; an error where the
/// node is none whose move can be expressed by strides.
pub fn carried(view: &View<'_>, choice: &Choice, node: usize) -> Result<Vec<Carried>, String> {
    let n = &view.model.nodes[node];
    if !is_seen_through(n) {
        return Err(format!("{} needs its values as the model has them", n.op));
    }
    let mut list = Vec::new();
    for (operand, result) in joints(n) {
        let (Some(x), Some(&y)) = (input(n, operand), n.outputs.get(result)) else { continue };
        if view.users(y).is_empty() && !view.is_output(y) {
            continue;
        }
        let of = |v: ValueId| choice.site(view.model, root(view.model, v));
        let (Some(own), Some(to)) = (of(x), of(y)) else {
            return Err("the shapes of its values are not known".into());
        };
        if let Some(to) = pulled(view, n, operand, &to) {
            // The operand may be known under another shape than its root.
            let from = view.shape(x).and_then(|s| own.reshaped(s));
            let from = from.ok_or("its operand has another shape")?;
            list.push(Carried { operand, result: y, from, to });
        } else if let Some(from) = pushed(view, n, result, &own) {
            list.push(Carried { operand, result: y, from, to });
        } else {
            return Err("its values lie so that its moves are no strides".into());
        }
    }
    Ok(list)
}
