//! Elementwise operators run as plain code: their expression at each element.

use super::model::Call;
use super::op::{Lower, entry};
use crate::build::{placeholder, substitute};
use crate::error::{Outcome, unknown, wrong};
use crate::tensor::{Positions, Tensor, broadcast_strides, elements};
use squall_core::expr::{Affine, Expr};

/// The operator of floats, in double, each result rounded.
pub(crate) fn eval(c: &Call, tensors: &[&Tensor], shape: &[i64]) -> Outcome<Tensor> {
    let Some(Lower::Pointwise(f)) = entry(c.node).map(|e| &e.lower) else {
        return unknown(format!("`{}` is not computed by plain code", c.node.op));
    };
    // Constants stay placeholders: the expression must be the one for any value.
    let mut at = 0;
    let operands: Vec<Option<Expr>> = c
        .node
        .inputs
        .iter()
        .map(|i| {
            i.map(|_| {
                at += 1;
                placeholder(at - 1)
            })
        })
        .collect();
    let body = f(c, &operands)?;
    let body = substitute(&body, &|i| Expr::Load { source: squall_core::expr::Source(i as u32), index: vec![Affine::constant(0)] });
    let mut walks = Vec::new();
    let mut columns = Vec::new();
    for t in tensors {
        let (Some(strides), Some(values)) = (broadcast_strides(&t.shape, shape), t.as_floats()) else {
            return wrong(format!("an input of shape {:?} and type {} does not fit the result {shape:?}", t.shape, t.elem.name()));
        };
        walks.push(Positions::new(shape, &strides, 0));
        columns.push(values);
    }
    let mut row = vec![0.0; columns.len()];
    let mut out = Vec::new();
    for _ in 0..elements(shape).unwrap_or(0) {
        for ((slot, walk), values) in row.iter_mut().zip(&mut walks).zip(&columns) {
            let position = walk.next().and_then(|p| usize::try_from(p).ok());
            *slot = position.and_then(|p| values.get(p)).copied().map_or(f64::NAN, f64::from);
        }
        out.push(body.eval(&|_| 0, &mut |s, _| row.get(s.0 as usize).copied().unwrap_or(f64::NAN)) as f32);
    }
    Ok(Tensor { elem: tensors.first().map_or(crate::tensor::Elem::F32, |t| t.elem), shape: shape.to_vec(), data: crate::tensor::Data::Float(out) })
}
