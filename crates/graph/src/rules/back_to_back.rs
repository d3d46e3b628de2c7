//! An operator and the operator that alone reads its result, where both can be made in parts of an
//! axis that they share: a pointwise convolution and the depthwise one behind it, a convolution and
//! its pooling, a product and the softmax or the product of its rows. What lies between them is
//! never stored as a whole.

use super::pairs;
use crate::candidate::FusionCandidate;
use crate::view::{View, is_standard};
use squall_core::operator::back_to_back;

/// The rule's name.
pub const NAME: &str = "back_to_back";

/// See [`super::Find`]. Where nothing is found, the anchored rule says why.
pub fn find(view: &View<'_>, node: usize) -> Option<Result<Vec<FusionCandidate>, String>> {
    let first = &view.model.nodes[node];
    let is_first = is_standard(first, &first.op);
    is_first.then(|| pairs(NAME, view, node, (None, back_to_back)))?
}
