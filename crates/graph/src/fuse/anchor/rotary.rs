//! Rotary embeddings as kernels (`core/src/operator/rotary.rs`). Input: a node whose caches have a
//! row for each step, as the reader of ONNX files makes them
//! (`frontend/src/onnx/reader/composed/rotary.rs`); output: an anchor, or the reason why the node
//! stays a plain operator.

use super::{Anchor, plain};
use crate::view::{View, input, int};
use squall_core::graph::Node;
use squall_core::operator::Rotary;

pub(super) fn rotary(view: &View<'_>, node: &Node) -> Result<Anchor, String> {
    let (x, xs) = view.operand(node, 0)?;
    let ((cos, by), (sin, also_by)) = (view.operand(node, 1)?, view.operand(node, 2)?);
    if input(node, 3).is_some() {
        return Err("its caches have no row for each step".into());
    }
    if int(node, "interleaved", 0) != 0 {
        return Err("the two features of a pair lie side by side".into());
    }
    let (batch, heads, steps, size) = match *xs {
        [batch, heads, steps, size] => (batch, heads, steps, size),
        [batch, steps, wide] => {
            let heads = int(node, "num_heads", 0);
            let size = wide.checked_div(heads).filter(|size| size * heads == wide);
            (batch, heads, steps, size.ok_or("its `num_heads` does not suit its input")?)
        }
        _ => return Err(format!("its input is {xs:?}")),
    };
    let turned = match int(node, "rotary_embedding_dim", 0) {
        0 => size,
        some => some,
    };
    let half = size / 2;
    if turned != size || 2 * half != size {
        return Err(format!("it turns {turned} of {size} features"));
    }
    let row = [batch, steps, half];
    if by != row || also_by != row {
        return Err(format!("its caches are {by:?} and {also_by:?}, not {row:?}"));
    }
    let are_side_by_side = xs.len() == 3;
    let kinds = [view.kind(cos), view.kind(sin)];
    let of = Rotary { batch, heads, steps, half, are_side_by_side, kinds };
    plain(view, node, of.name(), of.workload()?, vec![x, cos, sin])
}
