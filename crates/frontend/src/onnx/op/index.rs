//! Operators that pick elements: slices, gathers, padding, selection.

use super::super::model::Call;
use super::moves::{MOVES, strided, tensor};
use super::{Lower, OpEntry, Out, like_first};
use crate::error::{Outcome, unknown, wrong};
use crate::tensor::{Data, Elem, Tensor, broadcast, broadcast_strides, elements, strides_of};

const DATA_DEPENDENT: Lower = Lower::Untuned("which elements it takes depends on data");

pub(super) const OPS: &[OpEntry] = &[
    OpEntry { name: "Slice", infer: infer_slice, eval: Some(slice), lower: MOVES },
    OpEntry { name: "Gather", infer: infer_gather, eval: Some(gather), lower: MOVES },
    OpEntry { name: "GatherElements", infer: |c| Ok(vec![Out::new(c.elem(0)?, c.shape(1)?)]), eval: Some(gather_elements), lower: MOVES },
    OpEntry { name: "GatherND", infer: infer_gather_nd, eval: None, lower: MOVES },
    OpEntry { name: "Pad", infer: infer_pad, eval: Some(pad), lower: MOVES },
    OpEntry { name: "Where", infer: infer_where, eval: Some(choose), lower: Lower::Untuned("selection by data is not tuned") },
    OpEntry { name: "ScatterND", infer: like_first, eval: None, lower: MOVES },
    OpEntry { name: "ScatterElements", infer: like_first, eval: None, lower: MOVES },
    OpEntry { name: "Trilu", infer: like_first, eval: None, lower: MOVES },
    OpEntry { name: "CumSum", infer: like_first, eval: None, lower: Lower::Untuned("running sums are not tuned") },
    OpEntry { name: "TopK", infer: infer_topk, eval: None, lower: DATA_DEPENDENT },
    OpEntry { name: "NonZero", infer: |_| Ok(vec![Out::open(Elem::I64)]), eval: None, lower: DATA_DEPENDENT },
    OpEntry { name: "Compress", infer: |c| Ok(vec![Out::open(c.elem(0)?)]), eval: None, lower: DATA_DEPENDENT },
    OpEntry { name: "NonMaxSuppression", infer: |_| Ok(vec![Out::open(Elem::I64)]), eval: None, lower: DATA_DEPENDENT },
    OpEntry { name: "OneHot", infer: infer_one_hot, eval: None, lower: DATA_DEPENDENT },
];

/// One dimension of a slice.
struct Cut {
    axis: usize,
    start: i64,
    step: i64,
    extent: i64,
}

/// Starts, ends, axes and steps: attributes up to version 9, inputs after it.
fn cuts(c: &Call) -> Outcome<Vec<Cut>> {
    let s = c.shape(0)?;
    let old = c.version() < 10;
    let get = |name: &str, i: usize| if old { c.list(name) } else { c.ints(i) };
    let (Some(starts), Some(ends)) = (get("starts", 1)?, get("ends", 2)?) else { return wrong("its starts and ends are missing") };
    let axes: Vec<i64> = get("axes", 3)?.map_or_else(|| (0..starts.len() as i64).collect(), <[i64]>::to_vec);
    let steps = if old { None } else { c.ints(4)? };
    let steps = steps.map_or_else(|| vec![1; starts.len()], <[i64]>::to_vec);
    if ends.len() != starts.len() || axes.len() != starts.len() || steps.len() != starts.len() {
        return wrong(format!("it has {} starts, {} ends, {} axes and {} steps", starts.len(), ends.len(), axes.len(), steps.len()));
    }
    let mut out: Vec<Cut> = Vec::new();
    for i in 0..starts.len() {
        let axis = c.axis(axes[i], s.len())?;
        if out.iter().any(|o| o.axis == axis) {
            return wrong(format!("it cuts dimension {axis} twice"));
        }
        let (extent, step) = (s[axis], steps[i]);
        if step == 0 {
            return wrong("a step is 0");
        }
        let from_end = |x: i64| if x < 0 { x.saturating_add(extent) } else { x };
        let (start, end) = (from_end(starts[i]), from_end(ends[i]));
        let (start, end) = if step > 0 { (start.clamp(0, extent), end.clamp(0, extent)) } else { (start.clamp(0, extent - 1), end.clamp(-1, extent - 1)) };
        let width = if step > 0 { end - start } else { start - end };
        let stride = step.unsigned_abs().min(1 << 40) as i64;
        out.push(Cut { axis, start, step: step.clamp(-(1 << 40), 1 << 40), extent: if width <= 0 { 0 } else { (width - 1) / stride + 1 } });
    }
    Ok(out)
}

fn infer_slice(c: &Call) -> Outcome<Vec<Out>> {
    let mut shape = c.shape(0)?.to_vec();
    if shape.contains(&0) {
        return unknown("a slice of nothing");
    }
    for cut in cuts(c)? {
        shape[cut.axis] = cut.extent;
    }
    Ok(vec![Out::new(c.elem(0)?, shape)])
}

fn slice(c: &Call, x: &[Option<&Tensor>]) -> Outcome<Vec<Tensor>> {
    let t = tensor(x, 0)?;
    let mut strides = strides_of(&t.shape);
    let mut offset = 0i64;
    for cut in cuts(c)? {
        offset += cut.start * strides[cut.axis];
        // One element has no neighbour: its step may be anything.
        strides[cut.axis] = if cut.extent > 1 { strides[cut.axis] * cut.step } else { 0 };
    }
    strided(t, c.out_shape(0)?, &strides, offset)
}

fn infer_gather(c: &Call) -> Outcome<Vec<Out>> {
    let (s, indices) = (c.shape(0)?, c.shape(1)?);
    let axis = c.axis(c.int("axis", 0)?, s.len())?;
    let shape: Vec<i64> = s[..axis].iter().chain(indices).chain(&s[axis + 1..]).copied().collect();
    Ok(vec![Out::new(c.elem(0)?, shape)])
}

/// An index that may count from the end.
fn index(i: i64, extent: i64) -> Outcome<i64> {
    let i = if i < 0 { i.saturating_add(extent) } else { i };
    if (0..extent).contains(&i) { Ok(i) } else { wrong(format!("index {i} lies outside of 0..{extent}")) }
}

fn gather(c: &Call, x: &[Option<&Tensor>]) -> Outcome<Vec<Tensor>> {
    let (t, list) = (tensor(x, 0)?, tensor(x, 1)?);
    let Some(list) = list.as_ints() else { return wrong("its indices are no integers") };
    let axis = c.axis(c.int("axis", 0)?, t.shape.len())?;
    let (outer, inner): (i64, i64) = (t.shape[..axis].iter().product(), t.shape[axis + 1..].iter().product());
    let extent = t.shape[axis];
    let list = list.iter().map(|&i| index(i, extent)).collect::<Outcome<Vec<_>>>()?;
    let positions = (0..outer).flat_map(|o| list.iter().flat_map(move |&i| (0..inner).map(move |j| (o * extent + i) * inner + j)));
    picked(c, t, positions)
}

fn picked(c: &Call, t: &Tensor, positions: impl Iterator<Item = i64>) -> Outcome<Vec<Tensor>> {
    let shape = c.out_shape(0)?;
    match t.data.pick(positions.map(|p| usize::try_from(p).unwrap_or(usize::MAX))) {
        Some(data) if Some(data.len() as u64) == elements(shape) => Ok(vec![Tensor { elem: t.elem, shape: shape.to_vec(), data }]),
        _ => wrong("it reads beyond its input"),
    }
}

fn gather_elements(c: &Call, x: &[Option<&Tensor>]) -> Outcome<Vec<Tensor>> {
    let (t, list) = (tensor(x, 0)?, tensor(x, 1)?);
    let axis = c.axis(c.int("axis", 0)?, t.shape.len())?;
    let Some(values) = list.as_ints().filter(|_| list.shape.len() == t.shape.len()) else {
        return wrong("its indices are no integers of the data's rank");
    };
    let strides = strides_of(&t.shape);
    let mut zeroed = strides.clone();
    zeroed[axis] = 0;
    let extent = t.shape[axis];
    let chosen = values.iter().map(|&i| index(i, extent)).collect::<Outcome<Vec<_>>>()?;
    let walk = crate::tensor::Positions::new(&list.shape, &zeroed, 0);
    picked(c, t, walk.zip(chosen).map(|(p, i)| p + i * strides[axis]))
}

fn infer_gather_nd(c: &Call) -> Outcome<Vec<Out>> {
    let (s, indices) = (c.shape(0)?, c.rank_at_least(1, 1)?);
    let batch = usize::try_from(c.int("batch_dims", 0)?).unwrap_or(usize::MAX);
    let last = usize::try_from(indices[indices.len() - 1]).unwrap_or(usize::MAX);
    match batch.checked_add(last) {
        Some(n) if n <= s.len() => {
            let shape: Vec<i64> = indices[..indices.len() - 1].iter().chain(&s[n..]).copied().collect();
            Ok(vec![Out::new(c.elem(0)?, shape)])
        }
        _ => wrong(format!("indices of shape {indices:?} do not fit data of shape {s:?}")),
    }
}

/// Elements added before and after each dimension; negative ones are taken away.
fn pads(c: &Call) -> Outcome<Vec<(i64, i64)>> {
    let rank = c.shape(0)?.len();
    let list = match c.version() {
        0..=1 => c.list("paddings")?,
        2..=10 => c.list("pads")?,
        _ => c.ints(1)?,
    };
    let Some(list) = list else { return wrong("its pads are missing") };
    let axes: Vec<usize> = match c.ints(3)? {
        Some(a) if c.version() >= 18 => a.iter().map(|&a| c.axis(a, rank)).collect::<Outcome<_>>()?,
        _ => (0..rank).collect(),
    };
    if list.len() != 2 * axes.len() {
        return wrong(format!("it has {} pads for {} dimensions", list.len(), axes.len()));
    }
    let mut out = vec![(0, 0); rank];
    for (i, &a) in axes.iter().enumerate() {
        out[a] = (list[i], list[axes.len() + i]);
    }
    Ok(out)
}

fn infer_pad(c: &Call) -> Outcome<Vec<Out>> {
    let shape: Vec<i64> = c.shape(0)?.iter().zip(pads(c)?).map(|(&e, (b, a))| e.saturating_add(b).saturating_add(a)).collect();
    Ok(vec![Out::new(c.elem(0)?, shape)])
}

fn pad(c: &Call, x: &[Option<&Tensor>]) -> Outcome<Vec<Tensor>> {
    let (t, shape, pads) = (tensor(x, 0)?, c.out_shape(0)?, pads(c)?);
    let mode = c.string("mode", "constant")?;
    let fill = if c.version() < 11 { c.float("value", 0.0)? } else { c.number(2)?.unwrap_or(0.0) };
    let strides = strides_of(&t.shape);
    let mut index = vec![0i64; shape.len()];
    let mut positions = Vec::new();
    for _ in 0..elements(shape).unwrap_or(0) {
        let mut at = Some(0);
        for (d, &i) in index.iter().enumerate() {
            let e = t.shape[d];
            let from = i - pads[d].0;
            let source = match mode {
                _ if (0..e).contains(&from) => Some(from),
                "constant" => None,
                "edge" => Some(from.clamp(0, e - 1)),
                "reflect" if e > 1 => {
                    let period = 2 * (e - 1);
                    let r = from.rem_euclid(period);
                    Some(if r < e { r } else { period - r })
                }
                "wrap" if e > 0 => Some(from.rem_euclid(e)),
                other => return unknown(format!("padding by `{other}` is not computed by plain code")),
            };
            at = at.zip(source).map(|(a, s)| a + s * strides[d]);
        }
        positions.push(at.and_then(|p| usize::try_from(p).ok()));
        for d in (0..shape.len()).rev() {
            index[d] += 1;
            if index[d] < shape[d] {
                break;
            }
            index[d] = 0;
        }
    }
    let data = match &t.data {
        Data::Float(v) => Data::Float(positions.iter().map(|p| p.and_then(|p| v.get(p)).copied().unwrap_or(fill as f32)).collect()),
        Data::Int(v) => Data::Int(positions.iter().map(|p| p.and_then(|p| v.get(p)).copied().unwrap_or(fill as i64)).collect()),
    };
    Ok(vec![Tensor { elem: t.elem, shape: shape.to_vec(), data }])
}

fn infer_where(c: &Call) -> Outcome<Vec<Out>> {
    let shapes = [c.shape(0)?, c.shape(1)?, c.shape(2)?];
    match broadcast(&shapes) {
        Some(s) => Ok(vec![Out::new(c.elem(1)?, s)]),
        None => wrong(format!("its inputs' shapes {shapes:?} do not broadcast")),
    }
}

fn choose(c: &Call, x: &[Option<&Tensor>]) -> Outcome<Vec<Tensor>> {
    let shape = c.out_shape(0)?;
    let wide = |i: usize| -> Outcome<Tensor> {
        let t = tensor(x, i)?;
        match broadcast_strides(&t.shape, shape).and_then(|s| t.strided(shape, &s, 0)) {
            Some(t) => Ok(t),
            None => wrong(format!("input {i} does not broadcast")),
        }
    };
    let (cond, a, b) = (wide(0)?, wide(1)?, wide(2)?);
    let Some(cond) = cond.as_ints() else { return wrong("its condition is no bool") };
    let data = match (&a.data, &b.data) {
        (Data::Float(p), Data::Float(q)) => Data::Float(cond.iter().zip(p.iter().zip(q)).map(|(&c, (&p, &q))| if c != 0 { p } else { q }).collect()),
        (Data::Int(p), Data::Int(q)) => Data::Int(cond.iter().zip(p.iter().zip(q)).map(|(&c, (&p, &q))| if c != 0 { p } else { q }).collect()),
        _ => return wrong("its inputs have different types"),
    };
    Ok(vec![Tensor { elem: a.elem, shape: shape.to_vec(), data }])
}

fn infer_topk(c: &Call) -> Outcome<Vec<Out>> {
    let mut shape = c.shape(0)?.to_vec();
    let axis = c.axis(c.int("axis", -1)?, shape.len())?;
    let k = match c.int_or("k")? {
        Some(k) => k,
        None => match c.ints(1)? {
            Some(&[k]) => k,
            _ => return wrong("input 1, the number of elements, is missing"),
        },
    };
    shape[axis] = k;
    Ok(vec![Out::new(c.elem(0)?, shape.clone()), Out::new(Elem::I64, shape)])
}

fn infer_one_hot(c: &Call) -> Outcome<Vec<Out>> {
    let mut shape = c.shape(0)?.to_vec();
    let axis = c.axis(c.int("axis", -1)?, shape.len() + 1)?;
    shape.insert(axis, c.number(1)?.unwrap_or(1.0) as i64);
    Ok(vec![Out::new(c.elem(2)?, shape)])
}
