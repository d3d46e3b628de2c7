//! The table of quantised operators (ONNX's, and those of onnxruntime's
//! `ContribOperators.md`), each with a function that rewrites a node as operators of floats
//! that hold whole numbers. Input: a node ([`Call`]) and a [`Writer`], which knows each value's
//! companion; output: nodes, or nothing where the use is not known. `quantised.rs` explains the
//! idea.

use super::super::inline::{int, ints};
use super::blocked;
use super::call::Call;
use super::writer::{Companion, Writer, Zero};
use crate::onnx::proto::NodeProto;
use crate::onnx::stored::Stored;
use squall_core::DType;

/// Rewrites one operator; none where this use of it is not known here.
type Write = fn(&mut Writer, &Call) -> Option<()>;

/// Operators of the standard domain.
const STANDARD: &[(&str, Write)] = &[
    ("QuantizeLinear", quantize),
    ("DequantizeLinear", dequantize),
    ("QLinearConv", qlinear_conv),
    ("QLinearMatMul", qlinear_matmul),
    ("DynamicQuantizeLinear", dynamic_where_multiplied),
    ("ConvInteger", conv_integer),
    ("MatMulInteger", matmul_integer),
    ("Cast", cast),
    ("MatMul", blocked::matmul),
    ("Gemm", blocked::gemm),
    ("MaxPool", moves),
    ("Reshape", moves),
    ("Flatten", moves),
    ("Transpose", |w, c| blocked::transpose(w, c).or_else(|| moves(w, c))),
    ("Squeeze", moves),
    ("Unsqueeze", moves),
    ("Slice", moves),
    ("Identity", moves),
];

/// Operators of onnxruntime's domain.
const ONNXRUNTIME: &[(&str, Write)] = &[
    ("QLinearAdd", |w, c| binary(w, c, "Add")),
    ("QLinearMul", |w, c| binary(w, c, "Mul")),
    ("QLinearConcat", qlinear_concat),
    ("QLinearGlobalAveragePool", |w, c| pool(w, c, "GlobalAveragePool")),
    ("QLinearAveragePool", |w, c| pool(w, c, "AveragePool")),
    ("QLinearSoftmax", qlinear_softmax),
    ("QLinearSigmoid", |w, c| unary(w, c, "Sigmoid", &[])),
    ("QLinearLeakyRelu", |w, c| unary(w, c, "LeakyRelu", &["alpha"])),
    ("QGemm", qgemm),
    ("MatMulIntegerToFloat", matmul_integer_to_float),
    ("DynamicQuantizeMatMul", dynamic_quantize_matmul),
    ("QuantizeLinear", quantize),
    ("DequantizeLinear", dequantize),
];

/// Whether an operator moves elements, or takes the greatest of some: it does the same to
/// companions.
pub fn is_moved(domain: &str, op: &str) -> bool {
    // The standard ones from the first pool on are those.
    let mut all = STANDARD.iter().skip_while(|(name, _)| *name != "MaxPool");
    matches!(domain, "" | "ai.onnx") && all.any(|(name, _)| *name == op)
}

fn table(domain: &str) -> &'static [(&'static str, Write)] {
    match domain {
        "" | "ai.onnx" => STANDARD,
        "com.microsoft" => ONNXRUNTIME,
        _ => &[],
    }
}

/// Whether an operator makes or reads quantised tensors.
pub fn is_quantised(domain: &str, op: &str) -> bool {
    // The last of the standard ones move or convert whatever they are given.
    let standard = STANDARD.iter().take_while(|(name, _)| *name != "Cast");
    match domain {
        "com.microsoft" => ONNXRUNTIME.iter().any(|(name, _)| *name == op),
        "" | "ai.onnx" => standard.into_iter().any(|(name, _)| *name == op),
        _ => false,
    }
}

/// The operators of domain `com.microsoft` that are written here.
pub fn onnxruntime_operators() -> impl Iterator<Item = &'static str> {
    ONNXRUNTIME.iter().map(|(name, _)| *name)
}

/// Writes a node; none where it stays as it is.
pub fn write(w: &mut Writer, node: &NodeProto) -> Option<()> {
    let (_, write) = table(&node.domain).iter().find(|(name, _)| *name == node.op_type)?;
    let before = w.nodes.len();
    let written = write(w, &Call { node });
    let is_shared = STANDARD.iter().take(2).any(|(name, _)| *name == node.op_type);
    if written.is_none() && is_shared && !table(&node.domain).is_empty() {
        // Of onnxruntime's domain it means what it means in the standard one.
        w.nodes.truncate(before);
        w.nodes.push(NodeProto { domain: String::new(), ..node.clone() });
        return Some(());
    }
    written
}

/// What convolutions keep.
const CONV: &[&str] = &["auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"];

fn quantize(w: &mut Writer, c: &Call) -> Option<()> {
    let (x, scale, zero) = (c.given(0)?, c.given(1)?, c.given(2));
    let packed = packed_result(w, c);
    let is_simple = w.is_scalar(scale)
        && c.int("output_dtype", 0) == 0
        && c.int("block_size", 0) == 0
        && c.int("precision", 0) <= 1;
    // Weights that are quantised when the model is loaded are left to folding.
    if is_simple && !w.is_constant(x) && w.zero(zero).is_some() {
        return w.quantise_as(&c.node.name, x, scale, zero, c.output()?);
    }
    if let Some(zero) = zero {
        w.set_type_like(c.output()?, zero);
    }
    // The node stays; where its integers have less than a byte it says where they end.
    let packed = packed?;
    let mut node = c.node.clone();
    node.attribute.retain(|a| a.name != "output_dtype");
    node.attribute.push(int("bits", packed.bits as i64));
    if zero.is_none() {
        node.attribute.push(int("output_dtype", if packed.dtype == DType::I8 { 3 } else { 2 }));
        w.types.insert(c.output()?.into(), c.int("output_dtype", 0) as i32);
    }
    w.nodes.push(node);
    Some(())
}

/// The type to which a node quantises, where it has less than a byte.
fn packed_result(w: &Writer, c: &Call) -> Option<Stored> {
    let stored = match c.given(2) {
        Some(zero) => w.stored(zero),
        None => i32::try_from(c.int("output_dtype", 0)).ok().and_then(Stored::of),
    };
    stored.filter(|s| s.is_packed())
}

fn dequantize(w: &mut Writer, c: &Call) -> Option<()> {
    let (x, scale, zero) = (c.given(0)?, c.given(1)?, c.given(2));
    blocked::remember(w, c);
    // What is computed in every run is converted there; weights are when they are loaded.
    let is_simple = c.int("block_size", 0) == 0 && c.int("output_dtype", 0) == 0;
    if !is_simple || w.dims(scale).is_none() || !w.is_constant(x) {
        return None;
    }
    if w.is_scalar(scale) {
        let whole = w.whole(x, zero, 0)?;
        let y = w.op("Mul", &[&whole, scale], vec![]);
        w.hand_on(&y, c.output()?);
        return Some(());
    }
    let rank = w.dims(x)?.len();
    let axis = c.axis(1, rank)?;
    let whole = w.whole(x, zero, axis)?;
    let scales = w.along(scale, axis, rank)?;
    let y = w.op("Mul", &[&whole, &scales], vec![]);
    w.hand_on(&y, c.output()?);
    Some(())
}

/// What a quantised operator's accumulator is multiplied by: scales of both sides over that of the
/// result; `along` an axis of a result of so many dimensions where the weights have several.
fn factor(w: &mut Writer, a: &str, b: &str, y: &str, axis: usize, rank: usize) -> Option<String> {
    if !w.is_scalar(a) || !w.is_scalar(y) || w.dims(b)?.len() > 1 {
        return None;
    }
    let both = w.op("Mul", &[a, b], vec![]);
    let factor = w.op("Div", &[&both, y], vec![]);
    if w.is_scalar(b) { Some(factor) } else { w.along(&factor, axis, rank) }
}

fn qlinear_conv(w: &mut Writer, c: &Call) -> Option<()> {
    let (x, weights) = (c.given(0)?, c.given(3)?);
    let rank = w.dims(weights)?.len();
    let (a, b) = (w.whole(x, c.given(2), 0)?, w.whole(weights, c.given(5), 0)?);
    let bias = c.given(8).map(|bias| w.op("Cast", &[bias], vec![int("to", 1)]));
    let inputs: Vec<&str> = [&a, &b].into_iter().chain(&bias).map(String::as_str).collect();
    let sums = w.op("Conv", &inputs, c.attributes(CONV));
    let factor = factor(w, c.given(1)?, c.given(4)?, c.given(6)?, 1, rank)?;
    let steps = w.op("Mul", &[&sums, &factor], vec![]);
    w.quantise_steps(&steps, c.given(7), c.output()?)
}

fn qlinear_matmul(w: &mut Writer, c: &Call) -> Option<()> {
    let (a, b) = (c.given(0)?, c.given(3)?);
    // Scales of rows, or of matrices in a batch, are left alone.
    if !w.is_scalar(c.given(4)?) && w.dims(b)?.len() != 2 {
        return None;
    }
    let (a, b) = (w.whole(a, c.given(2), 0)?, w.whole(b, c.given(5), 1)?);
    let sums = w.op("MatMul", &[&a, &b], vec![]);
    let factor = factor(w, c.given(1)?, c.given(4)?, c.given(6)?, 0, 1)?;
    let steps = w.op("Mul", &[&sums, &factor], vec![]);
    w.quantise_steps(&steps, c.given(7), c.output()?)
}

/// Floats in the place of bytes that a product reads. Other bytes are made by the node itself,
/// which stays: as one plain operator it reads the floats twice, where reductions, rounding and a
/// conversion to bytes are several kernels. Of a constant all of it is folded.
fn dynamic_where_multiplied(w: &mut Writer, c: &Call) -> Option<()> {
    let is_wanted = w.multiplied.contains(c.output()?) || w.is_constant(c.given(0)?);
    if is_wanted { dynamic_quantize(w, c) } else { None }
}

fn dynamic_quantize(w: &mut Writer, c: &Call) -> Option<()> {
    let x = c.given(0)?;
    let name = |i: usize| c.node.output.get(i).filter(|o| !o.is_empty()).cloned();
    let (zero_of, top) = (w.scalar(0.0), w.scalar(255.0));
    let reduced = |w: &mut Writer, op: &str| w.op(op, &[x], vec![int("keepdims", 0)]);
    let (least, greatest) = (reduced(w, "ReduceMin"), reduced(w, "ReduceMax"));
    let low = w.op("Min", &[&least, &zero_of], vec![]);
    let high = w.op("Max", &[&greatest, &zero_of], vec![]);
    let range = w.op("Sub", &[&high, &low], vec![]);
    let scale = w.op("Div", &[&range, &top], vec![]);
    // Where all elements are 0 any scale will do.
    let tiny = w.scalar(f32::MIN_POSITIVE);
    let scale = w.op("Max", &[&scale, &tiny], vec![]);
    let below = w.op("Div", &[&low, &scale], vec![]);
    let below = w.op("Neg", &[&below], vec![]);
    let rounded = w.op("Round", &[&below], vec![]);
    let above = w.op("Max", &[&rounded, &zero_of], vec![]);
    let zero = w.op("Min", &[&above, &top], vec![]);
    let steps = w.op("Div", &[x, &scale], vec![]);
    let steps = w.op("Round", &[&steps], vec![]);
    let shifted = w.op("Add", &[&steps, &zero], vec![]);
    let above = w.op("Max", &[&shifted, &zero_of], vec![]);
    let limited = w.op("Min", &[&above, &top], vec![]);
    let whole = w.op("Sub", &[&limited, &zero], vec![]);
    let byte = |w: &mut Writer, from: &str, to: &str| {
        let integers = w.op("Cast", &[from], vec![int("to", 2)]);
        w.hand_on(&integers, to);
    };
    let zero_name = name(2)?;
    byte(w, &limited, &name(0)?);
    w.hand_on(&scale, &name(1)?);
    byte(w, &zero, &zero_name);
    w.set_companion(&name(0)?, Companion { whole, zero: Zero::Computed(zero_name) });
    Some(())
}

/// The accumulators of integers, as floats for operators that convert them. The node stays for
/// those that read integers: sums of floats are exact up to 2^24 only, where these have 32 bits.
fn accumulate(w: &mut Writer, c: &Call, op: &str, axis: usize) -> Option<()> {
    let (a, b) = (c.given(0)?, c.given(1)?);
    let (a, b) = (w.whole(a, c.given(2), 0)?, w.whole(b, c.given(3), axis)?);
    let attributes = if op == "Conv" { c.attributes(CONV) } else { Vec::new() };
    let sums = w.op(op, &[&a, &b], attributes);
    w.nodes.push(c.node.clone());
    w.set_equal(c.output()?, &sums);
    Some(())
}

fn conv_integer(w: &mut Writer, c: &Call) -> Option<()> {
    accumulate(w, c, "Conv", 0)
}

fn matmul_integer(w: &mut Writer, c: &Call) -> Option<()> {
    let axis = w.dims(c.given(1)?).map_or(0, |d| d.len().saturating_sub(1));
    accumulate(w, c, "MatMul", axis)
}

fn cast(w: &mut Writer, c: &Call) -> Option<()> {
    let floats = w.equal(c.given(0)?).filter(|_| c.int("to", 0) == 1)?;
    w.hand_on(&floats, c.output()?);
    Some(())
}

/// What moves elements, or takes the greatest of some, does the same to companions.
fn moves(w: &mut Writer, c: &Call) -> Option<()> {
    let companion = w.companion_of(c.given(0)?)?;
    if c.node.output.iter().filter(|o| !o.is_empty()).count() != 1 {
        return None;
    }
    let mut inputs: Vec<&str> = c.node.input.iter().map(String::as_str).collect();
    inputs[0] = &companion.whole;
    let whole = w.op(&c.node.op_type, &inputs, c.node.attribute.clone());
    w.nodes.push(c.node.clone());
    w.set_companion(c.output()?, Companion { whole, zero: companion.zero });
    Some(())
}

/// A quantised value as floats.
fn floats(w: &mut Writer, x: &str, scale: &str, zero: Option<&str>) -> Option<String> {
    if !w.is_scalar(scale) {
        return None;
    }
    let whole = w.whole(x, zero, 0)?;
    Some(w.op("Mul", &[&whole, scale], vec![]))
}

fn binary(w: &mut Writer, c: &Call, op: &str) -> Option<()> {
    let a = floats(w, c.given(0)?, c.given(1)?, c.given(2))?;
    let b = floats(w, c.given(3)?, c.given(4)?, c.given(5))?;
    let y = w.op(op, &[&a, &b], vec![]);
    w.quantise(&y, c.given(6)?, c.given(7), c.output()?)
}

fn unary(w: &mut Writer, c: &Call, op: &str, attributes: &[&str]) -> Option<()> {
    let x = floats(w, c.given(0)?, c.given(1)?, c.given(2))?;
    let y = w.op(op, &[&x], c.attributes(attributes));
    w.quantise(&y, c.given(3)?, c.given(4), c.output()?)
}

/// Pools of images, whose channels may come last.
fn pool(w: &mut Writer, c: &Call, op: &str) -> Option<()> {
    const POOL: &[&str] =
        &["auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides"];
    let kept = if op == "AveragePool" { POOL } else { &[] };
    if c.int("channels_last", 0) == 0 {
        return unary(w, c, op, kept);
    }
    let x = floats(w, c.given(0)?, c.given(1)?, c.given(2))?;
    // Where nothing says how many dimensions there are it is an image of two.
    let window = c.attribute("kernel_shape").map(|a| a.ints.len() + 2);
    let rank = window.or(w.rank(c.given(0)?)).unwrap_or(4) as i64;
    if !(3..=8).contains(&rank) {
        return None;
    }
    let turned = |order: Vec<i64>| vec![ints("perm", &order)];
    let first = [0, rank - 1].into_iter().chain(1..rank - 1).collect();
    let last = [0].into_iter().chain(2..rank).chain([1]).collect();
    let x = w.op("Transpose", &[&x], turned(first));
    let y = w.op(op, &[&x], c.attributes(kept));
    let y = w.op("Transpose", &[&y], turned(last));
    w.quantise(&y, c.given(3)?, c.given(4), c.output()?)
}

/// Before version 13 all axes from `axis` on were one.
fn qlinear_softmax(w: &mut Writer, c: &Call) -> Option<()> {
    if c.int("opset", 13) >= 13 {
        return unary(w, c, "Softmax", &["axis"]);
    }
    let x = floats(w, c.given(0)?, c.given(1)?, c.given(2))?;
    let rows = w.op("Flatten", &[&x], vec![int("axis", c.int("axis", 1))]);
    let y = w.op("Softmax", &[&rows], vec![int("axis", -1)]);
    let shape = w.op("Shape", &[&x], vec![]);
    let y = w.op("Reshape", &[&y, &shape], vec![]);
    w.quantise(&y, c.given(3)?, c.given(4), c.output()?)
}

fn qlinear_concat(w: &mut Writer, c: &Call) -> Option<()> {
    let mut parts = Vec::new();
    for i in (2..c.node.input.len()).step_by(3) {
        parts.push(floats(w, c.given(i)?, c.given(i + 1)?, c.given(i + 2))?);
    }
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let y = w.op("Concat", &parts, c.attributes(&["axis"]));
    w.quantise(&y, c.given(0)?, c.given(1), c.output()?)
}

fn qgemm(w: &mut Writer, c: &Call) -> Option<()> {
    let (a, b) = (c.given(0)?, c.given(3)?);
    let columns = usize::from(c.int("transB", 0) == 0);
    let (a, b) = (w.whole(a, c.given(2), 0)?, w.whole(b, c.given(5), columns)?);
    // The third factor is of integers whose scale is that of the product.
    let alpha = c.attribute("alpha").and_then(|a| a.f).unwrap_or(1.0);
    let bias = c.given(6).map(|bias| w.op("Cast", &[bias], vec![int("to", 1)]));
    let inputs: Vec<&str> = [&a, &b].into_iter().chain(&bias).map(String::as_str).collect();
    let sums = w.op("Gemm", &inputs, c.attributes(&["transA", "transB"]));
    let (a_scale, b_scale) = (c.given(1)?, c.given(4)?);
    if !w.is_scalar(a_scale) || w.dims(b_scale)?.len() > 1 {
        return None;
    }
    let both = w.op("Mul", &[a_scale, b_scale], vec![]);
    let alpha = w.scalar(alpha);
    let both = w.op("Mul", &[&both, &alpha], vec![]);
    let y = w.op("Mul", &[&sums, &both], vec![]);
    match c.given(7) {
        Some(scale) => w.quantise(&y, scale, c.given(8), c.output()?),
        None => {
            w.hand_on(&y, c.output()?);
            Some(())
        }
    }
}

/// A product of whole numbers by its scales, and a bias of floats.
fn scaled_product(
    w: &mut Writer,
    factors: [&str; 2],
    scales: [&str; 2],
    bias: Option<&str>,
    to: &str,
) -> Option<()> {
    let sums = w.op("MatMul", &factors, vec![]);
    let scale = w.op("Mul", &scales, vec![]);
    let mut y = w.op("Mul", &[&sums, &scale], vec![]);
    if let Some(bias) = bias {
        y = w.op("Add", &[&y, bias], vec![]);
    }
    w.hand_on(&y, to);
    Some(())
}

fn matmul_integer_to_float(w: &mut Writer, c: &Call) -> Option<()> {
    let axis = w.dims(c.given(1)?)?.len().checked_sub(1)?;
    let (a, b) = (w.whole(c.given(0)?, c.given(4), 0)?, w.whole(c.given(1)?, c.given(5), axis)?);
    scaled_product(w, [&a, &b], [c.given(2)?, c.given(3)?], c.given(6), c.output()?)
}

fn dynamic_quantize_matmul(w: &mut Writer, c: &Call) -> Option<()> {
    let to = c.output()?;
    let axis = w.dims(c.given(1)?)?.len().checked_sub(1)?;
    let outputs: Vec<String> =
        ["bytes", "scale", "zero"].iter().map(|what| format!("{to}/{what}")).collect();
    let node = NodeProto {
        op_type: "DynamicQuantizeLinear".into(),
        input: vec![c.given(0)?.into()],
        output: outputs.clone(),
        ..Default::default()
    };
    dynamic_quantize(w, &Call { node: &node })?;
    let a = w.companion_of(&outputs[0])?.whole;
    let b = w.whole(c.given(1)?, c.given(3), axis)?;
    scaled_product(w, [&a, &b], [&outputs[1], c.given(2)?], c.given(4), to)
}
