//! The reference interpreter: it runs a loop nest on given inputs in double precision and rounds
//! each store to its buffer's format. It is slow and plain, because its results define the meaning
//! of a nest; tests compare schedules and printed code with them.
//!
//! This file has serial loops and loops that CPU threads share (`shares.rs`, which finds races);
//! GPU programs are run by `simt.rs`.

use super::shares::{Shares, in_shares, shared_chain};
use super::simt;
use super::state::{State, bind, flat};
use super::{Loop, Mode, Nest, Scope, Stmt};

/// The output for `data` and `weights` in the nest's order. Memory starts as NaN, and a local
/// buffer turns NaN at each declaration, so reading what was never written shows.
///
/// # Panics
/// If an input has not its buffer's size, or a program's threads race; nests are to be
/// verified first.
pub fn interpret(nest: &Nest, data: &[Vec<f64>], weights: &[Vec<f64>]) -> Vec<f64> {
    try_interpret(nest, data, weights).unwrap_or_else(|race| panic!("{race}"))
}

/// As [`interpret`], but gives an error where threads of a GPU program access one element of shared
/// memory without a barrier in between, and where iterations that threads of a CPU share touch one
/// element that either writes.
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
    let vars = vec![0; nest.vars.len()];
    let mut s = State { nest, vars, memory, shares: Shares::default() };
    s.block(&nest.prepare)?;
    s.block(&nest.body)?;
    let out = nest.buffers.iter().position(|b| b.scope == Scope::Output);
    Ok(out.map(|i| s.memory.swap_remove(i)).unwrap_or_default())
}

impl State<'_> {
    /// A loop whose iterations threads share.
    fn shared(&mut self, top: &Loop) -> Result<(), String> {
        let chain = shared_chain(top);
        self.shares.begin(chain.iter().map(|l| l.shares()).product());
        for (share, at) in in_shares(&chain) {
            self.shares.run(Some(share));
            chain.iter().zip(at).for_each(|(l, i)| bind(&mut self.vars, l, i));
            self.block(&chain[chain.len() - 1].body)?;
            self.shares.check(&self.nest.buffers)?;
        }
        self.shares.run(None);
        Ok(())
    }

    fn block(&mut self, stmts: &[Stmt]) -> Result<(), String> {
        for s in stmts {
            match s {
                Stmt::Loop(l) if matches!(l.mode, Mode::Cluster | Mode::Thread) => {
                    simt::run(self, s)?
                }
                Stmt::Loop(l) if l.mode == Mode::Parallel && !self.shares.is_running() => {
                    self.shared(l)?
                }
                Stmt::Loop(l) => {
                    for i in 0..l.extent {
                        bind(&mut self.vars, l, i);
                        self.block(&l.body)?;
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
                Stmt::Local(b) => {
                    self.memory[b.0 as usize].fill(f64::NAN);
                    self.shares.declared(*b);
                }
                Stmt::Store { buffer, index, value } => {
                    let x = self.eval(value);
                    let b = self.nest.buffer(*buffer);
                    let at = flat(index, &b.shape, &self.vars);
                    self.shares.touch(*buffer, at, true);
                    self.memory[buffer.0 as usize][at] = b.dtype.round(x);
                }
                Stmt::Update { op, buffer, index, value } => {
                    let x = self.eval(value);
                    let b = self.nest.buffer(*buffer);
                    let at = flat(index, &b.shape, &self.vars);
                    self.shares.touch(*buffer, at, true);
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
