//! Reductions over axes.

use super::super::model::Call;
use super::{Eval, Kernel, Lower, OpEntry, Out, all_axes, plain_kernel};
use crate::build::{ReduceOp, reduce};
use crate::error::{Outcome, Trouble, unknown, wrong};
use crate::tensor::{Data, Elem, Positions, Tensor, elements, strides_of};

const fn entry(name: &'static str, lower: fn(&Call) -> Outcome<Kernel>) -> OpEntry {
    OpEntry { name, infer, eval: Some(eval as Eval), lower: Lower::Kernel(lower) }
}

pub(super) const OPS: &[OpEntry] = &[
    entry("ReduceSum", |c| over(c, ReduceOp::Sum)),
    entry("ReduceMean", |c| over(c, ReduceOp::Mean)),
    entry("ReduceMax", |c| over(c, ReduceOp::Max)),
    entry("ReduceMin", |c| over(c, ReduceOp::Min)),
    entry("ReduceProd", |c| over(c, ReduceOp::Prod)),
    entry("ReduceL1", |c| over(c, ReduceOp::L1)),
    entry("ReduceL2", |c| over(c, ReduceOp::L2)),
    entry("ReduceSumSquare", |c| over(c, ReduceOp::SumSquare)),
    entry("ReduceLogSum", |c| over(c, ReduceOp::LogSum)),
    entry("ReduceLogSumExp", |c| over(c, ReduceOp::LogSumExp)),
    OpEntry { name: "ArgMax", infer: infer_position, eval: None, lower: Lower::Untuned("positions of extremes are not tuned") },
    OpEntry { name: "ArgMin", infer: infer_position, eval: None, lower: Lower::Untuned("positions of extremes are not tuned") },
];

/// The axes that are reduced: an attribute, or an input in later versions; none means all, or
/// nothing where the node says so.
fn axes(c: &Call) -> Outcome<Vec<usize>> {
    let rank = c.shape(0)?.len();
    match c.axes("axes", 1, rank)? {
        Some(a) if !a.is_empty() => Ok(a),
        _ if c.int("noop_with_empty_axes", 0)? != 0 => Ok(Vec::new()),
        _ => Ok(all_axes(rank)),
    }
}

fn without(shape: &[i64], axes: &[usize], keep: bool) -> Vec<i64> {
    let reduced = |i: &usize| axes.contains(i);
    (0..shape.len()).filter(|i| keep || !reduced(i)).map(|i| if reduced(&i) { 1 } else { shape[i] }).collect()
}

fn infer(c: &Call) -> Outcome<Vec<Out>> {
    let shape = without(c.shape(0)?, &axes(c)?, c.int("keepdims", 1)? != 0);
    Ok(vec![Out::new(c.elem(0)?, shape)])
}

fn infer_position(c: &Call) -> Outcome<Vec<Out>> {
    let shape = c.shape(0)?;
    let axis = c.axis(c.int("axis", 0)?, shape.len())?;
    Ok(vec![Out::new(Elem::I64, without(shape, &[axis], c.int("keepdims", 1)? != 0))])
}

fn over(c: &Call, op: ReduceOp) -> Outcome<Kernel> {
    let (shape, axes) = (c.shape(0)?, axes(c)?);
    if axes.is_empty() {
        return unknown("a reduction over no axis is not tuned");
    }
    let flags: Vec<bool> = (0..shape.len()).map(|i| axes.contains(&i)).collect();
    Ok(plain_kernel(reduce(shape, &flags, op).map_err(Trouble::Unknown)?, vec![0], true))
}

/// A reduction over everything but batch and channels.
pub(super) fn global(c: &Call, op: ReduceOp) -> Outcome<Kernel> {
    let shape = c.rank_at_least(0, 3)?;
    let flags: Vec<bool> = (0..shape.len()).map(|i| i >= 2).collect();
    Ok(plain_kernel(reduce(shape, &flags, op).map_err(Trouble::Unknown)?, vec![0], true))
}

/// Constant reductions, for arithmetic of shapes.
fn eval(c: &Call, x: &[Option<&Tensor>]) -> Outcome<Vec<Tensor>> {
    let Some(t) = x.first().copied().flatten() else { return wrong("input 0 is missing") };
    let axes = axes(c)?;
    // Reduced axes last: the elements of one result are then neighbours in the walk.
    let order: Vec<usize> = (0..t.shape.len()).filter(|i| !axes.contains(i)).chain(axes.iter().copied()).collect();
    let strides = strides_of(&t.shape);
    let (shape, strides): (Vec<i64>, Vec<i64>) = order.iter().map(|&i| (t.shape[i], strides[i])).unzip();
    let each = axes.iter().try_fold(1u64, |n, &a| n.checked_mul(u64::try_from(t.shape[a]).ok()?));
    let Some(each) = each.filter(|e| *e > 0).and_then(|e| usize::try_from(e).ok()) else {
        return unknown("a reduction over no element is not computed");
    };
    let Some(sorted) = t.data.pick(Positions::new(&shape, &strides, 0).map(|p| usize::try_from(p).unwrap_or(usize::MAX))) else {
        return wrong("the input is too short");
    };
    let op = c.node.op.as_str();
    let data = match sorted {
        Data::Int(v) => {
            let f: fn(&[i64]) -> Option<i64> = match op {
                "ReduceSum" => |v| v.iter().try_fold(0i64, |a, &b| a.checked_add(b)),
                "ReduceProd" => |v| v.iter().try_fold(1i64, |a, &b| a.checked_mul(b)),
                "ReduceMax" => |v| v.iter().max().copied(),
                "ReduceMin" => |v| v.iter().min().copied(),
                _ => return unknown(format!("`{op}` of integers is not computed")),
            };
            match v.chunks(each).map(f).collect::<Option<_>>() {
                Some(v) => Data::Int(v),
                None => return wrong("it overflows"),
            }
        }
        Data::Float(v) => {
            let f: fn(&mut dyn Iterator<Item = f64>, f64) -> f64 = match op {
                "ReduceSum" => |v, _| v.sum(),
                "ReduceMean" => |v, n| v.sum::<f64>() / n,
                "ReduceMax" => |v, _| v.fold(f64::NEG_INFINITY, f64::max),
                "ReduceMin" => |v, _| v.fold(f64::INFINITY, f64::min),
                "ReduceProd" => |v, _| v.product(),
                "ReduceL1" => |v, _| v.map(f64::abs).sum(),
                "ReduceL2" => |v, _| v.map(|x| x * x).sum::<f64>().sqrt(),
                "ReduceSumSquare" => |v, _| v.map(|x| x * x).sum(),
                _ => return unknown(format!("`{op}` is not computed by plain code")),
            };
            Data::Float(v.chunks(each).map(|c| f(&mut c.iter().map(|&x| f64::from(x)), c.len() as f64) as f32).collect())
        }
    };
    let out = c.out_shape(0)?;
    if elements(out) != Some(data.len() as u64) {
        return wrong("the result does not have the shape that was inferred");
    }
    Ok(vec![Tensor { elem: t.elem, shape: out.to_vec(), data }])
}
