//! Elementwise nodes ahead of a convolution or a product that alone reads what they make, with the
//! elementwise nodes that follow it: a batch normalisation with its ReLU, a factor, the gate of a
//! channel.

use super::{blamed, grown};
use crate::candidate::FusionCandidate;
use crate::fuse::anchor::anchor;
use crate::fuse::group::Group;
use crate::fuse::step::is_elementwise;
use crate::view::{View, input};

/// The rule's name.
pub const NAME: &str = "prologue";

/// The operators whose kernels compute what they read.
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

/// The only node that reads what a group makes, as its first operand alone.
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
