//! Evaluators of operators that find elements by indices, for constant operands: `GatherElements`,
//! `GatherND`, `ScatterElements`, `ScatterND`, `NonZero` and `Trilu`. Input: a node with the
//! elements of its operands; output: a constant. A negative index counts from the end of its axis.
//! Plain `Gather` is in `moves.rs`.

use super::moves::strides;
use super::{NOT_HERE, first, need};
use crate::graph::infer::{Ctx, Output, indexed_axis};
use crate::graph::{Constant, elements};

/// An index into an extent, counted from the end where negative.
fn place(index: i64, extent: i64) -> Result<i64, String> {
    let i = if index < 0 { index.saturating_add(extent) } else { index };
    match (0..extent).contains(&i) {
        true => Ok(i),
        false => Err(format!("index {index} is outside an extent of {extent}")),
    }
}

/// The indices of the element at a place of a shape.
fn indices_of(mut at: i64, shape: &[i64]) -> Vec<i64> {
    let mut out = vec![0; shape.len()];
    for (o, d) in out.iter_mut().zip(shape).rev() {
        *o = at % d;
        at /= d;
    }
    out
}

/// For each index of `GatherElements` and `ScatterElements` the element that it means.
fn along_axis(ctx: &Ctx) -> Result<Vec<usize>, String> {
    let x = need(ctx, 0)?.shape();
    let shape = ctx.shape(1)?;
    let indices = ctx.integers(1, "indices")?.ok_or("input 1 is missing")?;
    let axis = indexed_axis(ctx)?;
    let own = strides(x);
    let each = |(k, index): (usize, &i64)| {
        let mut at = indices_of(k as i64, shape);
        at[axis] = place(*index, x[axis])?;
        Ok(at.iter().zip(&own).map(|(a, s)| a * s).sum::<i64>() as usize)
    };
    indices.iter().enumerate().map(each).collect()
}

pub(crate) fn gather_elements(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
    let (x, places) = (need(ctx, 0)?, along_axis(ctx)?);
    let shape = first(outputs)?.shape.clone();
    Ok(vec![map_data!(x, shape, data => places.iter().map(|p| data[*p]).collect())])
}

/// For each row of indices the piece that it means: its first element; and the size of a piece.
fn rows(ctx: &Ctx, batch: usize) -> Result<(Vec<usize>, usize), String> {
    let (x, shape) = (need(ctx, 0)?.shape(), ctx.shape(1)?);
    let indices = ctx.integers(1, "indices")?.ok_or("input 1 is missing")?;
    let depth = shape.last().copied().unwrap_or(0);
    let depth = usize::try_from(depth).ok().filter(|d| batch + d <= x.len());
    let depth = depth.ok_or_else(|| format!("indices of shape {shape:?} do not suit {x:?}"))?;
    let (own, size) = (strides(x), elements(&x[batch + depth..])? as usize);
    let count = elements(&shape[..shape.len() - 1])? as usize;
    let batches = elements(&x[..batch])? as usize;
    let (each, step) = (count / batches.max(1), elements(&x[batch..])? as usize);
    let one = |k: usize| {
        let row = &indices[k * depth..(k + 1) * depth];
        let mut at = k.checked_div(each).map_or(0, |row| row * step);
        for (d, i) in row.iter().enumerate() {
            at += (place(*i, x[batch + d])? * own[batch + d]) as usize;
        }
        // A piece of nothing lies nowhere.
        Ok::<usize, String>(if size == 0 { 0 } else { at })
    };
    Ok(((0..count).map(one).collect::<Result<_, _>>()?, size))
}

pub(crate) fn gather_nd(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
    let x = need(ctx, 0)?;
    let (places, size) = rows(ctx, ctx.int_or("batch_dims", 0)? as usize)?;
    let shape = first(outputs)?.shape.clone();
    Ok(vec![map_data!(x, shape, data => {
        places.iter().flat_map(|p| data[*p..*p + size].iter().copied()).collect()
    })])
}

/// A copy of a constant with updates written to places, the last one last.
fn written(
    x: &Constant,
    updates: &Constant,
    places: impl Iterator<Item = usize>,
) -> Result<Constant, String> {
    let mut made = x.clone();
    match (&mut made, updates) {
        (Constant::F32 { data, .. }, Constant::F32 { data: u, .. }) => {
            places.zip(u).for_each(|(p, u)| data[p] = *u);
        }
        (Constant::F64 { data, .. }, Constant::F64 { data: u, .. }) => {
            places.zip(u).for_each(|(p, u)| data[p] = *u);
        }
        (Constant::I64 { data, .. }, Constant::I64 { data: u, .. }) => {
            places.zip(u).for_each(|(p, u)| data[p] = *u);
        }
        (Constant::Bool { data, .. }, Constant::Bool { data: u, .. }) => {
            places.zip(u).for_each(|(p, u)| data[p] = *u);
        }
        _ => return Err("its inputs have different types".into()),
    }
    Ok(made)
}

fn without_reduction(ctx: &Ctx) -> Result<(), String> {
    if ctx.text("reduction", "none")? == "none" { Ok(()) } else { Err(NOT_HERE.into()) }
}

pub(crate) fn scatter_elements(ctx: &Ctx, _: &[Output]) -> Result<Vec<Constant>, String> {
    without_reduction(ctx)?;
    let (x, updates, places) = (need(ctx, 0)?, need(ctx, 2)?, along_axis(ctx)?);
    if updates.len() != places.len() {
        return Err("its updates have not the shape of its indices".into());
    }
    Ok(vec![written(x, updates, places.into_iter())?])
}

pub(crate) fn scatter_nd(ctx: &Ctx, _: &[Output]) -> Result<Vec<Constant>, String> {
    without_reduction(ctx)?;
    let (x, updates, (places, size)) = (need(ctx, 0)?, need(ctx, 2)?, rows(ctx, 0)?);
    if updates.len() != places.len() * size {
        return Err(format!("its updates have shape {:?}", updates.shape()));
    }
    let places = places.into_iter().flat_map(|p| p..p + size);
    Ok(vec![written(x, updates, places)?])
}

/// The indices of elements that are not zero, axis by axis.
pub(crate) fn non_zero(ctx: &Ctx, _: &[Output]) -> Result<Vec<Constant>, String> {
    let x = need(ctx, 0)?;
    let found: Vec<usize> = match x {
        Constant::F32 { data, .. } => (0..data.len()).filter(|i| data[*i] != 0.0).collect(),
        Constant::F64 { data, .. } => (0..data.len()).filter(|i| data[*i] != 0.0).collect(),
        Constant::I64 { data, .. } => (0..data.len()).filter(|i| data[*i] != 0).collect(),
        Constant::Bool { data, .. } => (0..data.len()).filter(|i| data[*i]).collect(),
    };
    let at: Vec<Vec<i64>> = found.iter().map(|i| indices_of(*i as i64, x.shape())).collect();
    let rank = x.shape().len();
    let data = (0..rank).flat_map(|a| at.iter().map(move |p| p[a])).collect();
    Ok(vec![Constant::I64 { shape: vec![rank as i64, found.len() as i64], data }])
}

pub(crate) fn trilu(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
    let x = need(ctx, 0)?;
    let shape = first(outputs)?.shape.clone();
    let [.., rows, columns] = *shape.as_slice() else { return Err(NOT_HERE.into()) };
    let k = match ctx.integers(1, "k")? {
        Some([k]) => *k,
        Some(_) => return Err("its diagonal is no scalar".into()),
        None => 0,
    };
    let upper = ctx.int_or("upper", 1)? != 0;
    let kept = |i: usize| {
        let (r, c) = (i as i64 / columns % rows, i as i64 % columns);
        if upper { c - r >= k } else { c - r <= k }
    };
    Ok(vec![map_data!(x, shape, data => {
        let value = |(i, v): (usize, &_)| if kept(i) { *v } else { Default::default() };
        data.iter().enumerate().map(value).collect()
    })])
}
