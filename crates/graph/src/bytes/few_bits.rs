//! Products with weights of few bits that become kernels: a CPU's are tuned as other tasks are.

use crate::fuse::anchor::few_bits;
use crate::view::View;
use squall_core::graph::infer::nbits::DOMAIN;
use squall_core::graph::{Attribute, Model};

/// What says that a product is to be a kernel of its own; a GPU's stays a plain operator.
pub const KERNEL: &str = "kernel";

/// The model with its products of few bits as kernels; none where there is nothing to change.
pub fn marked(model: &Model) -> Option<Model> {
    let view = View::new(model);
    let is_product = |i: &usize| {
        let n = &model.nodes[*i];
        let of_few_bits = n.domain == DOMAIN && n.op == "MatMulNBits" && !n.folded;
        of_few_bits && few_bits(&view, n).is_ok()
    };
    let found: Vec<usize> = (0..model.nodes.len()).filter(is_product).collect();
    if found.is_empty() {
        return None;
    }
    let mut made = model.clone();
    for i in found {
        made.nodes[i].attributes.insert(KERNEL.into(), Attribute::Int(1));
    }
    Some(made)
}
