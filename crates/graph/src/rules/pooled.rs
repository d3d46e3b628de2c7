//! A convolution and the pooling that alone reads its result, in chunks of channels: what lies
//! between is made where a block's tile of the pooling reads it. For devices whose blocks have a
//! memory of their own; CPUs make both in parts (`back_to_back.rs`).

use super::{behind, grown};
use crate::candidate::FusionCandidate;
use crate::fuse::anchor::anchor;
use crate::fuse::group::Group;
use crate::view::{View, is_standard};

/// The rule's name.
pub const NAME: &str = "pooled";

/// See [`super::Find`]. Where nothing is found, the anchored rule says why.
pub fn find(view: &View<'_>, node: usize) -> Option<Result<Vec<FusionCandidate>, String>> {
    let first = &view.model.nodes[node];
    if !is_standard(first, "Conv") {
        return None;
    }
    let is_pooling = |g: &Group| {
        let pooling = &view.model.nodes[g.nodes[0]];
        ["MaxPool", "AveragePool"].iter().any(|op| is_standard(pooling, op))
    };
    let mut list = Vec::new();
    for made in grown(view, Group::around(node, anchor(view, first)?.ok()?)) {
        let pooling = behind(view, &made).filter(is_pooling);
        list.extend(pooling.and_then(|p| FusionCandidate::made_in_chunks(NAME, view, &made, &p)));
    }
    (!list.is_empty()).then_some(Ok(list))
}
