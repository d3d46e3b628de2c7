//! A depthwise convolution with the pointwise ones beside it: the one that alone is read by it, the
//! one that alone reads it, or both. Parts of the channels between are made, gone over and added up
//! in one kernel, on devices whose blocks can share sums.

use super::{behind, grown};
use crate::candidate::FusionCandidate;
use crate::fuse::anchor::anchor;
use crate::fuse::group::Group;
use crate::view::{View, is_standard};

/// The rule's name.
pub const NAME: &str = "separable";

/// See [`super::Find`]. Where nothing is found, the anchored rule says why.
pub fn find(view: &View<'_>, node: usize) -> Option<Result<Vec<FusionCandidate>, String>> {
    let first = &view.model.nodes[node];
    if !is_standard(first, "Conv") {
        return None;
    }
    let mut list = Vec::new();
    for made in grown(view, Group::around(node, anchor(view, first)?.ok()?)) {
        let Some(second) = convolution(view, &made) else { continue };
        list.extend(FusionCandidate::separable(NAME, view, &[&made, &second]));
        if let Some(third) = convolution(view, &second) {
            list.extend(FusionCandidate::separable(NAME, view, &[&made, &second, &third]));
        }
    }
    (!list.is_empty()).then_some(Ok(list))
}

/// The group around the convolution that alone reads what a group makes.
fn convolution(view: &View<'_>, made: &Group) -> Option<Group> {
    behind(view, made).filter(|g| is_standard(&view.model.nodes[g.nodes[0]], "Conv"))
}
