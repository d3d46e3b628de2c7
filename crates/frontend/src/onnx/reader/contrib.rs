//! Operators that onnxruntime adds to ONNX (domain `com.microsoft`). A model holds them once
//! onnxruntime has written it after its own fusions; here each is rewritten as standard operators,
//! which the crate `graph` then fuses in its own way. Input: a node; output: the nodes in its
//! place, or the reason why its use is not supported. Their definitions are in onnxruntime's
//! `ContribOperators.md`.

use super::body::{Around, Body, float, word};
use super::inline::{int, ints};
use crate::onnx::proto::{AttributeProto, NodeProto, TensorProto};
use squall_core::graph::elements;

mod attention;
mod nbits;
mod rotary;

pub(super) use nbits::attributes as nbits_attributes;

/// The most positions or lengths that are written into a model as a constant.
const MOST_PLACES: i64 = 1 << 20;

/// A function that writes one operator as standard ones.
type Write = fn(&mut Body) -> Result<(), String>;

const OPERATORS: &[(&str, Write)] = &[
    ("Attention", attention::attention),
    ("BiasGelu", bias_gelu),
    ("EmbedLayerNormalization", embed_layer_normalization),
    ("FastGelu", fast_gelu),
    ("FusedConv", fused_conv),
    ("FusedGemm", fused_gemm),
    ("FusedMatMul", fused_matmul),
    ("Gelu", |b| b.same("Gelu")),
    ("MatMulNBits", nbits::matmul_nbits),
    ("MultiHeadAttention", attention::multi_head_attention),
    ("QuickGelu", quick_gelu),
    ("RotaryEmbedding", rotary::rotary_embedding),
    ("SimplifiedLayerNormalization", simplified_layer_normalization),
    ("SkipLayerNormalization", skip_layer_normalization),
    ("SkipSimplifiedLayerNormalization", skip_layer_normalization),
    ("TransposeMatMul", fused_matmul),
    ("Trilu", |b| b.same("Trilu")),
];

/// The operators of domain `com.microsoft` that are written out as standard ones.
pub fn onnxruntime_operators() -> impl Iterator<Item = &'static str> {
    OPERATORS.iter().map(|(name, _)| *name)
}

/// The standard nodes that do what a node of onnxruntime's does; nothing where it is none of these,
/// a reason where this use of it is not supported.
pub(super) fn written_out(
    call: &NodeProto,
    prefix: &str,
    around: &Around,
) -> Option<Result<Vec<NodeProto>, String>> {
    // onnxruntime puts this one into the standard domain.
    let standard = matches!(call.domain.as_str(), "" | "ai.onnx")
        && call.op_type == "SimplifiedLayerNormalization";
    if call.domain != "com.microsoft" && !standard {
        return None;
    }
    let (_, write) = OPERATORS.iter().find(|(name, _)| *name == call.op_type)?;
    let mut body = Body { call, prefix, around, nodes: Vec::new() };
    Some(write(&mut body).map(|()| body.nodes))
}

fn bias_gelu(b: &mut Body) -> Result<(), String> {
    let sum = b.op("Add", &[&b.input(0)?, &b.input(1)?], vec![]);
    let y = b.op("Gelu", &[&sum], vec![]);
    b.hand_on(&y, 0);
    Ok(())
}

fn fast_gelu(b: &mut Body) -> Result<(), String> {
    let mut x = b.input(0)?;
    if let Some(bias) = b.given(1) {
        x = b.op("Add", &[&x, &bias], vec![]);
    }
    let y = b.op("Gelu", &[&x], vec![word("approximate", "tanh")]);
    b.hand_on(&y, 0);
    Ok(())
}

fn quick_gelu(b: &mut Body) -> Result<(), String> {
    let x = b.input(0)?;
    let alpha = b.scalar(b.float("alpha", 1.702));
    let scaled = b.op("Mul", &[&x, &alpha], vec![]);
    let gate = b.op("Sigmoid", &[&scaled], vec![]);
    let y = b.op("Mul", &[&x, &gate], vec![]);
    b.hand_on(&y, 0);
    Ok(())
}

/// A product of matrices, each transposed first where the call says so, times a factor. Where it
/// says `transBatch`, the first axis is the matrix's first, and those between are the batch's.
fn fused_matmul(b: &mut Body) -> Result<(), String> {
    let mut sides = [b.input(0)?, b.input(1)?];
    for (i, names) in [("transA", "transBatchA"), ("transB", "transBatchB")].into_iter().enumerate()
    {
        let (swapped, batch) = (b.int(names.0, 0) != 0, b.int(names.1, 0) != 0);
        // A vector has nothing to transpose.
        let rank = if swapped || batch { b.shape(i)?.len() } else { 0 };
        if rank < 2 {
            continue;
        }
        let mut order: Vec<i64> = (0..rank as i64).collect();
        if batch {
            order[..rank - 1].rotate_left(1);
        }
        if swapped {
            order.swap(rank - 2, rank - 1);
        }
        sides[i] = b.transpose(&sides[i], &order);
    }
    let mut y = b.op("MatMul", &[&sides[0], &sides[1]], vec![]);
    let alpha = b.float("alpha", 1.0);
    if alpha != 1.0 {
        let alpha = b.scalar(alpha);
        y = b.op("Mul", &[&y, &alpha], vec![]);
    }
    b.hand_on(&y, 0);
    Ok(())
}

/// What follows a convolution or a product in the same node; `parameters` are the activation's.
fn activation(b: &mut Body, x: &str, parameters: &[f32]) -> Result<String, String> {
    let name = b.attribute("activation").and_then(|a| a.s.clone()).unwrap_or_default();
    let name = String::from_utf8_lossy(&name).into_owned();
    let at = |i: usize, otherwise: f32| parameters.get(i).copied().unwrap_or(otherwise);
    let attributes = match name.as_str() {
        "" => return Ok(x.into()),
        "Relu" | "Sigmoid" | "Tanh" | "Softplus" | "Softsign" => vec![],
        "LeakyRelu" => vec![float("alpha", at(0, 0.01))],
        "Elu" | "ThresholdedRelu" => vec![float("alpha", at(0, 1.0))],
        "HardSigmoid" => vec![float("alpha", at(0, 0.2)), float("beta", at(1, 0.5))],
        "Clip" => {
            let (low, high) = (b.scalar(at(0, f32::MIN)), b.scalar(at(1, f32::MAX)));
            let low = b.op("Max", &[x, &low], vec![]);
            return Ok(b.op("Min", &[&low, &high], vec![]));
        }
        _ => return Err("its activation is not supported".into()),
    };
    Ok(b.op(&name, &[x], attributes))
}

/// The call's attributes but those of its activation.
fn of_the_anchor(b: &Body) -> Vec<AttributeProto> {
    let own = b.call.attribute.iter().filter(|a| !a.name.starts_with("activation"));
    own.cloned().collect()
}

fn fused_conv(b: &mut Body) -> Result<(), String> {
    let (x, w) = (b.input(0)?, b.input(1)?);
    let bias = b.given(2);
    let inputs: Vec<&str> = [x.as_str(), &w].into_iter().chain(bias.as_deref()).collect();
    let mut y = b.op("Conv", &inputs, of_the_anchor(b));
    if let Some(sum) = b.given(3) {
        y = b.op("Add", &[&y, &sum], vec![]);
    }
    let parameters = b.attribute("activation_params").map_or(vec![], |a| a.floats.clone());
    let y = activation(b, &y, &parameters)?;
    b.hand_on(&y, 0);
    Ok(())
}

fn fused_gemm(b: &mut Body) -> Result<(), String> {
    let inputs = b.call.input.clone();
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    let y = b.op("Gemm", &inputs, of_the_anchor(b));
    let given = ["activation_alpha", "activation_beta"].map(|n| b.attribute(n).and_then(|a| a.f));
    let parameters: Vec<f32> = given.into_iter().map_while(|f| f).collect();
    let y = activation(b, &y, &parameters)?;
    b.hand_on(&y, 0);
    Ok(())
}

/// Normalises the last axis; without a mean where `simplified`.
fn normalised(b: &mut Body, x: &str, parts: (String, Option<String>), simplified: bool) -> String {
    let attributes =
        vec![int("axis", b.int("axis", -1)), float("epsilon", b.float("epsilon", 1e-5))];
    let (scale, bias) = parts;
    let inputs: Vec<&str> = [x, &scale].into_iter().chain(bias.as_deref()).collect();
    let op = if simplified { "RMSNormalization" } else { "LayerNormalization" };
    b.op(op, &inputs, attributes)
}

fn simplified_layer_normalization(b: &mut Body) -> Result<(), String> {
    b.only_outputs(&[0])?;
    let (x, scale) = (b.input(0)?, b.input(1)?);
    let y = normalised(b, &x, (scale, None), true);
    b.hand_on(&y, 0);
    Ok(())
}

/// A sum of two tensors and a bias, normalised; the sum is output 3.
fn skip_layer_normalization(b: &mut Body) -> Result<(), String> {
    b.only_outputs(&[0, 3])?;
    let simplified = b.call.op_type.contains("Simplified");
    let (beta, bias) = if simplified { (None, b.given(3)) } else { (b.given(3), b.given(4)) };
    let mut sum = b.op("Add", &[&b.input(0)?, &b.input(1)?], vec![]);
    if let Some(bias) = bias {
        sum = b.op("Add", &[&sum, &bias], vec![]);
    }
    let scale = b.input(2)?;
    let y = normalised(b, &sum, (scale, beta), simplified);
    b.hand_on(&y, 0);
    b.hand_on(&sum, 3);
    Ok(())
}

/// Rows of tables for words, positions and segments, added and normalised; output 1 counts the
/// words of each sequence that its mask keeps, output 2 is the sum.
fn embed_layer_normalization(b: &mut Body) -> Result<(), String> {
    b.only_outputs(&[0, 1, 2])?;
    let ids = b.shape(0)?;
    let [batch, length] = ids[..] else { return Err("its ids are no matrix".into()) };
    if elements(&ids)? > MOST_PLACES {
        return Err(format!("its ids are more than {MOST_PLACES}"));
    }
    let mut sum = b.op("Gather", &[&b.input(2)?, &b.input(0)?], vec![]);
    let positions = match b.given(8) {
        Some(given) => given,
        None => b.integers(&(0..length).collect::<Vec<i64>>()),
    };
    let placed = b.op("Gather", &[&b.input(3)?, &positions], vec![]);
    sum = b.op("Add", &[&sum, &placed], vec![]);
    if let (Some(segments), Some(table)) = (b.given(1), b.given(4)) {
        let rows = b.op("Gather", &[&table, &segments], vec![]);
        sum = b.op("Add", &[&sum, &rows], vec![]);
    }
    let counts = match b.given(7) {
        Some(mask) if b.around.opset >= 13 => {
            let axis = b.integers(&[1]);
            b.op("ReduceSum", &[&mask, &axis], vec![int("keepdims", 0)])
        }
        Some(mask) => b.op("ReduceSum", &[&mask], vec![ints("axes", &[1]), int("keepdims", 0)]),
        None => {
            let (dims, int32_data) = (vec![batch], vec![0; batch as usize]);
            b.constant(TensorProto { dims, data_type: 6, int32_data, ..Default::default() })
        }
    };
    b.hand_on(&counts, 1);
    let epsilon = float("epsilon", b.float("epsilon", 1e-12));
    let (scale, shift) = (b.input(5)?, b.input(6)?);
    let attributes = vec![int("axis", -1), epsilon];
    let y = b.op("LayerNormalization", &[&sum, &scale, &shift], attributes);
    b.hand_on(&y, 0);
    b.hand_on(&sum, 2);
    Ok(())
}
