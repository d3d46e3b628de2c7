//! Shape inference of operators that compute each element on its own (`Add`, `Cast`, `Where`, ..):
//! the result has the operands' shapes, broadcast by NumPy's rules. Input: a node with the types
//! and shapes of its operands; output: those of its results. `core/src/operators/elementwise.rs`
//! names these functions.

use super::{Ctx, Output, broadcast, onnx_type};
use crate::DType;

fn one(dtype: Option<DType>, shape: Vec<i64>) -> Result<Vec<Output>, String> {
    Ok(vec![Output { dtype, shape }])
}

pub(crate) fn same(ctx: &Ctx) -> Result<Vec<Output>, String> {
    one(ctx.dtype(0), ctx.shape(0)?.to_vec())
}

pub(crate) fn test(ctx: &Ctx) -> Result<Vec<Output>, String> {
    one(Some(DType::Bool), ctx.shape(0)?.to_vec())
}

pub(crate) fn dropout(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let trains = match ctx.constant(2, "training_mode")? {
        Some(crate::graph::Constant::Bool { data, .. }) => data.contains(&true),
        _ => false,
    };
    if trains {
        return Err("it is in training mode; export the model for inference".into());
    }
    let shape = ctx.shape(0)?.to_vec();
    Ok(vec![
        Output { dtype: ctx.dtype(0), shape: shape.clone() },
        Output { dtype: Some(DType::Bool), shape },
    ])
}

pub(crate) fn prelu(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let (x, slope) = (ctx.shape(0)?, ctx.shape(1)?);
    // Before version 7 a slope of one dimension runs along the channels.
    let channels = ctx.opset < 7 && slope.len() == 1 && x.get(1) == slope.first();
    if !channels && broadcast(x, slope)? != x {
        return Err(format!("its slope of shape {slope:?} does not broadcast to {x:?}"));
    }
    same(ctx)
}

pub(crate) fn cast(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let to = ctx.int("to")?.ok_or("attribute `to` is missing")?;
    match onnx_type(to) {
        None if to == 8 => Err("it casts to strings".into()),
        None => Err(format!("attribute `to` is type {to}, which is not known")),
        dtype => one(dtype, ctx.shape(0)?.to_vec()),
    }
}

pub(crate) fn bit_cast(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let outputs = cast(ctx)?;
    match (ctx.dtype(0), outputs[0].dtype) {
        (Some(a), Some(b)) if a.bytes() != b.bytes() => {
            Err(format!("{} and {} have not as many bits", a.name(), b.name()))
        }
        _ => Ok(outputs),
    }
}

pub(crate) fn has_element(_: &Ctx) -> Result<Vec<Output>, String> {
    one(Some(DType::Bool), vec![])
}

pub(crate) fn cast_like(ctx: &Ctx) -> Result<Vec<Output>, String> {
    one(ctx.dtype(1), ctx.shape(0)?.to_vec())
}

/// All operands, broadcast.
fn joint(ctx: &Ctx, least: usize) -> Result<Vec<i64>, String> {
    if ctx.inputs.len() < least {
        return Err(format!("it has {} inputs, {least} are expected", ctx.inputs.len()));
    }
    if ctx.opset < 7 && ctx.node.attributes.contains_key("axis") && ctx.shape(0)? != ctx.shape(1)? {
        return Err(format!(
            "in opset {} it broadcasts from an axis; convert the model to opset 9 or later",
            ctx.opset
        ));
    }
    let mut shape = ctx.shape(0)?.to_vec();
    for i in 1..ctx.inputs.len() {
        shape = broadcast(&shape, ctx.shape(i)?)?;
    }
    Ok(shape)
}

/// The operands' common type.
fn common(ctx: &Ctx) -> Result<Option<DType>, String> {
    let first = ctx.dtype(0);
    for i in 1..ctx.inputs.len() {
        let e = ctx.dtype(i);
        if let (Some(a), Some(b)) = (first, e)
            && a != b
        {
            let (a, b) = (a.name(), b.name());
            return Err(format!("its inputs have different types, {a} and {b}"));
        }
    }
    Ok(first)
}

pub(crate) fn arithmetic(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let least = if matches!(ctx.node.op.as_str(), "Min" | "Max" | "Mean" | "Sum") { 1 } else { 2 };
    let shape = joint(ctx, least)?;
    one(common(ctx)?, shape)
}

pub(crate) fn power(ctx: &Ctx) -> Result<Vec<Output>, String> {
    one(ctx.dtype(0), joint(ctx, 2)?)
}

pub(crate) fn compare(ctx: &Ctx) -> Result<Vec<Output>, String> {
    common(ctx)?;
    one(Some(DType::Bool), joint(ctx, 2)?)
}

pub(crate) fn select(ctx: &Ctx) -> Result<Vec<Output>, String> {
    one(ctx.dtype(1), joint(ctx, 3)?)
}
