//! Arithmetic with broadcasting, on floats as expressions and on integers as shapes need it.

use super::super::model::Call;
use super::activation::{at, first};
use super::{Lower, OpEntry, Out, like_first};
use crate::build::functions::*;
use crate::error::{Outcome, Trouble, unknown, wrong};
use crate::tensor::{Data, Elem, Positions, Tensor, broadcast, broadcast_strides, elements};
use squall_core::expr::{Expr, Unary};

type Point = fn(&Call, &[Option<Expr>]) -> Outcome<Expr>;

const fn unary(name: &'static str, f: Point) -> OpEntry {
    OpEntry { name, infer: like_first, eval: Some(eval), lower: Lower::Pointwise(f) }
}

const fn many(name: &'static str, f: Point) -> OpEntry {
    OpEntry { name, infer: broadcast_all, eval: Some(eval), lower: Lower::Pointwise(f) }
}

pub(super) const OPS: &[OpEntry] = &[
    many("Add", |c, x| two(c, x, add)),
    many("Sub", |c, x| two(c, x, sub)),
    many("Mul", |c, x| two(c, x, mul)),
    many("Div", |c, x| two(c, x, div)),
    many("Max", |_, x| chain(x, max)),
    many("Min", |_, x| chain(x, min)),
    many("Sum", |_, x| chain(x, add)),
    many("Mean", |_, x| Ok(div(chain(x, add)?, constant(x.len() as f64)))),
    many("Pow", |_, x| match at(x, 1)? {
        Expr::Const(e) => Ok(power(first(x)?, e)),
        e => Ok(Expr::binary(squall_core::expr::Binary::Pow, first(x)?, e)),
    }),
    OpEntry { name: "Mod", infer: broadcast_all, eval: Some(eval), lower: Lower::Untuned("remainders are not tuned") },
    unary("Exp", |_, x| Ok(exp(first(x)?))),
    unary("Log", |_, x| Ok(Expr::unary(Unary::Log, first(x)?))),
    unary("Sqrt", |_, x| Ok(Expr::unary(Unary::Sqrt, first(x)?))),
    unary("Neg", |_, x| Ok(Expr::unary(Unary::Neg, first(x)?))),
    unary("Abs", |_, x| Ok(Expr::unary(Unary::Abs, first(x)?))),
    unary("Reciprocal", |_, x| Ok(div(constant(1.0), first(x)?))),
    unary("Floor", |_, x| Ok(Expr::unary(Unary::Floor, first(x)?))),
    unary("Ceil", |_, x| Ok(Expr::unary(Unary::Ceil, first(x)?))),
    unary("Round", |_, x| Ok(Expr::unary(Unary::Round, first(x)?))),
    unary("Sin", |_, x| Ok(Expr::unary(Unary::Sin, first(x)?))),
    unary("Cos", |_, x| Ok(Expr::unary(Unary::Cos, first(x)?))),
    unary("Sign", |_, x| Ok(Expr::unary(Unary::Sign, first(x)?))),
];

fn two(c: &Call, x: &[Option<Expr>], f: fn(Expr, Expr) -> Expr) -> Outcome<Expr> {
    if c.version() < 7 && c.int("broadcast", 0)? != 0 {
        return unknown("broadcasting by axis, as before version 7, is not tuned");
    }
    Ok(f(first(x)?, at(x, 1)?))
}

fn chain(x: &[Option<Expr>], f: fn(Expr, Expr) -> Expr) -> Outcome<Expr> {
    (1..x.len()).try_fold(first(x)?, |e, i| Ok(f(e, at(x, i)?)))
}

/// The outputs have the inputs' type and the shape that they broadcast to.
pub(super) fn broadcast_all(c: &Call) -> Outcome<Vec<Out>> {
    let shapes = (0..c.node.inputs.len()).map(|i| c.shape(i)).collect::<Outcome<Vec<_>>>()?;
    if shapes.is_empty() {
        return wrong("it has no inputs");
    }
    if c.version() < 7 && c.int("broadcast", 0)? != 0 {
        return like_first(c);
    }
    match broadcast(&shapes) {
        Some(s) => Ok(vec![Out::new(c.elem(0)?, s)]),
        None => wrong(format!("its inputs' shapes {} do not broadcast", shapes.iter().map(|s| format!("{s:?}")).collect::<Vec<_>>().join(" and "))),
    }
}

/// Integers by the table below, floats by the operator's expression.
pub(super) fn eval(c: &Call, x: &[Option<&Tensor>]) -> Outcome<Vec<Tensor>> {
    let shape = c.out_shape(0)?;
    let tensors: Vec<&Tensor> = x.iter().copied().flatten().collect();
    if tensors.iter().all(|t| t.as_floats().is_some()) {
        return super::super::pointwise::eval(c, &tensors, shape).map(|t| vec![t]);
    }
    let f = integer(c)?;
    let Some(columns) = tensors.iter().map(|t| t.as_ints()).collect::<Option<Vec<_>>>() else {
        return wrong("it mixes integers and floats");
    };
    let mut out = Vec::new();
    each_row(&tensors, shape, &mut |row| {
        let mut values = columns.iter().zip(row).map(|(v, &i)| v.get(i).copied().unwrap_or(0));
        let first = values.next().unwrap_or(0);
        let result = if columns.len() == 1 { f(first, 0) } else { values.try_fold(first, f) };
        out.push(result.ok_or_else(|| Trouble::Wrong("it divides by zero or overflows".into()))?);
        Ok(())
    })?;
    let elem = tensors.first().map_or(Elem::I64, |t| t.elem);
    Ok(vec![Tensor { elem, shape: shape.to_vec(), data: Data::Int(out) }])
}

/// Calls `f` for each element of `shape` with the positions of the inputs' elements.
pub(super) fn each_row(tensors: &[&Tensor], shape: &[i64], f: &mut dyn FnMut(&[usize]) -> Outcome<()>) -> Outcome<()> {
    let mut walks = Vec::new();
    for t in tensors {
        match broadcast_strides(&t.shape, shape) {
            Some(s) => walks.push(Positions::new(shape, &s, 0)),
            None => return wrong(format!("an input of shape {:?} does not broadcast to {shape:?}", t.shape)),
        }
    }
    let mut row = vec![0; walks.len()];
    for _ in 0..elements(shape).unwrap_or(0) {
        for (slot, walk) in row.iter_mut().zip(&mut walks) {
            *slot = walk.next().and_then(|p| usize::try_from(p).ok()).unwrap_or(usize::MAX);
        }
        f(&row)?;
    }
    Ok(())
}

fn integer(c: &Call) -> Outcome<fn(i64, i64) -> Option<i64>> {
    Ok(match c.node.op.as_str() {
        "Add" | "Sum" => i64::checked_add,
        "Sub" => i64::checked_sub,
        "Mul" => i64::checked_mul,
        "Div" => i64::checked_div,
        "Mod" if c.int("fmod", 0)? != 0 => i64::checked_rem,
        // The sign of the divisor, as in Python.
        "Mod" => |a, b| a.checked_rem(b).map(|r| if r != 0 && (r < 0) != (b < 0) { r + b } else { r }),
        "Max" => |a, b| Some(a.max(b)),
        "Min" => |a, b| Some(a.min(b)),
        "Pow" => |a, b| u32::try_from(b).ok().and_then(|b| a.checked_pow(b)),
        "Neg" => |a, _| a.checked_neg(),
        "Abs" => |a, _| a.checked_abs(),
        "Sign" => |a, _| Some(a.signum()),
        "Floor" | "Ceil" | "Round" => |a, _| Some(a),
        op => return unknown(format!("`{op}` of integers is not computed")),
    })
}
