//! Two products by weights, the second of which alone reads what the first makes, as a
//! transformer's hidden layer has them: what lies between is made in chunks of its columns and
//! added to the result's sums. For devices whose blocks have a memory of their own; CPUs make both
//! in parts (`back_to_back.rs`).

use super::{PRODUCTS, is_one_of, pairs};
use crate::candidate::FusionCandidate;
use crate::view::View;
use squall_core::operator::made_in_chunks;

/// The rule's name.
pub const NAME: &str = "products";

/// See [`super::Find`]. Where nothing is found, the anchored rule says why.
pub fn find(view: &View<'_>, node: usize) -> Option<Result<Vec<FusionCandidate>, String>> {
    let is_first = is_one_of(view, node, PRODUCTS);
    is_first.then(|| pairs(NAME, view, node, (Some(PRODUCTS), made_in_chunks)))?
}
