//! Shape inference of matrix products (`Gemm`, `MatMul`) and of operators that normalise rows or
//! whole tensors (`Softmax`, `LayerNormalization`, ..). Input: a node with the shapes of its
//! operands; output: the types and shapes of its results, or the extents that do not fit each
//! other.

use super::{Ctx, Output, broadcast};
use crate::DType;

pub(crate) fn gemm(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let matrix = |i: usize, flag: &str| -> Result<(i64, i64), String> {
        let transposed = ctx.int_or(flag, 0)? != 0;
        match *ctx.shape(i)? {
            [r, c] => Ok(if transposed { (c, r) } else { (r, c) }),
            ref s => Err(format!("its input {i} has shape {s:?}, two dimensions are expected")),
        }
    };
    let ((m, k), (k2, n)) = (matrix(0, "transA")?, matrix(1, "transB")?);
    if k != k2 {
        return Err(format!("its inner extents {k} and {k2} differ"));
    }
    if let Some(c) = ctx.optional_shape(2)?
        && broadcast(c, &[m, n])? != [m, n]
    {
        return Err(format!("its third input of shape {c:?} does not broadcast to [{m}, {n}]"));
    }
    Ok(vec![Output { dtype: ctx.dtype(0), shape: vec![m, n] }])
}

pub(crate) fn matmul(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let shape = product_shape(ctx.shape(0)?, ctx.shape(1)?)?;
    Ok(vec![Output { dtype: ctx.dtype(0), shape }])
}

/// The shape of a product of matrices, by NumPy's rules.
pub(super) fn product_shape(a: &[i64], b: &[i64]) -> Result<Vec<i64>, String> {
    let (Some((&ka, rows)), false) = (a.split_last(), b.is_empty()) else {
        return Err(format!("shapes {a:?} and {b:?} are no matrices"));
    };
    // A vector is a row on the left and a column on the right; its added dimension goes again.
    let (m, batch_a) = rows.split_last().map_or((None, &[][..]), |(m, batch)| (Some(*m), batch));
    let (kb, n, batch_b) = match b {
        [k] => (*k, None, &[][..]),
        [batch @ .., k, n] => (*k, Some(*n), batch),
        [] => return Err("its second input is a scalar".into()),
    };
    if ka != kb {
        return Err(format!("its inner extents {ka} and {kb} differ (shapes {a:?} and {b:?})"));
    }
    let mut shape = broadcast(batch_a, batch_b)?;
    shape.extend(m);
    shape.extend(n);
    Ok(shape)
}

pub(crate) fn whole(ctx: &Ctx) -> Result<Vec<Output>, String> {
    Ok(vec![Output { dtype: ctx.dtype(0), shape: ctx.shape(0)?.to_vec() }])
}

pub(crate) fn along_axis(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let x = ctx.shape(0)?;
    let default = if ctx.node.op != "LpNormalization" && ctx.opset < 13 { 1 } else { -1 };
    let axis = ctx.int_or("axis", default)?;
    // Before version 13 the axis splits the shape in two halves, the second of which may be empty.
    if !(ctx.opset < 13 && axis == x.len() as i64) && !(x.is_empty() && (axis == 0 || axis == -1)) {
        ctx.axis(axis, x.len())?;
    }
    whole(ctx)
}

pub(crate) fn layer_norm(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let x = ctx.shape(0)?;
    let axis = ctx.axis(ctx.int_or("axis", -1)?, x.len())?;
    for i in 1..3 {
        if i == 2 && ctx.operand(2).is_none() {
            continue;
        }
        let s = ctx.shape(i)?;
        if broadcast(s, x)? != x {
            return Err(format!("its input {i} of shape {s:?} does not broadcast to {x:?}"));
        }
    }
    let statistics: Vec<i64> =
        x.iter().enumerate().map(|(i, d)| if i < axis { *d } else { 1 }).collect();
    let statistics = Output { dtype: Some(DType::F32), shape: statistics };
    Ok(vec![Output { dtype: ctx.dtype(0), shape: x.to_vec() }, statistics.clone(), statistics])
}
