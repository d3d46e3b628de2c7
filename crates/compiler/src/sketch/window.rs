//! A first layer by pairs (`pairs.rs`), rearranged for AMX: in the copies of both factors the
//! channels move to the last axis. Input and output are workloads; `sketch/mod.rs` derives AMX
//! sketches for the result, whose names end in `,last`.
//!
//! An AMX tile reads contiguous rows of the left factor. With channels first such a row holds one
//! row of the window of one channel, which is four pairs for a filter of width seven. With channels
//! last the row holds all three channels, twelve pairs, and a third of the instructions give the
//! same sums.

use super::factors::readers;
use squall_core::Workload;
use squall_core::expr::{Affine, Binary, Expr, Source, Var};
use squall_core::workload::Stage;

/// The workload by pairs with the channels last in the copies of both factors; `None` where the
/// pairs lie along the channels, or where a factor is not a copy.
pub(super) fn channels_last(paired: &Workload) -> Option<Workload> {
    let mut made = paired.clone();
    let main = made.stages.iter().position(|s| s.reduction.is_some())?;
    let stage = &made.stages[main];
    let Expr::Binary(Binary::DotPair, data, weight) = &stage.body else { return None };
    let (x, y) = (copied(&made, data)?, copied(&made, weight)?);
    let first = stage.axes.len() as u32;
    let last = x.1.last()?;
    let pairs = |v: &Var| last.coefficient(*v) == 1;
    let reduced = || (first..first + stage.reduce_axes().len() as u32).map(Var);
    // The window runs through the last axis of the data's copy, and the channels through another.
    reduced().find(pairs)?;
    let channels = reduced().find(|v| !pairs(v) && alone(x.1, *v) && alone(y.1, *v))?;
    let at = |index: &[Affine]| index.iter().position(|i| i.uses(channels));
    let moved = [(x.0, at(x.1)?), (y.0, at(y.1)?)];
    let (from, to) = (channels.0 - first, stage.reduce_axes().len() as u32 - 1);
    for (copy, dim) in moved {
        move_last(&mut made.stages[copy], dim);
    }
    let sources = moved.map(|(copy, dim)| (made.stage_source(copy), dim));
    let stage = &mut made.stages[main];
    let reduction = stage.reduction.as_mut()?;
    let axis = reduction.axes.remove(from as usize);
    reduction.axes.push(axis);
    let renamed = |v: Var| match v.0.checked_sub(first) {
        Some(i) => Affine::var(Var(first + after_move(i, from, to))),
        None => Affine::var(v),
    };
    let body = stage.body.map_vars(renamed);
    stage.body = body.rewrite(&mut |a| a.clone(), &mut |e| with_last(e, &sources));
    made.check().ok().map(|()| made)
}

/// The position of the stage that a factor is read from, and the index of the read; `None` where
/// the source is not an elementwise stage that only this factor reads.
fn copied<'a>(w: &Workload, factor: &'a Expr) -> Option<(usize, &'a [Affine])> {
    let Expr::Load { source, index } = factor else { return None };
    let at = (source.0 as usize).checked_sub(w.inputs.len())?;
    (readers(w, *source) == 1 && w.stages[at].reduction.is_none()).then_some((at, index))
}

/// Whether a variable alone is one dimension of an index, not the last one, and is part of no other
/// dimension.
fn alone(index: &[Affine], v: Var) -> bool {
    let mut used = index.iter().enumerate().filter(|(_, i)| i.uses(v));
    let first = used.next();
    first.is_some_and(|(d, i)| i.as_var() == Some(v) && d + 1 < index.len())
        && used.next().is_none()
}

/// The new position of element `i` of a list whose element at `from` was moved to `to`, the end.
fn after_move(i: u32, from: u32, to: u32) -> u32 {
    match i {
        _ if i == from => to,
        _ if i > from => i - 1,
        _ => i,
    }
}

/// Moves an axis of a stage's result to the end.
fn move_last(s: &mut Stage, dim: usize) {
    let axis = s.axes.remove(dim);
    s.axes.push(axis);
    let to = s.axes.len() as u32 - 1;
    s.body = s.body.map_vars(|v| Affine::var(Var(after_move(v.0, dim as u32, to))));
}

/// A load of a stage, one axis of which was moved to the end.
fn with_last(e: Expr, moved: &[(Source, usize)]) -> Expr {
    match e {
        Expr::Load { source, mut index } => {
            if let Some((_, dim)) = moved.iter().find(|(s, _)| *s == source) {
                let last = index.remove(*dim);
                index.push(last);
            }
            Expr::Load { source, index }
        }
        e => e,
    }
}
