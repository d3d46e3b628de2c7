//! The rule `attention`: a matrix product, a softmax along its last axis, and the product that
//! reads the softmax, as one kernel (FlashAttention). The matrix of scores between them, with an
//! element for each pair of tokens, is never stored. Input: the first product's node; output:
//! fusion candidates (sets of nodes that may be one kernel) with the elementwise nodes (scale,
//! mask) in between. The rule is listed in `mod.rs` and built of the parts in `../fuse`.

use super::{grown, only_reader};
use crate::candidate::FusionCandidate;
use crate::fuse::anchor::anchor;
use crate::fuse::group::Group;
use crate::view::{View, axis, int};
use squall_core::graph::ValueId;

/// The rule's name.
pub const NAME: &str = "attention";

/// See [`super::Find`]. Where nothing is found, the anchored rule says why.
pub fn find(view: &View<'_>, node: usize) -> Option<Result<Vec<FusionCandidate>, String>> {
    let first = &view.model.nodes[node];
    if first.op != "MatMul" {
        return None;
    }
    let mut list = Vec::new();
    for scores in grown(view, Group::around(node, anchor(view, first)?.ok()?)) {
        let Some(softmax) = reader(view, scores.output, "Softmax") else { continue };
        let softened = &view.model.nodes[softmax];
        let Some(&weights) = softened.outputs.first() else { continue };
        let rank = view.shape(weights).map_or(0, <[i64]>::len);
        let default = if view.model.opset < 13 { 1 } else { -1 };
        if axis(int(softened, "axis", default), rank) != Ok(rank.saturating_sub(1)) {
            continue;
        }
        let Some(product) = reader(view, weights, "MatMul") else { continue };
        let Some(Ok(made)) = anchor(view, &view.model.nodes[product]) else { continue };
        for values in grown(view, Group::around(product, made)) {
            list.extend(FusionCandidate::attention(NAME, view, &scores, softmax, &values));
        }
    }
    (!list.is_empty()).then_some(Ok(list))
}

/// The only reader of a value, if it is a standard operator of this name.
fn reader(view: &View<'_>, v: ValueId, op: &str) -> Option<usize> {
    only_reader(view, v).filter(|&n| {
        let node = &view.model.nodes[n];
        node.op == op && matches!(node.domain.as_str(), "" | "ai.onnx")
    })
}
