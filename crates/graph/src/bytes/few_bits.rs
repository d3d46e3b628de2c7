//! Marks the products with weights of 4 or 8 bits (`MatMulNBits`) that are to be tuned kernels, by
//! the attribute `kernel`. Input and output: a model. It is done for CPUs only; on a GPU such a
//! product stays a plain operator, C that is generated for one node without tuning.
//! `fuse/anchor/few_bits.rs` makes the kernels.

use crate::fuse::anchor::few_bits;
use crate::view::View;
use squall_core::graph::infer::nbits::DOMAIN;
use squall_core::graph::{Attribute, Model};

/// The attribute of a product that is to be a tuned kernel.
pub const KERNEL: &str = "kernel";

/// The model with its products of few bits marked as kernels; `None` where there are none.
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
