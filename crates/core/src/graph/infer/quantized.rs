//! Operators on quantized tensors: small integers with a scale and a zero point.

use super::{Ctx, OpEntry, Output, op};
use crate::DType;

pub(super) const OPS: &[OpEntry] = &[
    op("ConvInteger", conv_integer),
    op("DequantizeLinear", dequantize),
    op("DynamicQuantizeLinear", dynamic),
    op("MatMulInteger", matmul_integer),
    op("QLinearConv", qlinear_conv),
    op("QLinearMatMul", qlinear_matmul),
    op("QuantizeLinear", quantize),
];

fn one(dtype: Option<DType>, shape: Vec<i64>) -> Result<Vec<Output>, String> {
    Ok(vec![Output { dtype, shape }])
}

fn quantize(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let dtype = match (ctx.int_or("output_dtype", 0)?, ctx.operand(2)) {
        (_, Some(zero)) => zero.dtype,
        (0, None) => Some(DType::U8),
        (number, None) => super::onnx_type(number),
    };
    one(dtype, ctx.shape(0)?.to_vec())
}

fn dequantize(ctx: &Ctx) -> Result<Vec<Output>, String> {
    one(ctx.dtype(1), ctx.shape(0)?.to_vec())
}

fn dynamic(ctx: &Ctx) -> Result<Vec<Output>, String> {
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

fn matmul_integer(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let shape = super::matmul::product_shape(ctx.shape(0)?, ctx.shape(1)?)?;
    one(Some(DType::I32), shape)
}

fn qlinear_matmul(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let shape = super::matmul::product_shape(ctx.shape(0)?, ctx.shape(3)?)?;
    one(ctx.dtype(7), shape)
}

fn conv_integer(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let mut outputs = super::conv_pool::conv(&inner(ctx, &[0, 1]))?;
    outputs[0].dtype = Some(DType::I32);
    Ok(outputs)
}

fn qlinear_conv(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let mut outputs = super::conv_pool::conv(&inner(ctx, &[0, 3, 8]))?;
    outputs[0].dtype = ctx.dtype(7);
    Ok(outputs)
}
