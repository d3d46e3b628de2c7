//! Evaluators of operators that compute, for constant operands: elementwise functions, comparisons,
//! `Where`, `Clip` and reductions, with ONNX's rules for NaN and for integers that wrap around.
//! Models compute shapes with them. The rows of `core/src/operators` name these functions;
//! `fold/mod.rs` says how evaluators are called.

use super::float::{Float, Function};
use super::moves::{broadcast, strides, viewed};
use super::{NOT_HERE, first, need};
use crate::DType;
use crate::graph::infer::{self, Ctx, Output};
use crate::graph::{Constant, elements};

pub(crate) fn select(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
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
        (Constant::F64 { data: a, .. }, Constant::F64 { data: b, .. }) => {
            Constant::F64 { shape, data: mixed(&which, &a, &b) }
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

pub(crate) fn arithmetic(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
    let shape = first(outputs)?.shape.clone();
    let op = ctx.node.op.as_str();
    let whole = Whole { fmod: ctx.int_or("fmod", 0)? != 0, is_unsigned: is_unsigned(ctx) };
    let mut total = broadcast(need(ctx, 0)?, &shape)?;
    for i in 1..ctx.inputs.len() {
        combine(op, &mut total, broadcast(need(ctx, i)?, &shape)?, &whole)?;
    }
    Ok(vec![total])
}

/// Limits are operands from version 11 on; each may be missing.
pub(crate) fn clip(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
    if ctx.opset < 11 {
        return Err(NOT_HERE.into());
    }
    let shape = first(outputs)?.shape.clone();
    let whole = Whole { fmod: false, is_unsigned: is_unsigned(ctx) };
    let mut total = broadcast(need(ctx, 0)?, &shape)?;
    for (i, op) in [(1, "Max"), (2, "Min")] {
        if ctx.inputs.get(i).is_some_and(Option::is_some) {
            combine(op, &mut total, broadcast(need(ctx, i)?, &shape)?, &whole)?;
        }
    }
    Ok(vec![total])
}

/// Takes one more operand of the same type into what was computed of those before it.
fn combine(op: &str, total: &mut Constant, next: Constant, whole: &Whole) -> Result<(), String> {
    match (total, next) {
        (Constant::F32 { data: a, .. }, Constant::F32 { data: b, .. }) => {
            a.iter_mut().zip(b).for_each(|(a, b)| *a = float_step(op, *a, b));
        }
        (Constant::F64 { data: a, .. }, Constant::F64 { data: b, .. }) => {
            a.iter_mut().zip(b).for_each(|(a, b)| *a = float_step(op, *a, b));
        }
        (Constant::I64 { data: a, .. }, Constant::I64 { data: b, .. }) => {
            for (a, b) in a.iter_mut().zip(b) {
                *a = whole.step(op, *a, b)?;
            }
        }
        _ => return Err(NOT_HERE.into()),
    }
    Ok(())
}

fn float_step<T: Float>(op: &str, a: T, b: T) -> T {
    match op {
        "Add" | "Sum" => a + b,
        "Sub" => a - b,
        "Mul" => a * b,
        "Div" => a / b,
        "Pow" => a.power(b),
        "Min" => a.least(b),
        "Max" => a.most(b),
        // Of floats only the form of C's fmod is allowed.
        _ => a % b,
    }
}

/// Whether the first operand is of integers of 64 bits without a sign. Those of fewer bits are kept
/// as numbers that are not negative.
fn is_unsigned(ctx: &Ctx) -> bool {
    ctx.dtype(0) == Some(DType::U64)
}

/// How integers are computed with.
struct Whole {
    fmod: bool,
    is_unsigned: bool,
}

impl Whole {
    fn step(&self, op: &str, a: i64, b: i64) -> Result<i64, String> {
        let (wide_a, wide_b) = (a as u64, b as u64);
        Ok(match op {
            "Add" | "Sum" => a.wrapping_add(b),
            "Sub" => a.wrapping_sub(b),
            "Mul" => a.wrapping_mul(b),
            "Min" if self.is_unsigned => wide_a.min(wide_b) as i64,
            "Max" if self.is_unsigned => wide_a.max(wide_b) as i64,
            "Min" => a.min(b),
            "Max" => a.max(b),
            "Pow" if self.is_unsigned || b >= 0 => integer_power(wide_a, wide_b) as i64,
            "Pow" => (a as f64).powf(b as f64) as i64,
            _ if b == 0 => return Err("it divides by zero".into()),
            "Div" if self.is_unsigned => (wide_a / wide_b) as i64,
            _ if self.is_unsigned => (wide_a % wide_b) as i64,
            "Div" => a.wrapping_div(b),
            _ if self.fmod => a.wrapping_rem(b),
            // The sign follows the divisor, as in Python.
            _ => {
                let r = a.wrapping_rem(b);
                if r != 0 && (r < 0) != (b < 0) { r + b } else { r }
            }
        })
    }
}

/// A power that wraps around.
fn integer_power(mut base: u64, mut exponent: u64) -> u64 {
    let mut power = 1u64;
    while exponent > 0 {
        if exponent & 1 == 1 {
            power = power.wrapping_mul(base);
        }
        base = base.wrapping_mul(base);
        exponent >>= 1;
    }
    power
}

pub(crate) fn compare(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
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
        (Constant::F64 { data: a, .. }, Constant::F64 { data: b, .. }) => all(op, &a, &b),
        (Constant::I64 { data: a, .. }, Constant::I64 { data: b, .. }) if is_unsigned(ctx) => {
            let wide = |list: Vec<i64>| list.into_iter().map(|v| v as u64).collect::<Vec<_>>();
            all(op, &wide(a), &wide(b))
        }
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

/// A function of one number.
pub(crate) fn each(ctx: &Ctx, function: &Function) -> Result<Vec<Constant>, String> {
    let mut x = need(ctx, 0)?.clone();
    match &mut x {
        Constant::F32 { data, .. } => data.iter_mut().for_each(|v| *v = (function.of_f32)(*v)),
        Constant::F64 { data, .. } => data.iter_mut().for_each(|v| *v = (function.of_f64)(*v)),
        Constant::I64 { data, .. } => {
            let of_unsigned = function.of_unsigned.filter(|_| is_unsigned(ctx));
            let f = of_unsigned.or(function.of_whole).ok_or(NOT_HERE)?;
            data.iter_mut().for_each(|v| *v = f(*v));
        }
        Constant::Bool { .. } => return Err(NOT_HERE.into()),
    }
    Ok(vec![x])
}

pub(crate) fn not(ctx: &Ctx, _: &[Output]) -> Result<Vec<Constant>, String> {
    let Constant::Bool { shape, data } = need(ctx, 0)? else { return Err(NOT_HERE.into()) };
    Ok(vec![Constant::Bool { shape: shape.clone(), data: data.iter().map(|v| !v).collect() }])
}

pub(crate) fn reduce(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
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
    let rows = |i: usize| i * row..(i + 1) * row;
    Ok(vec![match &moved {
        Constant::F32 { data, .. } => {
            Constant::F32 { shape, data: (0..n).map(|i| reduced(op, &data[rows(i)])).collect() }
        }
        Constant::F64 { data, .. } => {
            Constant::F64 { shape, data: (0..n).map(|i| reduced(op, &data[rows(i)])).collect() }
        }
        Constant::I64 { data, .. } => {
            let whole = Whole { fmod: false, is_unsigned: is_unsigned(ctx) };
            let (step, first) = match op {
                "ReduceSum" => ("Add", 0),
                "ReduceProd" => ("Mul", 1),
                "ReduceMax" => ("Max", if whole.is_unsigned { 0 } else { i64::MIN }),
                _ => ("Min", if whole.is_unsigned { -1 } else { i64::MAX }),
            };
            let one =
                |i: usize| data[rows(i)].iter().try_fold(first, |a, b| whole.step(step, a, *b));
            Constant::I64 { shape, data: (0..n).map(one).collect::<Result<_, _>>()? }
        }
        Constant::Bool { .. } => return Err(NOT_HERE.into()),
    }])
}

/// One result of a reduction of floats.
fn reduced<T: Float>(op: &str, row: &[T]) -> T {
    let each = row.iter().copied();
    match op {
        "ReduceSum" => each.fold(T::ZERO, T::add),
        "ReduceProd" => each.fold(T::ONE, T::mul),
        "ReduceMax" => each.fold(-T::INFINITY, T::most),
        _ => each.fold(T::INFINITY, T::least),
    }
}
