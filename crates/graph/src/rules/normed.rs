//! A product and the normalisation of rows that it alone reads: each block of the product takes the
//! statistics of its rows and normalises what it fetches. For devices whose blocks have a memory of
//! their own; CPUs make both in parts (`back_to_back.rs`).

use super::{PRODUCTS, is_one_of, pairs};
use crate::candidate::FusionCandidate;
use crate::view::View;
use squall_core::operator::normed;

/// The rule's name.
pub const NAME: &str = "normed";

/// See [`super::Find`]. Where nothing is found, the anchored rule says why.
pub fn find(view: &View<'_>, node: usize) -> Option<Result<Vec<FusionCandidate>, String>> {
    let is_first = is_one_of(view, node, &["LayerNormalization", "Softmax"]);
    is_first.then(|| pairs(NAME, view, node, (Some(PRODUCTS), normed)))?
}
