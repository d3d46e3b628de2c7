//! Activation functions.

use super::super::model::Call;
use super::{Lower, OpEntry, Out, like_first};
use crate::build::functions::*;
use crate::error::{Outcome, unknown, wrong};
use squall_core::expr::{Expr, Unary};

/// An operator of one tensor.
const fn unary(name: &'static str, f: fn(&Call, &[Option<Expr>]) -> Outcome<Expr>) -> OpEntry {
    OpEntry { name, infer: like_first, eval: Some(super::arithmetic::eval), lower: Lower::Pointwise(f) }
}

pub(super) const OPS: &[OpEntry] = &[
    unary("Relu", |_, x| Ok(relu(first(x)?))),
    unary("LeakyRelu", |c, x| Ok(leaky_relu(first(x)?, constant(c.float("alpha", 0.01)?)))),
    OpEntry { name: "PRelu", infer: prelu_shape, eval: Some(super::arithmetic::eval), lower: Lower::Pointwise(|_, x| Ok(leaky_relu(first(x)?, at(x, 1)?))) },
    unary("Elu", |c, x| Ok(elu(first(x)?, c.float("alpha", 1.0)?, 1.0))),
    unary("Celu", |c, x| {
        let alpha = c.float("alpha", 1.0)?;
        Ok(elu(first(x)?, alpha, alpha))
    }),
    unary("Selu", |c, x| Ok(selu(first(x)?, c.float("alpha", 1.673_263_2)?, c.float("gamma", 1.050_701)?))),
    unary("Sigmoid", |_, x| Ok(Expr::unary(Unary::Sigmoid, first(x)?))),
    unary("HardSigmoid", |c, x| Ok(hard_sigmoid(first(x)?, c.float("alpha", 0.2)?, c.float("beta", 0.5)?))),
    unary("HardSwish", |_, x| Ok(hard_swish(first(x)?))),
    unary("Clip", clipped),
    unary("Tanh", |_, x| Ok(tanh(first(x)?))),
    unary("Erf", |_, x| Ok(Expr::unary(Unary::Erf, first(x)?))),
    unary("Softplus", |_, x| Ok(softplus(first(x)?))),
    unary("Softsign", |_, x| Ok(softsign(first(x)?))),
    unary("Gelu", |c, x| match c.string("approximate", "none")? {
        "none" => Ok(gelu(first(x)?)),
        "tanh" => Ok(gelu_tanh(first(x)?)),
        other => wrong(format!("attribute `approximate` is `{other}`, expected `none` or `tanh`")),
    }),
    unary("Mish", |_, x| Ok(mish(first(x)?))),
    unary("Swish", |c, x| Ok(swish(first(x)?, c.float("alpha", 1.0)?))),
    OpEntry { name: "ThresholdedRelu", infer: like_first, eval: None, lower: Lower::Untuned("a jump at a threshold is not tuned") },
];

/// An operand that must be there.
pub(super) fn at(x: &[Option<Expr>], i: usize) -> Outcome<Expr> {
    match x.get(i) {
        Some(Some(e)) => Ok(e.clone()),
        _ => wrong(format!("input {i} is missing")),
    }
}

pub(super) fn first(x: &[Option<Expr>]) -> Outcome<Expr> {
    at(x, 0)
}

fn prelu_shape(c: &Call) -> Outcome<Vec<Out>> {
    let (x, slope) = (c.shape(0)?, c.shape(1)?);
    match crate::tensor::broadcast_strides(slope, x) {
        Some(_) => like_first(c),
        // Before version 7 a slope per channel needed no trailing extents.
        None if c.version() < 7 => unknown("a slope that broadcasts from the left is not tuned"),
        None => wrong(format!("the slope's shape {slope:?} does not broadcast to {x:?}")),
    }
}

/// Bounds are attributes up to version 10, then inputs.
fn clipped(c: &Call, x: &[Option<Expr>]) -> Outcome<Expr> {
    if c.version() < 11 {
        let bound = |name: &str, none: f32| Ok(Some(c.float(name, none)?).filter(|b| b.abs() < f64::from(f32::MAX)).map(constant));
        return Ok(clip(first(x)?, bound("min", f32::MIN)?, bound("max", f32::MAX)?));
    }
    let bound = |i: usize| x.get(i).cloned().flatten();
    Ok(clip(first(x)?, bound(1), bound(2)))
}
