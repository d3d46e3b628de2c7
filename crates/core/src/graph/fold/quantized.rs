//! The evaluator of `DequantizeLinear` for constant operands: weights that a file keeps as integers
//! become floats, `(x - zero point) * scale`, with one scale for all elements, for each index of an
//! axis, or for each block of an axis.

use super::{NOT_HERE, first, need};
use crate::graph::infer::{Ctx, Output};
use crate::graph::{Constant, elements};

pub(crate) fn dequantize(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
    let known = ["axis", "block_size", "output_dtype"];
    if ctx.node.attributes.keys().any(|name| !known.contains(&name.as_str())) {
        return Err(NOT_HERE.into());
    }
    let shape = first(outputs)?.shape.clone();
    let (x, scales) = (need(ctx, 0)?.as_i64(), need(ctx, 1)?.as_f32());
    let (Some(x), Some(scales)) = (x, scales) else { return Err(NOT_HERE.into()) };
    let zeros = ctx.integers(2, "zero points")?;
    let given = ctx.shape(1)?;
    let (mut inner, mut extent, block) = (elements(&shape)?, 1, ctx.int_or("block_size", 0)?);
    if scales.len() != 1 || block != 0 {
        let axis = ctx.axis(ctx.int_or("axis", 1)?, shape.len())?;
        (inner, extent) = (elements(&shape[axis + 1..])?, shape[axis]);
        if block == 0 && given != [extent] {
            return Err(format!("a scale of shape {given:?} does not suit {shape:?}"));
        }
    }
    if zeros.is_some_and(|z| z.len() != scales.len()) {
        return Err(format!("its zero points do not suit scales of {given:?}"));
    }
    let (inner, extent) = (inner.max(1) as usize, extent.max(1) as usize);
    let blocks = if block > 0 { extent.div_ceil(block as usize) } else { extent };
    let place = |at: usize| match (block, scales.len()) {
        (0, 1) => 0,
        (0, _) => at / inner % extent,
        _ => {
            let (outer, e) = (at / inner / extent, at / inner % extent);
            (outer * blocks + e / block as usize) * inner + at % inner
        }
    };
    let each = |(at, v): (usize, &i64)| {
        let place = place(at);
        // Integers of 16 bits and their differences are exact in floats.
        (*v - zeros.map_or(0, |z| z[place])) as f32 * scales[place]
    };
    Ok(vec![Constant::F32 { shape, data: x.iter().enumerate().map(each).collect() }])
}
