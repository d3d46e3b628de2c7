//! Shape inference of operators on images beyond convolutions and pooling: sampling at a grid of
//! places (`GridSample`, `AffineGrid`), regions of interest (`RoiAlign`, `MaxRoiPool`), `Col2Im`,
//! `DeformConv`, `MaxUnpool`. Input: a node with the shapes of its operands; output: the types and
//! shapes of its results.

use super::{Ctx, Output, axes_of};
use crate::DType;
use crate::graph::elements;

fn one(dtype: Option<DType>, shape: Vec<i64>) -> Result<Vec<Output>, String> {
    Ok(vec![Output { dtype, shape }])
}

pub(crate) fn affine_grid(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let size = ctx.integers(1, "size")?.ok_or("input 1 is missing")?;
    let rank = size.len().saturating_sub(2);
    let n = size.first().copied().unwrap_or(0);
    if !(2..=3).contains(&rank) || ctx.shape(0)? != [n, rank as i64, rank as i64 + 1] {
        return Err(format!("theta of shape {:?} does not suit size {size:?}", ctx.shape(0)?));
    }
    one(ctx.dtype(0), [&[n], &size[2..], &[rank as i64]].concat())
}

pub(crate) fn center_crop_pad(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let mut shape = ctx.shape(0)?.to_vec();
    let to = ctx.integers(1, "shape")?.ok_or("input 1 is missing")?;
    let axes = match ctx.ints("axes")? {
        Some(a) => axes_of(a, shape.len())?,
        None => (0..shape.len()).collect(),
    };
    if axes.len() != to.len() {
        return Err(format!("{} extents are given for {} axes", to.len(), axes.len()));
    }
    axes.iter().zip(to).for_each(|(&a, &d)| shape[a] = d);
    one(ctx.dtype(0), shape)
}

pub(crate) fn col2im(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let image = ctx.integers(1, "image_shape")?.ok_or("input 1 is missing")?;
    let block = ctx.integers(2, "block_shape")?.ok_or("input 2 is missing")?;
    let [n, columns, length] = *ctx.shape(0)? else {
        return Err("its input has not three dimensions".into());
    };
    let size = elements(block)?;
    if size < 1 || columns % size != 0 || image.len() != block.len() || image.is_empty() {
        return Err(format!("blocks {block:?} do not suit {columns} rows and image {image:?}"));
    }
    let w = super::conv_pool::spread(ctx, image, block)?;
    if w.out.iter().product::<i64>() != length {
        return Err(format!("{length} blocks are given, the image has {:?}", w.out));
    }
    one(ctx.dtype(0), [&[n, columns / size], image].concat())
}

pub(crate) fn deform_conv(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let (x, w) = (ctx.shape(0)?, ctx.shape(1)?);
    let group = ctx.int_or("group", 1)?;
    let offsets = ctx.int_or("offset_group", 1)?;
    if x.len() != 4 || w.len() != 4 {
        return Err("images and filters of four dimensions are supported".into());
    }
    let fits = group >= 1
        && offsets >= 1
        && w[1].checked_mul(group) == Some(x[1])
        && w[0] % group == 0
        && x[1] % offsets == 0;
    if !fits {
        return Err(format!("{group} groups of filters {w:?} do not suit an input {x:?}"));
    }
    let out = super::conv_pool::spread(ctx, &x[2..], &w[2..])?.out;
    let shape = [&[x[0], w[0]], out.as_slice()].concat();
    let points = offsets * w[2] * w[3];
    if ctx.shape(2)? != [x[0], 2 * points, shape[2], shape[3]] {
        return Err(format!("its offsets have shape {:?}", ctx.shape(2)?));
    }
    match ctx.optional_shape(4)? {
        Some(m) if m != [x[0], points, shape[2], shape[3]] => {
            return Err(format!("its mask has shape {m:?}"));
        }
        _ => {}
    }
    match ctx.optional_shape(3)? {
        Some(b) if b != [w[0]] => Err(format!("its bias has shape {b:?}")),
        _ => one(ctx.dtype(0), shape),
    }
}

pub(crate) fn grid_sample(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let (x, grid) = (ctx.shape(0)?, ctx.shape(1)?);
    let rank = x.len().saturating_sub(2);
    if rank < 1 || grid.len() != rank + 2 || grid[0] != x[0] || grid[rank + 1] != rank as i64 {
        return Err(format!("a grid of shape {grid:?} does not suit an image of shape {x:?}"));
    }
    one(ctx.dtype(0), [&x[..2], &grid[1..=rank]].concat())
}

pub(crate) fn max_roi_pool(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let (x, rois) = (ctx.shape(0)?, ctx.shape(1)?);
    let pooled = ctx.ints("pooled_shape")?.ok_or("attribute `pooled_shape` is missing")?;
    match (x, rois, pooled) {
        (&[_, c, _, _], &[n, 5], &[h, w]) if h > 0 && w > 0 => one(ctx.dtype(0), vec![n, c, h, w]),
        _ => Err(format!("regions {rois:?} pooled to {pooled:?} do not suit {x:?}")),
    }
}

pub(crate) fn max_unpool(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let x = ctx.shape(0)?;
    if ctx.shape(1)? != x || x.len() < 3 {
        return Err(format!("indices of shape {:?} do not suit {x:?}", ctx.shape(1)?));
    }
    if ctx.operand(2).is_some() {
        let shape = ctx.integers(2, "output_shape")?.unwrap_or_default().to_vec();
        if shape.len() != x.len() || shape[..2] != x[..2] {
            return Err(format!("output shape {shape:?} does not suit {x:?}"));
        }
        return one(ctx.dtype(0), shape);
    }
    one(ctx.dtype(0), unpooled(ctx)?)
}

/// The extents that a `MaxUnpool` gives where none are asked of it.
pub fn unpooled(ctx: &Ctx) -> Result<Vec<i64>, String> {
    let x = ctx.shape(0)?;
    let kernel = ctx.ints("kernel_shape")?.ok_or("attribute `kernel_shape` is missing")?;
    let rank = x.len() - 2;
    if kernel.len() != rank {
        return Err(format!("attribute `kernel_shape` is {kernel:?} of an input {x:?}"));
    }
    let strides = super::conv_pool::spatial(ctx, "strides", rank, 1, 1)?;
    let pads = super::conv_pool::spatial(ctx, "pads", 2 * rank, 0, 0)?;
    let mut shape = x[..2].to_vec();
    for i in 0..rank {
        shape.push((x[2 + i] - 1) * strides[i] + kernel[i] - pads[i] - pads[rank + i]);
    }
    Ok(shape)
}

pub(crate) fn roi_align(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let (x, rois) = (ctx.shape(0)?, ctx.shape(1)?);
    let (h, w) = (ctx.int_or("output_height", 1)?, ctx.int_or("output_width", 1)?);
    match (x, rois, ctx.shape(2)?) {
        (&[_, c, _, _], &[n, 4], &[m]) if m == n && h > 0 && w > 0 => {
            one(ctx.dtype(0), vec![n, c, h, w])
        }
        _ => Err(format!("regions {rois:?} do not suit an image of shape {x:?}")),
    }
}
