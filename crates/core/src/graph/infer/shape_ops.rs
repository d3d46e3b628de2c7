//! Shape inference of operators that move elements or make shapes: `Reshape`, `Transpose`, `Slice`,
//! `Concat`, `Split`, `Pad`, `Gather`, `Shape`, `Constant` and others. Functions such as [`slices`]
//! and [`transpose_order`] say how a node moves elements; evaluators (`graph/fold`) and the graph's
//! rewritings call them, too.

use super::{Ctx, Output, axes_of, broadcast};
use crate::DType;
use crate::graph::{Attribute, Constant, elements};

fn one(dtype: Option<DType>, shape: Vec<i64>) -> Result<Vec<Output>, String> {
    Ok(vec![Output { dtype, shape }])
}

pub(crate) fn like_first(ctx: &Ctx) -> Result<Vec<Output>, String> {
    one(ctx.dtype(0), ctx.shape(0)?.to_vec())
}

pub(crate) fn constant(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let attribute = |name: &str| ctx.node.attributes.get(name);
    if let Some(Attribute::Tensor(t)) = attribute("value") {
        return one(t.dtype, t.shape.clone());
    }
    match (
        attribute("value_int"),
        attribute("value_float"),
        attribute("value_ints"),
        attribute("value_floats"),
    ) {
        (Some(Attribute::Int(_)), ..) => return one(Some(DType::I64), vec![]),
        (_, Some(Attribute::Float(_)), ..) => return one(Some(DType::F32), vec![]),
        (_, _, Some(Attribute::Ints(v)), _) => return one(Some(DType::I64), vec![v.len() as i64]),
        (.., Some(Attribute::Floats(v))) => return one(Some(DType::F32), vec![v.len() as i64]),
        _ => {}
    }
    match attribute("value_string") {
        Some(_) => one(None, vec![]),
        None => Err("its value is missing or of a form that is not known".into()),
    }
}

pub(crate) fn constant_of_shape(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let shape = ctx.integers(0, "shape")?.ok_or("input 0 is missing")?.to_vec();
    match ctx.node.attributes.get("value") {
        None => one(Some(DType::F32), shape),
        Some(Attribute::Tensor(t)) if elements(&t.shape) == Ok(1) => one(t.dtype, shape),
        Some(_) => Err("attribute `value` is no tensor of one element".into()),
    }
}

/// The part of a shape that `Shape` gives.
pub fn shape_range(ctx: &Ctx) -> Result<std::ops::Range<usize>, String> {
    let rank = ctx.shape(0)?.len() as i64;
    let place = |x: i64| (if x < 0 { x.saturating_add(rank) } else { x }).clamp(0, rank) as usize;
    let (start, end) = (place(ctx.int_or("start", 0)?), place(ctx.int_or("end", rank)?));
    Ok(start..end.max(start))
}

pub(crate) fn shape(ctx: &Ctx) -> Result<Vec<Output>, String> {
    one(Some(DType::I64), vec![shape_range(ctx)?.len() as i64])
}

pub(crate) fn size(ctx: &Ctx) -> Result<Vec<Output>, String> {
    ctx.shape(0)?;
    one(Some(DType::I64), vec![])
}

pub(crate) fn reshape(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let x = ctx.shape(0)?;
    let to = match ctx.integers(1, "shape")? {
        Some(to) => to,
        None => ctx.ints("shape")?.ok_or("its shape is missing")?,
    };
    let copy_zero = ctx.int_or("allowzero", 0)? == 0;
    let mut shape = Vec::new();
    let mut open = None;
    for (i, &d) in to.iter().enumerate() {
        match d {
            0 if copy_zero => shape.push(
                *x.get(i)
                    .ok_or_else(|| format!("shape {to:?} copies a dimension that {x:?} lacks"))?,
            ),
            -1 if open.is_some() => return Err(format!("shape {to:?} leaves two dimensions open")),
            -1 => {
                open = Some(i);
                shape.push(1);
            }
            d => shape.push(d),
        }
    }
    let (count, rest) = (elements(x)?, elements(&shape)?);
    match open {
        Some(i) if rest != 0 && count % rest == 0 => shape[i] = count / rest,
        None if rest == count => {}
        _ => return Err(format!("{x:?} cannot be reshaped to {to:?}")),
    }
    one(ctx.dtype(0), shape)
}

pub(crate) fn flatten(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let x = ctx.shape(0)?;
    let axis = ctx.int_or("axis", 1)?;
    let at = if axis == x.len() as i64 { x.len() } else { ctx.axis(axis, x.len())? };
    one(ctx.dtype(0), vec![elements(&x[..at])?, elements(&x[at..])?])
}

/// For each axis of the result the operand's axis that it is.
pub fn transpose_order(ctx: &Ctx) -> Result<Vec<usize>, String> {
    let rank = ctx.shape(0)?.len();
    match ctx.ints("perm")? {
        None => Ok((0..rank).rev().collect()),
        Some(p) if p.len() == rank => axes_of(p, rank),
        Some(p) => Err(format!("attribute `perm` is {p:?}, {rank} axes are expected")),
    }
}

pub(crate) fn transpose(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let x = ctx.shape(0)?;
    one(ctx.dtype(0), transpose_order(ctx)?.iter().map(|a| x[*a]).collect())
}

pub(crate) fn squeeze(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let x = ctx.shape(0)?;
    let axes = match ctx.attribute_or_input("axes", 1, 13)? {
        Some(a) => axes_of(a, x.len())?,
        None => (0..x.len()).filter(|i| x[*i] == 1).collect(),
    };
    if let Some(a) = axes.iter().find(|a| x[**a] != 1) {
        return Err(format!("axis {a} of shape {x:?} is not one"));
    }
    one(
        ctx.dtype(0),
        x.iter().enumerate().filter(|(i, _)| !axes.contains(i)).map(|(_, d)| *d).collect(),
    )
}

pub(crate) fn unsqueeze(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let x = ctx.shape(0)?;
    let axes = ctx.attribute_or_input("axes", 1, 13)?.ok_or("its axes are missing")?;
    let rank = x.len() + axes.len();
    let axes = axes_of(axes, rank)?;
    let mut old = x.iter();
    let extent = |i| if axes.contains(&i) { Some(1) } else { old.next().copied() };
    one(ctx.dtype(0), (0..rank).filter_map(extent).collect())
}

pub(crate) fn concat(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let mut shape = ctx.shape(0)?.to_vec();
    let axis = match ctx.int("axis")? {
        Some(a) => a,
        None if ctx.opset < 4 => 1,
        None => return Err("attribute `axis` is missing".into()),
    };
    let axis = ctx.axis(axis, shape.len())?;
    for i in 1..ctx.inputs.len() {
        let s = ctx.shape(i)?;
        if s.len() != shape.len() || (0..s.len()).any(|d| d != axis && s[d] != shape[d]) {
            return Err(format!(
                "shapes {:?} and {s:?} do not join along axis {axis}",
                ctx.shape(0)?
            ));
        }
        shape[axis] = shape[axis].checked_add(s[axis]).ok_or("its result is too large")?;
    }
    one(ctx.dtype(0), shape)
}

/// The axis of a split and the extents of the parts.
pub fn split_sizes(ctx: &Ctx) -> Result<(usize, Vec<i64>), String> {
    let x = ctx.shape(0)?;
    let axis = ctx.axis(ctx.int_or("axis", 0)?, x.len())?;
    let extent = x[axis];
    let parts = ctx.node.outputs.len() as i64;
    let sizes = match ctx.attribute_or_input("split", 1, 13)? {
        Some(sizes) => sizes.to_vec(),
        None if parts < 1 => return Err("it has no outputs".into()),
        None if ctx.int_or("num_outputs", parts)? != parts => {
            return Err(format!("attribute `num_outputs` is not its {parts} outputs"));
        }
        None => {
            if ctx.opset < 18 && extent % parts != 0 {
                return Err(format!(
                    "an extent of {extent} is not divisible into {parts} equal parts"
                ));
            }
            let chunk = extent / parts + i64::from(extent % parts != 0);
            (0..parts).map(|i| chunk.min(extent - (i * chunk).min(extent))).collect()
        }
    };
    let total =
        sizes.iter().try_fold(0i64, |sum, s| if *s < 0 { None } else { sum.checked_add(*s) });
    if total != Some(extent) || sizes.len() as i64 != parts {
        return Err(format!(
            "parts {sizes:?} of {parts} outputs do not make an extent of {extent}"
        ));
    }
    Ok((axis, sizes))
}

pub(crate) fn split(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let (axis, sizes) = split_sizes(ctx)?;
    let part = |s: i64| {
        let mut shape = ctx.shape(0)?.to_vec();
        shape[axis] = s;
        Ok(Output { dtype: ctx.dtype(0), shape })
    };
    sizes.into_iter().map(part).collect()
}

/// What a slice takes of one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AxisSlice {
    /// The first element.
    pub start: i64,
    /// The distance of neighbours; not zero.
    pub step: i64,
    /// How many.
    pub count: i64,
}

/// What a slice takes, axis by axis.
pub fn slices(ctx: &Ctx) -> Result<Vec<AxisSlice>, String> {
    let x = ctx.shape(0)?;
    let by_input = ctx.opset >= 10;
    let get = |i: usize, name: &'static str| {
        if by_input { ctx.integers(i, name) } else { ctx.ints(name) }
    };
    let starts = get(1, "starts")?.ok_or("its starts are missing")?;
    let ends = get(2, "ends")?.ok_or("its ends are missing")?;
    let axes = match get(3, "axes")? {
        Some(a) => axes_of(a, x.len())?,
        None if starts.len() <= x.len() => (0..starts.len()).collect(),
        None => return Err(format!("{} starts are given for shape {x:?}", starts.len())),
    };
    let ones = vec![1; axes.len()];
    let steps = if by_input { ctx.integers(4, "steps")?.unwrap_or(&ones) } else { &ones };
    if starts.len() != axes.len() || ends.len() != axes.len() || steps.len() != axes.len() {
        return Err(format!(
            "{} starts, {} ends and {} steps are given for {} axes",
            starts.len(),
            ends.len(),
            steps.len(),
            axes.len()
        ));
    }
    let mut out: Vec<AxisSlice> =
        x.iter().map(|d| AxisSlice { start: 0, step: 1, count: *d }).collect();
    for (i, &a) in axes.iter().enumerate() {
        let extent = x[a];
        let step = steps[i].clamp(-(1 << 41), 1 << 41);
        if step == 0 {
            return Err(format!("its step along axis {a} is zero"));
        }
        let place = |v: i64| if v < 0 { v.saturating_add(extent) } else { v };
        // Going backwards, the end may lie before the first element; the start may not.
        let (start, end) = if step > 0 {
            (place(starts[i]).clamp(0, extent), place(ends[i]).clamp(0, extent))
        } else {
            (place(starts[i]).clamp(0, (extent - 1).max(0)), place(ends[i]).clamp(-1, extent - 1))
        };
        let span = if step > 0 { end - start } else { start - end };
        let count = if span <= 0 || extent == 0 { 0 } else { (span + step.abs() - 1) / step.abs() };
        out[a] = AxisSlice { start, step, count };
    }
    Ok(out)
}

pub(crate) fn slice(ctx: &Ctx) -> Result<Vec<Output>, String> {
    one(ctx.dtype(0), slices(ctx)?.iter().map(|s| s.count).collect())
}

/// How a gather cuts its operand: what is outside the axis, along it and inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatherAxis {
    /// Elements outside the axis.
    pub outer: usize,
    /// The axis's extent.
    pub extent: i64,
    /// Elements inside.
    pub inner: usize,
}

impl GatherAxis {
    /// The axis of a gather node.
    pub fn of(ctx: &Ctx) -> Result<GatherAxis, String> {
        let x = ctx.shape(0)?;
        let axis = ctx.axis(ctx.int_or("axis", 0)?, x.len())?;
        Ok(GatherAxis {
            outer: elements(&x[..axis])? as usize,
            extent: x[axis],
            inner: elements(&x[axis + 1..])? as usize,
        })
    }

    /// An index counted from the end where negative.
    pub fn place(self, index: i64) -> Result<usize, String> {
        let i = if index < 0 { index.saturating_add(self.extent) } else { index };
        if (0..self.extent).contains(&i) {
            Ok(i as usize)
        } else {
            Err(format!("index {index} is outside an extent of {}", self.extent))
        }
    }
}

pub(crate) fn gather(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let (x, indices) = (ctx.shape(0)?, ctx.shape(1)?);
    let axis = ctx.axis(ctx.int_or("axis", 0)?, x.len())?;
    one(ctx.dtype(0), [&x[..axis], indices, &x[axis + 1..]].concat())
}

/// The axis along which indices pick elements of an operand of their rank, as `GatherElements` and
/// `ScatterElements` do.
///
/// # Errors
/// Where the indices reach beyond the operand on another axis.
pub fn indexed_axis(ctx: &Ctx) -> Result<usize, String> {
    let (x, indices) = (ctx.shape(0)?, ctx.shape(1)?);
    let axis = ctx.axis(ctx.int_or("axis", 0)?, x.len())?;
    let fits = |i: usize| i == axis || indices[i] <= x[i];
    if indices.len() != x.len() || !(0..x.len()).all(fits) {
        return Err(format!("indices of shape {indices:?} do not suit {x:?}"));
    }
    Ok(axis)
}

pub(crate) fn scatter_elements(ctx: &Ctx) -> Result<Vec<Output>, String> {
    indexed_axis(ctx)?;
    like_first(ctx)
}

pub(crate) fn gather_elements(ctx: &Ctx) -> Result<Vec<Output>, String> {
    indexed_axis(ctx)?;
    one(ctx.dtype(0), ctx.shape(1)?.to_vec())
}

pub(crate) fn expand(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let to = ctx.integers(1, "shape")?.ok_or("its shape is missing")?;
    one(ctx.dtype(0), broadcast(ctx.shape(0)?, to)?)
}

pub(crate) fn tile(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let x = ctx.shape(0)?;
    let repeats = ctx.integers(1, "repeats")?.ok_or("its repeats are missing")?;
    if ctx.opset < 6 || repeats.len() != x.len() || repeats.iter().any(|r| *r < 0) {
        return Err(format!("repeats {repeats:?} do not suit shape {x:?}"));
    }
    let grown = |(d, r): (&i64, &i64)| d.checked_mul(*r).ok_or("its result is too large");
    one(ctx.dtype(0), x.iter().zip(repeats).map(grown).collect::<Result<_, _>>()?)
}

/// The padding before and after each axis; negative where it cuts.
pub fn pad_amounts(ctx: &Ctx) -> Result<Vec<(i64, i64)>, String> {
    let x = ctx.shape(0)?;
    let pads = match ctx.opset {
        11.. => ctx.integers(1, "pads")?,
        2..11 => ctx.ints("pads")?,
        _ => ctx.ints("paddings")?,
    };
    let pads = pads.ok_or("its pads are missing")?;
    let axes = match ctx.integers(3, "axes")? {
        Some(a) => axes_of(a, x.len())?,
        None => (0..x.len()).collect(),
    };
    if pads.len() != 2 * axes.len()
        || pads.iter().any(|p| p.checked_abs().is_none_or(|p| p > 1 << 41))
    {
        return Err(format!("pads {pads:?} do not suit {} axes", axes.len()));
    }
    let mut out = vec![(0, 0); x.len()];
    for (i, &a) in axes.iter().enumerate() {
        out[a] = (pads[i], pads[axes.len() + i]);
    }
    Ok(out)
}

pub(crate) fn pad(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let x = ctx.shape(0)?;
    one(ctx.dtype(0), x.iter().zip(pad_amounts(ctx)?).map(|(d, (b, e))| d + b + e).collect())
}

/// The number of elements of a range.
pub fn range_count(ctx: &Ctx) -> Result<i64, String> {
    let get = |i, what| {
        ctx.constant(i, what)?
            .filter(|c| c.len() == 1)
            .ok_or_else(|| format!("its {what} is no scalar"))
    };
    let count = match (get(0, "start")?, get(1, "limit")?, get(2, "delta")?) {
        (
            Constant::I64 { data: s, .. },
            Constant::I64 { data: l, .. },
            Constant::I64 { data: d, .. },
        ) if d[0] != 0 => {
            let (span, delta) = (i128::from(l[0]) - i128::from(s[0]), i128::from(d[0]));
            // Rounded up, of both signs.
            let count = span / delta + i128::from(span % delta != 0 && (span < 0) == (delta < 0));
            i64::try_from(count).unwrap_or(i64::MAX)
        }
        (
            Constant::F32 { data: s, .. },
            Constant::F32 { data: l, .. },
            Constant::F32 { data: d, .. },
        ) if d[0] != 0.0 => ((f64::from(l[0]) - f64::from(s[0])) / f64::from(d[0])).ceil() as i64,
        (
            Constant::F64 { data: s, .. },
            Constant::F64 { data: l, .. },
            Constant::F64 { data: d, .. },
        ) if d[0] != 0.0 => ((l[0] - s[0]) / d[0]).ceil() as i64,
        _ => return Err("its start, limit and delta make no range".into()),
    };
    Ok(count.max(0))
}

pub(crate) fn range(ctx: &Ctx) -> Result<Vec<Output>, String> {
    one(ctx.dtype(0), vec![range_count(ctx)?])
}
