//! The rule `elementwise`: an elementwise node and the elementwise nodes that follow it as one
//! kernel. It gives one candidate for each number of followers at which a single value leaves the
//! group. The rule is listed in `mod.rs` and built of the parts in `../fuse`.

use super::{blamed, sizes};
use crate::candidate::FusionCandidate;
use crate::fuse::group::Group;
use crate::fuse::step::is_elementwise;
use crate::view::View;

/// The rule's name.
pub const NAME: &str = "elementwise";

/// See [`super::Find`].
pub fn find(view: &View<'_>, node: usize) -> Option<Result<Vec<FusionCandidate>, String>> {
    if !is_elementwise(&view.model.nodes[node].op) {
        return None;
    }
    let group = blamed(view, node, Group::elementwise(view, node));
    Some(group.and_then(|g| sizes(NAME, view, g)))
}
