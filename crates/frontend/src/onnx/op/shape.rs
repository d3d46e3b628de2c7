//! Constants and shapes as values.

use super::super::model::{Attr, Call};
use super::moves::{MOVES, tensor};
use super::{Lower, OpEntry, Out};
use crate::error::{Outcome, unknown, wrong};
use crate::tensor::{Data, Elem, Tensor, elements};

const SHAPE: Lower = Lower::Untuned("computes shapes only");

pub(super) const OPS: &[OpEntry] = &[
    OpEntry { name: "Constant", infer: constant, eval: Some(|_, _| unknown("its value is not known")), lower: MOVES },
    OpEntry { name: "Shape", infer: shape, eval: Some(known), lower: SHAPE },
    OpEntry { name: "Size", infer: size, eval: Some(known), lower: SHAPE },
    OpEntry { name: "ConstantOfShape", infer: infer_filled, eval: Some(filled), lower: MOVES },
    OpEntry { name: "Range", infer: infer_range, eval: Some(range), lower: SHAPE },
    OpEntry { name: "Cast", infer: infer_cast, eval: Some(cast), lower: Lower::Untuned("changes the element type only") },
    OpEntry { name: "CastLike", infer: |c| Ok(vec![Out::new(c.elem(1)?, c.shape(0)?)]), eval: None, lower: Lower::Untuned("changes the element type only") },
];

/// What inference knew already.
fn known(c: &Call, _: &[Option<&Tensor>]) -> Outcome<Vec<Tensor>> {
    let out = if c.node.op == "Shape" { shape(c)? } else { size(c)? };
    Ok(out.into_iter().filter_map(|o| o.data).collect())
}

fn constant(c: &Call) -> Outcome<Vec<Out>> {
    let known = |t: Tensor| Ok(vec![Out::known(t)]);
    for (name, a) in &c.node.attrs {
        match (name.as_str(), a) {
            ("value", Attr::Tensor(t)) => {
                return Ok(vec![Out { elem: Some(t.elem), shape: Some(t.shape.clone()), data: t.data.as_deref().cloned() }]);
            }
            ("value_int", Attr::Int(i)) => return known(Tensor::ints(vec![], vec![*i])),
            ("value_float", Attr::Float(x)) => return known(Tensor::floats(vec![], vec![*x])),
            ("value_ints", Attr::Ints(v)) => return known(Tensor::ints(vec![v.len() as i64], v.clone())),
            ("value_floats", Attr::Floats(v)) => return known(Tensor::floats(vec![v.len() as i64], v.clone())),
            ("value_string" | "value_strings" | "sparse_value", _) => return unknown(format!("a constant by `{name}` is not read")),
            ("value" | "value_int" | "value_float" | "value_ints" | "value_floats", _) => {
                return wrong(format!("attribute `{name}` does not have its type"));
            }
            _ => {}
        }
    }
    wrong("attribute `value` is missing")
}

fn shape(c: &Call) -> Outcome<Vec<Out>> {
    let s = c.shape(0)?;
    let rank = s.len() as i64;
    let bound = |x: i64| if x < 0 { x.saturating_add(rank) } else { x }.clamp(0, rank) as usize;
    let (start, end) = (bound(c.int("start", 0)?), bound(c.int("end", rank)?));
    let part = s.get(start..end).unwrap_or(&[]);
    Ok(vec![Out::known(Tensor::ints(vec![part.len() as i64], part.to_vec()))])
}

fn size(c: &Call) -> Outcome<Vec<Out>> {
    let n = elements(c.shape(0)?).and_then(|n| i64::try_from(n).ok()).unwrap_or(i64::MAX);
    Ok(vec![Out::known(Tensor::ints(vec![], vec![n]))])
}

fn fill_value(c: &Call) -> Outcome<Tensor> {
    match c.attr("value") {
        None => Ok(Tensor::floats(vec![1], vec![0.0])),
        Some(Attr::Tensor(t)) => match &t.data {
            Some(d) if d.data.len() == 1 => Ok((**d).clone()),
            _ => wrong("attribute `value` must hold one element"),
        },
        Some(_) => wrong("attribute `value` is no tensor"),
    }
}

fn infer_filled(c: &Call) -> Outcome<Vec<Out>> {
    let Some(s) = c.ints(0)? else { return wrong("input 0, the shape, is missing") };
    Ok(vec![Out::new(fill_value(c)?.elem, s)])
}

fn filled(c: &Call, _: &[Option<&Tensor>]) -> Outcome<Vec<Tensor>> {
    let (shape, value) = (c.out_shape(0)?, fill_value(c)?);
    let strides = vec![0; shape.len()];
    value.strided(shape, &strides, 0).map_or_else(|| wrong("it has no value"), |t| Ok(vec![t]))
}

fn infer_range(c: &Call) -> Outcome<Vec<Out>> {
    let (Some(start), Some(limit), Some(step)) = (c.number(0)?, c.number(1)?, c.number(2)?) else {
        return wrong("its start, limit or step is missing");
    };
    let count = ((limit - start) / step).ceil().max(0.0);
    // Not a number, where the step is zero.
    if count.is_nan() || count >= 1e12 {
        return wrong(format!("from {start} to {limit} by {step} is no range"));
    }
    Ok(vec![Out::new(c.elem(0)?, vec![count as i64])])
}

fn range(c: &Call, x: &[Option<&Tensor>]) -> Outcome<Vec<Tensor>> {
    let n = c.out_shape(0)?.first().copied().unwrap_or(0);
    let (start, step) = (tensor(x, 0)?, tensor(x, 2)?);
    let data = match (&start.data, &step.data) {
        (Data::Int(a), Data::Int(b)) if a.len() == 1 && b.len() == 1 => {
            Data::Int((0..n).map(|i| a[0].wrapping_add(i.wrapping_mul(b[0]))).collect())
        }
        (Data::Float(a), Data::Float(b)) if a.len() == 1 && b.len() == 1 => Data::Float((0..n).map(|i| a[0] + i as f32 * b[0]).collect()),
        _ => return wrong("its inputs are no numbers of one type"),
    };
    Ok(vec![Tensor { elem: start.elem, shape: vec![n], data }])
}

fn infer_cast(c: &Call) -> Outcome<Vec<Out>> {
    let to = i32::try_from(c.need_int("to")?).unwrap_or(0);
    Ok(vec![Out::new(Elem(to), c.shape(0)?)])
}

fn cast(c: &Call, x: &[Option<&Tensor>]) -> Outcome<Vec<Tensor>> {
    let (t, to) = (tensor(x, 0)?, Elem(i32::try_from(c.need_int("to")?).unwrap_or(0)));
    let data = match &t.data {
        _ if !to.is_int() && !to.is_float() => return unknown(format!("a cast to {} is not computed", to.name())),
        Data::Int(v) if to == Elem::BOOL => Data::Int(v.iter().map(|&x| i64::from(x != 0)).collect()),
        Data::Float(v) if to == Elem::BOOL => Data::Int(v.iter().map(|&x| i64::from(x != 0.0)).collect()),
        Data::Int(v) if to.is_float() => Data::Float(v.iter().map(|&x| x as f32).collect()),
        Data::Float(v) if to.is_int() => Data::Int(v.iter().map(|&x| x as i64).collect()),
        same => same.clone(),
    };
    Ok(vec![Tensor { elem: to, shape: t.shape.clone(), data }])
}
