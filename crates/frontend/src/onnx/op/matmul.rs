//! Matrix products.

use super::super::model::Call;
use super::{Kernel, Lower, OpEntry, Out, Scalable, kind_of, own_operand, plain_kernel};
use crate::build::functions::{constant, mul};
use crate::build::MatMul;
use crate::error::{Outcome, Trouble, unknown, wrong};
use crate::tensor::{broadcast, broadcast_strides};
use squall_core::expr::{Binary, Expr};

pub(super) const OPS: &[OpEntry] = &[
    OpEntry { name: "MatMul", infer: infer_matmul, eval: None, lower: Lower::Kernel(lower_matmul) },
    OpEntry { name: "Gemm", infer: infer_gemm, eval: None, lower: Lower::Kernel(lower_gemm) },
];

/// Both operands with at least two dimensions, by NumPy's rules for vectors.
fn operands(c: &Call) -> Outcome<(Vec<i64>, Vec<i64>)> {
    let (mut a, mut b) = (c.rank_at_least(0, 1)?.to_vec(), c.rank_at_least(1, 1)?.to_vec());
    if a.len() == 1 {
        a.insert(0, 1);
    }
    if b.len() == 1 {
        b.push(1);
    }
    let (ka, kb) = (a[a.len() - 1], b[b.len() - 2]);
    if ka != kb {
        return wrong(format!("the rows of A have {ka} elements, the columns of B {kb}"));
    }
    if broadcast(&[&a[..a.len() - 2], &b[..b.len() - 2]]).is_none() {
        return wrong(format!("the batches of {a:?} and {b:?} do not broadcast"));
    }
    Ok((a, b))
}

fn infer_matmul(c: &Call) -> Outcome<Vec<Out>> {
    let (a, b) = operands(c)?;
    let mut shape = broadcast(&[&a[..a.len() - 2], &b[..b.len() - 2]]).unwrap_or_default();
    if c.shape(0)?.len() > 1 {
        shape.push(a[a.len() - 2]);
    }
    if c.shape(1)?.len() > 1 {
        shape.push(b[b.len() - 1]);
    }
    Ok(vec![Out::new(c.elem(0)?, shape)])
}

fn lower_matmul(c: &Call) -> Outcome<Kernel> {
    let (a, b) = operands(c)?;
    let (la, lb) = (&a[..a.len() - 2], &b[..b.len() - 2]);
    let (m, n, k) = (a[a.len() - 2], b[b.len() - 1], a[a.len() - 1]);
    let mut p = MatMul { m, n, k, batch: Vec::new(), transposed: [false; 2], kinds: [kind_of(c, 0), kind_of(c, 1)] };
    if lb.iter().all(|&e| e == 1) {
        // One B for all: the rows of all batches are rows of one product.
        p.m = la.iter().fold(m, |m, &e| m.saturating_mul(e));
    } else {
        let shape = broadcast(&[la, lb]).unwrap_or_default();
        let (Some(sa), Some(sb)) = (broadcast_strides(la, &shape), broadcast_strides(lb, &shape)) else {
            return unknown("its batches do not broadcast");
        };
        p.batch = shape.iter().zip(sa.iter().zip(&sb)).map(|(&e, (&a, &b))| (e, a != 0, b != 0)).collect();
    }
    let mut kernel = plain_kernel(p.build().map_err(Trouble::Unknown)?, vec![0, 1], true);
    let rank = c.out_shape(0)?.len();
    if b.len() == 2 && c.shape(1)?.len() == 2 && rank == 2 {
        kernel.scalable = Some(Scalable { weight: 1, axis: 1, bias: None, channel: 1 });
    }
    Ok(kernel)
}

fn gemm(c: &Call) -> Outcome<MatMul> {
    let (a, b) = (c.shape(0)?, c.shape(1)?);
    let (&[a0, a1], &[b0, b1]) = (a, b) else { return wrong(format!("its inputs have shapes {a:?} and {b:?}, expected matrices")) };
    let transposed = [c.int("transA", 0)? != 0, c.int("transB", 0)? != 0];
    let (m, ka) = if transposed[0] { (a1, a0) } else { (a0, a1) };
    let (kb, n) = if transposed[1] { (b1, b0) } else { (b0, b1) };
    if ka != kb {
        return wrong(format!("the rows of A have {ka} elements, the columns of B {kb}"));
    }
    if let Some(bias) = c.input(2).and_then(|v| v.shape.as_ref())
        && broadcast_strides(bias, &[m, n]).is_none()
    {
        return wrong(format!("C has shape {bias:?}, which does not broadcast to [{m}, {n}]"));
    }
    Ok(MatMul { m, n, k: ka, batch: Vec::new(), transposed, kinds: [kind_of(c, 0), kind_of(c, 1)] })
}

fn infer_gemm(c: &Call) -> Outcome<Vec<Out>> {
    let p = gemm(c)?;
    Ok(vec![Out::new(c.elem(0)?, vec![p.m, p.n])])
}

fn lower_gemm(c: &Call) -> Outcome<Kernel> {
    let p = gemm(c)?;
    let mut core = p.build().map_err(Trouble::Unknown)?;
    let mut feeds = vec![0, 1];
    let (alpha, beta) = (c.float("alpha", 1.0)?, c.float("beta", 1.0)?);
    if alpha != 1.0 {
        core.own.then("scale", |x| mul(x, constant(alpha)));
    }
    let bias_shape = c.input(2).and_then(|_| c.shape(2).ok());
    if c.input(2).is_some() && beta != 0.0 {
        let Some(shape) = bias_shape else { return unknown("the shape of C is not known") };
        let bias = own_operand(&mut core.own, c, 2, shape.to_vec());
        let bias = if beta == 1.0 { bias } else { mul(bias, constant(beta)) };
        core.own.then("bias", |x| Expr::binary(Binary::Add, x, bias));
        feeds.push(2);
    }
    // A scale per column goes into B and C, if C is one value a column.
    let bias = (feeds.len() > 2).then_some(2);
    let per_column = bias.is_none() || bias_shape.is_some_and(|s| s.last() == Some(&p.n) && s.iter().rev().skip(1).all(|&e| e == 1));
    let scalable = (alpha == 1.0 && (bias.is_none() || beta == 1.0) && per_column).then_some(Scalable {
        weight: 1,
        axis: usize::from(!p.transposed[1]),
        bias,
        channel: 1,
    });
    Ok(Kernel { core, feeds, open: true, scalable })
}
