//! Products with weights of a blocked DequantizeLinear: instead of floats they read the integers in
//! blocks, by Squall's operators for weights of few bits (`core/src/graph/infer/nbits.rs`), so that
//! the weights stay as small as they are in the file. A `Transpose` between the two is part of the
//! weights' form.

use super::super::contrib::nbits_attributes;
use super::super::inline::{identity, int, simple};
use super::call::Call;
use super::writer::{Blocked, Writer};
use crate::onnx::proto::AttributeProto;
use squall_core::DType;
use squall_core::graph::infer::nbits::{DOMAIN, Form, NBits};

/// Notes that a node makes floats of constant weights in blocks.
pub fn remember(w: &mut Writer, c: &Call) -> Option<()> {
    let block = c.int("block_size", 0);
    let inputs: Vec<String> = (0..3).map_while(|i| c.given(i)).map(String::from).collect();
    let is_known = inputs.iter().all(|i| w.is_constant(i)) && c.int("output_dtype", 0) <= 1;
    if block < 1 || !is_known || inputs.len() != c.node.input.len() {
        return None;
    }
    let axis = c.axis(1, w.dims(&inputs[0])?.len())?;
    w.set_blocked(c.output()?, Blocked { inputs, axis, block, is_transposed: false });
    Some(())
}

/// Transposed weights are weights.
pub fn transpose(w: &mut Writer, c: &Call) -> Option<()> {
    let mut blocked = w.blocked(c.given(0)?)?;
    let order = c.attribute("perm").map_or(&[][..], |a| &a.ints);
    if !matches!(order, [] | [1, 0]) || w.dims(&blocked.inputs[0])?.len() != 2 {
        return None;
    }
    blocked.is_transposed = !blocked.is_transposed;
    w.nodes.push(c.node.clone());
    w.set_blocked(c.output()?, blocked);
    Some(())
}

pub fn matmul(w: &mut Writer, c: &Call) -> Option<()> {
    let weights = w.blocked(c.given(1)?)?;
    let y = product(w, c.given(0)?, &weights, None)?;
    hand_on(w, c, &y)
}

pub fn gemm(w: &mut Writer, c: &Call) -> Option<()> {
    let mut weights = w.blocked(c.given(1)?)?;
    let factor = |name: &str| c.attribute(name).and_then(|a| a.f).unwrap_or(1.0);
    let is_plain = c.int("transA", 0) == 0 && factor("alpha") == 1.0 && factor("beta") == 1.0;
    if !is_plain {
        return None;
    }
    weights.is_transposed ^= c.int("transB", 0) != 0;
    let y = product(w, c.given(0)?, &weights, c.given(2))?;
    hand_on(w, c, &y)
}

fn hand_on(w: &mut Writer, c: &Call, y: &str) -> Option<()> {
    w.nodes.push(identity(y, c.output()?));
    Some(())
}

/// A product of floats with weights; none where their blocks do not lie along the reduction.
fn product(w: &mut Writer, x: &str, weights: &Blocked, bias: Option<&str>) -> Option<String> {
    let [first, second] = *w.dims(&weights.inputs[0])? else { return None };
    let stored = w.stored(&weights.inputs[0])?;
    let is_of_bytes = matches!(stored.dtype, DType::U8 | DType::I8);
    let (form, k, n) = match (weights.is_transposed, weights.axis) {
        (false, 0) => (Form::Rows, first, second),
        (true, 1) => (Form::Columns, second, first),
        _ => return None,
    };
    let bits = stored.bits as i64;
    let signed = stored.dtype == DType::I8;
    // A block that reaches beyond the reduction is as good as one that ends with it, and the packed
    // form of a small file stays small.
    let block = weights.block.min(k.max(1).checked_add(7)? / 8 * 8);
    let of = NBits { k, n, bits, block, signed, form };
    if !is_of_bytes || of.check().is_err() {
        return None;
    }
    let has_zeros = weights.inputs.len() > 2;
    let given: Vec<&str> = weights.inputs.iter().map(String::as_str).collect();
    let count = if has_zeros { 3 } else { 2 };
    let packed = own(w, "PackNBits", &given, nbits_attributes(&of), count);
    let zeros = packed.get(2).map_or("", String::as_str);
    let mut inputs = vec![x, &packed[0], &packed[1], zeros];
    let is_vector = bias.is_some_and(|b| w.dims(b) == Some(&[n]));
    inputs.extend(bias.filter(|_| is_vector));
    let mut attributes = nbits_attributes(&of);
    attributes.push(int("accuracy_level", 0));
    let y = own(w, "MatMulNBits", &inputs, attributes, 1).remove(0);
    match bias {
        Some(bias) if !is_vector => Some(w.op("Add", &[&y, bias], vec![])),
        _ => Some(y),
    }
}

/// A node of an operator that only readers write; its results.
fn own(
    w: &mut Writer,
    op: &str,
    inputs: &[&str],
    attributes: Vec<AttributeProto>,
    outputs: usize,
) -> Vec<String> {
    let first = w.fresh();
    let made: Vec<String> = (0..outputs).map(|i| format!("{first}/{i}")).collect();
    let mut node = simple(op, inputs, "");
    node.output.clone_from(&made);
    (node.domain, node.attribute, node.name) = (DOMAIN.into(), attributes, w.name(op));
    w.nodes.push(node);
    made
}
