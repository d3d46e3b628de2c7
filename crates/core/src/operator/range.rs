//! Joins an operator with the dynamic quantisation of its result. The quantisation reads the result
//! twice: once for the largest element, from which the scale follows, and once to round it.
//! `range_of` and `rounded_behind` make one workload each, of the operator and the search for the
//! largest or the rounding, so that the result is never stored: the operator is computed twice
//! then, which is cheaper where each element takes few operations. `graph/src/candidate.rs` builds
//! them, `compiler/src/sketch/range.rs` makes the kernels.

use super::joined::Joined;
use crate::expr::{Affine, Expr, Source, Var};
use crate::workload::{Axis, Reducer, Reduction, Stage, Workload};
use crate::{DType, TensorKind};

/// The workload of `range(made)`: `range` reads one tensor as its first input, finds the largest
/// of all its elements, and goes on with that. Where the elements of the tensor lie does not
/// matter, but it has as many as `made` gives.
pub fn range_of(made: Workload, range: &Workload) -> Result<Workload, String> {
    let [first, after @ ..] = &range.stages[..] else { return Err("there is no range".into()) };
    if !are_plain(&made, range) || !finds_largest(&made, range, first, after) {
        return Err("it is not the largest of all elements that is found".into());
    }
    let mut joined = Joined::of(made, range);
    let table = joined.stages[joined.stages.len() - 1].clone();
    let ones = first.axes.len();
    let index: Vec<Affine> =
        (0..table.axes.len()).map(|v| Affine::var(Var((ones + v) as u32))).collect();
    let source = joined.source(joined.stages.len() - 1);
    let axes = table.axes.iter().map(|a| Axis::new(joined.axis(&a.name, first), a.extent));
    let reduction = Some(Reduction { op: Reducer::Max, axes: axes.collect() });
    let body = Expr::load(source, index);
    joined.push(&Stage { reduction, body, ..first.clone() });
    let theirs = joined.stages.len() - 1;
    for s in after {
        let body = s.body.map_sources(|x| joined.theirs(x, theirs));
        joined.push(&Stage { body, ..s.clone() });
    }
    joined.workload()
}

/// The workload of `rounded(made)`: `rounded` is elementwise, and gives the elements of its first
/// input as bytes in the order in which `made` has them.
pub fn rounded_behind(made: Workload, rounded: &Workload) -> Result<Workload, String> {
    let [stage] = &rounded.stages[..] else { return Err("rounding takes one step".into()) };
    let single = |(s, index): &(Source, &[Affine])| {
        *s == Source(0) || index.iter().all(|a| a.terms().is_empty())
    };
    let elements = |shape: &[i64]| shape.iter().product::<i64>();
    let last = made.output();
    if !are_plain(&made, rounded)
        || stage.dtype != DType::U8
        || last.dtype != DType::F32
        || last.reduction.is_some()
        || !stage.body.loads().iter().all(single)
        || elements(&stage.shape()) != elements(&last.shape())
    {
        return Err("what is rounded is not what an operator's last step gives".into());
    }
    let mut joined = Joined::of(made, rounded);
    let end = joined.stages.len() - 1;
    let value = joined.stages[end].body.clone();
    let body = stage.body.rewrite(&mut Affine::clone, &mut |e| match e {
        Expr::Load { source: Source(0), .. } => value.clone(),
        Expr::Load { source, index } => Expr::Load { source: joined.theirs(source, 0), index },
        e => e,
    });
    let to = &mut joined.stages[end];
    (to.body, to.dtype) = (body, DType::U8);
    joined.workload()
}

fn are_plain(a: &Workload, b: &Workload) -> bool {
    [a, b].iter().all(|w| w.foreign.is_none() && w.rooms.is_empty())
        && b.inputs.first().is_some_and(|i| i.kind == TensorKind::Data)
}

/// Whether the first stage of a range is the largest of all elements of its first input, which are
/// as many as `made` gives, and nothing else reads that.
fn finds_largest(made: &Workload, range: &Workload, first: &Stage, after: &[Stage]) -> bool {
    let whole = |s: &Stage| s.axes.iter().all(|a| a.extent == 1);
    let is_max = first.reduction.as_ref().is_some_and(|r| r.op == Reducer::Max);
    let reads = |s: &Stage| s.body.loads().iter().any(|l| l.0 == Source(0));
    let last = made.output();
    let count: i64 = first.reduce_axes().iter().map(|a| a.extent).product();
    is_max
        && matches!(first.body, Expr::Load { source: Source(0), .. })
        && range.stages.iter().all(whole)
        && after.iter().all(|s| s.reduction.is_none() && !reads(s))
        && count == last.shape().iter().product::<i64>()
        && range.inputs[0].shape.iter().product::<i64>() == count
        && last.dtype == DType::F32
        && made.stages.iter().any(|s| s.reduction.is_some())
}
