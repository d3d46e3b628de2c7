//! What the interpreter's variables and buffers hold.

use super::Nest;
use super::shares::Shares;
use squall_core::expr::{Affine, Expr};

/// The values of variables and buffers, by number.
pub(super) struct State<'a> {
    pub nest: &'a Nest,
    pub vars: Vec<i64>,
    pub memory: Vec<Vec<f64>>,
    pub shares: Shares,
}

/// The place of an element in its buffer.
pub(super) fn flat(index: &[Affine], shape: &[i64], vars: &[i64]) -> usize {
    index.iter().zip(shape).fold(0, |o, (a, &e)| o * e + a.eval(|v| vars[v.0 as usize])) as usize
}

impl State<'_> {
    /// The value of an expression.
    pub(super) fn eval(&self, e: &Expr) -> f64 {
        e.eval(&|v| self.vars[v.0 as usize], &mut |src, index| {
            let at = flat(index, &self.nest.buffer(src).shape, &self.vars);
            self.shares.touch(src, at, false);
            self.memory[src.0 as usize][at]
        })
    }
}
