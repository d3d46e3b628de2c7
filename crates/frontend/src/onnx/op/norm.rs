//! Normalisation and softmax.

use super::super::model::Call;
use super::{Kernel, Lower, OpEntry, Out, like_first, plain_kernel};
use crate::build::{layernorm, softmax};
use crate::error::{Outcome, Trouble, unknown, wrong};
use crate::tensor::Elem;

const INSTANCE: &str = "normalisation of single images or groups is not tuned";

pub(super) const OPS: &[OpEntry] = &[
    OpEntry { name: "BatchNormalization", infer: infer_batch, eval: None, lower: Lower::ScaleShift },
    OpEntry { name: "LayerNormalization", infer: infer_layer, eval: None, lower: Lower::Kernel(lower_layer) },
    OpEntry { name: "Softmax", infer: infer_softmax, eval: None, lower: Lower::Kernel(|c| rows(c, false)) },
    OpEntry { name: "LogSoftmax", infer: infer_softmax, eval: None, lower: Lower::Kernel(|c| rows(c, true)) },
    OpEntry { name: "Hardmax", infer: like_first, eval: None, lower: Lower::Untuned("positions of extremes are not tuned") },
    OpEntry { name: "InstanceNormalization", infer: like_first, eval: None, lower: Lower::Untuned(INSTANCE) },
    OpEntry { name: "GroupNormalization", infer: like_first, eval: None, lower: Lower::Untuned(INSTANCE) },
    OpEntry { name: "RMSNormalization", infer: like_first, eval: None, lower: Lower::Untuned("normalisation by the root mean square is not tuned") },
    OpEntry { name: "LpNormalization", infer: like_first, eval: None, lower: Lower::Untuned("normalisation by a norm is not tuned") },
    OpEntry { name: "LRN", infer: like_first, eval: None, lower: Lower::Untuned("normalisation across channels is not tuned") },
    OpEntry { name: "MeanVarianceNormalization", infer: like_first, eval: None, lower: Lower::Untuned(INSTANCE) },
];

fn infer_batch(c: &Call) -> Outcome<Vec<Out>> {
    let x = c.rank_at_least(0, 2)?;
    for i in 1..5 {
        let p = c.shape(i)?;
        if p != [x[1]] {
            return wrong(format!("input {i} has shape {p:?}, expected [{}]", x[1]));
        }
    }
    let mut out = like_first(c)?;
    // In training, and in old versions, statistics follow.
    for i in 1..c.node.outputs.len().min(5) {
        if c.has_output(i) {
            out.resize_with(i, || Out::new(Elem::F32, vec![x[1]]));
            out.push(Out::new(c.elem(0)?, vec![x[1]]));
        }
    }
    Ok(out)
}

fn infer_layer(c: &Call) -> Outcome<Vec<Out>> {
    let x = c.rank_at_least(0, 1)?;
    let axis = c.axis(c.int("axis", -1)?, x.len())?;
    let mut out = like_first(c)?;
    let mut statistics = x[..axis].to_vec();
    statistics.resize(x.len(), 1);
    for i in 1..3 {
        if c.has_output(i) {
            out.resize_with(i, || Out::new(Elem::F32, statistics.clone()));
            out.push(Out::new(Elem::F32, statistics.clone()));
        }
    }
    Ok(out)
}

fn lower_layer(c: &Call) -> Outcome<Kernel> {
    let x = c.shape(0)?;
    let axis = c.axis(c.int("axis", -1)?, x.len())?;
    if c.has_output(1) || c.has_output(2) {
        return unknown("layer normalisation that gives its statistics is not tuned");
    }
    let (rows, cols): (i64, i64) = (x[..axis].iter().product(), x[axis..].iter().product());
    let bias = c.input(2).is_some();
    for i in 1..=1 + usize::from(bias) {
        let s = c.shape(i)?;
        if s != &x[axis..] {
            return unknown(format!("a scale of shape {s:?} for rows of shape {:?} is not tuned", &x[axis..]));
        }
        if !c.need(i)?.constant {
            return unknown("layer normalisation whose scale changes at every call is not tuned");
        }
    }
    let core = layernorm(rows, cols, c.float("epsilon", 1e-5)?, bias).map_err(Trouble::Unknown)?;
    Ok(plain_kernel(core, if bias { vec![0, 1, 2] } else { vec![0, 1] }, false))
}

/// The softmax's axis, and whether all dimensions after it belong to it: they do up to version 12.
fn softmax_axis(c: &Call) -> Outcome<(usize, bool)> {
    let rank = c.shape(0)?.len();
    let old = c.version() < 13;
    let axis = c.int("axis", if old { 1 } else { -1 })?;
    // The old form may put the border after the last dimension.
    if old && axis == rank as i64 { Ok((rank, true)) } else { Ok((c.axis(axis, rank)?, old)) }
}

fn infer_softmax(c: &Call) -> Outcome<Vec<Out>> {
    softmax_axis(c)?;
    like_first(c)
}

fn rows(c: &Call, log: bool) -> Outcome<Kernel> {
    let x = c.shape(0)?;
    let (axis, flat) = softmax_axis(c)?;
    let outer = x[..axis].iter().product();
    let (cols, inner) = if flat { (x[axis..].iter().product(), 1) } else { (x[axis], x[axis + 1..].iter().product()) };
    Ok(plain_kernel(softmax(outer, cols, inner, log).map_err(Trouble::Unknown)?, vec![0], false))
}
