//! Rewrites a quantised ONNX model as a model of floats that hold whole numbers. Input and output:
//! a graph; nodes whose use is not known stay as they are.
//!
//! A model is quantised in one of several forms: pairs of QuantizeLinear and DequantizeLinear,
//! operators of quantised tensors (QLinearConv, and onnxruntime's QLinearAdd and others), or
//! dynamic ones (DynamicQuantizeLinear, ConvInteger, MatMulInteger). Here each quantised value gets
//! a companion of floats, `whole`, that holds its integers without their zero point; convolutions
//! and products read the companions and become the kernels of floats that are tuned, and weights
//! are converted when they are loaded. Sums of whole numbers below 2^24 are exact in floats, so a
//! sum is the integers' own, or differs from it by less than one part in 10^7. Integers that
//! another node reads, and those that leave the model, are still computed; nodes whose results
//! nothing reads any more are dropped. A `DynamicQuantizeLinear` whose bytes no product reads stays
//! as it is (`quantised/multiplied.rs`).

use super::inline::captured;
use crate::onnx::proto::{GraphProto, NodeProto};
use std::collections::{HashMap, HashSet};
use writer::Writer;

mod blocked;
mod call;
mod calls;
mod checks;
mod multiplied;
mod writer;

pub(super) use calls::onnxruntime_operators;

/// Why nodes that are left as they are cannot be read, by the name of their first result.
pub(super) type Refused = HashMap<String, String>;

/// The message for an operator of onnxruntime that is left as it is, where no more is known.
const NOT_WRITTEN: &str = "this use of it is not supported: its scales and zero points must be \
                           constants, one number each but those of weights";

/// A graph whose quantised values are written as floats, where it has any, and why nodes of it
/// could not be written.
pub(super) fn in_floats(graph: GraphProto) -> (GraphProto, Refused) {
    let mut refused = Refused::new();
    let is_quantised = |n: &NodeProto| calls::is_quantised(&n.domain, &n.op_type);
    if !graph.node.iter().any(is_quantised) {
        return (graph, refused);
    }
    let mut writer = known_of(&graph);
    writer.multiplied = multiplied::multiplied(&graph);
    for node in &graph.node {
        // A node that this cannot write stays; nothing of a half-written one does.
        let before = writer.nodes.len();
        let named = Some(&node.name).filter(|n| !n.is_empty()).or(node.output.first());
        writer.stem = named.cloned().unwrap_or_default();
        let fault = if is_quantised(node) { checks::fault(&writer, node) } else { None };
        if fault.is_some() || calls::write(&mut writer, node).is_none() {
            writer.nodes.truncate(before);
            writer.nodes.push(node.clone());
            if is_quantised(node)
                && node.domain == "com.microsoft"
                && let Some(result) = node.output.first()
            {
                refused.insert(result.clone(), fault.unwrap_or_else(|| NOT_WRITTEN.into()));
            }
        }
    }
    let mut nodes = std::mem::take(&mut writer.nodes);
    drop(writer);
    drop_unread(&mut nodes, graph.output.iter().map(|o| o.name.clone()));
    (GraphProto { node: nodes, ..graph }, refused)
}

/// A writer that knows the constants and the types of a graph.
fn known_of(graph: &GraphProto) -> Writer<'_> {
    let mut writer = Writer::default();
    for v in graph.input.iter().chain(&graph.output).chain(&graph.value_info) {
        if let Some(t) = v.r#type.as_ref().and_then(|t| t.tensor_type.as_ref()) {
            writer.types.insert(v.name.clone(), t.elem_type);
            if let Some(shape) = &t.shape {
                writer.ranks.insert(v.name.clone(), shape.dim.len());
            }
        }
    }
    for t in &graph.initializer {
        writer.keep(&t.name, t);
    }
    for node in graph.node.iter().filter(|n| n.op_type == "Constant") {
        if let Some(value) = node.attribute.iter().find(|a| a.name == "value")
            && let (Some(t), Some(name)) = (&value.t, node.output.first())
        {
            writer.keep(name, t);
        }
    }
    writer
}

/// Drops nodes whose results are read nowhere, from the last to the first.
fn drop_unread(nodes: &mut Vec<NodeProto>, outputs: impl Iterator<Item = String>) {
    let mut read: HashSet<String> = outputs.collect();
    let mut kept = Vec::with_capacity(nodes.len());
    for node in nodes.drain(..).rev() {
        if node.output.iter().any(|o| read.contains(o)) {
            read.extend(node.input.iter().cloned());
            read.extend(captured(&node));
            kept.push(node);
        }
    }
    kept.reverse();
    *nodes = kept;
}

#[cfg(test)]
mod tests {
    use super::super::inline::simple;
    use super::*;
    use crate::onnx::proto::{TensorProto, ValueInfoProto};

    fn tensor(name: &str, data_type: i32, dims: &[i64], values: &[i32]) -> TensorProto {
        let mut t =
            TensorProto { name: name.into(), data_type, dims: dims.to_vec(), ..Default::default() };
        match data_type {
            1 => t.float_data = values.iter().map(|v| *v as f32 * 0.25).collect(),
            _ => t.int32_data = values.to_vec(),
        }
        t
    }

    /// Scales, zero points, a filter of bytes and a bias, as quantisers name them.
    fn graph(node: Vec<NodeProto>) -> GraphProto {
        let initializer = vec![
            tensor("s", 1, &[], &[1]),
            tensor("z", 2, &[], &[3]),
            tensor("w", 3, &[2, 1, 1, 1], &[5, -7]),
            tensor("ws", 1, &[2], &[1, 2]),
            tensor("wz", 3, &[2], &[0, 0]),
            tensor("b", 6, &[2], &[9, 9]),
        ];
        let output = vec![ValueInfoProto { name: "y".into(), ..Default::default() }];
        GraphProto { node, initializer, output, ..Default::default() }
    }

    fn ops(g: &GraphProto) -> Vec<&str> {
        let names = g.node.iter().map(|n| n.op_type.as_str());
        names.filter(|n| !matches!(*n, "Constant" | "Reshape" | "Identity")).collect()
    }

    #[test]
    fn models_of_floats_stay_as_they_are() {
        let g = graph(vec![simple("Relu", &["x"], "y"), simple("Cast", &["x"], "unread")]);
        assert_eq!(in_floats(g.clone()).0, g);
    }

    #[test]
    fn weights_of_pairs_are_converted_when_they_are_loaded() {
        let mut weights = simple("DequantizeLinear", &["w", "ws", "wz"], "wf");
        weights.attribute.push(super::super::inline::int("axis", 0));
        let (g, _) = in_floats(graph(vec![
            simple("QuantizeLinear", &["x", "s", "z"], "q"),
            simple("DequantizeLinear", &["q", "s", "z"], "d"),
            weights,
            simple("Conv", &["d", "wf"], "y"),
        ]));
        let expected = ["QuantizeLinear", "DequantizeLinear", "Cast", "Mul", "Conv"];
        assert_eq!(ops(&g), expected);
        assert_eq!(g.node.last().map(|n| n.output[0].as_str()), Some("y"));
    }

    #[test]
    fn operators_of_quantised_tensors_read_companions() {
        let add = NodeProto {
            domain: "com.microsoft".into(),
            ..simple("QLinearAdd", &["c", "s", "z", "c", "s", "z", "s", "z"], "a")
        };
        let (g, _) = in_floats(graph(vec![
            simple("QuantizeLinear", &["x", "s", "z"], "q"),
            simple("QLinearConv", &["q", "s", "z", "w", "ws", "wz", "s", "z", "b"], "c"),
            add,
            simple("DequantizeLinear", &["a", "s", "z"], "y"),
        ]));
        let all = ops(&g);
        assert!(all.contains(&"Conv") && all.contains(&"Add"), "{all:?}");
        assert!(all.iter().all(|op| !op.starts_with("QLinear")), "{all:?}");
    }

    /// A node that gives bytes `q` with their scale `qs` and zero point `qz`.
    fn dynamic() -> NodeProto {
        NodeProto {
            output: vec!["q".into(), "qs".into(), "qz".into()],
            ..simple("DynamicQuantizeLinear", &["x"], "")
        }
    }

    #[test]
    fn dynamic_forms_become_products_of_floats_where_their_integers_are_converted() {
        let cast = NodeProto {
            attribute: vec![super::super::inline::int("to", 1)],
            ..simple("Cast", &["sum"], "y")
        };
        let (g, _) = in_floats(graph(vec![
            dynamic(),
            simple("MaxPool", &["q"], "moved"),
            simple("ConvInteger", &["moved", "w", "qz"], "sum"),
            cast,
        ]));
        let all = ops(&g);
        let is_left = |op: &&str| ["DynamicQuantizeLinear", "ConvInteger"].contains(op);
        assert!(all.contains(&"Conv") && !all.iter().any(is_left), "{all:?}");
        assert_eq!(g.node.last().map(|n| n.output[0].as_str()), Some("y"), "{all:?}");
    }

    #[test]
    fn bytes_that_no_product_reads_are_the_nodes_own() {
        // The bytes leave the model, or integers do that are made of them, or floats are made of
        // the bytes again.
        let ends = [
            simple("Identity", &["q"], "y"),
            simple("ConvInteger", &["q", "w", "qz"], "y"),
            simple("DequantizeLinear", &["q", "qs", "qz"], "y"),
        ];
        for end in ends {
            let (g, _) = in_floats(graph(vec![dynamic(), end.clone()]));
            assert_eq!(g.node, [dynamic(), end]);
        }
    }

    #[test]
    fn what_is_not_known_here_stays() {
        // A scale that is computed, a zero point of another type, a missing input.
        for inputs in [&["q", "x", "z"][..], &["q", "s", "b"], &["q"]] {
            let g = graph(vec![simple("QLinearConv", inputs, "y")]);
            assert_eq!(in_floats(g.clone()).0, g);
        }
        // A filter without channels, whose scales are a vector, and extents whose product is none.
        let mut g =
            graph(vec![simple("QLinearConv", &["x", "s", "z", "flat", "ws", "wz", "s", "z"], "y")]);
        g.initializer.push(tensor("flat", 3, &[2], &[1, 2]));
        assert_eq!(in_floats(g.clone()).0, g);
        for t in g.initializer.iter_mut().filter(|t| t.name == "s") {
            t.dims = vec![i64::MAX, i64::MAX];
        }
        assert_eq!(in_floats(g.clone()).0, g);
    }
}
