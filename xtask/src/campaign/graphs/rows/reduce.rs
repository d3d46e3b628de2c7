//! The rows of reductions and of operators along an axis (`ReduceSum`, `Softmax`, `ArgMax`,
//! `CumSum`, `TopK`, ..) in the campaign's table of random graphs (`rows/mod.rs`): an operand and
//! its axes, as an attribute or an operand. A row's function draws one use of the operator, a node
//! with operands and attributes, in the graph under construction (`graph.rs`); its effect, such as
//! `Keeps` or `Rounds`, says whether results stay exact. `cargo xtask campaign graphs` runs the
//! graphs by Squall and by onnxruntime.

use super::moves::axis_of;
use super::{FLOAT, Row};
use crate::campaign::graphs::graph::Effect::{self, Amplifies, Exact, Keeps, Rounds};
use crate::campaign::graphs::graph::{Call, Fill, Graph};
use squall_core::DType::{self, F32, F64, I8, I32, I64, U8};
use squall_testing::onnx::int;

const fn whole(op: &'static str, make: fn(&mut Graph<'_>) -> Option<Call>) -> Row {
    Row::own(op, Exact, make).since(18)
}

const fn row(op: &'static str, effect: Effect, make: fn(&mut Graph<'_>) -> Option<Call>) -> Row {
    Row::own(op, effect, make).since(18)
}

pub const ROWS: &[Row] = &[
    row("ReduceSum", Rounds, |g| reduction(g, FLOAT)),
    row("ReduceMean", Rounds, |g| reduction(g, FLOAT)),
    row("ReduceMax", Keeps, |g| reduction(g, &[F32, F32, F64, I8, U8, I32, I64])),
    row("ReduceMin", Keeps, |g| reduction(g, &[F32, F32, F64, I8, U8, I32, I64])),
    row("ReduceProd", Amplifies, |g| reduction(g, FLOAT)),
    row("ReduceL1", Rounds, |g| reduction(g, FLOAT)),
    row("ReduceL2", Rounds, |g| reduction(g, FLOAT)),
    row("ReduceSumSquare", Rounds, |g| reduction(g, FLOAT)),
    row("ReduceLogSum", Amplifies, |g| reduction(g, FLOAT)),
    row("ReduceLogSumExp", Rounds, |g| reduction(g, FLOAT)),
    whole("ReduceSum", |g| reduction(g, &[I32, I64])),
    whole("ReduceProd", |g| reduction(g, &[I32, I64])),
    // Sums of absolute values and squares that do not fit have no meaning.
    whole("ReduceSumSquare", small_reduction),
    whole("ReduceL1", small_reduction),
    row("Softmax", Rounds, along),
    row("LogSoftmax", Rounds, along),
    // Which of equals or of NaN counts is not said.
    row("Hardmax", Exact, along).tame(),
    row("ArgMax", Exact, largest).tame(),
    row("ArgMin", Exact, largest).tame(),
    // The order of NaN among numbers is not said.
    row("TopK", Exact, |g| {
        let x = g.any(&[F32, F32, F64, I32, I64], 1, 4);
        let shape = g.shape_of(x);
        let axis = g.draw.below(shape.len());
        let k = g.within(0, shape[axis]);
        let k = g.list(&[k]);
        let named = axis_of(g, axis, shape.len());
        let largest = g.within(0, 1);
        // Unsorted results come in any order.
        let call = Call::of(&[x, k]).with(int("axis", named)).with(int("largest", largest));
        Some(call.gives(2))
    })
    .tame(),
    row("CumSum", Rounds, |g| cumulated(g, &[F32, F32, F64])),
    whole("CumSum", |g| cumulated(g, &[I32, I64])),
    row("CumProd", Amplifies, |g| cumulated(g, &[F32])).since(26),
];

fn reduction(g: &mut Graph<'_>, of: &[DType]) -> Option<Call> {
    let x = g.any(of, 0, 5);
    reduction_of(g, x)
}

fn small_reduction(g: &mut Graph<'_>) -> Option<Call> {
    let shape = g.shape(0, 4);
    let x = g.fresh(I32, &shape, Fill::Within(-9, 9));
    reduction_of(g, x)
}

fn reduction_of(g: &mut Graph<'_>, x: usize) -> Option<Call> {
    let rank = g.values[x].shape.len();
    let keeps = g.within(0, 1);
    let call = Call::of(&[x]).with(int("keepdims", keeps));
    if rank == 0 || g.draw.below(6) == 0 {
        let noop = g.within(0, 1);
        return Some(call.with(int("noop_with_empty_axes", noop)));
    }
    let mut axes: Vec<i64> = Vec::new();
    for a in 0..rank {
        if g.draw.below(5) < 2 {
            axes.push(axis_of(g, a, rank));
        }
    }
    if axes.is_empty() {
        axes.push(g.draw.below(rank) as i64);
    }
    if g.coin() {
        axes.reverse();
    }
    let axes = g.list(&axes);
    Some(call.and(Some(axes)))
}

fn along(g: &mut Graph<'_>) -> Option<Call> {
    let x = g.any(FLOAT, 1, 4);
    let rank = g.values[x].shape.len();
    let axis = g.draw.below(rank);
    let axis = if g.coin() { rank - 1 } else { axis };
    let axis = axis_of(g, axis, rank);
    Some(Call::of(&[x]).with(int("axis", axis)))
}

fn largest(g: &mut Graph<'_>) -> Option<Call> {
    let x = g.any(&[F32, F32, F64, I32, I8, U8], 1, 4);
    let shape = g.shape_of(x);
    let axis = g.draw.below(shape.len());
    if shape[axis] == 0 {
        return None;
    }
    let axis = axis_of(g, axis, shape.len());
    let (keeps, last) = (g.within(0, 1), g.within(0, 1));
    let call = Call::of(&[x]).with(int("axis", axis)).with(int("keepdims", keeps));
    Some(call.with(int("select_last_index", last)))
}

fn cumulated(g: &mut Graph<'_>, of: &[DType]) -> Option<Call> {
    let x = g.any(of, 1, 4);
    let rank = g.values[x].shape.len();
    let axis = g.draw.below(rank);
    let axis = axis_of(g, axis, rank);
    let a = g.ints(&[], &[axis]);
    let (exclusive, reverse) = (g.within(0, 1), g.within(0, 1));
    Some(Call::of(&[x, a]).with(int("exclusive", exclusive)).with(int("reverse", reverse)))
}
