//! The end of Winograd's kernel on GPUs: the products of the 16 places are brought together in
//! shared memory, transformed back into 2x2 outputs, added up over the blocks of a cluster, and
//! stored by the epilogue. `program.rs` calls `back` behind its loop over input channels.

use super::super::loops::around;
use super::tile::{Maker, OUT, PLACES, SIZE, constant, row_times, tiles_of, var};
use crate::nest::{Mode, Reach, Scope, Stmt};
use squall_core::expr::{Affine, Binary, Cond, Expr, Source, Var};
use squall_core::workload::Reducer;

impl Maker {
    /// Brings the products of all places together, transforms them back and stores the outputs.
    pub fn back(&mut self, sums: Source, body: &mut Vec<Stmt>) {
        // Distances are odd, so that the threads of a warp do not meet in banks when they write or
        // read.
        let row = self.in_block | 1;
        let plane = (self.out_block * row + 31) / 32 * 32 + 1;
        let met = self.buffer("products", vec![self.groups, PLACES, plane], Scope::Shared);
        body.push(Stmt::Local(met));
        let (loops, index, tile, out) = self.own("m");
        let to = vec![var(self.group), var(self.place), out.scale(row).add(&tile)];
        let put = Stmt::Store { buffer: met, index: to, value: Expr::load(sums, index) };
        body.extend(around(&loops, Mode::Unroll, vec![put]));
        body.push(Stmt::Barrier(Reach::Block));
        let [k, j] = ["k_y", "j_y"].map(|x| self.n.new_var(x));
        let (mut each, half) = self.transformed_back(met, Affine::new([(k, row), (j, 1)], 0));
        let outputs = self.t.output.clone();
        let value = |i: i64, s: i64| {
            row_times(&outputs[s as usize], &|r| Expr::load(half, vec![constant(i), constant(r)]))
        };
        let all = (0..OUT).flat_map(|i| (0..OUT).map(move |s| (i, s)));
        let loops = [(k, self.out_block), (j, self.in_block)];
        if self.cluster == 1 {
            let at = self.places(&var(j), &mut each);
            for (i, s) in all {
                let within = [constant(i), constant(s)];
                each.extend(self.store(&at, &var(k), within, Vec::new(), &value(i, s)));
            }
            body.extend(around(&loops, Mode::Share, each));
            return body.push(Stmt::Barrier(Reach::Block));
        }
        let shape = vec![self.cluster, self.out_block, OUT, self.in_block, OUT];
        let partial = self.buffer("partial", shape, Scope::Cluster);
        body.push(Stmt::Local(partial));
        for (i, s) in all {
            let index = vec![var(self.rank), var(k), constant(i), var(j), constant(s)];
            each.push(Stmt::Store { buffer: partial, index, value: value(i, s) });
        }
        body.extend(around(&loops, Mode::Share, each));
        body.push(Stmt::Barrier(Reach::Cluster));
        body.extend(self.add_up(partial));
        body.push(Stmt::Barrier(Reach::Cluster));
    }

    /// Adds up the products of all groups at an element of each plane, and transforms them back
    /// along columns; the result is a buffer of rows.
    fn transformed_back(&mut self, met: Source, at: Affine) -> (Vec<Stmt>, Source) {
        let [m, half] = [("m", SIZE), ("half_m", OUT)]
            .map(|(x, rows)| self.buffer(x, vec![rows, SIZE], Scope::Local));
        let mut each = vec![Stmt::Local(m), Stmt::Local(half)];
        for i in 0..PLACES {
            let part = |g: i64| Expr::load(met, vec![constant(g), constant(i), at.clone()]);
            let value = (0..self.groups)
                .map(part)
                .reduce(|a, b| Expr::binary(Binary::Add, a, b))
                .unwrap_or(Expr::Const(0.0));
            let index = vec![constant(i / SIZE), constant(i % SIZE)];
            each.push(Stmt::Store { buffer: m, index, value });
        }
        for s in 0..SIZE {
            for (i, a) in self.t.output.iter().enumerate() {
                let value = row_times(a, &|r| Expr::load(m, vec![constant(r), constant(s)]));
                let index = vec![constant(i as i64), constant(s)];
                each.push(Stmt::Store { buffer: half, index, value });
            }
        }
        (each, half)
    }

    /// Adds up the outputs that the blocks of a cluster have of a block's slice, and stores them.
    fn add_up(&mut self, partial: Source) -> Vec<Stmt> {
        let [k, i, j, s, r]: [Var; 5] =
            ["k_e", "i_e", "j_e", "s_e", "r_e"].map(|x| self.n.new_var(x));
        let slice = self.out_block / self.cluster;
        let sum = self.buffer("sum", vec![1], Scope::Local);
        let zero = || vec![constant(0)];
        let out = Affine::new([(self.rank, slice), (k, 1)], 0);
        let from = Expr::load(partial, vec![var(r), out.clone(), var(i), var(j), var(s)]);
        let add = Stmt::Update { op: Reducer::Sum, buffer: sum, index: zero(), value: from };
        let mut each = Vec::new();
        let at = self.places(&var(j), &mut each);
        let mut added = vec![
            Stmt::Local(sum),
            Stmt::Store { buffer: sum, index: zero(), value: Expr::Const(0.0) },
        ];
        added.extend(around(&[(r, self.cluster)], Mode::Unroll, vec![add]));
        each.extend(self.store(&at, &out, [var(i), var(s)], added, &Expr::load(sum, zero())));
        around(&[(k, slice), (i, OUT), (j, self.in_block), (s, OUT)], Mode::Share, each)
    }

    /// Stores an output of a tile where there is one, behind what makes it.
    fn store(
        &self,
        tile: &[Affine; 3],
        k: &Affine,
        within: [Affine; 2],
        mut made: Vec<Stmt>,
        value: &Expr,
    ) -> Vec<Stmt> {
        let [image, row, column] = tile;
        let (down, across, _) = tiles_of(&self.conv);
        let (y, x) = (row.scale(OUT).add(&within[0]), column.scale(OUT).add(&within[1]));
        let out = Affine::new([(self.panel, self.out_block)], 0).add(k);
        let ends = [(&y, down, self.conv.height), (&x, across, self.conv.width)];
        let conds: Vec<Cond> = ends
            .into_iter()
            .filter(|(_, tiles, extent)| tiles * OUT > *extent)
            .map(|(at, _, extent)| Cond { index: at.clone(), low: 0, high: extent })
            .collect();
        made.push(self.conv.store([image.clone(), out, y, x], value));
        if conds.is_empty() { made } else { vec![Stmt::If { conds, body: made }] }
    }
}
