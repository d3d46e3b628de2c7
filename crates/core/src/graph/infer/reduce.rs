//! Shape inference of operators that reduce or scan along axes: `ReduceSum` and its family,
//! `ArgMax`, `CumSum`, `TopK`. The axes come from an attribute or, in newer opsets, from an operand
//! that must be known. Input: a node with the shapes of its operands; output: the types and shapes
//! of its results.

use super::{Ctx, Output, axes_of};
use crate::DType;

/// The axes along which a reduction runs, in order; none where it does nothing.
pub(super) fn axes(ctx: &Ctx) -> Result<Vec<usize>, String> {
    let rank = ctx.shape(0)?.len();
    let input_since = if ctx.node.op == "ReduceSum" { 13 } else { 18 };
    let given = ctx.attribute_or_input("axes", 1, input_since)?.unwrap_or_default();
    if given.is_empty() {
        let nothing = ctx.int_or("noop_with_empty_axes", 0)? != 0;
        return Ok(if nothing { Vec::new() } else { (0..rank).collect() });
    }
    let mut axes = axes_of(given, rank)?;
    axes.sort_unstable();
    Ok(axes)
}

fn without(x: &[i64], axes: &[usize], keep: bool) -> Vec<i64> {
    let extent =
        |(i, d): (usize, &i64)| if !axes.contains(&i) { Some(*d) } else { keep.then_some(1) };
    x.iter().enumerate().filter_map(extent).collect()
}

pub(crate) fn reduce(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let keep = ctx.int_or("keepdims", 1)? != 0;
    let shape = without(ctx.shape(0)?, &axes(ctx)?, keep);
    Ok(vec![Output { dtype: ctx.dtype(0), shape }])
}

pub(crate) fn arg(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let x = ctx.shape(0)?;
    let axis = ctx.axis(ctx.int_or("axis", 0)?, x.len())?;
    Ok(vec![Output {
        dtype: Some(DType::I64),
        shape: without(x, &[axis], ctx.int_or("keepdims", 1)? != 0),
    }])
}

/// Sums and products along an axis, which the second operand names.
pub(crate) fn scan(ctx: &Ctx) -> Result<Vec<Output>, String> {
    ctx.required(1)?;
    Ok(vec![Output { dtype: ctx.dtype(0), shape: ctx.shape(0)?.to_vec() }])
}

pub(crate) fn top_k(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let x = ctx.shape(0)?;
    let axis = ctx.axis(ctx.int_or("axis", -1)?, x.len())?;
    let k = match (ctx.int("k")?, ctx.integers(1, "k")?) {
        (Some(k), _) if ctx.opset < 10 => k,
        (_, Some([k])) => *k,
        _ => return Err("its number of elements is missing".into()),
    };
    if !(0..=x[axis]).contains(&k) {
        return Err(format!("{k} elements are asked of an axis of {}", x[axis]));
    }
    let mut shape = x.to_vec();
    shape[axis] = k;
    Ok(vec![
        Output { dtype: ctx.dtype(0), shape: shape.clone() },
        Output { dtype: Some(DType::I64), shape },
    ])
}
