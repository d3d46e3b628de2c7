//! The rule `chain`: two or three operators one behind the other, each of which alone reads the
//! result of the one before, as one kernel that stores nothing in between. Examples: a pointwise
//! and a depthwise convolution, a convolution and its pooling, two products, a normalisation of
//! rows and the product that reads it. Only chains for which the device's sketches say that they
//! have a kernel become candidates (`makes_chain`). The rule is listed in `mod.rs` and built of the
//! parts in `../fuse`.

use super::{MakesChain, behind, grown};
use crate::candidate::FusionCandidate;
use crate::fuse::anchor::anchor;
use crate::fuse::group::Group;
use crate::view::{View, is_standard};

/// The rule's name.
pub const NAME: &str = "chain";

/// The names of older rules that this one replaced. Assignments of older builds contain them.
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
