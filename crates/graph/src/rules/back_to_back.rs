//! An operator and the operator that alone reads its result, where both can be made in parts of an
//! axis that they share: a pointwise convolution and the depthwise one behind it, a convolution and
//! its pooling, a product and the softmax or the product of its rows. What lies between them is
//! never stored as a whole.

use super::{behind, grown};
use crate::candidate::FusionCandidate;
use crate::fuse::anchor::anchor;
use crate::fuse::group::Group;
use crate::view::{View, is_standard};

/// The rule's name.
pub const NAME: &str = "back_to_back";

/// See [`super::Find`]. Where nothing is found, the anchored rule says why.
pub fn find(view: &View<'_>, node: usize) -> Option<Result<Vec<FusionCandidate>, String>> {
    let first = &view.model.nodes[node];
    if !is_standard(first, &first.op) {
        return None;
    }
    let mut list = Vec::new();
    for made in grown(view, Group::around(node, anchor(view, first)?.ok()?)) {
        let asked = behind(view, &made);
        list.extend(asked.and_then(|a| FusionCandidate::back_to_back(NAME, view, &made, &a)));
    }
    (!list.is_empty()).then_some(Ok(list))
}
