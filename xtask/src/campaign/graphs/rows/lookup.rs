//! The rows of operators that read or write at places that indices name (`Gather`, `ScatterND`,
//! `OneHot`, `Compress`, ..) in the campaign's table of random graphs (`rows/mod.rs`): indices
//! within the extents, negative ones among them. A row's function draws one use of the operator, a
//! node with operands and attributes, in the graph under construction (`graph.rs`); its effect,
//! such as `Keeps` or `Rounds`, says whether results stay exact. `cargo xtask campaign graphs` runs
//! the graphs by Squall and by onnxruntime.

use super::moves::axis_of;
use super::{EVERY, Row};
use crate::campaign::graphs::graph::Effect::{Amplifies, Exact, Keeps};
use crate::campaign::graphs::graph::{Call, Fill, Graph};
use squall_core::DType::{self, F32, F64, I32, I64};
use squall_testing::onnx::{int, ints, text};

pub const ROWS: &[Row] = &[
    Row::own("Gather", Keeps, |g| {
        let (x, axis) = along(g, 1)?;
        let shape = g.shape_of(x);
        let extent = shape[axis];
        let of = g.shape(0, 2);
        let dtype = g.dtype(&[I32, I64]);
        let i = g.fresh(dtype, &of, Fill::Within(-extent, extent - 1));
        let axis = axis_of(g, axis, shape.len());
        Some(Call::of(&[x, i]).with(int("axis", axis)))
    })
    .since(13),
    Row::own("GatherElements", Keeps, |g| {
        let (x, axis) = along(g, 1)?;
        let shape = g.shape_of(x);
        let mut of: Vec<i64> = shape.iter().map(|e| g.within(0, *e)).collect();
        of[axis] = g.within(0, 9);
        let dtype = g.dtype(&[I32, I64]);
        let i = g.fresh(dtype, &of, Fill::Within(-shape[axis], shape[axis] - 1));
        let axis = axis_of(g, axis, shape.len());
        Some(Call::of(&[x, i]).with(int("axis", axis)))
    })
    .since(13),
    Row::own("GatherND", Keeps, |g| {
        let x = g.any(EVERY, 2, 4);
        let shape = g.shape_of(x);
        let batch = g.within(0, 1);
        let left = shape.len() as i64 - batch;
        let q = g.within(1, left);
        let least = *shape[batch as usize..][..q as usize].iter().min()?;
        if least == 0 {
            return None;
        }
        let mut of = shape[..batch as usize].to_vec();
        of.extend([g.within(1, 5), q]);
        let i = g.fresh(I64, &of, Fill::Within(-least, least - 1));
        Some(Call::of(&[x, i]).with(int("batch_dims", batch)))
    })
    .since(13),
    // Without a reduction two writers of one place have no order: indices differ then.
    Row::own("ScatterElements", Exact, |g| scatter_elements(g, false)).since(18).tame(),
    Row::own("ScatterElements", Amplifies, |g| scatter_elements(g, true)).since(18).tame(),
    Row::own("ScatterND", Exact, |g| scatter_nd(g, false)).since(18).tame(),
    Row::own("ScatterND", Amplifies, |g| scatter_nd(g, true)).since(18).tame(),
    Row::own("OneHot", Keeps, |g| {
        let depth = g.within(1, 6);
        let of = g.shape(0, 3);
        let i = g.fresh(I64, &of, Fill::Within(-depth - 1, depth));
        let d = g.ints(&[], &[depth]);
        let dtype = g.dtype(&[F32, I32, I64]);
        let v = g.fresh(dtype, &[2], Fill::Tame);
        let axis = g.within(-1, of.len() as i64);
        Some(Call::of(&[i, d, v]).with(int("axis", axis)))
    })
    .since(11),
    Row::own("Compress", Exact, |g| {
        let x = g.any(&[F32, I64], 1, 3);
        let shape = g.shape_of(x);
        let axis = g.draw.below(shape.len());
        let n = shape[axis];
        let is_constant = g.coin();
        let c = g.tensor(squall_core::DType::Bool, &[n], Fill::Any, is_constant);
        let kept = g.bytes(c)?.iter().filter(|b| **b != 0).count();
        let (dtype, mut shape) = (g.values[x].dtype, shape);
        shape[axis] = kept as i64;
        Some(Call::of(&[x, c]).with(int("axis", axis as i64)).shaped(vec![(dtype, shape)]))
    }),
    Row::own("TfIdfVectorizer", Exact, |g| {
        let n = g.within(1, 9);
        let x = g.fresh(I64, &[n], Fill::Within(0, 6));
        let call = Call::of(&[x]).with(text("mode", "TF")).with(int("min_gram_length", 1));
        let call = call.with(int("max_gram_length", 1)).with(int("max_skip_count", 0));
        let call = call.with(ints("ngram_counts", &[0])).with(ints("ngram_indexes", &[0, 2, 1]));
        Some(call.with(ints("pool_int64s", &[2, 3, 5])))
    }),
    Row::own("TensorScatter", Keeps, |g| {
        let (b, e, d) = (g.within(1, 3), g.within(2, 8), g.within(1, 4));
        let n = g.within(1, e);
        let x = g.fresh(F32, &[b, e, d], Fill::Any);
        let u = g.fresh(F32, &[b, n, d], Fill::Any);
        let at = g.fresh(I64, &[b], Fill::Within(0, e - n));
        Some(Call::of(&[x, u, at]).with(int("axis", 1)))
    })
    .since(24),
    Row::own("RotaryEmbedding", Amplifies, |g| {
        let (b, h, s, d) = (g.within(1, 2), g.within(1, 3), g.within(1, 5), 2 * g.within(1, 4));
        let x = g.fresh(F32, &[b, h, s, d], Fill::Tame);
        let [c, n] = [(); 2].map(|()| g.fresh(F32, &[8, d / 2], Fill::Tame));
        let at = g.fresh(I64, &[b, s], Fill::Within(0, 7));
        let interleaved = g.within(0, 1);
        Some(Call::of(&[x, c, n, at]).with(int("interleaved", interleaved)))
    })
    .since(23)
    .tame(),
];

/// A tensor with an axis that is not empty.
fn along(g: &mut Graph<'_>, least: usize) -> Option<(usize, usize)> {
    let x = g.any(EVERY, least, 4);
    let shape = g.shape_of(x);
    let axis = g.draw.below(shape.len());
    (shape[axis] > 0).then_some((x, axis))
}

fn scatter_elements(g: &mut Graph<'_>, sums: bool) -> Option<Call> {
    let x = g.any(if sums { &[F32, F64] } else { &[F32, F32, F64, I32, I64] }, 1, 3);
    let (shape, dtype) = (g.shape_of(x), g.values[x].dtype);
    let axis = g.draw.below(shape.len());
    let extent = shape[axis];
    if shape.contains(&0) {
        return None;
    }
    let reduction = reduction(g, dtype, sums);
    let mut of: Vec<i64> = shape.iter().map(|e| g.within(1, *e)).collect();
    let i = if reduction == "none" {
        // Along the axis each row has the same distinct places.
        let step: i64 = of.iter().skip(axis + 1).product();
        let first = g.within(0, extent - of[axis]);
        let count = of.iter().product::<i64>();
        let data: Vec<i64> =
            (0..count).map(|n| extent - 1 - (first + n / step.max(1) % of[axis])).collect();
        g.ints(&of, &data)
    } else {
        of[axis] = g.within(1, 6);
        g.fresh(I64, &of, Fill::Within(-extent, extent - 1))
    };
    let u = g.fresh(dtype, &of, Fill::Tame);
    let axis = axis_of(g, axis, shape.len());
    Some(Call::of(&[x, i, u]).with(int("axis", axis)).with(text("reduction", &reduction)))
}

fn scatter_nd(g: &mut Graph<'_>, sums: bool) -> Option<Call> {
    let x = g.any(if sums { &[F32, F64] } else { &[F32, F32, F64, I32, I64] }, 1, 3);
    let (shape, dtype) = (g.shape_of(x), g.values[x].dtype);
    if shape.contains(&0) {
        return None;
    }
    let reduction = reduction(g, dtype, sums);
    let n = g.within(1, shape[0]);
    let i = if reduction == "none" {
        let data: Vec<i64> = (0..n).map(|i| shape[0] - 1 - i).collect();
        g.ints(&[n, 1], &data)
    } else {
        g.fresh(I64, &[n, 1], Fill::Within(-shape[0], shape[0] - 1))
    };
    let mut of = shape.clone();
    of[0] = n;
    let u = g.fresh(dtype, &of, Fill::Tame);
    Some(Call::of(&[x, i, u]).with(text("reduction", &reduction)))
}

/// How several writers of a place agree; sums and products of floats are rounded in some order.
fn reduction(g: &mut Graph<'_>, dtype: DType, sums: bool) -> String {
    let all: &[&str] = match (sums, dtype.is_float()) {
        (true, _) => &["add", "mul"],
        (_, true) => &["none", "none", "max", "min"],
        _ => &["none", "add", "mul", "max", "min"],
    };
    g.draw.one(all).to_string()
}
