//! Embedding the statements of one nest into another, whose buffers and variables have other
//! numbers. Input: statements, a [`Remap`] that gives each buffer's number (and possibly another
//! index) in the target nest, and the target's variables; output: the renumbered statements.
//! `sketch/back_to_back.rs` puts two operators' nests into one kernel by it.

use super::{Stmt, rewrite, visit_mut};
use squall_core::expr::{Affine, Expr, Source, Var};

/// A map from the buffers of a nest to those of another.
pub trait Remap {
    /// The number of the buffer in the other nest.
    fn buffer(&self, b: Source) -> Source;

    /// The index of an element in the other nest.
    fn index(&self, _b: Source, index: Vec<Affine>) -> Vec<Affine> {
        index
    }

    /// The offset in the other nest of an element that is prefetched, counted from the start of the
    /// buffer.
    fn asked(&self, _b: Source, at: Affine) -> Affine {
        at
    }
}

/// Buffers are renumbered by a list, and elements keep their indices.
impl Remap for [Source] {
    fn buffer(&self, b: Source) -> Source {
        self[b.0 as usize]
    }
}

/// The statements of a CPU's nest with the buffers that `to` gives, and with `vars[v]` for each
/// variable `v`.
pub fn remapped<R: Remap + ?Sized>(stmts: &[Stmt], to: &R, vars: &[Var]) -> Vec<Stmt> {
    let var = |v: Var| vars[v.0 as usize];
    let mut stmts = stmts.to_vec();
    rewrite(&mut stmts, &mut |a| a.map_vars(|v| Affine::var(var(v))), &mut |e| match e {
        Expr::Load { source: b, index } => {
            Expr::Load { source: to.buffer(b), index: to.index(b, index) }
        }
        e => e,
    });
    visit_mut(&mut stmts, &mut |s| match s {
        Stmt::Loop(l) => {
            l.var = var(l.var);
            if let Some(start) = &mut l.start {
                start.var = var(start.var);
            }
        }
        Stmt::Let { var: v, .. } => *v = var(*v),
        Stmt::Store { buffer, index, .. } | Stmt::Update { buffer, index, .. } => {
            *index = to.index(*buffer, std::mem::take(index));
            *buffer = to.buffer(*buffer);
        }
        Stmt::Prefetch { buffer, at } => {
            *at = to.asked(*buffer, at.clone());
            *buffer = to.buffer(*buffer);
        }
        Stmt::Local(b) => *b = to.buffer(*b),
        _ => {}
    });
    stmts
}
