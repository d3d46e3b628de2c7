//! What a node that moves data has to copy once its values lie as they were chosen to: for each of
//! its operands the elements that are not in their place already.

use super::Choice;
use crate::candidate::root;
use crate::moves::{is_seen_through, joints, pulled, pushed};
use crate::site::Site;
use crate::view::{View, input};
use squall_core::graph::ValueId;

/// Elements of an operand, and where they go; equal where nothing is to be copied.
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
    /// Whether the elements are there already.
    pub fn is_done(&self) -> bool {
        let alike =
            |a: &Site, b: &Site| (a.host, a.offset, a.factors()) == (b.host, b.offset, b.factors());
        alike(&self.from, &self.to)
    }
}

/// What a node carries, its values where the choice has them; why not, where it is none whose moves
/// can be seen through.
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
