//! How many products of two numbers an operator adds up: the functions that rows name by
//! `multiplies`. Input: a node with the shapes of its operands, and the shape of its first result;
//! output: a count, or why it is not known ahead of the run. Each stated pair of factors counts
//! once, those with the zeros beside an image too. `compiler/src/plain/work.rs` makes of the count
//! the least work of a plain operator.

use crate::graph::elements;
use crate::graph::infer::{AttentionShape, Ctx, Equation, Recurrent};

/// Counts the products of a node, whose first result has this shape.
pub type Products = fn(&Ctx, &[i64]) -> Result<u64, String>;

fn count(extents: &[i64]) -> Result<u64, String> {
    elements(extents).map(i64::unsigned_abs)
}

/// A matrix product, whose rows are those of the operand at this place.
pub(super) fn product(ctx: &Ctx, rows: usize, result: &[i64]) -> Result<u64, String> {
    let depth = ctx.shape(rows)?.last().ok_or("its rows are a scalar")?;
    Ok(count(result)?.saturating_mul(count(&[*depth])?))
}

/// A product of two matrices, where the first one may be given transposed.
pub(super) fn gemm(ctx: &Ctx, result: &[i64]) -> Result<u64, String> {
    let along = usize::from(ctx.int_or("transA", 0)? == 0);
    let depth = ctx.shape(0)?.get(along).ok_or("its first operand is no matrix")?;
    Ok(count(result)?.saturating_mul(count(&[*depth])?))
}

/// The sums of a filter at this place of the operand for one element.
fn filter(ctx: &Ctx, filters: usize) -> Result<u64, String> {
    count(ctx.shape(filters)?.get(1..).ok_or("its filters are a scalar")?)
}

/// A convolution by the filters at this place.
pub(super) fn convolution(ctx: &Ctx, filters: usize, result: &[i64]) -> Result<u64, String> {
    Ok(count(result)?.saturating_mul(filter(ctx, filters)?))
}

/// A transposed convolution: each element of the image is multiplied with a filter.
pub(super) fn transposed(ctx: &Ctx, _: &[i64]) -> Result<u64, String> {
    Ok(count(ctx.shape(0)?)?.saturating_mul(filter(ctx, 1)?))
}

/// A recurrence: in each step each row of the batch is multiplied with all weights.
pub(super) fn recurrence(ctx: &Ctx, _: &[i64]) -> Result<u64, String> {
    if ctx.operand(4).is_some() {
        return Err("the run gives the lengths of its sequences".into());
    }
    let r = Recurrent::of(ctx)?;
    let weights = count(ctx.shape(1)?)?.saturating_add(count(ctx.shape(2)?)?);
    Ok(count(&[r.steps, r.batch])?.saturating_mul(weights))
}

/// Attention of queries that see all keys: scores, and sums of values.
pub(super) fn attention(ctx: &Ctx, _: &[i64]) -> Result<u64, String> {
    let has_window =
        ctx.int_or("left_window_size", -1)? >= 0 || ctx.int_or("right_window_size", -1)? >= 0;
    if ctx.operand(6).is_some() || ctx.int_or("is_causal", 0)? != 0 || has_window {
        return Err("not all queries see all keys".into());
    }
    let s = AttentionShape::of(ctx)?;
    let scores = count(&[s.batch, s.heads, s.queries, s.total()])?;
    let each = count(&[s.head])?.saturating_add(count(&[s.value_head])?);
    Ok(scores.saturating_mul(each))
}

/// A sum of products over the indices of an equation.
pub(super) fn einsum(ctx: &Ctx, _: &[i64]) -> Result<u64, String> {
    let equation = Equation::of(ctx)?;
    let factors = equation.operands.len() as u64;
    Ok(count(&equation.extents)?.saturating_mul(factors.saturating_sub(1)))
}
