//! Comparisons and logic: never kernels, but shapes are computed with them.

use super::super::model::Call;
use super::arithmetic::{broadcast_all, each_row};
use super::{Lower, OpEntry, Out};
use crate::error::{Outcome, unknown, wrong};
use crate::tensor::{Data, Elem, Tensor};

const fn entry(name: &'static str) -> OpEntry {
    OpEntry { name, infer, eval: Some(eval), lower: Lower::Untuned("comparisons and logic are not tuned") }
}

pub(super) const OPS: &[OpEntry] = &[
    entry("Equal"),
    entry("Less"),
    entry("LessOrEqual"),
    entry("Greater"),
    entry("GreaterOrEqual"),
    entry("And"),
    entry("Or"),
    entry("Xor"),
    entry("Not"),
    entry("IsNaN"),
    entry("IsInf"),
];

fn infer(c: &Call) -> Outcome<Vec<Out>> {
    let mut out = broadcast_all(c)?;
    for o in &mut out {
        o.elem = Some(Elem::BOOL);
    }
    Ok(out)
}

fn eval(c: &Call, x: &[Option<&Tensor>]) -> Outcome<Vec<Tensor>> {
    let tensors: Vec<&Tensor> = x.iter().copied().flatten().collect();
    let arity = if matches!(c.node.op.as_str(), "Not" | "IsNaN" | "IsInf") { 1 } else { 2 };
    if tensors.len() != arity {
        return wrong(format!("it has {} inputs, expected {arity}", tensors.len()));
    }
    let shape = c.out_shape(0)?;
    // Doubles hold every float, and integers well beyond any extent.
    let value = |t: &Tensor, p: usize| match &t.data {
        Data::Int(v) => v.get(p).map_or(f64::NAN, |&x| x as f64),
        Data::Float(v) => v.get(p).map_or(f64::NAN, |&x| f64::from(x)),
    };
    let op: fn(f64, f64) -> bool = match c.node.op.as_str() {
        "Equal" => |a, b| a == b,
        "Less" => |a, b| a < b,
        "LessOrEqual" => |a, b| a <= b,
        "Greater" => |a, b| a > b,
        "GreaterOrEqual" => |a, b| a >= b,
        "And" => |a, b| a != 0.0 && b != 0.0,
        "Or" => |a, b| a != 0.0 || b != 0.0,
        "Xor" => |a, b| (a != 0.0) != (b != 0.0),
        "Not" => |a, _| a == 0.0,
        "IsNaN" => |a, _| a.is_nan(),
        "IsInf" => |a, _| a.is_infinite(),
        op => return unknown(format!("`{op}` is not computed by plain code")),
    };
    let mut out = Vec::new();
    each_row(&tensors, shape, &mut |row| {
        let a = value(tensors[0], row[0]);
        let b = if arity == 2 { value(tensors[1], row[1]) } else { 0.0 };
        out.push(i64::from(op(a, b)));
        Ok(())
    })?;
    Ok(vec![Tensor { elem: Elem::BOOL, shape: shape.to_vec(), data: Data::Int(out) }])
}
