//! Constant folding: evaluators that compute an operator's results when a model is read, where the
//! operands' elements are known. They cover the operators that models compute shapes with, and all
//! movement of data. Input: a node with its operands ([`Ctx`]) and the types and shapes that
//! inference gave its results; output: constants. Since shapes come from inference (`graph/infer`)
//! alone, the two always agree. `core/src/operators` says which operator has which evaluator.

/// Runs `$body` for the elements `$data` of any type and makes a constant of `$shape` of it.
macro_rules! map_data {
    ($constant:expr, $shape:expr, $data:ident => $body:expr) => {
        match $constant {
            Constant::F32 { data: $data, .. } => Constant::F32 { shape: $shape, data: $body },
            Constant::F64 { data: $data, .. } => Constant::F64 { shape: $shape, data: $body },
            Constant::I64 { data: $data, .. } => Constant::I64 { shape: $shape, data: $body },
            Constant::Bool { data: $data, .. } => Constant::Bool { shape: $shape, data: $body },
        }
    };
}

mod arithmetic;
mod bytes;
mod float;
mod lookup;
mod moves;
mod nbits;
mod quantized;

pub(crate) use self::arithmetic::{arithmetic, clip, compare, each, not, reduce, select};
pub(crate) use self::bytes::{pack as pack_bytes, pack_scales};
pub(crate) use self::float::{Float, Function};
pub(crate) use self::lookup::{
    gather_elements, gather_nd, non_zero, scatter_elements, scatter_nd, trilu,
};
pub(crate) use self::moves::{concat, expand, gather, pad, slice, split, tile, transpose};
pub(crate) use self::nbits::{pack as pack_nbits, unpack as unpack_nbits};
pub(crate) use self::quantized::dequantize;
use super::infer::{self, Ctx, Output};
use super::{Attribute, Constant, elements};
use crate::DType;

/// The most elements that an evaluation makes; a model that asks for more is hostile.
pub(crate) const MOST: i64 = 1 << 31;

/// `Shape` and `Size`, which need no elements.
pub fn of_shape(ctx: &Ctx) -> Result<Vec<Constant>, String> {
    if ctx.node.op == "Size" { size(ctx, &[]) } else { shape(ctx, &[]) }
}

/// The message of an evaluator that leaves a form of its operator alone.
pub(crate) const NOT_HERE: &str = "not evaluated here";

fn need<'a>(ctx: &Ctx<'a>, i: usize) -> Result<&'a Constant, String> {
    ctx.constant(i, "operand")?.ok_or_else(|| format!("input {i} is missing"))
}

fn first(outputs: &[Output]) -> Result<&Output, String> {
    outputs.first().ok_or_else(|| "it has no result".into())
}

pub(crate) fn choose(ctx: &Ctx, _: &[Output]) -> Result<Vec<Constant>, String> {
    let Some(&[taken]) = need(ctx, 0)?.as_bool() else {
        return Err("its condition is not one boolean".into());
    };
    Ok(vec![need(ctx, if taken { 1 } else { 2 })?.clone()])
}

pub(crate) fn renamed(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
    if ctx.node.outputs.len() > 1 {
        return Err(NOT_HERE.into());
    }
    Ok(vec![need(ctx, 0)?.clone().reshaped(first(outputs)?.shape.clone())])
}

pub(crate) fn constant(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
    let shape = first(outputs)?.shape.clone();
    let attribute = |name: &str| ctx.node.attributes.get(name);
    if let Some(Attribute::Tensor(t)) = attribute("value") {
        return t.constant.clone().map(|c| vec![c]).ok_or_else(|| NOT_HERE.into());
    }
    let names = ["value_int", "value_ints", "value_float", "value_floats"];
    match names.iter().find_map(|n| attribute(n)) {
        Some(Attribute::Int(i)) => Ok(vec![Constant::I64 { shape, data: vec![*i] }]),
        Some(Attribute::Ints(v)) => Ok(vec![Constant::I64 { shape, data: v.clone() }]),
        Some(Attribute::Float(f)) => Ok(vec![Constant::F32 { shape, data: vec![*f] }]),
        Some(Attribute::Floats(v)) => Ok(vec![Constant::F32 { shape, data: v.clone() }]),
        _ => Err(NOT_HERE.into()),
    }
}

pub(crate) fn shape(ctx: &Ctx, _: &[Output]) -> Result<Vec<Constant>, String> {
    Ok(vec![Constant::ints(ctx.shape(0)?[infer::shape_range(ctx)?].to_vec())])
}

pub(crate) fn size(ctx: &Ctx, _: &[Output]) -> Result<Vec<Constant>, String> {
    Ok(vec![Constant::I64 { shape: vec![], data: vec![elements(ctx.shape(0)?)?] }])
}

pub(crate) fn constant_of_shape(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
    let shape = first(outputs)?.shape.clone();
    let n = elements(&shape)? as usize;
    match ctx.node.attributes.get("value") {
        None => Ok(vec![Constant::F32 { shape, data: vec![0.0; n] }]),
        Some(Attribute::Tensor(t)) => match &t.constant {
            Some(c) if c.len() == 1 => Ok(vec![map_data!(c, shape, data => vec![data[0]; n])]),
            _ => Err(NOT_HERE.into()),
        },
        Some(_) => Err(NOT_HERE.into()),
    }
}

pub(crate) fn range(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
    let shape = first(outputs)?.shape.clone();
    let n = elements(&shape)?;
    Ok(vec![match (need(ctx, 0)?, need(ctx, 2)?) {
        (Constant::I64 { data: s, .. }, Constant::I64 { data: d, .. }) => Constant::I64 {
            shape,
            data: (0..n).map(|i| s[0].wrapping_add(i.wrapping_mul(d[0]))).collect(),
        },
        (Constant::F32 { data: s, .. }, Constant::F32 { data: d, .. }) => {
            Constant::F32 { shape, data: (0..n).map(|i| s[0] + i as f32 * d[0]).collect() }
        }
        (Constant::F64 { data: s, .. }, Constant::F64 { data: d, .. }) => {
            Constant::F64 { shape, data: (0..n).map(|i| s[0] + i as f64 * d[0]).collect() }
        }
        _ => return Err(NOT_HERE.into()),
    }])
}

pub(crate) fn cast(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
    let o = first(outputs)?;
    let (x, shape) = (need(ctx, 0)?, o.shape.clone());
    let Some(dtype) = o.dtype else { return Err(NOT_HERE.into()) };
    let from = ctx.dtype(0);
    Ok(vec![match dtype {
        DType::Bool => Constant::Bool { shape, data: truths(x) },
        DType::F32 => Constant::F32 { shape, data: numbers(x, from, |v| v as f32, |v| v) },
        DType::F64 => Constant::F64 { shape, data: numbers(x, from, |v| v, f64::from) },
        d if d.is_half() => {
            let rounded = |x: f32| d.half_bits(x).and_then(|bits| d.half_value(bits)).unwrap_or(x);
            let data = numbers(x, from, |v| v as f32, |v| v).into_iter().map(rounded).collect();
            Constant::F32 { shape, data }
        }
        d if d.is_float() => return Err(NOT_HERE.into()),
        d => {
            let data = match x {
                Constant::F32 { data, .. } => data.iter().map(|v| cut(f64::from(*v), d)).collect(),
                Constant::F64 { data, .. } => data.iter().map(|v| cut(*v, d)).collect(),
                Constant::I64 { data, .. } => data.clone(),
                Constant::Bool { data, .. } => data.iter().map(|v| i64::from(*v)).collect(),
            };
            Constant::I64 { shape, data: data.into_iter().map(|v| narrowed(v, d)).collect() }
        }
    }])
}

/// The whole part of a float as an integer of a type; where the type has no such number, what plain
/// operators make of it.
fn cut(v: f64, dtype: DType) -> i64 {
    let two_63 = 9_223_372_036_854_775_808.0;
    match dtype {
        DType::U64 if v <= -two_63 || v >= 2.0 * two_63 || v.is_nan() => 0,
        DType::U64 if v >= 0.0 => v as u64 as i64,
        DType::I32 if !(-2_147_483_649.0 < v && v < 2_147_483_648.0) => i64::from(i32::MIN),
        _ if -two_63 <= v && v < two_63 => v as i64,
        _ => i64::MIN,
    }
}

/// For each element whether it is not zero.
fn truths(x: &Constant) -> Vec<bool> {
    match x {
        Constant::F32 { data, .. } => data.iter().map(|v| *v != 0.0).collect(),
        Constant::F64 { data, .. } => data.iter().map(|v| *v != 0.0).collect(),
        Constant::I64 { data, .. } => data.iter().map(|v| *v != 0).collect(),
        Constant::Bool { data, .. } => data.clone(),
    }
}

/// Elements of a type as floats, each rounded once.
fn numbers<T: Float>(
    x: &Constant,
    from: Option<DType>,
    of_wide: fn(f64) -> T,
    of_narrow: fn(f32) -> T,
) -> Vec<T> {
    match x {
        Constant::F32 { data, .. } => data.iter().map(|v| of_narrow(*v)).collect(),
        Constant::F64 { data, .. } => data.iter().map(|v| of_wide(*v)).collect(),
        Constant::I64 { data, .. } if from == Some(DType::U64) => {
            data.iter().map(|v| T::of_unsigned(*v as u64)).collect()
        }
        Constant::I64 { data, .. } => data.iter().map(|v| T::of_whole(*v)).collect(),
        Constant::Bool { data, .. } => data.iter().map(|v| T::of_whole(i64::from(*v))).collect(),
    }
}

/// An integer as its type keeps it.
pub(crate) fn narrowed(v: i64, dtype: DType) -> i64 {
    match dtype {
        DType::I8 => i64::from(v as i8),
        DType::I16 => i64::from(v as i16),
        DType::I32 => i64::from(v as i32),
        DType::U8 => i64::from(v as u8),
        DType::U16 => i64::from(v as u16),
        DType::U32 => i64::from(v as u32),
        _ => v,
    }
}
