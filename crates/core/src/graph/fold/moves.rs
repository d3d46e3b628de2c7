//! Evaluators of operators that move data, for constant operands: `Transpose`, `Slice`, `Split`,
//! `Concat`, `Gather`, `Expand`, `Tile` and `Pad`. Every element of a result is an element of one
//! operand, or padding; most are views of row-major elements by strides.

use super::{NOT_HERE, first, need};
use crate::graph::infer::{self, Ctx, GatherAxis, Output, slices, split_sizes, transpose_order};
use crate::graph::{Attribute, Constant, elements};

/// The distances of neighbours along each axis of a row-major tensor.
pub(crate) fn strides(shape: &[i64]) -> Vec<i64> {
    let mut out = vec![1; shape.len()];
    for i in (1..shape.len()).rev() {
        out[i - 1] = out[i] * shape[i].max(1);
    }
    out
}

/// The elements of a view: `shape` extents, each with its stride in `data`, from `offset` on.
pub(crate) fn view<T: Copy>(
    data: &[T],
    shape: &[i64],
    strides: &[i64],
    offset: i64,
) -> Result<Vec<T>, String> {
    let count = elements(shape)? as usize;
    let mut out = Vec::with_capacity(count);
    if count == 0 {
        return Ok(out);
    }
    // Neighbouring axes that one stride traverses are one; axes of one element are none.
    let mut axes: Vec<(i64, i64)> = Vec::new();
    for (&extent, &stride) in shape.iter().zip(strides).filter(|(e, _)| **e != 1) {
        match axes.last_mut() {
            Some((e, s)) if *s == stride * extent => (*e, *s) = (*e * extent, stride),
            _ => axes.push((extent, stride)),
        }
    }
    let (extent, stride) = axes.pop().unwrap_or((1, 1));
    let outside = || "it reads outside its operand".to_string();
    let last = |at: i64| at + (extent - 1) * stride;
    let mut place = vec![0i64; axes.len()];
    let mut at = offset;
    loop {
        if at < 0 || last(at) < 0 || at.max(last(at)) >= data.len() as i64 {
            return Err(outside());
        }
        match stride {
            1 => out.extend_from_slice(&data[at as usize..(at + extent) as usize]),
            0 => out.extend(std::iter::repeat_n(data[at as usize], extent as usize)),
            _ => out.extend((0..extent).map(|i| data[(at + i * stride) as usize])),
        }
        let mut axis = axes.len();
        loop {
            if axis == 0 {
                return Ok(out);
            }
            axis -= 1;
            let (e, s) = axes[axis];
            place[axis] += 1;
            at += s;
            if place[axis] < e {
                break;
            }
            at -= s * e;
            place[axis] = 0;
        }
    }
}

/// A view of a constant, with the shape of the result.
pub(crate) fn viewed(
    c: &Constant,
    shape: &[i64],
    view_shape: &[i64],
    strides: &[i64],
    offset: i64,
) -> Result<Constant, String> {
    Ok(map_data!(c, shape.to_vec(), data => view(data, view_shape, strides, offset)?))
}

/// A constant broadcast to a shape.
pub(crate) fn broadcast(c: &Constant, to: &[i64]) -> Result<Constant, String> {
    if c.shape() == to {
        return Ok(c.clone());
    }
    let own = strides(c.shape());
    let skipped =
        to.len().checked_sub(c.shape().len()).ok_or("its operand has too many dimensions")?;
    let stride =
        |i: usize| if i < skipped || c.shape()[i - skipped] == 1 { 0 } else { own[i - skipped] };
    viewed(c, to, to, &(0..to.len()).map(stride).collect::<Vec<_>>(), 0)
}

pub(crate) fn transpose(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
    let (x, shape) = (need(ctx, 0)?, &first(outputs)?.shape);
    let own = strides(x.shape());
    let strides: Vec<i64> = transpose_order(ctx)?.iter().map(|a| own[*a]).collect();
    Ok(vec![viewed(x, shape, shape, &strides, 0)?])
}

pub(crate) fn slice(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
    let (x, shape) = (need(ctx, 0)?, &first(outputs)?.shape);
    let (own, cuts) = (strides(x.shape()), slices(ctx)?);
    // A step may exceed 64 bits in elements only where one element is taken: it is then not used.
    let strides: Vec<i64> = own.iter().zip(&cuts).map(|(s, c)| s.saturating_mul(c.step)).collect();
    let offset = own.iter().zip(&cuts).filter(|(_, c)| c.count > 0).map(|(s, c)| s * c.start).sum();
    Ok(vec![viewed(x, shape, shape, &strides, offset)?])
}

pub(crate) fn split(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
    let x = need(ctx, 0)?;
    let (own, (axis, sizes)) = (strides(x.shape()), split_sizes(ctx)?);
    let mut offset = 0;
    let mut parts = Vec::new();
    for (o, size) in outputs.iter().zip(sizes) {
        parts.push(viewed(x, &o.shape, &o.shape, &own, offset * own[axis])?);
        offset += size;
    }
    Ok(parts)
}

pub(crate) fn concat(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
    let shape = first(outputs)?.shape.clone();
    let axis = ctx.axis(ctx.int_or("axis", 1)?, shape.len())?;
    let outer = elements(&shape[..axis])? as usize;
    let parts: Vec<&Constant> =
        (0..ctx.inputs.len()).map(|i| need(ctx, i)).collect::<Result<_, _>>()?;
    macro_rules! joined {
        ($variant:ident) => {{
            let mut data = Vec::with_capacity(elements(&shape)? as usize);
            for o in 0..outer {
                for p in &parts {
                    let Constant::$variant { data: d, .. } = p else {
                        return Err("its inputs have different types".into());
                    };
                    let block = d.len() / outer;
                    data.extend_from_slice(&d[o * block..(o + 1) * block]);
                }
            }
            Constant::$variant { shape, data }
        }};
    }
    Ok(vec![match parts.first() {
        Some(Constant::F32 { .. }) => joined!(F32),
        Some(Constant::F64 { .. }) => joined!(F64),
        Some(Constant::I64 { .. }) => joined!(I64),
        Some(Constant::Bool { .. }) => joined!(Bool),
        None => return Err("it has no inputs".into()),
    }])
}

pub(crate) fn gather(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
    let (x, shape) = (need(ctx, 0)?, first(outputs)?.shape.clone());
    let axis = GatherAxis::of(ctx)?;
    let indices = ctx.integers(1, "indices")?.ok_or("input 1 is missing")?;
    let places: Vec<usize> = indices.iter().map(|i| axis.place(*i)).collect::<Result<_, _>>()?;
    let block = axis.extent as usize * axis.inner;
    fn picked<T: Copy>(
        data: &[T],
        outer: usize,
        block: usize,
        inner: usize,
        places: &[usize],
    ) -> Vec<T> {
        let mut out = Vec::with_capacity(outer * inner * places.len());
        for o in 0..outer {
            for p in places {
                let at = o * block + p * inner;
                out.extend_from_slice(&data[at..at + inner]);
            }
        }
        out
    }
    Ok(vec![map_data!(x, shape, data => picked(data, axis.outer, block, axis.inner, &places))])
}

pub(crate) fn expand(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
    Ok(vec![broadcast(need(ctx, 0)?, &first(outputs)?.shape)?])
}

pub(crate) fn tile(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
    let (x, shape) = (need(ctx, 0)?, &first(outputs)?.shape);
    let repeats = ctx.integers(1, "repeats")?.ok_or("input 1 is missing")?;
    let own = strides(x.shape());
    // Each axis becomes two: the repeats, which do not move, and the extent.
    let view_shape: Vec<i64> = x.shape().iter().zip(repeats).flat_map(|(d, r)| [*r, *d]).collect();
    let view_strides: Vec<i64> = own.iter().flat_map(|s| [0, *s]).collect();
    if view_shape.len() > 32 {
        return Err(NOT_HERE.into());
    }
    Ok(vec![viewed(x, shape, &view_shape, &view_strides, 0)?])
}

pub(crate) fn pad(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
    let (x, shape) = (need(ctx, 0)?, first(outputs)?.shape.clone());
    let mode = ctx.text("mode", "constant")?;
    let amounts = infer::pad_amounts(ctx)?;
    // For each axis, where each element of the result comes from; nowhere is padding.
    let mut sources: Vec<Vec<Option<usize>>> = Vec::new();
    for (i, (before, _)) in amounts.iter().enumerate() {
        let extent = x.shape()[i];
        let source = |at: i64| match mode {
            _ if (0..extent).contains(&at) => Ok(Some(at as usize)),
            "constant" => Ok(None),
            _ if extent == 0 => Err("it pads an empty axis from its elements".to_string()),
            "edge" => Ok(Some(at.clamp(0, extent - 1) as usize)),
            "wrap" => Ok(Some(at.rem_euclid(extent) as usize)),
            "reflect" => {
                let period = 2 * (extent - 1).max(1);
                let at = at.rem_euclid(period);
                Ok(Some(if extent == 1 { 0 } else { at.min(period - at) as usize }))
            }
            other => Err(format!("attribute `mode` is `{}`", crate::text::shown(other))),
        };
        // The result's extents are checked: the tables are no longer than the result or 2^31.
        let length = if elements(&shape)? == 0 { 0 } else { shape[i] };
        sources.push((0..length).map(|p| source(p - before)).collect::<Result<_, _>>()?);
    }
    let own = strides(x.shape());
    let count = elements(&shape)? as usize;
    let value = if ctx.opset >= 11 {
        ctx.constant(2, "constant_value")?.filter(|c| c.len() == 1)
    } else {
        None
    };
    let attribute = match ctx.node.attributes.get("value") {
        Some(Attribute::Float(f)) if ctx.opset < 11 => *f,
        _ => 0.0,
    };
    Ok(vec![match (x, value) {
        (Constant::F64 { data, .. }, v) => {
            let fill = match v {
                Some(Constant::F64 { data, .. }) => data[0],
                _ => f64::from(attribute),
            };
            Constant::F64 { shape, data: placed(data, fill, count, &sources, &own) }
        }
        (Constant::F32 { data, .. }, v) => {
            let fill = v.and_then(Constant::as_f32).map_or(attribute, |v| v[0]);
            Constant::F32 { shape, data: placed(data, fill, count, &sources, &own) }
        }
        (Constant::I64 { data, .. }, v) => {
            let fill = v.and_then(Constant::as_i64).map_or(0, |v| v[0]);
            Constant::I64 { shape, data: placed(data, fill, count, &sources, &own) }
        }
        (Constant::Bool { data, .. }, Some(Constant::Bool { data: v, .. })) => {
            Constant::Bool { shape, data: placed(data, v[0], count, &sources, &own) }
        }
        (Constant::Bool { data, .. }, _) => {
            Constant::Bool { shape, data: placed(data, false, count, &sources, &own) }
        }
    }])
}

/// The result of padding: its rows in order, each element from its source, or the fill where it has
/// none. `own` are the operand's strides.
fn placed<T: Copy>(
    data: &[T],
    fill: T,
    count: usize,
    sources: &[Vec<Option<usize>>],
    own: &[i64],
) -> Vec<T> {
    let mut out = Vec::with_capacity(count);
    let Some((inner, outer)) = sources.split_last() else { return data.to_vec() };
    let mut place = vec![0usize; outer.len()];
    while out.len() < count {
        let base = place
            .iter()
            .enumerate()
            .try_fold(0, |sum, (a, p)| outer[a][*p].map(|s| sum + s * own[a] as usize));
        match base {
            None => out.extend(std::iter::repeat_n(fill, inner.len())),
            Some(base) => out.extend(inner.iter().map(|s| s.map_or(fill, |s| data[base + s]))),
        }
        for a in (0..outer.len()).rev() {
            place[a] += 1;
            if place[a] < outer[a].len() {
                break;
            }
            place[a] = 0;
        }
    }
    out
}
