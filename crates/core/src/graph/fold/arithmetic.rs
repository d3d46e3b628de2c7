//! Evaluation of operators that compute: elementwise functions, comparisons and reductions.

use super::moves::{broadcast, strides, viewed};
use super::{NOT_HERE, first, need};
use crate::graph::infer::{self, Ctx, Output};
use crate::graph::{Constant, elements};

pub(super) fn select(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
    let shape = first(outputs)?.shape.clone();
    let Constant::Bool { data: which, .. } = broadcast(need(ctx, 0)?, &shape)? else {
        return Err("its condition is not of type bool".into());
    };
    fn mixed<T: Copy>(which: &[bool], a: &[T], b: &[T]) -> Vec<T> {
        which.iter().zip(a.iter().zip(b)).map(|(w, (a, b))| if *w { *a } else { *b }).collect()
    }
    Ok(vec![match (broadcast(need(ctx, 1)?, &shape)?, broadcast(need(ctx, 2)?, &shape)?) {
        (Constant::F32 { data: a, .. }, Constant::F32 { data: b, .. }) => {
            Constant::F32 { shape, data: mixed(&which, &a, &b) }
        }
        (Constant::I64 { data: a, .. }, Constant::I64 { data: b, .. }) => {
            Constant::I64 { shape, data: mixed(&which, &a, &b) }
        }
        (Constant::Bool { data: a, .. }, Constant::Bool { data: b, .. }) => {
            Constant::Bool { shape, data: mixed(&which, &a, &b) }
        }
        _ => return Err("its inputs have different types".into()),
    }])
}

pub(super) fn arithmetic(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
    let shape = first(outputs)?.shape.clone();
    let op = ctx.node.op.as_str();
    let fmod = ctx.int_or("fmod", 0)? != 0;
    let mut total = broadcast(need(ctx, 0)?, &shape)?;
    for i in 1..ctx.inputs.len() {
        match (&mut total, broadcast(need(ctx, i)?, &shape)?) {
            (Constant::F32 { data: a, .. }, Constant::F32 { data: b, .. }) => {
                a.iter_mut().zip(b).for_each(|(a, b)| *a = float_step(op, *a, b));
            }
            (Constant::I64 { data: a, .. }, Constant::I64 { data: b, .. }) => {
                for (a, b) in a.iter_mut().zip(b) {
                    *a = integer_step(op, fmod, *a, b)?;
                }
            }
            _ => return Err(NOT_HERE.into()),
        }
    }
    Ok(vec![total])
}

pub(super) fn float_step(op: &str, a: f32, b: f32) -> f32 {
    match op {
        "Add" | "Sum" => a + b,
        "Sub" => a - b,
        "Mul" => a * b,
        "Div" => a / b,
        "Pow" => a.powf(b),
        "Min" => a.min(b),
        "Max" => a.max(b),
        // Of floats only the form of C's fmod is allowed.
        _ => a % b,
    }
}

pub(super) fn integer_step(op: &str, fmod: bool, a: i64, b: i64) -> Result<i64, String> {
    Ok(match op {
        "Add" | "Sum" => a.wrapping_add(b),
        "Sub" => a.wrapping_sub(b),
        "Mul" => a.wrapping_mul(b),
        "Min" => a.min(b),
        "Max" => a.max(b),
        "Pow" if b >= 0 => a.wrapping_pow(u32::try_from(b).unwrap_or(u32::MAX)),
        "Pow" => (a as f64).powf(b as f64) as i64,
        _ if b == 0 => return Err("it divides by zero".into()),
        "Div" => a.wrapping_div(b),
        _ if fmod => a.wrapping_rem(b),
        // The sign follows the divisor, as in Python.
        _ => {
            let r = a.wrapping_rem(b);
            if r != 0 && (r < 0) != (b < 0) { r + b } else { r }
        }
    })
}

pub(super) fn compare(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
    let shape = first(outputs)?.shape.clone();
    fn all<T: PartialOrd>(op: &str, a: &[T], b: &[T]) -> Option<Vec<bool>> {
        let test: fn(&T, &T) -> bool = match op {
            "Equal" => |a, b| a == b,
            "Less" => |a, b| a < b,
            "Greater" => |a, b| a > b,
            "LessOrEqual" => |a, b| a <= b,
            "GreaterOrEqual" => |a, b| a >= b,
            _ => return None,
        };
        Some(a.iter().zip(b).map(|(a, b)| test(a, b)).collect())
    }
    let op = ctx.node.op.as_str();
    let data = match (broadcast(need(ctx, 0)?, &shape)?, broadcast(need(ctx, 1)?, &shape)?) {
        (Constant::F32 { data: a, .. }, Constant::F32 { data: b, .. }) => all(op, &a, &b),
        (Constant::I64 { data: a, .. }, Constant::I64 { data: b, .. }) => all(op, &a, &b),
        (Constant::Bool { data: a, .. }, Constant::Bool { data: b, .. }) => match op {
            "And" => Some(a.iter().zip(&b).map(|(a, b)| a & b).collect()),
            "Or" => Some(a.iter().zip(&b).map(|(a, b)| a | b).collect()),
            "Xor" => Some(a.iter().zip(&b).map(|(a, b)| a ^ b).collect()),
            _ => all(op, &a, &b),
        },
        _ => return Err("its inputs have different types".into()),
    };
    Ok(vec![Constant::Bool {
        shape,
        data: data.ok_or("its inputs are of a type that it does not take")?,
    }])
}

pub(super) fn unary(ctx: &Ctx, _: &[Output]) -> Result<Vec<Constant>, String> {
    let op = ctx.node.op.as_str();
    let mut x = need(ctx, 0)?.clone();
    match &mut x {
        Constant::F32 { data, .. } => {
            let f: fn(f32) -> f32 = match op {
                "Neg" => |v| -v,
                "Abs" => f32::abs,
                "Floor" => f32::floor,
                "Ceil" => f32::ceil,
                "Round" => f32::round_ties_even,
                "Sqrt" => f32::sqrt,
                "Reciprocal" => f32::recip,
                "Cos" => f32::cos,
                "Exp" => f32::exp,
                "Relu" => |v| v.max(0.0),
                "Sin" => f32::sin,
                "Tanh" => f32::tanh,
                "Log" => f32::ln,
                "Sign" => |v| if v == 0.0 { 0.0 } else { v.signum() },
                _ => return Err(NOT_HERE.into()),
            };
            data.iter_mut().for_each(|v| *v = f(*v));
        }
        Constant::I64 { data, .. } => {
            let f: fn(i64) -> i64 = match op {
                "Ceil" | "Floor" | "Round" => |v| v,
                "Neg" => i64::wrapping_neg,
                "Relu" => |v| v.max(0),
                "Abs" => i64::wrapping_abs,
                "Sign" => i64::signum,
                _ => return Err(NOT_HERE.into()),
            };
            data.iter_mut().for_each(|v| *v = f(*v));
        }
        Constant::Bool { data, .. } if op == "Not" => data.iter_mut().for_each(|v| *v = !*v),
        Constant::Bool { .. } => return Err(NOT_HERE.into()),
    }
    Ok(vec![x])
}

pub(super) fn reduce(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
    let (x, shape) = (need(ctx, 0)?, first(outputs)?.shape.clone());
    let axes = infer::reduced_axes(ctx)?;
    let own = strides(x.shape());
    let kept: Vec<usize> = (0..own.len()).filter(|a| !axes.contains(a)).collect();
    let order: Vec<usize> = kept.iter().chain(&axes).copied().collect();
    let extents = |order: &[usize]| order.iter().map(|a| x.shape()[*a]).collect::<Vec<_>>();
    // Reduced axes go innermost: each result then has its elements in one piece.
    let steps: Vec<i64> = order.iter().map(|a| own[*a]).collect();
    let moved = viewed(x, &extents(&order), &extents(&order), &steps, 0)?;
    let row = elements(&extents(&axes))? as usize;
    let op = ctx.node.op.as_str();
    if row == 0 && matches!(op, "ReduceMax" | "ReduceMin") {
        return Err(NOT_HERE.into());
    }
    let n = elements(&shape)? as usize;
    Ok(vec![match &moved {
        Constant::F32 { data, .. } => {
            let f: fn(&[f32]) -> f32 = match op {
                "ReduceSum" => |r| r.iter().sum(),
                "ReduceProd" => |r| r.iter().product(),
                "ReduceMax" => |r| r.iter().copied().fold(f32::NEG_INFINITY, f32::max),
                _ => |r| r.iter().copied().fold(f32::INFINITY, f32::min),
            };
            Constant::F32 {
                shape,
                data: (0..n).map(|i| f(&data[i * row..(i + 1) * row])).collect(),
            }
        }
        Constant::I64 { data, .. } => {
            let f: fn(&[i64]) -> i64 = match op {
                "ReduceSum" => |r| r.iter().fold(0, |a, b| a.wrapping_add(*b)),
                "ReduceProd" => |r| r.iter().fold(1, |a, b| a.wrapping_mul(*b)),
                "ReduceMax" => |r| r.iter().copied().max().unwrap_or(i64::MIN),
                _ => |r| r.iter().copied().min().unwrap_or(i64::MAX),
            };
            Constant::I64 {
                shape,
                data: (0..n).map(|i| f(&data[i * row..(i + 1) * row])).collect(),
            }
        }
        Constant::Bool { .. } => return Err(NOT_HERE.into()),
    }])
}
