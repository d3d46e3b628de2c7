//! Two products by weights, the second of which alone reads what the first makes, as a
//! transformer's hidden layer has them: what lies between is made in chunks of its columns and
//! added to the result's sums. For devices whose blocks have a memory of their own; CPUs make both
//! in parts (`back_to_back.rs`).

use super::{behind, grown};
use crate::candidate::FusionCandidate;
use crate::fuse::anchor::anchor;
use crate::fuse::group::Group;
use crate::view::{View, is_standard};

/// The rule's name.
pub const NAME: &str = "products";

/// See [`super::Find`]. Where nothing is found, the anchored rule says why.
pub fn find(view: &View<'_>, node: usize) -> Option<Result<Vec<FusionCandidate>, String>> {
    let is_product =
        |n: usize| ["MatMul", "Gemm"].iter().any(|op| is_standard(&view.model.nodes[n], op));
    if !is_product(node) {
        return None;
    }
    let first = anchor(view, &view.model.nodes[node])?.ok()?;
    let mut list = Vec::new();
    for made in grown(view, Group::around(node, first)) {
        let second = behind(view, &made).filter(|g| is_product(g.nodes[0]));
        list.extend(second.and_then(|s| FusionCandidate::made_in_chunks(NAME, view, &made, &s)));
    }
    (!list.is_empty()).then_some(Ok(list))
}
