//! Inlines stages of a workload: the value of one tensor as an expression in which the elementwise
//! stages that it reads are replaced by their own expressions (TVM's `compute_inline`). Input: a
//! workload, a tensor and an index; output: an expression over inputs and the tensors that the
//! caller keeps, or nothing where a sum would have to be inlined. `separable/find.rs` and
//! `normed.rs` recognise forms of workloads with it.

use crate::expr::{Affine, Expr, Source};
use crate::workload::Workload;

/// The most stages of a workload in which a form is looked for.
pub const MOST_STAGES: usize = 32;
/// The most loads of an expression that is written out; larger ones are given up.
const MOST_LOADS: u32 = 1024;

/// The value of a tensor at a place, with stages between written out, down to those that are
/// `kept`; none where it reads another sum, or too much.
pub fn written_out(
    w: &Workload,
    of: Source,
    at: &[Affine],
    kept: &dyn Fn(Source) -> bool,
) -> Option<Expr> {
    value(w, of, at, kept, &mut MOST_LOADS.clone())
}

/// An expression of tensors, in which the stages that it reads are written out like this.
pub fn with_written_out(w: &Workload, e: &Expr, kept: &dyn Fn(Source) -> bool) -> Option<Expr> {
    inner(w, e, &mut Affine::clone, kept, &mut MOST_LOADS.clone())
}

/// As [`written_out`], where `left` counts the loads that may still be added.
fn value(
    w: &Workload,
    of: Source,
    at: &[Affine],
    kept: &dyn Fn(Source) -> bool,
    left: &mut u32,
) -> Option<Expr> {
    *left = left.checked_sub(1)?;
    let stage = match w.stage_of(of) {
        Some(s) if !kept(of) => s,
        _ => return Some(Expr::load(of, at.to_vec())),
    };
    if stage.reduction.is_some() {
        return None;
    }
    let mut there = |a: &Affine| a.map_vars(|v| at[v.0 as usize].clone());
    inner(w, &stage.body, &mut there, kept, left)
}

/// An expression at the places that `there` says, with what it reads written out.
fn inner(
    w: &Workload,
    e: &Expr,
    there: &mut dyn FnMut(&Affine) -> Affine,
    kept: &dyn Fn(Source) -> bool,
    left: &mut u32,
) -> Option<Expr> {
    let mut is_known = true;
    let made = e.rewrite(&mut |a| there(a), &mut |e| match &e {
        Expr::Load { source, index } if is_known => value(w, *source, index, kept, left)
            .unwrap_or_else(|| {
                is_known = false;
                e.clone()
            }),
        _ => e,
    });
    is_known.then_some(made)
}
