//! Shape inference and checks of ONNX's operators on quantised tensors, small integers with a scale
//! and a zero point: `QuantizeLinear`, `DequantizeLinear`, `MatMulInteger`, `QLinearConv` and their
//! relatives. A node with a wrong scale or zero point is refused with a message.
//! `frontend/src/onnx/reader/quantised` reads the same operators.

use super::{Ctx, Output};
use crate::DType;
use crate::graph::{elements, type_name};

/// The numbers that scales may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scales {
    /// Numbers above zero.
    Positive,
    /// Any numbers. Quantisers of weights in blocks write negative ones, and 0 for blocks of zeros.
    Any,
}

impl Scales {
    /// Says which of the scales is none.
    pub fn check(self, scales: &[f32]) -> Result<(), String> {
        let is_wrong = |s: &&f32| !s.is_finite() || (self == Scales::Positive && **s <= 0.0);
        match scales.iter().find(is_wrong) {
            None => Ok(()),
            Some(s) if s.is_finite() => Err(format!("its scale {s} is not above 0")),
            Some(s) => Err(format!("its scale {s} is no finite number")),
        }
    }
}

/// Whether the zero point of values of a type has the type that it must have.
pub fn zero_point_suits(value: Option<DType>, zero: Option<DType>) -> Result<(), String> {
    match (value, zero) {
        (Some(value), Some(zero)) if value != zero => Err(format!(
            "its zero point is of {}, the values that it belongs to are of {}",
            zero.name(),
            value.name()
        )),
        _ => Ok(()),
    }
}

/// Checks the scale and the zero point of an operand or, where that has no place, of the result.
fn quantization(
    ctx: &Ctx,
    value: Option<usize>,
    scale: usize,
    zero: usize,
    allowed: Scales,
) -> Result<(), String> {
    if let Some(known) = ctx.operand(scale).and_then(|o| o.constant)
        && let Some(scales) = known.as_f32()
    {
        allowed.check(scales)?;
    }
    if ctx.operand(zero).is_none() {
        return Ok(());
    }
    let dtype = ctx.dtype(zero);
    // Where constants are evaluated every whole number has 64 bits.
    if !dtype.is_some_and(DType::is_integer) {
        return Err(format!("zero points of {} are not supported", type_name(dtype)));
    }
    zero_point_suits(value.and_then(|v| ctx.dtype(v)), dtype)
}

/// Checks that scales are as many as zero points and, of a blocked operator, as its blocks.
fn extents_suit(ctx: &Ctx) -> Result<(), String> {
    let (block, x, scale) = (ctx.int_or("block_size", 0)?, ctx.shape(0)?, ctx.shape(1)?);
    if block == 0 {
        let counts = (ctx.optional_shape(2)?.map(elements).transpose()?, elements(scale)?);
        return match counts {
            (Some(zeros), scales) if zeros != scales => {
                Err(format!("its {zeros} zero points do not suit {scales} scales"))
            }
            _ => Ok(()),
        };
    }
    let axis = ctx.axis(ctx.int_or("axis", 1)?, x.len())?;
    let fits = |i: usize| match i == axis {
        // A block that is cut short still has a scale.
        true => block > 0 && x[i].checked_add(block - 1).map(|n| n / block) == Some(scale[i]),
        false => scale[i] == x[i],
    };
    if scale.len() != x.len() || !(0..x.len()).all(fits) {
        return Err(format!(
            "scales of shape {scale:?} do not suit {x:?} in blocks of {block} along axis {axis}"
        ));
    }
    match ctx.optional_shape(2)? {
        Some(zero) if zero != scale => {
            Err(format!("zero points of shape {zero:?} do not suit scales of {scale:?}"))
        }
        _ => Ok(()),
    }
}

fn one(dtype: Option<DType>, shape: Vec<i64>) -> Result<Vec<Output>, String> {
    Ok(vec![Output { dtype, shape }])
}

pub(crate) fn quantize(ctx: &Ctx) -> Result<Vec<Output>, String> {
    quantization(ctx, None, 1, 2, Scales::Positive)?;
    extents_suit(ctx)?;
    let dtype = match (ctx.int_or("output_dtype", 0)?, ctx.operand(2)) {
        (_, Some(zero)) => zero.dtype,
        (0, None) => Some(DType::U8),
        (number, None) => super::onnx_type(number),
    };
    one(dtype, ctx.shape(0)?.to_vec())
}

pub(crate) fn dequantize(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let is_blocked = ctx.int_or("block_size", 0)? != 0;
    let allowed = if is_blocked { Scales::Any } else { Scales::Positive };
    quantization(ctx, Some(0), 1, 2, allowed)?;
    extents_suit(ctx)?;
    one(ctx.dtype(1), ctx.shape(0)?.to_vec())
}

pub(crate) fn dynamic(ctx: &Ctx) -> Result<Vec<Output>, String> {
    Ok(vec![
        Output { dtype: Some(DType::U8), shape: ctx.shape(0)?.to_vec() },
        Output { dtype: Some(DType::F32), shape: vec![] },
        Output { dtype: Some(DType::U8), shape: vec![] },
    ])
}

/// A node of which only some operands are those of its unquantized form.
fn inner<'a>(ctx: &Ctx<'a>, operands: &[usize]) -> Ctx<'a> {
    let inputs = operands.iter().map(|i| ctx.operand(*i)).collect();
    Ctx { node: ctx.node, opset: ctx.opset, inputs }
}

/// The zero points of a product of integers.
fn zero_points(ctx: &Ctx) -> Result<(), String> {
    zero_point_suits(ctx.dtype(0), ctx.dtype(2))?;
    zero_point_suits(ctx.dtype(1), ctx.dtype(3))
}

/// Checks that an operand holds one zero point or, where there may be more, one for each filter.
fn one_or_one_each(ctx: &Ctx, zero: usize, each: Option<i64>) -> Result<(), String> {
    let count = ctx.optional_shape(zero)?.map(elements).transpose()?;
    match (count, each) {
        (None | Some(1), _) => Ok(()),
        (Some(n), Some(each)) if n == each => Ok(()),
        (Some(n), Some(each)) => Err(format!("its {n} zero points do not suit {each} filters")),
        (Some(n), None) => Err(format!("its image has {n} zero points, where one is allowed")),
    }
}

/// The scales and zero points of two factors and a result.
fn of_product(ctx: &Ctx) -> Result<(), String> {
    quantization(ctx, Some(0), 1, 2, Scales::Positive)?;
    quantization(ctx, Some(3), 4, 5, Scales::Positive)?;
    quantization(ctx, None, 6, 7, Scales::Positive)
}

pub(crate) fn matmul_integer(ctx: &Ctx) -> Result<Vec<Output>, String> {
    zero_points(ctx)?;
    let shape = super::matmul::product_shape(ctx.shape(0)?, ctx.shape(1)?)?;
    one(Some(DType::I32), shape)
}

pub(crate) fn qlinear_matmul(ctx: &Ctx) -> Result<Vec<Output>, String> {
    of_product(ctx)?;
    let shape = super::matmul::product_shape(ctx.shape(0)?, ctx.shape(3)?)?;
    one(ctx.dtype(7), shape)
}

pub(crate) fn conv_integer(ctx: &Ctx) -> Result<Vec<Output>, String> {
    zero_points(ctx)?;
    one_or_one_each(ctx, 2, None)?;
    one_or_one_each(ctx, 3, ctx.shape(1)?.first().copied())?;
    let mut outputs = super::conv_pool::conv(&inner(ctx, &[0, 1]))?;
    outputs[0].dtype = Some(DType::I32);
    Ok(outputs)
}

pub(crate) fn qlinear_conv(ctx: &Ctx) -> Result<Vec<Output>, String> {
    of_product(ctx)?;
    let mut outputs = super::conv_pool::conv(&inner(ctx, &[0, 3, 8]))?;
    outputs[0].dtype = ctx.dtype(7);
    Ok(outputs)
}
