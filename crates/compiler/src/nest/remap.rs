//! Statements of one nest inside of another, where its buffers and variables have other numbers.

use super::{Stmt, rewrite, visit_mut};
use squall_core::expr::{Affine, Expr, Source, Var};

/// Where the buffers of a nest are in another.
pub trait Remap {
    /// The buffer there.
    fn buffer(&self, b: Source) -> Source;

    /// The index there of an element.
    fn index(&self, _b: Source, index: Vec<Affine>) -> Vec<Affine> {
        index
    }

    /// The place there of an element that is asked for ahead, counted from the start of the
    /// buffer.
    fn asked(&self, _b: Source, at: Affine) -> Affine {
        at
    }
}

/// By number, each element where it was.
impl Remap for [Source] {
    fn buffer(&self, b: Source) -> Source {
        self[b.0 as usize]
    }
}

/// The statements of a CPU's nest over the buffers that `to` says and over `vars`, one for each
/// variable of theirs.
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
