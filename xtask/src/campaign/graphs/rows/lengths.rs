//! The rows of operators whose results have lengths that only their operands' elements decide
//! (`NonZero`, `Unique`, `NonMaxSuppression`) in the campaign's table of random graphs
//! (`rows/mod.rs`). Each row computes the length of its result from the drawn elements. A row's
//! function draws one use of the operator, a node with operands and attributes, in the graph under
//! construction (`graph.rs`); its effect, such as `Keeps` or `Rounds`, says whether results stay
//! exact. `cargo xtask campaign graphs` runs the graphs by Squall and by onnxruntime.

use super::Row;
use crate::campaign::graphs::graph::Effect::Exact;
use crate::campaign::graphs::graph::{Call, Fill, Graph};
use squall_core::DType::{Bool, F32, I32, I64};
use squall_testing::onnx::int;
use std::collections::BTreeSet;

pub const ROWS: &[Row] = &[
    Row::own("NonZero", Exact, |g| {
        let dtype = g.dtype(&[F32, I32, I64, Bool]);
        let shape = g.shape(1, 3);
        let x = g.fresh(dtype, &shape, Fill::Within(0, 1));
        let size = dtype.bytes() as usize;
        let bytes = g.bytes(x)?;
        let kept = bytes.chunks(size).filter(|c| c.iter().any(|b| *b != 0)).count();
        Some(Call::of(&[x]).shaped(vec![(I64, vec![shape.len() as i64, kept as i64])]))
    })
    .since(13),
    Row::own("Unique", Exact, |g| {
        let dtype = g.dtype(&[F32, I64]);
        let shape = g.shape(1, 2);
        // An empty one has no meaning for onnxruntime.
        if shape.contains(&0) {
            return None;
        }
        let x = g.fresh(dtype, &shape, Fill::Within(0, 6));
        let bytes = g.bytes(x)?;
        let by_rows = g.draw.below(3) == 0;
        let size = bytes.len() / if by_rows { shape[0] as usize } else { elements(&shape) };
        let kept = bytes.chunks(size).collect::<BTreeSet<_>>().len() as i64;
        let sorted = g.within(0, 1);
        let call = Call::of(&[x]).with(int("sorted", sorted));
        let (call, of) = if by_rows {
            let mut of = shape.clone();
            of[0] = kept;
            (call.with(int("axis", 0)), of)
        } else {
            (call, vec![kept])
        };
        let whole = if by_rows { shape[0] } else { elements(&shape) as i64 };
        let mut results =
            vec![(dtype, of), (I64, vec![kept]), (I64, vec![whole]), (I64, vec![kept])];
        results.truncate(g.within(1, 4) as usize);
        Some(call.shaped(results))
    })
    .since(11),
    Row::own("NonMaxSuppression", Exact, suppression).since(11).tame(),
];

fn elements(shape: &[i64]) -> usize {
    shape.iter().product::<i64>() as usize
}

/// Boxes with whole corners, of which none overlap by nearly the limit.
fn suppression(g: &mut Graph<'_>) -> Option<Call> {
    let (classes, n) = (g.within(1, 2), g.within(1, 6));
    let mut boxes: Vec<f32> = Vec::new();
    for _ in 0..n {
        let (y, x) = (g.within(0, 3) as f32, g.within(0, 3) as f32);
        boxes.extend([y, x, y + g.within(1, 4) as f32, x + g.within(1, 4) as f32]);
    }
    // No two scores are equal.
    let all: Vec<f32> = (0..classes * n).map(|i| (i * 7 % 13) as f32 / 16.0 + 0.01).collect();
    let b = g.given_reals(&[1, n, 4], &boxes);
    let s = g.given_reals(&[1, classes, n], &all);
    let most = g.within(1, 4);
    let (limit, least) = (0.437_f32, 0.3_f32);
    let m = g.ints(&[], &[most]);
    let (l, t) = (g.reals(&[], &[limit]), g.reals(&[], &[least]));
    let mut selected = 0;
    for scores in all.chunks(n as usize) {
        let mut order: Vec<usize> = (0..n as usize).filter(|&i| scores[i] > least).collect();
        order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
        let mut kept: Vec<usize> = Vec::new();
        for i in order {
            let is_new = |k: &usize| overlap(&boxes[k * 4..][..4], &boxes[i * 4..][..4]) <= limit;
            if kept.len() < most as usize && kept.iter().all(is_new) {
                kept.push(i);
            }
        }
        selected += kept.len() as i64;
    }
    let call = Call::of(&[b, s, m, l, t]);
    Some(call.shaped(vec![(I64, vec![selected, 3])]))
}

fn overlap(a: &[f32], b: &[f32]) -> f32 {
    let side = |i: usize| (a[i + 2].min(b[i + 2]) - a[i].max(b[i])).max(0.0);
    let area = |c: &[f32]| (c[2] - c[0]) * (c[3] - c[1]);
    let both = side(0) * side(1);
    both / (area(a) + area(b) - both)
}
