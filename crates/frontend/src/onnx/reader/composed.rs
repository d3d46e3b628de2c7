//! Standard operators that other standard operators compute, written out as those where their
//! shapes are known: then kernels take part in them as if the exporter had written them so. An
//! `Einsum` becomes products of matrices between permutations that kernels read through, an
//! `Attention` two products with a softmax between them. Norms and sums of powers over other than
//! the last dimensions become reductions; over the last ones the node is a kernel, and stays. A
//! `RotaryEmbedding` with position ids becomes one with a row of its caches for each step, which is
//! a kernel. A node that is not of these forms stays, and runs as plain C where it is no kernel.

mod attention;
mod einsum;
mod norms;
mod rotary;

use super::body::{Around, Body};
use crate::onnx::proto::NodeProto;
use squall_core::DType;

/// Writes one operator out; none where this use of it stays as it is.
type Write = fn(&mut Body) -> Option<()>;

const OPERATORS: &[(&str, Write)] = &[
    ("Attention", attention::attention),
    ("Einsum", einsum::einsum),
    ("LpNormalization", norms::lp_normalization),
    ("ReduceLogSumExp", norms::reduce_log_sum_exp),
    ("RotaryEmbedding", rotary::rotary),
];

/// The standard operators that are written out as others.
pub fn composed_operators() -> impl Iterator<Item = &'static str> {
    OPERATORS.iter().map(|(name, _)| *name)
}

/// The nodes that compute what a node does, where it is of floats and a form that is known.
pub(super) fn written_out(
    call: &NodeProto,
    prefix: &str,
    around: &Around,
) -> Option<Vec<NodeProto>> {
    if !matches!(call.domain.as_str(), "" | "ai.onnx") {
        return None;
    }
    let (_, write) = OPERATORS.iter().find(|(name, _)| *name == call.op_type)?;
    let dtype = (around.dtype)(call.input.first()?)?;
    if !matches!(dtype, DType::F32 | DType::F16 | DType::Bf16) {
        return None;
    }
    let mut body = Body { call, prefix, around, nodes: Vec::new() };
    write(&mut body).map(|()| body.nodes)
}
