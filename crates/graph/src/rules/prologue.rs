//! The rule `prologue`: elementwise nodes ahead of a convolution or matrix product that alone reads
//! their result, with the elementwise nodes that follow it, as one kernel. The kernel computes the
//! elementwise part where it reads its operand. Examples: a batch normalisation with its ReLU, a
//! scalar factor, a channel's gate. The rule is listed in `mod.rs` and built of the parts in
//! `../fuse`.

use super::{blamed, grown};
use crate::candidate::FusionCandidate;
use crate::fuse::anchor::anchor;
use crate::fuse::group::Group;
use crate::fuse::step::is_elementwise;
use crate::view::{View, input};

/// The rule's name.
pub const NAME: &str = "prologue";

/// The operators whose kernels can compute elementwise nodes where they read their operand.
const ANCHORS: &[&str] = &["Conv", "MatMul", "Gemm"];

/// See [`super::Find`]. Where nothing is found, the elementwise rule says why.
pub fn find(view: &View<'_>, node: usize) -> Option<Result<Vec<FusionCandidate>, String>> {
    if !is_elementwise(&view.model.nodes[node].op) {
        return None;
    }
    let mut list = Vec::new();
    let before = blamed(view, node, Group::elementwise(view, node)).ok()?;
    for before in grown(view, before) {
        let Some(reader) = reader(view, &before) else { continue };
        let Some(Ok(made)) = anchor(view, &view.model.nodes[reader]) else { continue };
        for around in grown(view, Group::around(reader, made)) {
            list.extend(FusionCandidate::after(NAME, view, &before, &around));
        }
    }
    (!list.is_empty()).then_some(Ok(list))
}

/// The only node that reads a group's result, if it reads the result once, as its first operand.
fn reader(view: &View<'_>, before: &Group) -> Option<usize> {
    let v = before.output;
    let [reader] = view.users(v)[..] else { return None };
    let node = &view.model.nodes[reader];
    let reads = |i: usize| input(node, i).is_some_and(|u| view.root(u) == v);
    let once = reads(0) && !(1..node.inputs.len()).any(reads);
    let known =
        ANCHORS.contains(&node.op.as_str()) && matches!(node.domain.as_str(), "" | "ai.onnx");
    (once && known && !view.is_output(v)).then_some(reader)
}
