//! Checks the scales and zero points of quantised operators: a scale must be a positive number, a
//! zero point must have the type of its values. A table says which inputs of each operator they
//! are. Output: a message for the user, with which the reader refuses the node.

use super::writer::Writer;
use crate::onnx::proto::NodeProto;
use squall_core::graph::infer::{Scales, zero_point_suits};
use squall_core::graph::type_name;

/// The inputs that hold values, their scale and their zero point; the result's values are no input.
type ScalePlace = (Option<usize>, Option<usize>, usize);

const ONE: &[ScalePlace] = &[(Some(0), Some(1), 2), (None, Some(3), 4)];
const TWO: &[ScalePlace] = &[(Some(0), Some(1), 2), (Some(3), Some(4), 5), (None, Some(6), 7)];
const PRODUCT: &[ScalePlace] = &[(Some(0), None, 2), (Some(1), None, 3)];

const PLACES: &[(&str, &[ScalePlace])] = &[
    ("ConvInteger", PRODUCT),
    ("DequantizeLinear", &[(Some(0), Some(1), 2)]),
    ("DynamicQuantizeMatMul", &[(Some(1), Some(2), 3)]),
    ("MatMulInteger", PRODUCT),
    ("MatMulIntegerToFloat", &[(Some(0), Some(2), 4), (Some(1), Some(3), 5)]),
    ("QGemm", &[(Some(0), Some(1), 2), (Some(3), Some(4), 5), (None, Some(7), 8)]),
    ("QLinearAdd", TWO),
    ("QLinearAveragePool", ONE),
    ("QLinearConv", TWO),
    ("QLinearGlobalAveragePool", ONE),
    ("QLinearLeakyRelu", ONE),
    ("QLinearMatMul", TWO),
    ("QLinearMul", TWO),
    ("QLinearSigmoid", ONE),
    ("QLinearSoftmax", ONE),
    ("QuantizeLinear", &[(None, Some(1), 2)]),
];

/// The fault of a node's scales and zero points, if there is one.
pub fn fault(w: &Writer, node: &NodeProto) -> Option<String> {
    let mut places: Vec<ScalePlace> = match PLACES.iter().find(|(op, _)| *op == node.op_type) {
        Some((_, places)) => places.to_vec(),
        None => Vec::new(),
    };
    if node.op_type == "QLinearConcat" {
        places.push((None, Some(0), 1));
        let rest = (2..node.input.len()).step_by(3);
        places.extend(rest.map(|i| (Some(i), Some(i + 1), i + 2)));
    }
    let is_blocked = node.attribute.iter().any(|a| a.name == "block_size" && a.i != Some(0));
    let allowed = match node.op_type.as_str() {
        "DequantizeLinear" if is_blocked => Scales::Any,
        _ => Scales::Positive,
    };
    let wrong = |(value, scale, zero)| one(w, node, value, scale, zero, allowed).err();
    places.into_iter().find_map(wrong)
}

fn one(
    w: &Writer,
    node: &NodeProto,
    value: Option<usize>,
    scale: Option<usize>,
    zero: usize,
    allowed: Scales,
) -> Result<(), String> {
    let given = |i: usize| node.input.get(i).map(String::as_str).filter(|s| !s.is_empty());
    if let Some(scales) = scale.and_then(given).and_then(|s| w.floats(s)) {
        allowed.check(&scales)?;
    }
    let Some(zero) = given(zero) else { return Ok(()) };
    let Some(dtype) = w.dtype(zero) else { return Ok(()) };
    if !dtype.is_integer() {
        return Err(format!("zero points of {} are not supported", type_name(Some(dtype))));
    }
    zero_point_suits(value.and_then(given).and_then(|v| w.dtype(v)), Some(dtype))?;
    let counts = [scale.and_then(given), Some(zero)].map(|n| n.and_then(|n| w.count(n)));
    match counts {
        [Some(scales), Some(zeros)] if zeros != 1 && zeros != scales => {
            Err(format!("its {zeros} zero points do not suit {scales} scales"))
        }
        _ => Ok(()),
    }
}
