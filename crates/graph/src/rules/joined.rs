//! The rule `joined`: a convolution that reads ranges of channels of several values, together with
//! the concatenation ahead of it, as one kernel that reads the parts where they lie. It applies
//! only to concatenations that the rewriting `ranges.rs` marked. The rule is listed in `mod.rs` and
//! built of the parts in `../fuse`.

use super::{grown, only_reader};
use crate::candidate::FusionCandidate;
use crate::fuse::anchor::anchor;
use crate::fuse::group::Group;
use crate::ranges::READ_IN_PARTS;
use crate::view::{View, int, is_standard};

/// The rule's name.
pub const NAME: &str = "joined";

/// See [`super::Find`].
pub fn find(view: &View<'_>, node: usize) -> Option<Result<Vec<FusionCandidate>, String>> {
    let ahead = &view.model.nodes[node];
    if !is_standard(ahead, "Concat") || int(ahead, READ_IN_PARTS, 0) == 0 {
        return None;
    }
    let reader = only_reader(view, *ahead.outputs.first()?)?;
    if int(ahead, "axis", 0) != 1 || !is_standard(&view.model.nodes[reader], "Conv") {
        return None;
    }
    let around = anchor(view, &view.model.nodes[reader])?.ok()?;
    let all = grown(view, Group::around(reader, around)).into_iter();
    let list: Vec<_> =
        all.filter_map(|g| FusionCandidate::of_parts(NAME, view, node, &g)).collect();
    (!list.is_empty()).then_some(Ok(list))
}
