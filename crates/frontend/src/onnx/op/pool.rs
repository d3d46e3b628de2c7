//! Pooling.

use super::super::model::Call;
use super::conv::{two_dimensions, windows};
use super::reduce::global;
use super::{Kernel, Lower, OpEntry, Out, plain_kernel};
use crate::build::{Pool, PoolKind, ReduceOp, Window};
use crate::error::{Outcome, Trouble, unknown};
use crate::tensor::Elem;

pub(super) const OPS: &[OpEntry] = &[
    OpEntry { name: "MaxPool", infer, eval: None, lower: Lower::Kernel(lower) },
    OpEntry { name: "AveragePool", infer, eval: None, lower: Lower::Kernel(lower) },
    OpEntry { name: "LpPool", infer, eval: None, lower: Lower::Untuned("pooling by a norm is not tuned") },
    OpEntry { name: "GlobalAveragePool", infer: infer_global, eval: None, lower: Lower::Kernel(|c| global(c, ReduceOp::Mean)) },
    OpEntry { name: "GlobalMaxPool", infer: infer_global, eval: None, lower: Lower::Kernel(|c| global(c, ReduceOp::Max)) },
];

/// Results along one dimension. Rounding up may add a last window, which must begin inside the
/// image or the padding before it.
fn positions(w: &Window, ceil: bool) -> i64 {
    let floor = w.positions();
    let over = (w.padded() - w.span()) % w.stride != 0;
    if ceil && over && floor * w.stride < w.extent + w.before { floor + 1 } else { floor }
}

fn problem(c: &Call) -> Outcome<(Vec<Window>, Vec<i64>)> {
    let x = c.rank_at_least(0, 3)?;
    let windows = windows(c, &x[2..], None)?;
    let ceil = c.int("ceil_mode", 0)? != 0;
    let positions = windows.iter().map(|w| positions(w, ceil)).collect();
    Ok((windows, positions))
}

fn infer(c: &Call) -> Outcome<Vec<Out>> {
    let (x, (_, positions)) = (c.shape(0)?, problem(c)?);
    let mut shape = x[..2].to_vec();
    shape.extend(positions);
    let mut out = vec![Out::new(c.elem(0)?, shape.clone())];
    if c.has_output(1) {
        out.push(Out::new(Elem::I64, shape));
    }
    Ok(out)
}

fn infer_global(c: &Call) -> Outcome<Vec<Out>> {
    let x = c.rank_at_least(0, 3)?;
    let mut shape = x[..2].to_vec();
    shape.resize(x.len(), 1);
    Ok(vec![Out::new(c.elem(0)?, shape)])
}

fn lower(c: &Call) -> Outcome<Kernel> {
    if c.has_output(1) {
        return unknown("pooling that gives positions is not tuned");
    }
    let (x, (windows, positions)) = (c.shape(0)?, problem(c)?);
    let kind = match c.node.op.as_str() {
        "MaxPool" => PoolKind::Max,
        _ => PoolKind::Average { include_pad: c.int("count_include_pad", 0)? != 0 },
    };
    let positions = if let [q] = positions[..] { vec![1, q] } else { positions };
    let windows = two_dimensions(&windows)?;
    let pool = Pool { kind, n: x[0], c: x[1], windows, positions: [positions[0], positions[1]] };
    Ok(plain_kernel(pool.build().map_err(Trouble::Unknown)?, vec![0], true))
}
