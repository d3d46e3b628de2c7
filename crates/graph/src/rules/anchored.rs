//! The rule `anchored`: an operator that reduces (a convolution, a product, a pool, a softmax), its
//! anchor, together with the elementwise nodes that follow it, as one kernel. It gives one
//! candidate for each number of followers at which a single value leaves the group. The rule is
//! listed in `mod.rs` and built of the parts in `../fuse`.

use super::{blamed, sizes};
use crate::candidate::FusionCandidate;
use crate::fuse::anchor::anchor;
use crate::fuse::group::Group;
use crate::view::View;

/// The rule's name.
pub const NAME: &str = "anchored";

/// See [`super::Find`].
pub fn find(view: &View<'_>, node: usize) -> Option<Result<Vec<FusionCandidate>, String>> {
    let made = anchor(view, &view.model.nodes[node])?;
    let group = blamed(view, node, made).map(|a| Group::around(node, a));
    Some(group.and_then(|g| sizes(NAME, view, g)))
}
