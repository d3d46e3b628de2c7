//! How tiles of sums end: groups of warps and blocks of a cluster add up what they have, and the
//! epilogue stores it.

use super::tensor::SIDE;
use super::tensor_shared::most_in_a_bank;
use super::tensor_tile::{Tiling, sum_of};
use super::{around, count};
use crate::nest::{Mode, Reach, Scope, Stmt, Warp};
use squall_core::DType;
use squall_core::expr::{Affine, Binary, Expr, Source, Var};

impl Tiling<'_> {
    /// The axes of rows and columns where a warp can store what it has as it is, in 16 bits: nobody
    /// has to wait for others then, nor shared memory to be free. Rows of 32-bit floats go through
    /// shared memory, a line at a time.
    pub(super) fn direct(&self) -> Option<[usize; 2]> {
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

    /// Sums go to shared memory, and on from there; or straight on.
    pub(super) fn put(&mut self, sums: Source, gathered: Option<Source>, body: &mut Vec<Stmt>) {
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
                    super::output_index(self.p, &self.start, &of)
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
    pub(super) fn partial(&mut self, [rows, columns]: [i64; 2], body: &mut Vec<Stmt>) -> Source {
        let shape = vec![self.groups, rows, columns + self.free(columns)];
        let partial = self.buffer("partial", shape, Scope::Shared, DType::F32);
        body.push(Stmt::Local(partial));
        partial
    }

    /// What to leave free behind a row of sums, so that the lanes of a warp that store some of
    /// eight rows meet least in banks. Two neighbours are stored at once where they lie side by
    /// side.
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
    pub(super) fn gather(&mut self, body: &mut Vec<Stmt>) -> Source {
        let shape = [self.cluster; 2].into_iter().chain(self.slice().0).collect();
        let gathered = self.buffer("gathered", shape, Scope::Cluster, DType::F32);
        body.push(Stmt::Local(gathered));
        gathered
    }

    /// Adds up what groups have of the tile and stores it. Each block of a cluster finishes a
    /// slice, of which the others bring it their sums: nobody waits for what he asks for, and
    /// nobody is asked when he is done.
    pub(super) fn finish(
        &mut self,
        partial: Source,
        gathered: Option<Source>,
        body: &mut Vec<Stmt>,
    ) {
        let p = self.p;
        let alone = self.cluster == 1;
        let last = p.axes.len() - 1;
        let (which, cut, slices) = self.slices();
        let widths: &[i64] =
            if self.n.buffer(p.output).dtype.is_half() { &[8, 4, 2] } else { &[4, 2] };
        let width = widths.iter().copied().find(|w| slices[last] % w == 0).unwrap_or(1);
        let vector = |v: Var, width: i64, body: Vec<Stmt>| {
            if width > 1 { vec![count(v, width, Mode::Vector, body)] } else { body }
        };
        let sum = |parts: Vec<Expr>| {
            parts
                .into_iter()
                .reduce(|a, b| Expr::binary(Binary::Add, a, b))
                .unwrap_or(Expr::Const(0.0))
        };
        let of_groups = |me: &Self, [row, column]: [Affine; 2]| {
            sum((0..me.groups)
                .map(|g| {
                    Expr::load(partial, vec![Affine::constant(g), row.clone(), column.clone()])
                })
                .collect())
        };
        let mut from = None;
        if alone {
            body.push(Stmt::Barrier(Reach::Block));
        } else {
            // Where others' sums lie may still be in use there.
            body.push(Stmt::Barrier(if gathered.is_some() {
                Reach::Block
            } else {
                Reach::Cluster
            }));
            let gathered = gathered.unwrap_or_else(|| self.gather(body));
            // Rows and columns as they lie: what the output's axes are does not matter to who only
            // brings.
            let ([rows, columns], width) = self.slice();
            let [owner, row, column, lane] =
                ["owner", "row", "column", "v"].map(|x| self.n.new_var(x));
            let lanes = (width > 1).then_some((lane, 1));
            let place =
                [Affine::var(row), Affine::new([(column, width)].into_iter().chain(lanes), 0)];
            let mut there = place.clone();
            there[which] = there[which].add(&Affine::new([(owner, [rows, columns][which])], 0));
            let index = [owner, self.rank].map(Affine::var).into_iter().chain(place).collect();
            let bring =
                vec![Stmt::Store { buffer: gathered, index, value: of_groups(self, there) }];
            let loops = [(owner, self.cluster), (row, rows), (column, columns / width)];
            body.extend(around(&loops, Mode::Share, vector(lane, width, bring)));
            body.push(Stmt::Barrier(Reach::Cluster));
            from = Some(gathered);
        }
        // Elements of the slice, by axis, and where they lie in the tile.
        let lane = self.n.new_var("v");
        let (mut loops, mut at) = (Vec::new(), Vec::new());
        for (a, axis) in p.axes.iter().enumerate() {
            let e = self.n.new_var(&format!("{}e", axis.short));
            let each = if a == last { width } else { 1 };
            loops.push((e, slices[a] / each));
            let lane = (a == last && width > 1).then_some((lane, 1));
            at.push(Affine::new([(e, each)].into_iter().chain(lane), 0));
        }
        let first = |a: usize| {
            if a == cut && !alone {
                Affine::new([(self.rank, slices[a])], 0)
            } else {
                Affine::constant(0)
            }
        };
        let place: Vec<Affine> = at.iter().enumerate().map(|(a, at)| at.add(&first(a))).collect();
        // The cut axis stands first in its factor, so that a slice has its rows or columns side by
        // side.
        let counted = [0, 1].map(|k| self.place(&self.factors[k], &at));
        let total = match from {
            None => of_groups(self, counted),
            Some(gathered) => {
                let part = |r: i64| {
                    let lead = [Affine::var(self.rank), Affine::constant(r)];
                    Expr::load(gathered, lead.into_iter().chain(counted.iter().cloned()).collect())
                };
                sum((0..self.cluster).map(part).collect())
            }
        };
        let uses = p.y_value.loads().iter().filter(|l| l.0 == p.acc).count();
        let mut each = Vec::new();
        if self.groups * self.cluster > 1 && uses != 1 {
            let sum = self.buffer("sum", vec![width], Scope::Local, DType::F32);
            let own = if width > 1 { Affine::var(lane) } else { Affine::constant(0) };
            each.push(Stmt::Local(sum));
            each.extend(vector(
                lane,
                width,
                vec![Stmt::Store { buffer: sum, index: vec![own], value: total }],
            ));
            // A variable is bound once.
            let other = self.n.new_var("v");
            let own = if width > 1 { Affine::var(other) } else { Affine::constant(0) };
            let place: Vec<Affine> =
                place.iter().map(|a| a.substitute(lane, &Affine::var(other))).collect();
            let y = self.result(&place, &Expr::load(sum, vec![own]));
            each.extend(vector(other, width, vec![y]));
        } else {
            let y = self.result(&place, &total);
            each.extend(vector(lane, width, vec![y]));
        }
        body.extend(around(&loops, Mode::Share, each));
        body.push(Stmt::Barrier(Reach::Block));
    }
}
