//! Anchors (the operators that fused kernels are built around) of products with weights of few bits
//! (`MatMulNBits`, 4 or 8 bits), which are kernels of their own on CPUs. Input: a node that
//! `bytes/few_bits.rs` marked; output: its name and workload, or the reason why there is no kernel
//! for it.

use crate::view::View;
use squall_core::graph::Node;
use squall_core::graph::infer::nbits::NBits;
use squall_core::graph::infer::{Ctx, bytes};
use squall_core::operator::{FewBits, FewBitsZero};
use squall_core::{DType, Workload};

/// The name and the kernel of a product; an error where it has none.
pub fn few_bits(view: &View<'_>, node: &Node) -> Result<(String, Workload), String> {
    of(&Ctx::new(node, view.model.opset, &view.model.values))
}

/// The name and the workload of a product.
pub(super) fn of(ctx: &Ctx) -> Result<(String, Workload), String> {
    let w = NBits::of(ctx)?;
    let operands: [(bool, &[DType]); 5] = [
        (true, &[DType::F32]),
        (true, &[DType::U8]),
        (true, &[DType::F32]),
        (false, &[DType::U8, DType::F32]),
        (false, &[DType::F32]),
    ];
    for (i, (is_needed, types)) in operands.iter().enumerate() {
        match (ctx.operand(i), ctx.dtype(i)) {
            (None, _) if !is_needed => {}
            (_, Some(d)) if types.contains(&d) => {}
            _ => return Err(format!("its input {i} is of no type that a kernel is made for")),
        }
    }
    if ctx.inputs.len() > operands.len() {
        return Err("it has more inputs than a kernel is made for".into());
    }
    let rows = bytes::elements(ctx, 0)? / w.k;
    let zero = match (ctx.operand(3), ctx.dtype(3)) {
        (None, _) => FewBitsZero::Same(w.no_zero()),
        (_, Some(DType::F32)) => FewBitsZero::Floats,
        _ => FewBitsZero::Bytes,
    };
    let whole = ctx.int_or("accuracy_level", 0)? == 4;
    let product = FewBits::new(rows, &w, whole, zero, ctx.operand(4).is_some());
    Ok((product.name(), product.workload()?))
}
