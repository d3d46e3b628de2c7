//! Operators that only move data: other shapes, other orders, pieces and wholes.

use super::super::model::Call;
use super::{Lower, OpEntry, Out, like_first};
use crate::error::{Outcome, unknown, wrong};
use crate::tensor::{Data, Elem, Tensor, broadcast, broadcast_strides, elements, strides_of};

/// Why operators that compute nothing are not tuned.
pub(super) const MOVES: Lower = Lower::Untuned("moves data only");

pub(super) const OPS: &[OpEntry] = &[
    OpEntry { name: "Identity", infer: like_first, eval: Some(reshaped), lower: Lower::Same },
    OpEntry { name: "Dropout", infer: infer_dropout, eval: None, lower: Lower::Same },
    OpEntry { name: "Reshape", infer: infer_reshape, eval: Some(reshaped), lower: MOVES },
    OpEntry { name: "Flatten", infer: infer_flatten, eval: Some(reshaped), lower: MOVES },
    OpEntry { name: "Squeeze", infer: infer_squeeze, eval: Some(reshaped), lower: MOVES },
    OpEntry { name: "Unsqueeze", infer: infer_unsqueeze, eval: Some(reshaped), lower: MOVES },
    OpEntry { name: "Transpose", infer: infer_transpose, eval: Some(transpose), lower: MOVES },
    OpEntry { name: "Concat", infer: infer_concat, eval: Some(concat), lower: MOVES },
    OpEntry { name: "Split", infer: infer_split, eval: Some(split), lower: MOVES },
    OpEntry { name: "Expand", infer: infer_expand, eval: Some(expand), lower: MOVES },
    OpEntry { name: "Tile", infer: infer_tile, eval: Some(tile), lower: MOVES },
    OpEntry { name: "DepthToSpace", infer: |c| blocks(c, false), eval: Some(depth_to_space), lower: MOVES },
    OpEntry { name: "SpaceToDepth", infer: |c| blocks(c, true), eval: Some(space_to_depth), lower: MOVES },
];

/// An input of plain code.
pub(super) fn tensor<'a>(x: &[Option<&'a Tensor>], i: usize) -> Outcome<&'a Tensor> {
    x.get(i).copied().flatten().map_or_else(|| wrong(format!("input {i} is missing")), Ok)
}

pub(super) fn strided(t: &Tensor, shape: &[i64], strides: &[i64], offset: i64) -> Outcome<Vec<Tensor>> {
    t.strided(shape, strides, offset).map_or_else(|| wrong("it reads beyond its input"), |t| Ok(vec![t]))
}

fn reshaped(c: &Call, x: &[Option<&Tensor>]) -> Outcome<Vec<Tensor>> {
    let (t, shape) = (tensor(x, 0)?, c.out_shape(0)?);
    t.reshaped(shape).map_or_else(|| wrong(format!("{} values do not fit the shape {shape:?}", t.data.len())), |t| Ok(vec![t]))
}

fn infer_dropout(c: &Call) -> Outcome<Vec<Out>> {
    // In training mode it changes values.
    if c.input(2).is_some() && c.number(2)?.is_some_and(|t| t != 0.0) {
        return unknown("dropout in training mode is not tuned");
    }
    let mut out = like_first(c)?;
    if c.has_output(1) {
        out.push(Out::new(Elem::BOOL, c.shape(0)?));
    }
    Ok(out)
}

fn infer_reshape(c: &Call) -> Outcome<Vec<Out>> {
    let from = c.shape(0)?;
    let wanted = match c.list("shape")? {
        Some(s) if c.version() < 5 => s,
        _ => match c.ints(1)? {
            Some(s) => s,
            None => return wrong("input 1, the new shape, is missing"),
        },
    };
    let keep_zero = c.int("allowzero", 0)? != 0;
    let mut to = Vec::with_capacity(wanted.len());
    let mut open = None;
    for (i, &e) in wanted.iter().enumerate() {
        to.push(match e {
            0 if !keep_zero => match from.get(i) {
                Some(&e) => e,
                None => return wrong(format!("the new shape {wanted:?} copies dimension {i}, but the input has shape {from:?}")),
            },
            -1 if open.is_none() => {
                open = Some(i);
                1
            }
            e if e >= 0 => e,
            _ => return wrong(format!("the new shape {wanted:?} is not legal")),
        });
    }
    let (have, want) = (elements(from).unwrap_or(0), elements(&to));
    if let (Some(i), Some(want)) = (open, want)
        && want > 0
        && have % want == 0
    {
        to[i] = i64::try_from(have / want).unwrap_or(i64::MAX);
    }
    if elements(&to) != Some(have) {
        return wrong(format!("a tensor of shape {from:?} does not have the elements of {wanted:?}"));
    }
    Ok(vec![Out::new(c.elem(0)?, to)])
}

fn infer_flatten(c: &Call) -> Outcome<Vec<Out>> {
    let s = c.shape(0)?;
    let axis = c.int("axis", 1)?;
    let axis = if axis == s.len() as i64 { s.len() } else { c.axis(axis, s.len())? };
    Ok(vec![Out::new(c.elem(0)?, vec![s[..axis].iter().product(), s[axis..].iter().product()])])
}

fn infer_squeeze(c: &Call) -> Outcome<Vec<Out>> {
    let s = c.shape(0)?;
    let axes = match c.axes("axes", 1, s.len())? {
        Some(a) => a,
        None => (0..s.len()).filter(|&i| s[i] == 1).collect(),
    };
    if let Some(a) = axes.iter().find(|a| s[**a] != 1) {
        return wrong(format!("dimension {a} of {s:?} has extent {}, expected 1", s[*a]));
    }
    let kept: Vec<i64> = (0..s.len()).filter(|i| !axes.contains(i)).map(|i| s[i]).collect();
    Ok(vec![Out::new(c.elem(0)?, kept)])
}

fn infer_unsqueeze(c: &Call) -> Outcome<Vec<Out>> {
    let s = c.shape(0)?;
    let added = match c.list("axes")? {
        Some(a) => a.len(),
        None => c.ints(1)?.map_or(0, <[i64]>::len),
    };
    let rank = s.len() + added;
    let Some(axes) = c.axes("axes", 1, rank)? else { return wrong("the axes are missing") };
    let mut rest = s.iter();
    let shape = (0..rank).map(|i| if axes.contains(&i) { 1 } else { rest.next().copied().unwrap_or(1) });
    Ok(vec![Out::new(c.elem(0)?, shape.collect::<Vec<_>>())])
}

fn permutation(c: &Call) -> Outcome<Vec<usize>> {
    let rank = c.shape(0)?.len();
    let Some(perm) = c.list("perm")? else { return Ok((0..rank).rev().collect()) };
    let order = perm.iter().map(|&p| c.axis(p, rank)).collect::<Outcome<Vec<_>>>()?;
    let mut sorted = order.clone();
    sorted.sort_unstable();
    if sorted.iter().copied().eq(0..rank) { Ok(order) } else { wrong(format!("attribute `perm` is {perm:?}, expected an order of {rank} dimensions")) }
}

fn infer_transpose(c: &Call) -> Outcome<Vec<Out>> {
    let s = c.shape(0)?;
    Ok(vec![Out::new(c.elem(0)?, permutation(c)?.iter().map(|&p| s[p]).collect::<Vec<_>>())])
}

fn transpose(c: &Call, x: &[Option<&Tensor>]) -> Outcome<Vec<Tensor>> {
    let t = tensor(x, 0)?;
    let strides = strides_of(&t.shape);
    let strides: Vec<i64> = permutation(c)?.iter().map(|&p| strides.get(p).copied().unwrap_or(0)).collect();
    strided(t, c.out_shape(0)?, &strides, 0)
}

fn infer_concat(c: &Call) -> Outcome<Vec<Out>> {
    let first = c.shape(0)?;
    // Before version 4 the axis could be left out.
    let axis = c.axis(if c.version() < 4 { c.int("axis", 1)? } else { c.need_int("axis")? }, first.len())?;
    let mut shape = first.to_vec();
    for i in 1..c.node.inputs.len() {
        let s = c.shape(i)?;
        if s.len() != shape.len() || (0..s.len()).any(|d| d != axis && s[d] != shape[d]) {
            return wrong(format!("input {i} has shape {s:?}, which does not join {first:?} along dimension {axis}"));
        }
        shape[axis] = shape[axis].saturating_add(s[axis]);
    }
    Ok(vec![Out::new(c.elem(0)?, shape)])
}

fn concat(c: &Call, x: &[Option<&Tensor>]) -> Outcome<Vec<Tensor>> {
    let shape = c.out_shape(0)?;
    let parts = x.iter().copied().collect::<Option<Vec<_>>>();
    let Some(parts) = parts.filter(|p| !p.is_empty()) else { return wrong("an input is missing") };
    let axis = c.axis(c.int("axis", 1)?, shape.len())?;
    let outer: usize = shape[..axis].iter().product::<i64>() as usize;
    let run = |t: &Tensor| t.data.len().checked_div(outer).unwrap_or(0);
    let joined = |i: usize| parts.iter().flat_map(move |t| (0..run(t)).map(move |j| (*t, i * run(t) + j)));
    let data = match parts[0].data {
        Data::Float(_) => (0..outer).flat_map(joined).map(|(t, p)| t.as_floats().and_then(|v| v.get(p)).copied()).collect::<Option<_>>().map(Data::Float),
        Data::Int(_) => (0..outer).flat_map(joined).map(|(t, p)| t.as_ints().and_then(|v| v.get(p)).copied()).collect::<Option<_>>().map(Data::Int),
    };
    match data {
        Some(data) => Ok(vec![Tensor { elem: parts[0].elem, shape: shape.to_vec(), data }]),
        None => wrong("its inputs have different types"),
    }
}

fn infer_split(c: &Call) -> Outcome<Vec<Out>> {
    let s = c.shape(0)?;
    let axis = c.axis(c.int("axis", 0)?, s.len())?;
    let parts = c.node.outputs.len();
    if parts == 0 {
        return wrong("it has no outputs");
    }
    let sizes: Vec<i64> = match c.list("split")? {
        Some(l) => l.to_vec(),
        None => match c.ints(1)? {
            Some(l) => l.to_vec(),
            None => {
                // Equal parts, the last one smaller where they do not fill up.
                let n = c.int("num_outputs", parts as i64)?.max(1);
                let each = (s[axis] + n - 1) / n;
                (0..parts as i64).map(|i| each.min(s[axis] - (each * i).min(s[axis]))).collect()
            }
        },
    };
    let total = sizes.iter().try_fold(0i64, |a, &b| a.checked_add(b));
    if sizes.len() != parts || total != Some(s[axis]) || sizes.iter().any(|&e| e < 0) {
        return wrong(format!("parts {sizes:?} for {parts} outputs do not make up the extent {} of dimension {axis}", s[axis]));
    }
    let part = |e: i64| s.iter().enumerate().map(|(i, &full)| if i == axis { e } else { full }).collect::<Vec<_>>();
    let elem = c.elem(0)?;
    Ok(sizes.iter().map(|&e| Out::new(elem, part(e))).collect())
}

fn split(c: &Call, x: &[Option<&Tensor>]) -> Outcome<Vec<Tensor>> {
    let t = tensor(x, 0)?;
    let axis = c.axis(c.int("axis", 0)?, t.shape.len())?;
    let strides = strides_of(&t.shape);
    let mut at = 0;
    let mut out = Vec::new();
    for o in infer_split(c)? {
        let shape = o.shape.unwrap_or_default();
        out.extend(strided(t, &shape, &strides, at * strides[axis])?);
        at += shape[axis];
    }
    Ok(out)
}

fn infer_expand(c: &Call) -> Outcome<Vec<Out>> {
    let from = c.shape(0)?;
    let Some(to) = c.ints(1)? else { return wrong("input 1, the shape, is missing") };
    if to.len() > 64 {
        return wrong("the shape has too many dimensions");
    }
    match broadcast(&[from, to]) {
        Some(s) => Ok(vec![Out::new(c.elem(0)?, s)]),
        None => wrong(format!("a tensor of shape {from:?} does not expand to {to:?}")),
    }
}

fn expand(c: &Call, x: &[Option<&Tensor>]) -> Outcome<Vec<Tensor>> {
    let (t, shape) = (tensor(x, 0)?, c.out_shape(0)?);
    match broadcast_strides(&t.shape, shape) {
        Some(strides) => strided(t, shape, &strides, 0),
        None => wrong("it does not expand"),
    }
}

fn infer_tile(c: &Call) -> Outcome<Vec<Out>> {
    let from = c.shape(0)?;
    let Some(repeats) = c.ints(1)? else { return wrong("input 1, the repeats, is missing") };
    if repeats.len() != from.len() || repeats.iter().any(|&r| r < 0) {
        return wrong(format!("the repeats {repeats:?} do not fit the shape {from:?}"));
    }
    let shape: Vec<i64> = from.iter().zip(repeats).map(|(&e, &r)| e.saturating_mul(r)).collect();
    Ok(vec![Out::new(c.elem(0)?, shape)])
}

fn tile(c: &Call, x: &[Option<&Tensor>]) -> Outcome<Vec<Tensor>> {
    let (t, shape) = (tensor(x, 0)?, c.out_shape(0)?);
    // Each dimension in two, of which the outer one repeats.
    let own = strides_of(&t.shape);
    let (mut long, mut strides) = (Vec::new(), Vec::new());
    for (i, (&from, &to)) in t.shape.iter().zip(shape).enumerate() {
        long.extend([if from == 0 { 0 } else { to / from }, from]);
        strides.extend([0, own[i]]);
    }
    let tiled = strided(t, &long, &strides, 0)?;
    Ok(tiled.into_iter().filter_map(|t| t.reshaped(shape)).collect())
}

fn blocks(c: &Call, to_depth: bool) -> Outcome<Vec<Out>> {
    let s = c.shape(0)?;
    let b = c.need_int("blocksize")?;
    let &[n, ch, h, w] = s else { return wrong(format!("its input has shape {s:?}, expected four dimensions")) };
    if !(1..=1 << 16).contains(&b) {
        return wrong(format!("attribute `blocksize` is {b}"));
    }
    let shape = match to_depth {
        true if h % b == 0 && w % b == 0 => vec![n, ch.saturating_mul(b * b), h / b, w / b],
        false if ch % (b * b) == 0 => vec![n, ch / (b * b), h.saturating_mul(b), w.saturating_mul(b)],
        _ => return wrong(format!("blocks of {b} do not divide the shape {s:?}")),
    };
    Ok(vec![Out::new(c.elem(0)?, shape)])
}

/// Views the input in more dimensions, orders them anew and joins them to the output's.
fn rearranged(t: &Tensor, long: &[i64], order: &[usize], shape: &[i64]) -> Outcome<Vec<Tensor>> {
    let strides = strides_of(long);
    let extents: Vec<i64> = order.iter().map(|&i| long[i]).collect();
    let strides: Vec<i64> = order.iter().map(|&i| strides[i]).collect();
    let moved = strided(t, &extents, &strides, 0)?;
    Ok(moved.into_iter().filter_map(|t| t.reshaped(shape)).collect())
}

fn depth_to_space(c: &Call, x: &[Option<&Tensor>]) -> Outcome<Vec<Tensor>> {
    let (t, b, shape) = (tensor(x, 0)?, c.need_int("blocksize")?, c.out_shape(0)?);
    let (&[n, _, h, w], &[_, ch, ..]) = (&t.shape[..], shape) else { return wrong("it needs four dimensions") };
    match c.string("mode", "DCR")? {
        "CRD" => rearranged(t, &[n, ch, b, b, h, w], &[0, 1, 4, 2, 5, 3], shape),
        _ => rearranged(t, &[n, b, b, ch, h, w], &[0, 3, 4, 1, 5, 2], shape),
    }
}

fn space_to_depth(c: &Call, x: &[Option<&Tensor>]) -> Outcome<Vec<Tensor>> {
    let (t, b, shape) = (tensor(x, 0)?, c.need_int("blocksize")?, c.out_shape(0)?);
    let (&[n, ch, ..], &[_, _, h, w]) = (&t.shape[..], shape) else { return wrong("it needs four dimensions") };
    rearranged(t, &[n, ch, h, b, w, b], &[0, 3, 5, 1, 2, 4], shape)
}
