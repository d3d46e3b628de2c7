//! The interpreter of warpgroup products (`warpgroup_multiply`, `await_products`), which run
//! asynchronously on hardware. Sums are added up at once; but the sums and the elements that a
//! product reads count as in use until the product is awaited, and touching them before is an
//! error. Called from `simt.rs`.

use super::{Mark, Team};
use crate::nest::state::flat;
use crate::nest::{Matrix, Scope, TileSlice, lies_across};
use squall_core::expr::Source;

/// A product that was started and not yet awaited.
pub(super) struct Begun {
    /// The fragment of its sums.
    to: Source,
    /// The fragment of its first factor, if that factor lies in registers.
    held: Option<Source>,
    /// Elements of shared memory that it reads, by buffer.
    reads: [(Source, Vec<usize>); 2],
}

impl Team<'_, '_> {
    /// Refuses a fragment whose sums are on their way, or that products on their way read.
    pub(super) fn settled(&self, b: Source, t: usize) -> Result<(), String> {
        let uses = |p: &Begun| p.to == b || p.held == Some(b);
        match self.begun.get(&(t / 32)).is_some_and(|list| list.iter().any(uses)) {
            false => Ok(()),
            true => Err(format!(
                "`{}` is used before its products are awaited",
                self.s.nest.buffer(b).name
            )),
        }
    }

    /// Starts the part of a product that one warp computes, whose first thread is `t`: `rows` and
    /// `columns` say which lines of the factors the warpgroup takes.
    pub(super) fn begin_product(
        &mut self,
        to: Source,
        [rows, columns]: [&TileSlice; 2],
        [a, b]: [&Matrix; 2],
        t: usize,
    ) -> Result<(), String> {
        let quarter = (t % self.block / 32 % 4) as i64;
        let shape = self.s.nest.buffer(to).shape.clone();
        let (matrices, n) = (shape[0], shape[2]);
        let mut reads = [(a.buffer, Vec::new()), (b.buffer, Vec::new())];
        let is_held = self.s.nest.buffer(a.buffer).scope == Scope::Fragment;
        let mut second = Vec::new();
        for j in 0..n {
            // All four warps read every column; each notes a quarter of them.
            let noted = (j % 4 == quarter).then_some(&mut reads[1].1);
            second.push(self.line(b, columns, j, t, noted)?);
        }
        for i in 0..matrices {
            for m in 0..16 {
                let row = 64 * i + 16 * quarter + m;
                let first = match is_held {
                    true => Some(self.held_line(a, m, t)?),
                    false => self.line(a, rows, row, t, Some(&mut reads[0].1))?,
                };
                let sums = self.locals.get_mut(&(to, t / 32));
                let sums = sums.ok_or_else(|| {
                    format!("`{}` is used undeclared", self.s.nest.buffer(to).name)
                })?;
                for (j, y) in second.iter().enumerate() {
                    let sum = &mut sums[((i * 16 + m) * n) as usize + j];
                    *sum = match (&first, y) {
                        (Some(x), Some(y)) => f64::from(
                            (*sum + x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>()) as f32,
                        ),
                        _ => f64::NAN,
                    };
                }
            }
        }
        for (b, places) in &reads {
            self.elements_mut(*b, t / self.block, places, |e| e.in_use += 1);
        }
        let held = is_held.then_some(a.buffer);
        self.begun.entry(t / 32).or_default().push_back(Begun { to, held, reads });
        Ok(())
    }

    /// The elements along the reduction of a row that a warp has in its registers.
    fn held_line(&self, m: &Matrix, row: i64, t: usize) -> Result<Vec<f64>, String> {
        let buffer = self.s.nest.buffer(m.buffer);
        let (lead, own) = buffer.shape.split_at(m.at.len());
        let first = flat(&m.at, lead, &self.vars[t]) as i64 * own.iter().product::<i64>();
        let values = self.locals.get(&(m.buffer, t / 32));
        let values = values.ok_or_else(|| format!("`{}` is used undeclared", buffer.name))?;
        let place = |k: i64| (first + (k / 16 * 16 + row) * 16 + k % 16) as usize;
        Ok((0..64).map(|k| values[place(k)]).collect())
    }

    /// The elements along the reduction of a factor's `i`-th row of a part, and `None` where the
    /// tile has no such row; `noted` collects their places.
    fn line(
        &mut self,
        m: &Matrix,
        part: &TileSlice,
        i: i64,
        t: usize,
        noted: Option<&mut Vec<usize>>,
    ) -> Result<Option<Vec<f64>>, String> {
        let row = part.first.eval(|v| self.vars[t][v.0 as usize]) + i;
        if row >= part.all {
            return Ok(None);
        }
        let shape = &self.s.nest.buffer(m.buffer).shape;
        let lead = flat(&m.at, shape, &self.vars[t]) as i64 * shape[m.at.len()];
        let depth = shape[m.at.len() + 1];
        let across = lies_across(self.s.nest, m);
        let place = move |k: i64| match across {
            true => (((lead + row / 64) * depth + k) * 64 + row % 64) as usize,
            false => ((lead + row) * depth + k) as usize,
        };
        let mut values = Vec::new();
        self.take(m.buffer, (0..depth).map(place), t, &mut values)?;
        noted.into_iter().for_each(|list| list.extend((0..depth).map(place)));
        Ok(Some(values))
    }

    /// Ends all products but the last `last`. From now on a barrier lets other threads write the
    /// elements that these products read.
    pub(super) fn await_products(&mut self, last: usize, active: &[usize]) -> Result<(), String> {
        for &t in active.iter().filter(|t| *t % 32 == 0) {
            while let Some(p) = self
                .begun
                .get_mut(&(t / 32))
                .filter(|list| list.len() > last)
                .and_then(|list| list.pop_front())
            {
                let mark = Mark { thread: t, passed: self.passed };
                for (b, places) in p.reads {
                    self.elements_mut(b, t / self.block, &places, |e| {
                        e.in_use -= 1;
                        e.read.retain(|r| r.thread != t);
                        e.read.push(mark);
                    });
                }
            }
        }
        Ok(())
    }
}
