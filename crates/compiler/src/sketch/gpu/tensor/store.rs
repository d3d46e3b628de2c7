//! The end of the kernels on tensor cores: groups of warps and blocks of a cluster add up their
//! partial sums, and the epilogue (the workload's elementwise stages) stores the output. Sums go
//! through shared memory, so that whole lines are written; where the epilogue is a plain 16-bit
//! store, a warp stores its fragments directly. Input: the fragment of sums; output: statements for
//! `program.rs` here and in `warpgroup`.

use super::super::loops::{around, count};
use super::super::problem::output_index;
use super::roles::SIDE;
use super::shared::most_in_a_bank;
use super::tile::{Tiling, sum_of};
use crate::nest::{Mode, Reach, Scope, Stmt, Warp};
use squall_core::DType;
use squall_core::expr::{Affine, Binary, Expr, Source, Var};

/// Statements in a loop over the lanes of a vector, if it has several.
fn vector(v: Var, width: i64, body: Vec<Stmt>) -> Vec<Stmt> {
    if width > 1 { vec![count(v, width, Mode::Vector, body)] } else { body }
}

/// The sum of some values.
fn sum(parts: impl Iterator<Item = Expr>) -> Expr {
    parts.reduce(|a, b| Expr::binary(Binary::Add, a, b)).unwrap_or(Expr::Const(0.0))
}

impl Tiling<'_> {
    /// The axes of rows and columns where a warp can store its sums directly, in 16 bits: then no
    /// warp waits for others, nor for shared memory to be free. Rows of 32-bit floats go through
    /// shared memory, a line at a time.
    pub fn direct(&self) -> Option<[usize; 2]> {
        let p = self.p;
        let one = |k: usize| match self.factors[k].axes[..] {
            [axis] if self.warps[k] * self.sides[k] * SIDE == self.size[axis] => Some(axis),
            _ => None,
        };
        let axes = [one(0)?, one(1)?];
        let plain = matches!(p.y_value, Expr::Load { source, .. } if source == p.acc)
            && self.n.buffer(p.output).dtype.is_half();
        let alone = self.groups * self.cluster * self.run[0] * self.run[1] == 1;
        let others =
            self.size.iter().enumerate().filter(|(a, _)| !axes.contains(a)).all(|(_, &s)| s == 1);
        (plain && alone && others).then_some(axes)
    }

    /// Stores the sums, directly or through shared memory.
    pub fn put(&mut self, sums: Source, gathered: Option<Source>, body: &mut Vec<Stmt>) {
        let direct = self.direct();
        let to = match direct {
            Some(_) => self.p.output,
            None => self
                .partial([0, 1].map(|k| self.warps[k] * self.sides[k] * SIDE * self.run[k]), body),
        };
        for place in 0..self.run[0] * self.run[1] {
            let at = self.each("p");
            let [r, c] = ["row", "column"].map(|x| self.n.new_var(x));
            let position = |k: usize, v: Var| {
                let count =
                    Affine::new([(self.warp[k], SIDE * self.sides[k]), (at[k], SIDE), (v, 1)], 0);
                count.scale(self.run[k]).plus(place % self.run[k])
            };
            let index = match direct {
                None => vec![Affine::var(self.group), position(0, r), position(1, c)],
                Some([rows, columns]) => {
                    let mut of = vec![Affine::constant(0); self.p.axes.len()];
                    (of[rows], of[columns]) = (position(0, r), position(1, c));
                    output_index(self.p, &self.start, &of)
                }
            };
            let put = Warp::Store { from: sum_of(sums, place, &at), row: r, column: c, to, index };
            body.extend(self.over(&at, vec![Stmt::Warp(put)]));
        }
        match direct {
            Some(_) => body.push(Stmt::Barrier(Reach::Block)),
            None => self.finish(to, gathered, body),
        }
    }

    /// Declares where the sums of all groups meet, in rows and columns.
    pub fn partial(&mut self, [rows, columns]: [i64; 2], body: &mut Vec<Stmt>) -> Source {
        let shape = vec![self.groups, rows, columns + self.free(columns)];
        let partial = self.buffer("partial", shape, Scope::Shared, DType::F32);
        body.push(Stmt::Local(partial));
        partial
    }

    /// The padding behind a row of sums for which the lanes of a warp that store parts of eight
    /// rows meet least in banks. Two neighbours are stored at once where they lie side by side.
    fn free(&self, columns: i64) -> i64 {
        let [down, across] = self.run;
        let (rows, each) = if across == 1 { (4, 2) } else { (8, 1) };
        let meet = |free: i64| {
            let pitch = down * (columns + free);
            let row = |r: i64| {
                (0..4).flat_map(move |pair| {
                    (0..each).map(move |next| pitch * r + across * 2 * pair + next)
                })
            };
            most_in_a_bank((0..rows).flat_map(row))
        };
        (0..8).map(|i| 4 * i).min_by_key(|&free| (meet(free), free)).unwrap_or(0)
    }

    /// The axis that the blocks of a cluster share out, which of the factors has it, and what each
    /// block has of every axis.
    fn slices(&self) -> (usize, usize, Vec<i64>) {
        let mut cuts = self
            .factors
            .iter()
            .enumerate()
            .flat_map(|(k, f)| f.cuts().map(move |(before, a)| (k, before, a)));
        let fits = |&(_, before, a): &(usize, &[usize], usize)| {
            self.size[a] % self.cluster == 0 && before.iter().all(|&b| self.size[b] == 1)
        };
        let (k, cut) = cuts.find(fits).map_or((0, 0), |(k, _, a)| (k, a));
        let slice = |(a, &size): (usize, &i64)| if a == cut { size / self.cluster } else { size };
        (k, cut, self.size.iter().enumerate().map(slice).collect())
    }

    /// Rows and columns of the slice of a tile that a block finishes, and how many columns lie side
    /// by side for all slices.
    fn slice(&self) -> ([i64; 2], i64) {
        let (k, _, slices) = self.slices();
        let [rows, columns] =
            [0, 1].map(|f| self.factors[f].axes.iter().map(|&a| slices[a]).product::<i64>());
        // Rows are filled up to whole vectors, where each slice has its columns from the first on.
        let width = [4, 2].into_iter().find(|w| k == 0 || columns % w == 0).unwrap_or(1);
        ([rows, (columns + width - 1) / width * width], width)
    }

    /// Declares where each block of a cluster finds the sums that others made of its slice of the
    /// tile.
    pub fn gather(&mut self, body: &mut Vec<Stmt>) -> Source {
        let shape = [self.cluster; 2].into_iter().chain(self.slice().0).collect();
        let gathered = self.buffer("gathered", shape, Scope::Cluster, DType::F32);
        body.push(Stmt::Local(gathered));
        gathered
    }

    /// The sum over all groups of an element, by its row and column.
    fn of_groups(&self, partial: Source, [row, column]: &[Affine; 2]) -> Expr {
        sum((0..self.groups)
            .map(|g| Expr::load(partial, vec![Affine::constant(g), row.clone(), column.clone()])))
    }

    /// Sends the sums of each slice of the tile to the block of the cluster that finishes the
    /// slice. Since blocks send and do not ask, no block waits for an answer, and none is read
    /// after it is done.
    fn bring(&mut self, partial: Source, gathered: Source) -> Vec<Stmt> {
        let (which, ..) = self.slices();
        // Rows and columns as they lie: the block that only brings sums need not know what the
        // output's axes are.
        let ([rows, columns], width) = self.slice();
        let [owner, row, column, lane] = ["owner", "row", "column", "v"].map(|x| self.n.new_var(x));
        let lanes = (width > 1).then_some((lane, 1));
        let place = [Affine::var(row), Affine::new([(column, width)].into_iter().chain(lanes), 0)];
        let mut there = place.clone();
        there[which] = there[which].add(&Affine::new([(owner, [rows, columns][which])], 0));
        let index = [owner, self.rank].map(Affine::var).into_iter().chain(place).collect();
        let value = self.of_groups(partial, &there);
        let bring = vec![Stmt::Store { buffer: gathered, index, value }];
        let loops = [(owner, self.cluster), (row, rows), (column, columns / width)];
        around(&loops, Mode::Share, vector(lane, width, bring))
    }

    /// Adds up the groups' partial sums of the tile and stores the result. Each block of a cluster
    /// finishes one slice, for which the other blocks send it their sums.
    pub fn finish(&mut self, partial: Source, gathered: Option<Source>, body: &mut Vec<Stmt>) {
        let mut from = None;
        if self.cluster == 1 {
            body.push(Stmt::Barrier(Reach::Block));
        } else {
            // The memory that receives other blocks' sums may still be in use.
            let reach = if gathered.is_some() { Reach::Block } else { Reach::Cluster };
            body.push(Stmt::Barrier(reach));
            let gathered = gathered.unwrap_or_else(|| self.gather(body));
            body.extend(self.bring(partial, gathered));
            body.push(Stmt::Barrier(Reach::Cluster));
            from = Some(gathered);
        }
        let last = self.p.axes.len() - 1;
        let (_, cut, slices) = self.slices();
        let half = self.n.buffer(self.p.output).dtype.is_half();
        let widths: &[i64] = if half { &[8, 4, 2] } else { &[4, 2] };
        let width = widths.iter().copied().find(|w| slices[last] % w == 0).unwrap_or(1);
        // Elements of the slice, by axis, and where they lie in the tile.
        let lane = self.n.new_var("v");
        let (mut loops, mut at) = (Vec::new(), Vec::new());
        for (a, axis) in self.p.axes.iter().enumerate() {
            let e = self.n.new_var(&format!("{}e", axis.short));
            let each = if a == last { width } else { 1 };
            loops.push((e, slices[a] / each));
            let lane = (a == last && width > 1).then_some((lane, 1));
            at.push(Affine::new([(e, each)].into_iter().chain(lane), 0));
        }
        let first = |a: usize| match a == cut && self.cluster > 1 {
            true => Affine::new([(self.rank, slices[a])], 0),
            false => Affine::constant(0),
        };
        let place: Vec<Affine> = at.iter().enumerate().map(|(a, at)| at.add(&first(a))).collect();
        // The cut axis stands first in its factor, so that a slice has its rows or columns side by
        // side.
        let counted = [0, 1].map(|k| Tiling::place(self, &self.factors[k], &at));
        let total = match from {
            None => self.of_groups(partial, &counted),
            Some(gathered) => sum((0..self.cluster).map(|r| {
                let lead = [Affine::var(self.rank), Affine::constant(r)];
                Expr::load(gathered, lead.into_iter().chain(counted.iter().cloned()).collect())
            })),
        };
        let each = self.epilogue_of(&place, total, lane, width);
        body.extend(around(&loops, Mode::Share, each));
        body.push(Stmt::Barrier(Reach::Block));
    }

    /// The epilogue at vectors of elements. A sum of several parts that it uses more than once is
    /// kept.
    fn epilogue_of(&mut self, place: &[Affine], total: Expr, lane: Var, width: i64) -> Vec<Stmt> {
        let uses = self.p.y_value.loads().iter().filter(|l| l.0 == self.p.acc).count();
        if self.groups * self.cluster == 1 || uses == 1 {
            let y = self.result(place, &total);
            return vector(lane, width, vec![y]);
        }
        let own = |v: Var| if width > 1 { Affine::var(v) } else { Affine::constant(0) };
        let kept = self.buffer("sum", vec![width], Scope::Local, DType::F32);
        let mut each = vec![Stmt::Local(kept)];
        let keep = Stmt::Store { buffer: kept, index: vec![own(lane)], value: total };
        each.extend(vector(lane, width, vec![keep]));
        // Each variable may be bound only once.
        let other = self.n.new_var("v");
        let place: Vec<Affine> =
            place.iter().map(|a| a.substitute(lane, &Affine::var(other))).collect();
        let y = self.result(&place, &Expr::load(kept, vec![own(other)]));
        each.extend(vector(other, width, vec![y]));
        each
    }
}
