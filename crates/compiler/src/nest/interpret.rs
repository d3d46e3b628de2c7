//! The reference interpreter runs a nest in double precision and rounds each store to its buffer's
//! format. It is slow and plain, because its results define what a nest means.

use super::simt;
use super::state::{State, flat};
use super::{Loop, Mode, Nest, Scope, Stmt};

/// The output for `data` and `weights` in the nest's order. Memory starts as NaN, and a local
/// buffer turns NaN at each declaration, so reading what was never written shows.
///
/// # Panics
/// If an input has not its buffer's size, or a GPU program's threads race; nests are to be
/// verified first.
pub fn interpret(nest: &Nest, data: &[Vec<f64>], weights: &[Vec<f64>]) -> Vec<f64> {
    try_interpret(nest, data, weights).unwrap_or_else(|race| panic!("{race}"))
}

/// As [`interpret`], but gives an error where threads of a GPU program access one element of shared
/// memory without a barrier in between.
pub fn try_interpret(
    nest: &Nest,
    data: &[Vec<f64>],
    weights: &[Vec<f64>],
) -> Result<Vec<f64>, String> {
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
    s.block(&nest.prepare)?;
    s.block(&nest.body)?;
    let out = nest.buffers.iter().position(|b| b.scope == Scope::Output);
    Ok(out.map(|i| s.memory.swap_remove(i)).unwrap_or_default())
}

impl State<'_> {
    fn block(&mut self, stmts: &[Stmt]) -> Result<(), String> {
        for s in stmts {
            match s {
                Stmt::Loop(l) if matches!(l.mode, Mode::Cluster | Mode::Thread) => {
                    simt::run(self, s)?
                }
                Stmt::Loop(Loop { var, extent, start, body, .. }) => {
                    for i in 0..*extent {
                        self.vars[var.0 as usize] = i;
                        if let Some(s) = start {
                            self.vars[s.var.0 as usize] = (s.step * i).min(s.cap);
                        }
                        self.block(body)?;
                    }
                }
                Stmt::Barrier(_)
                | Stmt::Warp(_)
                | Stmt::CommitCopies
                | Stmt::AwaitCopies(_)
                | Stmt::AwaitProducts(_) => {
                    return Err("what threads do together stands outside of thread loops".into());
                }
                Stmt::Prefetch { .. } | Stmt::Version => {}
                Stmt::Let { var, value, divisor, modulo } => {
                    self.vars[var.0 as usize] =
                        (value.eval(|v| self.vars[v.0 as usize]) / divisor).rem_euclid(*modulo);
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
                        self.block(body)?;
                    }
                }
            }
        }
        Ok(())
    }
}
