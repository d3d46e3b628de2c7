//! The interpreter's part for products that groups of warps begin and await. Sums are added up at
//! once; what was read stays in use until the product is awaited, and so do the sums.

use super::simt::{Mark, Team};
use super::warp::{Matrix, Part, lies_across};
use squall_core::expr::Source;

/// A product that was begun.
pub(super) struct Begun {
    /// The fragment of its sums.
    to: Source,
    /// Elements that it reads, by buffer.
    reads: [(Source, Vec<usize>); 2],
}

impl Team<'_, '_> {
    /// Refuses a fragment whose sums are on their way.
    pub(super) fn settled(&self, b: Source, t: usize) -> Result<(), String> {
        match self.begun.get(&(t / 32)).is_some_and(|list| list.iter().any(|p| p.to == b)) {
            false => Ok(()),
            true => Err(format!(
                "`{}` is used before its products are awaited",
                self.s.nest.buffer(b).name
            )),
        }
    }

    /// The part of a warp, whose first thread is `t`.
    pub(super) fn group(
        &mut self,
        to: Source,
        rows: &Part,
        columns: &Part,
        a: &Matrix,
        b: &Matrix,
        t: usize,
    ) -> Result<(), String> {
        let quarter = (t % self.block / 32 % 4) as i64;
        let shape = self.s.nest.buffer(to).shape.clone();
        let (matrices, n) = (shape[0], shape[2]);
        let mut reads = [(a.buffer, Vec::new()), (b.buffer, Vec::new())];
        let line = |me: &mut Self,
                    m: &Matrix,
                    row: i64,
                    noted: Option<&mut Vec<usize>>|
         -> Result<Vec<f64>, String> {
            let shape = &me.s.nest.buffer(m.buffer).shape;
            let lead = super::state::flat(&m.at, shape, &me.vars[t]) as i64 * shape[m.at.len()];
            let depth = shape[m.at.len() + 1];
            let across = lies_across(me.s.nest, m);
            let place = move |k: i64| match across {
                true => (((lead + row / 64) * depth + k) * 64 + row % 64) as usize,
                false => ((lead + row) * depth + k) as usize,
            };
            let mut values = Vec::new();
            me.take(m.buffer, (0..depth).map(place), t, &mut values)?;
            noted.into_iter().for_each(|list| list.extend((0..depth).map(place)));
            Ok(values)
        };
        let value = |me: &Self, p: &Part| p.first.eval(|v| me.vars[t][v.0 as usize]);
        let (first_row, first_column) = (value(self, rows), value(self, columns));
        let mut second = Vec::new();
        for j in 0..n {
            // Each of the four warps notes a quarter of what all of them read.
            let there = first_column + j < columns.all;
            second.push(if there {
                Some(line(
                    self,
                    b,
                    first_column + j,
                    (j % 4 == quarter).then_some(&mut reads[1].1),
                )?)
            } else {
                None
            });
        }
        for i in 0..matrices {
            for m in 0..16 {
                let row = first_row + 64 * i + 16 * quarter + m;
                let first = if row < rows.all {
                    Some(line(self, a, row, Some(&mut reads[0].1))?)
                } else {
                    None
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
        self.begun.entry(t / 32).or_default().push_back(Begun { to, reads });
        Ok(())
    }

    /// All products but the last so many are done. From now on a barrier lets others write what
    /// they read.
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
