//! The reference interpreter: runs a nest in double precision, each store rounded to its
//! buffer's format. Slow and plain; what it says is what a nest means.

use super::{Loop, Nest, Scope, Stmt};
use squall_core::expr::{Affine, Expr};

struct State<'a> {
    nest: &'a Nest,
    vars: Vec<i64>,
    memory: Vec<Vec<f64>>,
}

/// The output for `data` and `weights` in the nest's order. Memory starts as NaN, and a local
/// buffer turns NaN at each declaration, so reading what was never written shows.
///
/// # Panics
/// If an input has not its buffer's size; nests are to be verified first.
pub fn interpret(nest: &Nest, data: &[Vec<f64>], weights: &[Vec<f64>]) -> Vec<f64> {
    let memory = nest
        .buffers
        .iter()
        .map(|b| match b.scope {
            Scope::Data(i) => data[i].clone(),
            Scope::Weight(i) => weights[i].clone(),
            _ => vec![f64::NAN; b.elements() as usize],
        })
        .collect();
    let mut s = State { nest, vars: vec![0; nest.vars.len()], memory };
    s.block(&nest.prepare);
    s.block(&nest.body);
    let out = nest.buffers.iter().position(|b| b.scope == Scope::Output);
    out.map(|i| s.memory.swap_remove(i)).unwrap_or_default()
}

fn flat(index: &[Affine], shape: &[i64], vars: &[i64]) -> usize {
    index.iter().zip(shape).fold(0, |o, (a, &e)| o * e + a.eval(|v| vars[v.0 as usize])) as usize
}

impl State<'_> {
    fn block(&mut self, stmts: &[Stmt]) {
        for s in stmts {
            match s {
                Stmt::Loop(Loop { var, extent, start, body, .. }) => {
                    for i in 0..*extent {
                        self.vars[var.0 as usize] = i;
                        if let Some(s) = start {
                            self.vars[s.var.0 as usize] = (s.step * i).min(s.cap);
                        }
                        self.block(body);
                    }
                }
                Stmt::Local(b) => self.memory[b.0 as usize].fill(f64::NAN),
                Stmt::Store { buffer, index, value } => {
                    let x = self.eval(value);
                    let b = self.nest.buffer(*buffer);
                    let at = flat(index, &b.shape, &self.vars);
                    self.memory[buffer.0 as usize][at] = b.dtype.round(x);
                }
                Stmt::Update { op, buffer, index, value } => {
                    let x = self.eval(value);
                    let b = self.nest.buffer(*buffer);
                    let at = flat(index, &b.shape, &self.vars);
                    let old = self.memory[buffer.0 as usize][at];
                    self.memory[buffer.0 as usize][at] = op.binary().apply(old, x);
                }
                Stmt::If { conds, body } => {
                    if conds.iter().all(|c| c.holds(|v| self.vars[v.0 as usize])) {
                        self.block(body);
                    }
                }
            }
        }
    }

    fn eval(&self, e: &Expr) -> f64 {
        e.eval(&|v| self.vars[v.0 as usize], &mut |src, index| {
            let at = flat(index, &self.nest.buffer(src).shape, &self.vars);
            self.memory[src.0 as usize][at]
        })
    }
}
