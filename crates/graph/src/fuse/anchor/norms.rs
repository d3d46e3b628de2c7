//! Normalisations of rows: nodes that become a kernel with statistics of rows and elementwise rest
//! (`core/src/operator/rows.rs`). Factors and addends by channels are steps behind it.

use super::{Anchor, plain, product};
use crate::view::{View, axis, float, input, int, ints};
use squall_core::TensorKind;
use squall_core::graph::{Node, ValueId};
use squall_core::operator::{GroupNorm, LayerNorm, LpNorm, RmsNorm, functions};

/// The default of `epsilon` in ONNX.
const EPSILON: f64 = 1e-5;

/// The number that ONNX adds to the deviation of `MeanVarianceNormalization`, as a part of the
/// variance: the root of its square is the same where the variance is 0.
const DEVIATION_EPSILON: f64 = 1e-18;

pub(super) fn layers(view: &View<'_>, node: &Node) -> Result<Anchor, String> {
    let ((x, xs), (g, gs)) = (view.operand(node, 0)?, view.operand(node, 1)?);
    let at = axis(int(node, "axis", -1), xs.len())?;
    let (rows, cols) = (product(&xs[..at]), product(&xs[at..]));
    let mut feeds = vec![x, g];
    let bias = input(node, 2);
    let bias_shape = if bias.is_some() { view.operand(node, 2)?.1 } else { gs };
    if product(gs) != cols || product(bias_shape) != cols {
        return Err(format!("its factors {gs:?} are not one for each of {cols} columns"));
    }
    feeds.extend(bias);
    let eps = float(node, "epsilon", EPSILON);
    if node.op == "RMSNormalization" {
        let norm = RmsNorm { rows, cols, eps, gain: view.kind(g) };
        return plain(view, node, norm.name(), norm.workload()?, feeds);
    }
    let norm = LayerNorm { rows, cols, eps, gain: view.kind(g), bias: bias.map(|b| view.kind(b)) };
    plain(view, node, norm.name(), norm.workload()?, feeds)
}

/// Rows that are divided by their norm.
pub(super) fn lengths(view: &View<'_>, node: &Node) -> Result<Anchor, String> {
    let (x, xs) = view.operand(node, 0)?;
    let at = axis(int(node, "axis", -1), xs.len())?;
    if product(&xs[at + 1..]) != 1 {
        return Err(format!("the dimension {at} of {xs:?} that it is along is not the last"));
    }
    let norm = LpNorm { rows: product(&xs[..at]), cols: xs[at], p: int(node, "p", 2) };
    plain(view, node, norm.name(), norm.workload()?, vec![x])
}

/// Groups of channels; of instances each channel is one.
pub(super) fn groups(view: &View<'_>, node: &Node) -> Result<Anchor, String> {
    let (x, xs) = view.operand(node, 0)?;
    let &[images, channels, ref image @ ..] = xs else {
        return Err(format!("its operand is {xs:?}, which has no channels"));
    };
    let groups = match node.op.as_str() {
        "GroupNormalization" => int(node, "num_groups", 0),
        _ => channels,
    };
    if groups < 1 || channels % groups != 0 {
        return Err(format!("{groups} groups do not divide {channels} channels"));
    }
    let eps = float(node, "epsilon", EPSILON);
    let norm =
        GroupNorm { images, groups, channels: channels / groups, places: product(image), eps };
    let mut a = plain(view, node, norm.name(), norm.workload()?, vec![x])?;
    let ((scale, by), (shift, to)) = (view.operand(node, 1)?, view.operand(node, 2)?);
    // Before version 21 the factors of GroupNormalization are those of groups.
    if by != [channels] || to != [channels] {
        return Err(format!("its factors {by:?} are not one for each of {channels} channels"));
    }
    let mut shape = vec![1; xs.len() - 1];
    shape[0] = channels;
    let mut read = |value: ValueId, weight: &'static str| {
        let kind = view.kind(value);
        let name = if kind == TensorKind::Weight { weight } else { "R" };
        a.step_feeds.push(crate::feed::Feed::Value(value));
        a.steps.operand(name, kind, shape.clone())
    };
    let (scale, shift) = (read(scale, "S"), read(shift, "B"));
    a.steps.body = functions::add(functions::mul(a.steps.body, scale), shift);
    a.steps.tags.push("affine".into());
    Ok(a)
}

/// The mean becomes 0 and the variance 1 over the last dimensions, but for those of extent 1.
pub(super) fn mean_variance(view: &View<'_>, node: &Node) -> Result<Anchor, String> {
    let (x, xs) = view.operand(node, 0)?;
    let mut is_over = vec![false; xs.len()];
    for &a in ints(node, "axes").unwrap_or(&[0, 2, 3]) {
        is_over[axis(a, xs.len())?] = true;
    }
    let long: Vec<(i64, bool)> =
        xs.iter().zip(is_over).filter(|d| *d.0 != 1).map(|(e, over)| (*e, over)).collect();
    let kept = long.iter().take_while(|d| !d.1).count();
    if long[kept..].iter().any(|d| !d.1) {
        return Err(format!("the dimensions of {xs:?} that it is over are not the last"));
    }
    let extents: Vec<i64> = long.iter().map(|d| d.0).collect();
    let (groups, places) = (product(&extents[..kept]), product(&extents[kept..]));
    let norm = GroupNorm { images: 1, groups, channels: 1, places, eps: DEVIATION_EPSILON };
    plain(view, node, norm.name(), norm.workload()?, vec![x])
}
