//! The verifier's rules for instructions of warps and warpgroups (`nest/warp.rs`): fragments have
//! the right shapes and formats, matrices stay within their buffers, factors of a warpgroup lie in
//! swizzled rows, and all threads of a warp come to the instruction together. Called from
//! `verify.rs`.

use super::{Broken, Checker, ThreadLevel};
use crate::nest::{Matrix, Scope, TileSlice, Warp, extents, lies_across, thread_elements};
use squall_core::DType;
use squall_core::expr::{Affine, Source, Var};

/// A matrix in memory: the variables that count its rows and its column, and the index of an
/// element.
struct LanePlace<'a> {
    rows: &'a [(Var, i64)],
    column: (Var, i64),
    memory: Source,
    index: &'a [Affine],
    write: bool,
}

impl Checker<'_> {
    pub(super) fn warp(&mut self, w: &Warp) -> Result<(), Broken> {
        self.come_together(w)?;
        let list = w.matrices();
        for m in &list {
            if self.n.buffer(m.buffer).scope != Scope::Fragment {
                return self.fail(format!("`{}` is no fragment", self.n.buffer(m.buffer).name));
            }
            let zero = [Affine::constant(0), Affine::constant(0)];
            let index: Vec<Affine> = m.at.iter().chain(&zero).cloned().collect();
            self.access(m.buffer, &index, true)?;
        }
        match w {
            Warp::Zero(m) => match self.n.buffer(m.buffer).dtype {
                DType::F32 => Ok(()),
                _ => self.fail("sums alone become zero"),
            },
            Warp::WarpgroupMultiply { to, rows, columns, a, b, replaces } => {
                let matrices = self.warpgroup_sums(*to)?;
                let columns_taken = self.n.buffer(*to).shape[2];
                self.same_formats(a, b)?;
                match self.n.buffer(a.buffer).scope {
                    Scope::Fragment if *replaces => {
                        return self.fail("a product of rows in registers is added to its sums");
                    }
                    Scope::Fragment => self.warpgroup_rows_held(a, rows, matrices)?,
                    _ => self.warpgroup_factor(a, rows, 64 * matrices)?,
                }
                self.warpgroup_factor(b, columns, columns_taken)
            }
            Warp::Load { to, rest, rows, first, column, columns, from, index } => {
                if rest.as_ref().is_some_and(|r| {
                    self.n.buffer(r.buffer).dtype != DType::Tf32
                        || extents(self.n, r) != extents(self.n, to)
                }) {
                    return self
                        .fail("what rounding leaves of a matrix is as large as it, and tf32");
                }
                self.affine(first)?;
                if first.range(|v| self.bounds[&v]).0 < 0 || rows.iter().any(|r| r.1 < 1) {
                    return self.fail("rows are counted from below 0");
                }
                if !(1..=extents(self.n, to).1).contains(columns) {
                    return self.fail(format!("a matrix has no {columns} columns"));
                }
                let column = (*column, *columns);
                self.place(LanePlace { rows, column, memory: *from, index, write: false })
            }
            Warp::Store { from, row, column, to, index } => {
                let (rows, columns) = extents(self.n, from);
                let (rows, column) = (&[(*row, rows)], (*column, columns));
                self.place(LanePlace { rows, column, memory: *to, index, write: true })
            }
            Warp::Unpack { to: local, from: matrix } | Warp::Pack { to: matrix, from: local } => {
                self.exchange(matrix, local, matches!(w, Warp::Unpack { .. }))
            }
            Warp::Reduce { buffer, lanes, .. } => {
                if !matches!(lanes, 2 | 4 | 8 | 16 | 32) {
                    return self.fail(format!("{lanes} threads do not share a result"));
                }
                self.local(*buffer)
            }
            Warp::Multiply { .. } => {
                let [(m, n), (am, ak), (bn, bk)] = [0, 1, 2].map(|i| extents(self.n, list[i]));
                if (m, n, ak) != (am, bn, bk) {
                    return self.fail(format!(
                        "matrices of {am} x {ak} and {bn} x {bk} do not multiply to {m} x {n}"
                    ));
                }
                Ok(())
            }
        }
    }

    /// Refuses what threads cannot move between a matrix and their local buffers.
    fn exchange(&self, matrix: &Matrix, local: &Matrix, unpacks: bool) -> Result<(), Broken> {
        let buffer = self.n.buffer(matrix.buffer);
        let (rows, columns) = extents(self.n, matrix);
        let is_whole = match buffer.dtype {
            DType::F32 => rows == 16 && columns % 8 == 0,
            dtype => (rows, columns) == (16, 16) && dtype.is_half() && !unpacks,
        };
        if !is_whole {
            return self.fail(format!(
                "threads have no elements of `{}`: 16 rows of sums, or 16 x 16 factors of 16 bits \
                 to be made",
                buffer.name
            ));
        }
        self.thread_part(local, thread_elements(self.n, matrix), unpacks)
    }

    /// Refuses a buffer that is not a declared local one of 32-bit floats.
    fn local(&self, b: Source) -> Result<(), Broken> {
        let known = self.n.buffers.get(b.0 as usize);
        let is_local = known.is_some_and(|x| x.scope == Scope::Local && x.dtype == DType::F32);
        match is_local && self.locals.contains(&b) {
            true => Ok(()),
            false => self.fail(format!(
                "`{}` is no local buffer of floats that is declared here",
                known.map_or("?", |x| &x.name)
            )),
        }
    }

    /// Refuses a local buffer that cannot hold a thread's `each` elements of each matrix.
    fn thread_part(&self, m: &Matrix, each: i64, write: bool) -> Result<(), Broken> {
        self.local(m.buffer)?;
        let buffer = self.n.buffer(m.buffer);
        let own = &buffer.shape[m.at.len().min(buffer.shape.len())..];
        let elements = own.iter().try_fold(1i64, |n, e| n.checked_mul(*e));
        if own.len() < 3 || !own.ends_with(&[2, 2]) || elements != Some(each) {
            return self.fail(format!(
                "`{}` does not end with the dimensions of a thread's {each} elements, [{}, 2, 2]",
                buffer.name,
                each / 4
            ));
        }
        let rest = vec![Affine::constant(0); own.len()];
        let index: Vec<Affine> = m.at.iter().cloned().chain(rest).collect();
        self.access(m.buffer, &index, write)
    }

    /// Refuses an instruction that not all threads of a warp come to, or that is not the same for
    /// all of them.
    fn come_together(&self, w: &Warp) -> Result<(), Broken> {
        let Some((lane, 32)) =
            self.threads.last().copied().filter(|_| self.level == ThreadLevel::Thread)
        else {
            return self.fail(
                "what a warp does together stands where its 32 threads, the innermost thread \
                 loop, do not all come",
            );
        };
        let mut uniform = true;
        w.clone().affine_mut(&mut |a| uniform &= !a.uses(lane));
        match uniform {
            true => Ok(()),
            false => self.fail(format!(
                "what a warp does together depends on `{}`, its thread",
                self.var(lane)
            )),
        }
    }

    /// Checks every element that a matrix is loaded from or stored to.
    fn place(&mut self, p: LanePlace<'_>) -> Result<(), Broken> {
        let counted = || p.rows.iter().chain([&p.column]);
        counted().try_for_each(|(v, e)| self.bind(*v, e - 1))?;
        let buffer = self.n.buffer(p.memory);
        if !matches!(
            (buffer.scope, p.write),
            (Scope::Shared, _) | (Scope::Swizzled, false) | (Scope::Output, true)
        ) {
            return self.fail(format!("`{}` is not in shared memory", buffer.name));
        }
        let done = self.access(p.memory, p.index, p.write);
        counted().for_each(|(v, _)| _ = self.bounds.remove(v));
        done
    }

    /// Refuses a fragment that cannot hold a warpgroup's sums, or a program whose last thread loop
    /// but one does not count the warps of warpgroups; the number of its matrices.
    fn warpgroup_sums(&self, to: Source) -> Result<i64, Broken> {
        self.quarter()?;
        let sums = self.n.buffer(to);
        let &[matrices, 16, n] = &sums.shape[..] else {
            return self.fail(format!(
                "`{}` has not 16 rows of sums for each warp of a warpgroup",
                sums.name
            ));
        };
        if sums.scope != Scope::Fragment
            || sums.dtype != DType::F32
            || n % 8 != 0
            || n > 256
            || !self.locals.contains(&to)
        {
            return self.fail(format!(
                "`{}` cannot hold a warpgroup's sums: 32-bit floats, at most 256 columns, eight \
                 by eight",
                sums.name
            ));
        }
        Ok(matrices)
    }

    /// The variable that counts the four warps of a warpgroup.
    fn quarter(&self) -> Result<Var, Broken> {
        match self.threads[..] {
            [.., (quarter, 4), _] => Ok(quarter),
            _ => self
                .fail("a warpgroup is not the four warps that the last thread loop but one counts"),
        }
    }

    fn same_formats(&self, a: &Matrix, b: &Matrix) -> Result<(), Broken> {
        for m in [a, b] {
            let from = self.n.buffer(m.buffer);
            let is_held = m.buffer == a.buffer && from.scope == Scope::Fragment;
            if from.scope != Scope::Swizzled && !is_held
                || !from.dtype.is_half()
                || from.dtype != self.n.buffer(a.buffer).dtype
            {
                return self.fail(format!(
                    "`{}` is no factor of a warpgroup's product: swizzled, 16 bits as the other",
                    from.name
                ));
            }
        }
        Ok(())
    }

    /// Refuses a buffer that is not a first factor of 64 rows in the registers of a warpgroup's
    /// warps.
    fn warpgroup_rows_held(
        &self,
        m: &Matrix,
        part: &TileSlice,
        matrices: i64,
    ) -> Result<(), Broken> {
        let from = self.n.buffer(m.buffer);
        let own = &from.shape[m.at.len().min(from.shape.len())..];
        if own != [4, 16, 16]
            || matrices != 1
            || part.first != Affine::constant(0)
            || part.all != 64
        {
            return self.fail(format!(
                "`{}` is no factor of 64 rows in registers, [4, 16, 16] for each warp",
                from.name
            ));
        }
        let rest = [0, 0, 0].map(Affine::constant);
        let index: Vec<Affine> = m.at.iter().cloned().chain(rest).collect();
        self.access(m.buffer, &index, false)
    }

    /// Refuses a factor that has fewer than `taken` rows from a part's first row on.
    fn warpgroup_factor(&self, m: &Matrix, part: &TileSlice, taken: i64) -> Result<(), Broken> {
        let (quarter, from) = (self.quarter()?, self.n.buffer(m.buffer));
        let across = lies_across(self.n, m);
        let unit = if across { 64 } else { 8 };
        let whole =
            part.first.offset() % unit == 0 && part.first.terms().iter().all(|t| t.1 % unit == 0);
        if !whole || part.first.uses(quarter) || m.at.iter().any(|i| i.uses(quarter)) {
            return self.fail(format!(
                "a warpgroup's rows begin at a multiple of {unit} that is the same for its warps"
            ));
        }
        if !matches!(
            (&from.shape[m.at.len().min(from.shape.len())..], across),
            ([_, 64], false) | ([_, 64, 64], true)
        ) {
            return self.fail(format!(
                "`{}` has not two or three dimensions left, of which the last are 64",
                from.name
            ));
        }
        // Where the first and the last row, or their blocks, are in bounds, so are those between.
        for row in [part.first.clone(), part.first.plus(taken - 1)] {
            let row = if across {
                Affine::new(row.terms().iter().map(|t| (t.0, t.1 / 64)), row.offset() / 64)
            } else {
                row
            };
            let rest = vec![Affine::constant(0); if across { 2 } else { 1 }];
            let index: Vec<Affine> = m.at.iter().cloned().chain([row]).chain(rest).collect();
            self.access(m.buffer, &index, false)?;
        }
        Ok(())
    }
}
