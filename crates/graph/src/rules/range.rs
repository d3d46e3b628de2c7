//! The rule `range`: a convolution or product of bytes whose result is quantised dynamically (with
//! a scale from its largest element). One kernel computes the result only to find its largest
//! element and scale, a second kernel computes it again and rounds it to bytes. The result in
//! floats is never stored: where an element takes few operations, computing it twice is cheaper
//! than writing and reading it. The rule is listed in `mod.rs` and built of the parts in `../fuse`.

use super::grown;
use crate::candidate::FusionCandidate;
use crate::fuse::anchor::anchor;
use crate::fuse::group::Group;
use crate::view::{View, is_standard};
use squall_core::graph::infer::nbits;

/// The rule's name.
pub const NAME: &str = "range";

/// Operators on bytes whose results may be quantised dynamically.
const PRODUCTS: &[&str] = &["ProductBytes", "ConvProductBytes"];

/// See [`super::Find`]. Where nothing is found, the anchored rule says why.
pub fn find(view: &View<'_>, node: usize) -> Option<Result<Vec<FusionCandidate>, String>> {
    let first = &view.model.nodes[node];
    if first.domain != nbits::DOMAIN || !PRODUCTS.contains(&first.op.as_str()) {
        return None;
    }
    let mut list = Vec::new();
    for made in grown(view, Group::around(node, anchor(view, first)?.ok()?)) {
        let users = view.users(made.output);
        let of = |op: &str| users.iter().copied().find(|&u| view.model.nodes[u].op == op);
        let largest = of("ReduceMax").filter(|&u| is_standard(&view.model.nodes[u], "ReduceMax"));
        // Where both the minimum and the maximum are needed, the result would be computed too
        // often.
        let (Some(largest), Some(bytes), [_, _]) = (largest, of("ToBytes"), users) else {
            continue;
        };
        for asked in [largest, bytes] {
            let Some(Ok(anchor)) = anchor(view, &view.model.nodes[asked]) else { continue };
            let Some(asked) = grown(view, Group::around(asked, anchor)).pop() else { continue };
            list.extend(FusionCandidate::behind(NAME, view, &made, &asked));
        }
    }
    (!list.is_empty()).then_some(Ok(list))
}
