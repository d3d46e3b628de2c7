//! Rewrites operators as they were before opset 7 as those of today: their attributes `axis` and
//! `broadcast` say where the second operand's extents lie among the first's, and a slope of PRelu
//! runs along the channels. Input: a node; output: nodes that broadcast as NumPy does, or nothing
//! where the node already does.

use super::body::Around;
use super::inline::{ints, simple};
use crate::error::shown;
use crate::onnx::proto::NodeProto;

/// The first version whose operators broadcast as NumPy does.
const SINCE: i64 = 7;

/// Operators of two operands with these attributes.
const BINARY: &[&str] =
    &["Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor"];

/// The nodes that do what a node of an older version does; nothing where it says what it would say
/// today.
pub(super) fn written_out(
    call: &NodeProto,
    prefix: &str,
    around: &Around,
) -> Option<Result<Vec<NodeProto>, String>> {
    if call.op_type == "PRelu" && around.opset < SINCE {
        return sloped(call, prefix, around).map(Ok);
    }
    let standard = matches!(call.domain.as_str(), "" | "ai.onnx");
    let is_old = |name: &str| name == "axis" || name == "broadcast";
    let has_any = call.attribute.iter().any(|a| is_old(&a.name));
    let op = call.op_type.as_str();
    if !standard || around.opset >= SINCE || !has_any || !BINARY.contains(&op) {
        return None;
    }
    let int = |name: &str| call.attribute.iter().find(|a| a.name == name).and_then(|a| a.i);
    let axis = int("axis").filter(|_| int("broadcast").unwrap_or(0) != 0);
    let mut node = call.clone();
    node.attribute.retain(|a| !is_old(&a.name));
    Some(aligned(node, axis, prefix, around))
}

/// A node without these attributes, ahead of it what gives its second operand as many extents of 1
/// behind its own as the axis says.
fn aligned(
    node: NodeProto,
    axis: Option<i64>,
    prefix: &str,
    around: &Around,
) -> Result<Vec<NodeProto>, String> {
    let Some(axis) = axis else { return Ok(vec![node]) };
    let shape = |i: usize| {
        let name = node.input.get(i).ok_or_else(|| format!("input {i} is missing"))?;
        let unknown = || format!("the shape of its input `{}` is not known", shown(name));
        (around.shape)(name).ok_or_else(unknown)
    };
    let (a, b) = (shape(0)?, shape(1)?);
    let (rank, own) = (a.len() as i64, b.len() as i64);
    let first = if axis < 0 { axis.saturating_add(rank) } else { axis };
    let behind = rank - first.clamp(-1, rank + 1) - own;
    if first < 0 || behind < 0 {
        return Err(format!(
            "attribute `axis` is {axis}, which does not suit operands of shapes {a:?} and {b:?}"
        ));
    }
    match behind {
        0 => Ok(vec![node]),
        _ => Ok(widened(node, own, behind, prefix)),
    }
}

/// A node whose second operand, of `own` dimensions, gets `behind` more of extent 1 behind them.
fn widened(mut node: NodeProto, own: i64, behind: i64, prefix: &str) -> Vec<NodeProto> {
    let wide = format!("{prefix}aligned");
    let mut widen = simple("Unsqueeze", &[&node.input[1]], &wide);
    let axes: Vec<i64> = (own..own + behind).collect();
    widen.attribute.push(ints("axes", &axes));
    node.input[1] = wide;
    vec![widen, node]
}

/// A PRelu whose slope runs along the channels, which are the second dimension.
fn sloped(call: &NodeProto, prefix: &str, around: &Around) -> Option<Vec<NodeProto>> {
    let shape = |i: usize| (around.shape)(call.input.get(i)?);
    let (x, slope) = (shape(0)?, shape(1)?);
    let [channels] = slope[..] else { return None };
    let runs = x.len() > 2 && channels != 1 && x[1] == channels;
    runs.then(|| widened(call.clone(), 1, x.len() as i64 - 2, prefix))
}
