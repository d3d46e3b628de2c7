//! A report on the rewriting of quantised models to kernels of bytes (`mod.rs`): the operators of a
//! model that still compute floats although the model multiplies bytes, each with the reason.
//! Input: a rewritten model; output: a list that the command line shows to users who wonder about
//! speed.

use crate::candidates::moves_data;
use crate::fuse::step::is_elementwise;
use crate::view::{View, input, int, is_standard};
use squall_core::DType;
use squall_core::graph::{Model, Node};
use squall_core::tasks::Untuned;

/// Operators that only rename, or that convert between bytes and floats.
const BORDERS: &[&str] = &["Cast", "Constant", "Identity", "QuantizeLinear", "DequantizeLinear"];

/// The nodes of a rewritten model that compute floats, each with the reason why. Elementwise nodes
/// are left out, since they join neighbouring kernels. Empty for a model without bytes.
pub fn stayed(model: &Model) -> Vec<Untuned> {
    let of_bytes = |n: &Node| n.op.ends_with("Bytes") && !is_standard(n, &n.op);
    if !model.nodes.iter().any(of_bytes) {
        return Vec::new();
    }
    let view = View::new(model);
    let computes = |n: &&Node| {
        let op = n.op.as_str();
        let is_other = moves_data(op) || BORDERS.contains(&op) || is_elementwise(op);
        let gives = n.outputs.first().and_then(|&o| model.values[o].dtype);
        let reads = n.inputs.iter().flatten().any(|&v| !view.is_weight(v));
        is_standard(n, op) && !n.folded && !is_other && gives == Some(DType::F32) && reads
    };
    let named = |n: &Node| Untuned {
        node: n.name.clone(),
        op: n.op.clone(),
        reason: reason(&view, n).to_string(),
    };
    model.nodes.iter().filter(computes).map(named).collect()
}

/// The reason why a node does not compute in bytes.
fn reason(view: &View<'_>, n: &Node) -> &'static str {
    let is_activation = |i: usize| input(n, i).is_some_and(|v| !view.is_weight(v));
    // A factor that is a `Sub` (of a zero point) was quantised with a scale that the run computes.
    let is_rounded = |i: usize| {
        let producer = input(n, i).and_then(|v| view.producer(view.root(v)));
        producer.is_some_and(|p| is_standard(&view.model.nodes[p], "Sub"))
    };
    match n.op.as_str() {
        "Conv" | "ConvTranspose" if is_activation(1) => "its filters are no constants",
        "Conv" if is_rounded(0) && int(n, "group", 1) > 1 => {
            "the range of its input is known in the run alone, and its groups have no multiple of \
             four channels"
        }
        "Conv" if is_rounded(0) => "its filters are no bytes, or no multiple of four",
        "Conv" if int(n, "group", 1) > 1 => "its groups have no multiple of four channels",
        "Conv" => "what it reads, gives or adds is not quantised so that bytes could hold it",
        "MatMul" | "Gemm" if is_activation(0) && is_activation(1) => {
            "both of its factors are activations"
        }
        "MatMul" | "Gemm" => "what it reads or gives is not quantised, or no multiple of four",
        "Softmax"
        | "LogSoftmax"
        | "LayerNormalization"
        | "InstanceNormalization"
        | "GroupNormalization" => "no kernel of bytes sums over a row",
        _ => "it has no kernel of bytes",
    }
}
