//! Operators one behind the other, each of which alone reads what the one before makes, as one
//! kernel that stores nothing of what lies between: a pointwise convolution and the depthwise one
//! behind it, a convolution and its pooling, two products, a norm of rows and the product that
//! reads them. Which of these a device has kernels for, its sketches say.

use super::{MakesChain, behind, grown};
use crate::candidate::FusionCandidate;
use crate::fuse::anchor::anchor;
use crate::fuse::group::Group;
use crate::view::{View, is_standard};

/// The rule's name.
pub const NAME: &str = "chain";

/// The names that rules had of which this one was made. Assignments of older builds have them.
pub const OLDER: &[&str] = &["back_to_back", "separable", "pooled", "products", "normed"];

/// See [`super::Find`]. Where nothing is found, the anchored rule says why.
pub fn find(
    view: &View<'_>,
    node: usize,
    makes_chain: MakesChain,
) -> Option<Result<Vec<FusionCandidate>, String>> {
    let first = &view.model.nodes[node];
    if !is_standard(first, &first.op) {
        return None;
    }
    let mut list = Vec::new();
    for made in grown(view, Group::around(node, anchor(view, first)?.ok()?)) {
        let of = |groups: &[&Group]| FusionCandidate::of_operators(NAME, view, groups, makes_chain);
        let Some(second) = behind(view, &made) else { continue };
        list.extend(of(&[&made, &second]));
        if let Some(third) = behind(view, &second) {
            list.extend(of(&[&made, &second, &third]));
        }
    }
    (!list.is_empty()).then_some(Ok(list))
}
