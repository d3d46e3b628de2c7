//! The state of the interpreter (`interpret.rs`, `simt.rs`): the values of loop variables and the
//! contents of buffers, with the evaluation of expressions over them. Loops bind variables here,
//! statements read and write the buffers, and each access of a loop that threads share is noted for
//! the search for races (`shares.rs`).

use super::shares::Shares;
use super::{Loop, Nest};
use squall_core::expr::{Affine, Expr};

/// The values of variables and buffers, by number.
pub(super) struct State<'a> {
    pub nest: &'a Nest,
    pub vars: Vec<i64>,
    pub memory: Vec<Vec<f64>>,
    pub shares: Shares,
}

/// The row-major offset of an element in its buffer.
pub(super) fn flat(index: &[Affine], shape: &[i64], vars: &[i64]) -> usize {
    index.iter().zip(shape).fold(0, |o, (a, &e)| o * e + a.eval(|v| vars[v.0 as usize])) as usize
}

/// Binds a loop's counter and its tile's start.
pub(super) fn bind(vars: &mut [i64], l: &Loop, i: i64) {
    vars[l.var.0 as usize] = i;
    if let Some(s) = l.start {
        vars[s.var.0 as usize] = (s.step * i).min(s.cap);
    }
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
