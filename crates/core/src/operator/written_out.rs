//! The value of a stage as an expression of what it is made of, with the stages between written
//! out.

use crate::expr::{Affine, Expr, Source};
use crate::workload::Workload;

/// Workloads of more stages than these are of no form that is looked for.
pub const MOST_STAGES: usize = 32;
/// Expressions in which so many loads are written out are too large.
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

/// An expression of tensors with the stages that it reads written out so.
pub fn with_written_out(w: &Workload, e: &Expr, kept: &dyn Fn(Source) -> bool) -> Option<Expr> {
    inner(w, e, &mut Affine::clone, kept, &mut MOST_LOADS.clone())
}

/// The same, where so many loads may be left.
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
