//! A convolution and the pooling that alone reads its result, in chunks of channels: what lies
//! between is made where a block's tile of the pooling reads it. For devices whose blocks have a
//! memory of their own; CPUs make both in parts (`back_to_back.rs`).

use super::{is_one_of, pairs};
use crate::candidate::FusionCandidate;
use crate::view::View;
use squall_core::operator::made_in_chunks;

/// The rule's name.
pub const NAME: &str = "pooled";

/// See [`super::Find`]. Where nothing is found, the anchored rule says why.
pub fn find(view: &View<'_>, node: usize) -> Option<Result<Vec<FusionCandidate>, String>> {
    let behind = Some(&["MaxPool", "AveragePool"][..]);
    let is_first = is_one_of(view, node, &["Conv"]);
    is_first.then(|| pairs(NAME, view, node, (behind, made_in_chunks)))?
}
