//! Finds the dynamically quantised bytes that an operator reads as whole numbers of floats. Input:
//! a graph; output: the names of bytes of `DynamicQuantizeLinear` that reach an operator of the
//! table (`calls.rs`) with companions, directly or through moves. The nodes of all other bytes stay
//! as they are, each one plain operator.

use super::calls::{is_moved, is_quantised};
use crate::onnx::proto::{GraphProto, NodeProto};
use std::collections::{HashMap, HashSet};

/// The nodes that read each value.
type Readers<'g> = HashMap<&'g str, Vec<&'g NodeProto>>;

/// See the head of the file.
pub(super) fn multiplied(graph: &GraphProto) -> HashSet<String> {
    let mut readers = Readers::new();
    for node in &graph.node {
        for input in node.input.iter().filter(|i| !i.is_empty()) {
            readers.entry(input.as_str()).or_default().push(node);
        }
    }
    let dynamic = graph.node.iter().filter(|n| n.op_type == "DynamicQuantizeLinear");
    let bytes = dynamic.filter_map(|n| n.output.first());
    bytes.filter(|b| reaches_a_product(b, &readers)).cloned().collect()
}

/// Whether an operator reads companions of a value, or of a value that is moved from it.
fn reaches_a_product<'g>(bytes: &'g str, readers: &Readers<'g>) -> bool {
    let (mut open, mut seen) = (vec![bytes], HashSet::from([bytes]));
    while let Some(name) = open.pop() {
        for &node in readers.get(name).into_iter().flatten() {
            if reads_companions(node, readers) {
                return true;
            }
            let is_first = node.input.first().is_some_and(|i| i == name);
            if is_first
                && is_moved(&node.domain, &node.op_type)
                && let Some(to) = node.output.first()
                && seen.insert(to.as_str())
            {
                open.push(to);
            }
        }
    }
    false
}

/// Whether a node becomes operators of floats that read companions.
fn reads_companions(node: &NodeProto, readers: &Readers) -> bool {
    if !is_quantised(&node.domain, &node.op_type) {
        return false;
    }
    match node.op_type.as_str() {
        // They read floats, or bytes as they are.
        "QuantizeLinear" | "DequantizeLinear" | "DynamicQuantizeLinear" => false,
        // Sums of floats are for those alone who convert the integers to floats.
        "ConvInteger" | "MatMulInteger" => {
            let sums = node.output.first().and_then(|y| readers.get(y.as_str()));
            sums.into_iter().flatten().any(|n| is_to_floats(n))
        }
        _ => true,
    }
}

/// Whether a node converts to 32-bit floats.
fn is_to_floats(node: &NodeProto) -> bool {
    let to = node.attribute.iter().find(|a| a.name == "to").and_then(|a| a.i);
    matches!(node.domain.as_str(), "" | "ai.onnx") && node.op_type == "Cast" && to == Some(1)
}
