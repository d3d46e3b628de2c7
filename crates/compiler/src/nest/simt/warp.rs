//! The interpreter of warp instructions (`nest/warp.rs`): loads, products, stores and reductions of
//! matrices that lie across a warp's registers. Each matrix is kept once for a warp, and the warp's
//! first thread stands for all of them in the search for races of `simt.rs`.

use super::Team;
use crate::nest::state::flat;
use crate::nest::{Matrix, Warp, extents, thread_elements, thread_place};
use squall_core::expr::{Source, Var};
use squall_core::workload::Reducer;

impl Team<'_, '_> {
    /// Runs a warp instruction on the active threads, which must be whole warps.
    pub(super) fn warps(&mut self, w: &Warp, active: &[usize]) -> Result<(), String> {
        for warp in active.chunks(32) {
            if warp.len() != 32 || warp[0] % 32 != 0 || warp[31] != warp[0] + 31 {
                return Err("not all threads of a warp come to what they do together".into());
            }
            self.warp(w, warp[0])?;
        }
        Ok(())
    }

    /// The first element of a matrix in its fragment.
    fn base(&self, m: &Matrix, t: usize) -> usize {
        let (r, c) = extents(self.s.nest, m);
        let shape = &self.s.nest.buffer(m.buffer).shape;
        flat(&m.at, &shape[..shape.len() - 2], &self.vars[t]) * (r * c) as usize
    }

    fn elements(&mut self, b: Source, t: usize) -> Result<&mut Vec<f64>, String> {
        let name = self.s.nest.buffer(b).name.clone();
        self.locals.get_mut(&(b, t / 32)).ok_or_else(|| format!("`{name}` is used undeclared"))
    }

    /// A thread's elements of a matrix, in its local buffer.
    fn thread_part(&mut self, m: &Matrix, thread: usize) -> Result<&mut [f64], String> {
        let (lead, own) = self.s.nest.buffer(m.buffer).shape.split_at(m.at.len());
        let size = own.iter().product::<i64>() as usize;
        let at = flat(&m.at, lead, &self.vars[thread]) * size;
        Ok(&mut self.local(m.buffer, thread)?[at..at + size])
    }

    /// A thread's own contents of a local buffer.
    fn local(&mut self, b: Source, thread: usize) -> Result<&mut Vec<f64>, String> {
        let name = &self.s.nest.buffer(b).name;
        self.locals.get_mut(&(b, thread)).ok_or_else(|| format!("`{name}` is used undeclared"))
    }

    /// Moves each thread's elements of a warp's matrix to the thread's local buffer, or back.
    fn exchange(
        &mut self,
        matrix: &Matrix,
        local: &Matrix,
        unpacks: bool,
        t: usize,
    ) -> Result<(), String> {
        let (columns, at) = (extents(self.s.nest, matrix).1, self.base(matrix, t) as i64);
        let format = self.s.nest.buffer(matrix.buffer).dtype;
        let each = thread_elements(self.s.nest, matrix);
        for (lane, i) in (0..32).flat_map(|l| (0..each).map(move |i| (l, i))) {
            let (row, column) = thread_place(lane, i);
            let place = (at + row * columns + column) as usize;
            let thread = t + lane as usize;
            if unpacks {
                let x = self.elements(matrix.buffer, t)?[place];
                self.thread_part(local, thread)?[i as usize] = x;
            } else {
                let x = format.round(self.thread_part(local, thread)?[i as usize]);
                self.elements(matrix.buffer, t)?[place] = x;
            }
        }
        Ok(())
    }

    /// Combines the elements of a local buffer across each `lanes` threads of a warp, whose first
    /// thread is `t`.
    fn reduce(&mut self, op: Reducer, b: Source, lanes: usize, t: usize) -> Result<(), String> {
        for first in (t..t + 32).step_by(lanes) {
            let mut all = self.local(b, first)?.clone();
            for other in first + 1..first + lanes {
                let more = self.local(b, other)?.clone();
                all.iter_mut().zip(more).for_each(|(x, y)| *x = op.binary().apply(*x, y));
            }
            for thread in first..first + lanes {
                self.local(b, thread)?.copy_from_slice(&all);
            }
        }
        Ok(())
    }

    fn set(&mut self, t: usize, v: Var, x: i64) {
        self.vars[t][v.0 as usize] = x;
    }

    fn warp(&mut self, w: &Warp, t: usize) -> Result<(), String> {
        for m in w.matrices() {
            self.settled(m.buffer, t)?;
        }
        match w {
            Warp::WarpgroupMultiply { to, rows, columns, a, b, replaces } => {
                if *replaces {
                    self.elements(*to, t)?.fill(0.0);
                }
                self.begin_product(*to, [rows, columns], [a, b], t)?
            }
            Warp::Zero(m) => {
                let ((r, c), at) = (extents(self.s.nest, m), self.base(m, t));
                self.elements(m.buffer, t)?[at..at + (r * c) as usize].fill(0.0);
            }
            Warp::Load { to, rest, rows, first, column, columns, from, index } => {
                let ((r, c), at) = (extents(self.s.nest, to), self.base(to, t));
                let rest = rest.as_ref().map(|m| (m.buffer, self.base(m, t)));
                let format = self.s.nest.buffer(to.buffer).dtype;
                let total: i64 = rows.iter().map(|r| r.1).product();
                let first = first.eval(|v| self.vars[t][v.0 as usize]);
                for i in 0..r {
                    let mut count = (first + i).min(total - 1);
                    for &(v, e) in rows.iter().rev() {
                        self.set(t, v, count % e);
                        count /= e;
                    }
                    for k in 0..c {
                        self.set(t, *column, k);
                        let x = if k < *columns { self.read(*from, index, t)? } else { 0.0 };
                        let rounded = format.round(x);
                        self.elements(to.buffer, t)?[at + (i * c + k) as usize] = rounded;
                        if let Some((buffer, at)) = rest {
                            self.elements(buffer, t)?[at + (i * c + k) as usize] =
                                format.round(x - rounded);
                        }
                    }
                }
            }
            Warp::Store { from, row, column, to, index } => {
                let ((r, c), at) = (extents(self.s.nest, from), self.base(from, t));
                for i in 0..r * c {
                    self.set(t, *row, i / c);
                    self.set(t, *column, i % c);
                    let x = self.elements(from.buffer, t)?[at + i as usize];
                    let x = self.s.nest.buffer(*to).dtype.round(x);
                    self.write(*to, index, t, x)?;
                }
            }
            Warp::Unpack { to: local, from: matrix } => self.exchange(matrix, local, true, t)?,
            Warp::Pack { to: matrix, from: local } => self.exchange(matrix, local, false, t)?,
            Warp::Reduce { op, buffer, lanes } => self.reduce(*op, *buffer, *lanes as usize, t)?,
            Warp::Multiply { to, a, b } => {
                let ((m, n), k) = (extents(self.s.nest, to), extents(self.s.nest, a).1);
                let [at, a_at, b_at] = [to, a, b].map(|m| self.base(m, t));
                let (a, b) =
                    (self.elements(a.buffer, t)?.clone(), self.elements(b.buffer, t)?.clone());
                let format = self.s.nest.buffer(to.buffer).dtype;
                let sums = self.elements(to.buffer, t)?;
                for i in 0..m {
                    for j in 0..n {
                        let product = |k_: i64| {
                            a[a_at + (i * k + k_) as usize] * b[b_at + (j * k + k_) as usize]
                        };
                        let sum = &mut sums[at + (i * n + j) as usize];
                        *sum = format.round(*sum + (0..k).map(product).sum::<f64>());
                    }
                }
            }
        }
        Ok(())
    }
}
