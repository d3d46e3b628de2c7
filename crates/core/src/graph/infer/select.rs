//! Shape inference of operators that look up, pick, spread and compare elements: `Compress`,
//! `GatherND`, `NonZero`, `OneHot`, `Unique`, `NonMaxSuppression` and losses. The extents of some
//! results depend on elements; for those results inference gives the largest extents (see
//! [`crate::graph::is_bounded`]).

use super::{Ctx, Output, onnx_type};
use crate::DType;
use crate::graph::{Constant, elements};
use crate::text::shown;

fn one(dtype: Option<DType>, shape: Vec<i64>) -> Result<Vec<Output>, String> {
    Ok(vec![Output { dtype, shape }])
}

pub(crate) fn compress(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let x = ctx.shape(0)?;
    let [n] = *ctx.shape(1)? else { return Err("its condition is no vector".into()) };
    let most = |extent: i64| match ctx.operand(1).and_then(|o| o.constant) {
        Some(Constant::Bool { data, .. }) => {
            data.iter().take(extent as usize).filter(|c| **c).count() as i64
        }
        _ => n.min(extent),
    };
    let Some(axis) = ctx.int("axis")? else {
        return one(ctx.dtype(0), vec![most(elements(x)?)]);
    };
    let axis = ctx.axis(axis, x.len())?;
    let mut shape = x.to_vec();
    shape[axis] = most(x[axis]);
    one(ctx.dtype(0), shape)
}

pub(crate) fn eye_like(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let dtype = match ctx.int("dtype")? {
        Some(t) => onnx_type(t),
        None => ctx.dtype(0),
    };
    match ctx.shape(0)? {
        x @ [_, _] => one(dtype, x.to_vec()),
        x => Err(format!("its input has shape {x:?}, a matrix is expected")),
    }
}

pub(crate) fn gather_nd(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let (x, indices) = (ctx.shape(0)?, ctx.shape(1)?);
    let batch = ctx.int_or("batch_dims", 0)?;
    let wrong = || format!("indices of shape {indices:?} do not suit data of shape {x:?}");
    let (&last, rows) = indices.split_last().ok_or_else(wrong)?;
    let batch = usize::try_from(batch).map_err(|_| wrong())?;
    let depth = usize::try_from(last).map_err(|_| wrong())?;
    if batch > rows.len() || depth == 0 || batch + depth > x.len() || x[..batch] != rows[..batch] {
        return Err(wrong());
    }
    one(ctx.dtype(0), [rows, &x[batch + depth..]].concat())
}

fn loss_shape(ctx: &Ctx) -> Result<Vec<i64>, String> {
    let (x, target) = (ctx.shape(0)?, ctx.shape(1)?);
    if x.len() < 2 || target != [&x[..1], &x[2..]].concat() {
        return Err(format!("targets of shape {target:?} do not suit scores of shape {x:?}"));
    }
    match ctx.optional_shape(2)? {
        Some(w) if w != [x[1]] => return Err(format!("its weights have shape {w:?}")),
        _ => {}
    }
    match ctx.text("reduction", "mean")? {
        "none" => Ok(target.to_vec()),
        "sum" | "mean" => Ok(Vec::new()),
        other => Err(format!("attribute `reduction` is `{}`", shown(other))),
    }
}

pub(crate) fn likelihood(ctx: &Ctx) -> Result<Vec<Output>, String> {
    one(ctx.dtype(0), loss_shape(ctx)?)
}

pub(crate) fn cross_entropy(ctx: &Ctx) -> Result<Vec<Output>, String> {
    Ok(vec![
        Output { dtype: ctx.dtype(0), shape: loss_shape(ctx)? },
        Output { dtype: ctx.dtype(0), shape: ctx.shape(0)?.to_vec() },
    ])
}

pub(crate) fn suppress(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let ([b, n, 4], [b2, classes, n2]) = (ctx.shape(0)?, ctx.shape(1)?) else {
        return Err(format!("shapes {:?} and {:?} do not suit it", ctx.shape(0)?, ctx.shape(1)?));
    };
    if b != b2 || n != n2 {
        return Err("its boxes and scores do not suit each other".into());
    }
    let each = match ctx.operand(2) {
        None => 0,
        Some(o) => match o.constant.and_then(Constant::as_i64) {
            Some([k]) => (*k).clamp(0, *n),
            _ => *n,
        },
    };
    let most = b.checked_mul(*classes).and_then(|x| x.checked_mul(each));
    one(Some(DType::I64), vec![most.ok_or("its result is too large")?, 3])
}

pub(crate) fn non_zero(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let x = ctx.shape(0)?;
    one(Some(DType::I64), vec![x.len() as i64, elements(x)?])
}

pub(crate) fn one_hot(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let x = ctx.shape(0)?;
    let depth = super::signal::number(ctx, 1, "depth")? as i64;
    let axis = ctx.axis(ctx.int_or("axis", -1)?, x.len() + 1)?;
    if depth < 1 {
        return Err(format!("its depth is {depth}"));
    }
    one(ctx.dtype(2), [&x[..axis], &[depth], &x[axis..]].concat())
}

pub(crate) fn tf_idf(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let ids = ctx.ints("ngram_indexes")?.ok_or("attribute `ngram_indexes` is missing")?;
    let most = ids.iter().max().copied().unwrap_or(-1);
    let columns = most.checked_add(1).ok_or("its result is too large")?;
    match ctx.shape(0)? {
        [_] => one(Some(DType::F32), vec![columns]),
        [rows, _] => one(Some(DType::F32), vec![*rows, columns]),
        x => Err(format!("its input has shape {x:?}")),
    }
}

pub(crate) fn unique(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let x = ctx.shape(0)?;
    let (shape, n, most) = match ctx.int("axis")? {
        None => (vec![elements(x)?], elements(x)?, elements(x)?),
        Some(a) => {
            let axis = ctx.axis(a, x.len())?;
            (x.to_vec(), x[axis], x[axis])
        }
    };
    let indices = |n: i64| Output { dtype: Some(DType::I64), shape: vec![n] };
    Ok(vec![Output { dtype: ctx.dtype(0), shape }, indices(most), indices(n), indices(most)])
}
