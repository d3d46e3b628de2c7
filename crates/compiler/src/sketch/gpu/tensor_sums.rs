//! How tiles of sums end: groups of warps and blocks of a cluster add up what they have, and the epilogue stores it.

use super::tensor::SIDE;
use super::tensor_tile::{Tiling, sum_of};
use super::{around, count};
use crate::nest::{Mode, Reach, Scope, Stmt, Warp};
use squall_core::DType;
use squall_core::expr::{Affine, Binary, Expr, Source, Var};

impl Tiling<'_> {
    /// Sums go to shared memory, and on from there.
    pub(super) fn put(&mut self, sums: Source, gathered: Option<Source>, body: &mut Vec<Stmt>) {
        let partial = self.partial([0, 1].map(|k| self.warps[k] * self.sides[k] * SIDE * self.run[k]), body);
        for place in 0..self.run[0] * self.run[1] {
            let at = self.each("p");
            let [r, c] = ["row", "column"].map(|x| self.n.new_var(x));
            let position = |k: usize, v: Var| {
                let count = Affine::new([(self.warp[k], SIDE * self.sides[k]), (at[k], SIDE), (v, 1)], 0);
                count.scale(self.run[k]).plus(place % self.run[k])
            };
            let put = Warp::Store {
                from: sum_of(sums, place, &at),
                row: r,
                column: c,
                to: partial,
                index: vec![Affine::var(self.group), position(0, r), position(1, c)],
            };
            body.extend(self.over(&at, vec![Stmt::Warp(put)]));
        }
        self.finish(partial, gathered, body);
    }

    /// Declares where the sums of all groups meet, in rows and columns.
    pub(super) fn partial(&mut self, [rows, columns]: [i64; 2], body: &mut Vec<Stmt>) -> Source {
        let partial = self.buffer("partial", vec![self.groups, rows, columns + 8], Scope::Shared, DType::F32);
        body.push(Stmt::Local(partial));
        partial
    }

    /// The axis that the blocks of a cluster share out, and what each has of every axis.
    fn slices(&self) -> (usize, Vec<i64>) {
        let cut = self.size.iter().position(|s| s % self.cluster == 0).unwrap_or(0);
        let slice = |(k, &size): (usize, &i64)| if k == cut { size / self.cluster } else { size };
        (cut, self.size.iter().enumerate().map(slice).collect())
    }

    /// Declares where each block of a cluster finds the sums that others made of its slice of the tile.
    pub(super) fn gather(&mut self, body: &mut Vec<Stmt>) -> Source {
        let shape = [self.cluster; 2].into_iter().chain(self.slices().1).collect();
        let gathered = self.buffer("gathered", shape, Scope::Cluster, DType::F32);
        body.push(Stmt::Local(gathered));
        gathered
    }

    /// Adds up what groups have of the tile and stores it. Each block of a cluster finishes a slice, of which the others bring
    /// it their sums: nobody waits for what he asks for, and nobody is asked when he is done.
    pub(super) fn finish(&mut self, partial: Source, gathered: Option<Source>, body: &mut Vec<Stmt>) {
        let p = self.p;
        let alone = self.cluster == 1;
        let last = p.axes.len() - 1;
        let (cut, slices) = self.slices();
        let widths: &[i64] = if self.n.buffer(p.output).dtype.is_half() { &[8, 4, 2] } else { &[4, 2] };
        let width = widths.iter().copied().find(|w| slices[last] % w == 0).unwrap_or(1);
        let vector = |v: Var, body: Vec<Stmt>| if width > 1 { vec![count(v, width, Mode::Vector, body)] } else { body };
        // Elements of a slice: loops, a lane, and where they lie in it.
        let each = |me: &mut Self, what: &str| {
            let lane = me.n.new_var("v");
            let (mut loops, mut place) = (Vec::new(), Vec::new());
            for (k, axis) in p.axes.iter().enumerate() {
                let e = me.n.new_var(&format!("{}{what}", axis.short));
                let each = if k == last { width } else { 1 };
                loops.push((e, slices[k] / each));
                let lane = (k == last && width > 1).then_some((lane, 1));
                place.push(Affine::new([(e, each)].into_iter().chain(lane), 0));
            }
            (loops, lane, place)
        };
        // The place in the tile of one in the slice of a block.
        let whole = |rank: Var, place: &[Affine]| -> Vec<Affine> {
            let first = |k: usize| if k == cut && !alone { Affine::new([(rank, slices[k])], 0) } else { Affine::constant(0) };
            place.iter().enumerate().map(|(k, at)| at.add(&first(k))).collect()
        };
        let sum = |parts: Vec<Expr>| parts.into_iter().reduce(|a, b| Expr::binary(Binary::Add, a, b)).unwrap_or(Expr::Const(0.0));
        let of_groups = |me: &Self, at: &[Affine]| {
            let (row, column) = (me.place(&me.factors[0], at), me.place(&me.factors[1], at));
            sum((0..me.groups).map(|g| Expr::load(partial, vec![Affine::constant(g), row.clone(), column.clone()])).collect())
        };
        let mut from = None;
        if alone {
            body.push(Stmt::Barrier(Reach::Block));
        } else {
            // Where others' sums lie may still be in use there.
            body.push(Stmt::Barrier(if gathered.is_some() { Reach::Block } else { Reach::Cluster }));
            let gathered = gathered.unwrap_or_else(|| self.gather(body));
            let owner = self.n.new_var("owner");
            let (mut loops, lane, place) = each(self, "o");
            loops.insert(0, (owner, self.cluster));
            let index = [owner, self.rank].map(Affine::var).into_iter().chain(place.iter().cloned()).collect();
            let bring = Stmt::Store { buffer: gathered, index, value: of_groups(self, &whole(owner, &place)) };
            body.extend(around(&loops, Mode::Share, vector(lane, vec![bring])));
            body.push(Stmt::Barrier(Reach::Cluster));
            from = Some(gathered);
        }
        let (loops, lane, at) = each(self, "e");
        let place = whole(self.rank, &at);
        let total = match from {
            None => of_groups(self, &place),
            Some(gathered) => {
                let part = |r: i64| {
                    Expr::load(gathered, [Affine::var(self.rank), Affine::constant(r)].into_iter().chain(at.iter().cloned()).collect())
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
            each.extend(vector(lane, vec![Stmt::Store { buffer: sum, index: vec![own], value: total }]));
            // A variable is bound once.
            let other = self.n.new_var("v");
            let own = if width > 1 { Affine::var(other) } else { Affine::constant(0) };
            let place: Vec<Affine> = place.iter().map(|a| a.substitute(lane, &Affine::var(other))).collect();
            let y = self.result(&place, &Expr::load(sum, vec![own]));
            each.extend(vector(other, vec![y]));
        } else {
            let y = self.result(&place, &total);
            each.extend(vector(lane, vec![y]));
        }
        body.extend(around(&loops, Mode::Share, each));
        body.push(Stmt::Barrier(Reach::Block));
    }
}
