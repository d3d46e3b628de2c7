//! A product and the normalisation of rows that it alone reads: each block of the product takes the
//! statistics of its rows and normalises what it fetches. For devices whose blocks have a memory of
//! their own; CPUs make both in parts (`back_to_back.rs`).

use super::{behind, grown};
use crate::candidate::FusionCandidate;
use crate::fuse::anchor::anchor;
use crate::fuse::group::Group;
use crate::view::{View, is_standard};

/// The rule's name.
pub const NAME: &str = "normed";

/// See [`super::Find`]. Where nothing is found, the anchored rule says why.
pub fn find(view: &View<'_>, node: usize) -> Option<Result<Vec<FusionCandidate>, String>> {
    let is = |n: usize, ops: &[&str]| {
        let node = &view.model.nodes[n];
        ops.iter().any(|op| is_standard(node, op))
    };
    if !is(node, &["LayerNormalization", "Softmax"]) {
        return None;
    }
    let first = anchor(view, &view.model.nodes[node])?.ok()?;
    let mut list = Vec::new();
    for made in grown(view, Group::around(node, first)) {
        let product = behind(view, &made).filter(|g| is(g.nodes[0], &["MatMul", "Gemm"]));
        list.extend(product.and_then(|p| FusionCandidate::normed(NAME, view, &made, &p)));
    }
    (!list.is_empty()).then_some(Ok(list))
}
