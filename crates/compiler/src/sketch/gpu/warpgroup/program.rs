//! Writes the loop nest of a configuration (a value for each knob) of the sketch for warpgroups
//! (`mod.rs`): fetch stages of both factors to shared memory, start the products of a step
//! (`warpgroup_multiply`), await earlier ones, and end with the epilogue of `tensor/store.rs`.
//! Input: a contraction (a sum over tiles of one or two operands, `problem.rs`), the roles of its
//! operands (which gives the product's rows, which its columns) and a configuration; output: a
//! nest.

use super::super::loops::{around, count};
use super::super::problem::Contraction;
use super::super::tensor::roles::{Roles, TileLayout};
use super::super::tensor::tile::{Step, Tiling};
use crate::nest::{Matrix, Mode, Nest, Reach, Scope, Stmt, TileSlice, Warp};
use squall_core::expr::{Affine, Cond, Source, Var};
use squall_core::{Configuration, DType};

/// The rows and columns of the smallest product of a warpgroup, and the elements of the reduction
/// that it takes: a swizzled row.
pub const ROWS: i64 = 64;
pub const COLUMNS: i64 = 8;
pub const DEPTH: i64 = 64;

/// The nest of a configuration.
pub fn program(p: &Contraction, roles: &Roles, c: &Configuration) -> Nest {
    WarpgroupTile::new(p, roles, c).program()
}

/// A configuration, and the nest that is written for it.
struct WarpgroupTile<'a> {
    /// Its `warps` are warpgroups here, its `sides` a warpgroup's 64 rows and 8 columns.
    t: Tiling<'a>,
    /// The number of the warp in its warpgroup.
    quarter: Var,
    /// Steps whose products may still be running when those of the next step begin.
    lag: i64,
    /// The buffer that each factor is fetched from: the tensor itself, or a copy in tiles.
    from: [Source; 2],
    /// The factors' stages in shared memory.
    stages: [Source; 2],
}

impl<'a> WarpgroupTile<'a> {
    fn new(p: &'a Contraction, roles: &'a Roles, c: &Configuration) -> WarpgroupTile<'a> {
        let get = |k: &str| c.int(k).unwrap_or(1);
        let mut t = Tiling::cut(
            p,
            roles,
            c,
            [get("warpgroups_rows"), get("warpgroups_columns")],
            [ROWS, COLUMNS],
            DEPTH,
        );
        for f in 0..2 {
            // Rows are copied in 16 bytes, along the reduction or across it.
            match (t.factors[f].layout, c.word("transpose")) {
                (TileLayout::Transposed, _) => t.transpose(f),
                (TileLayout::MnMajor, Some("launch")) => {
                    t.factors[f].layout = TileLayout::Transposed;
                    t.transpose(f);
                }
                _ => {}
            }
        }
        let from = [0, 1].map(|f| t.source(f));
        let (rows, columns) = (t.warps[0] * t.sides[0] * ROWS, t.warps[1] * t.sides[1] * COLUMNS);
        let stages = [(0, rows), (1, columns)].map(|(f, lines): (usize, i64)| {
            let name = format!("{}_s", t.n.buffer(from[f]).name);
            let shape = match t.factors[f].layout {
                TileLayout::MnMajor => vec![t.stages, (lines + ROWS - 1) / ROWS, DEPTH, ROWS],
                _ => vec![t.stages, lines, DEPTH],
            };
            t.buffer(&name, shape, Scope::Swizzled, t.format)
        });
        let quarter = t.n.new_var("quarter");
        WarpgroupTile { t, quarter, lag: get("lag"), from, stages }
    }

    fn program(mut self) -> Nest {
        let before = std::mem::take(&mut self.t.n.body);
        let [rows, columns] = [self.t.sides[0], self.t.sides[1] * COLUMNS];
        let sums = self.t.buffer("sums", vec![rows, 16, columns], Scope::Fragment, DType::F32);
        let mut body = vec![Stmt::Local(sums)];
        let i = self.t.n.new_var("i_z");
        let zero = Stmt::Warp(Warp::Zero(Matrix { buffer: sums, at: vec![Affine::var(i)] }));
        body.push(count(i, rows, Mode::Unroll, vec![zero]));
        self.sum(sums, &mut body);
        self.put(sums, &mut body);
        let [group, r, c, lane] = [self.t.group, self.t.warp[0], self.t.warp[1], self.t.lane];
        let threads =
            [(group, 1), (r, self.t.warps[0]), (c, self.t.warps[1]), (self.quarter, 4), (lane, 32)];
        self.t.launch(&threads, body, before)
    }

    /// The part of the reduction that step `it` takes; variables for it are bound in `to`.
    fn step(&mut self, it: &Affine, to: &mut Vec<Stmt>) -> Step {
        let p = self.t.p;
        let mut inner = 1;
        let mut bind = |name: &str, extent: i64, inner: i64| {
            if extent == 1 {
                return Affine::constant(0);
            }
            let var = self.t.n.new_var(name);
            to.push(Stmt::Let { var, value: it.clone(), divisor: inner, modulo: extent });
            Affine::var(var)
        };
        let mut window = Vec::new();
        for r in p.reduce[1..].iter().rev() {
            window.push(bind(&format!("{}w", r.short), r.extent, inner));
            inner *= r.extent;
        }
        window.reverse();
        // Without a window the number of the step is the number of its chunk.
        let chunk = if inner == 1 { it.clone() } else { bind("chunk", self.t.steps, inner) };
        Step { number: self.t.number(&chunk), window }
    }

    /// Has the block's threads copy what a step needs of a factor to a stage.
    fn thread_copy(&mut self, which: usize, step: &Step, stage: &Affine) -> Stmt {
        let p = self.t.p;
        let f = self.t.factors[which].clone();
        let [x, wide, block, lane] = ["xk", "xw", "xb", "v"].map(|x| self.t.n.new_var(x));
        let mut at = vec![Affine::constant(0); p.axes.len()];
        let mut loops = Vec::new();
        let across = f.axes.last().copied().filter(|_| f.layout == TileLayout::MnMajor);
        for &a in f.axes.iter().filter(|a| Some(**a) != across) {
            let v = self.t.n.new_var(&format!("{}x", p.axes[a].short));
            loops.push((v, self.t.size[a]));
            at[a] = Affine::var(v);
        }
        // Lanes take eight elements that lie side by side.
        let lanes = Affine::new([(wide, 8), (lane, 1)], 0);
        let main = if across.is_some() { Affine::var(x) } else { lanes.clone() };
        let blocks = across.map_or(1, |a| self.t.size[a] / ROWS);
        let index = match across {
            Some(a) => {
                // Blocks of 64 of the last axis, in the order of all rows.
                let lead = self.t.lead(&f, &at);
                at[a] = Affine::new([(block, ROWS)], 0).add(&lanes);
                loops.extend([(x, DEPTH), (block, blocks), (wide, ROWS / 8)]);
                vec![stage.clone(), lead.add(&Affine::var(block)), main.clone(), lanes]
            }
            None => {
                loops.push((wide, DEPTH / 8));
                vec![stage.clone(), self.t.place(&f, &at), main.clone()]
            }
        };
        let value = self.t.element(&f, self.from[which], step, &at, &main);
        let copy = Stmt::Store { buffer: self.stages[which], index, value };
        around(&loops, Mode::Share, vec![count(lane, 8, Mode::Vector, vec![copy])]).remove(0)
    }

    /// Copies what a step needs of both factors to a stage.
    fn load_both(&mut self, it: &Affine, stage: &Affine) -> Vec<Stmt> {
        let mut out = Vec::new();
        let step = self.step(it, &mut out);
        for which in 0..2 {
            if self.t.tma {
                let f = self.t.factors[which].clone();
                let (from, to) = (self.from[which], self.stages[which]);
                out.extend(self.t.tma_copies(&f, from, to, &step, stage));
            } else {
                let copy = self.thread_copy(which, &step, stage);
                out.push(copy);
            }
        }
        out
    }

    /// Walks through the reduction. A stage is filled again when the products that read it were
    /// awaited by all, which the barrier of a step says of the products up to `lag` steps before
    /// the last.
    fn sum(&mut self, sums: Source, body: &mut Vec<Stmt>) {
        let window: i64 = self.t.p.reduce[1..].iter().map(|r| r.extent).product();
        let (steps, ahead) = (self.t.steps * window, self.t.stages - 1 - self.lag);
        let mut inner: Vec<Stmt> = self.stages.iter().map(|b| Stmt::Local(*b)).collect();
        let [s, it, stage, next] = ["s", "step", "stage", "next"].map(|x| self.t.n.new_var(x));
        let mut first = self.load_both(&Affine::var(s), &Affine::var(s));
        first.push(Stmt::CommitCopies);
        inner.push(count(s, ahead, Mode::Unroll, first));
        let now = Affine::var(it);
        let mut each = vec![Stmt::AwaitCopies((ahead - 1) as u32), Stmt::Barrier(Reach::Block)];
        each.push(Stmt::Let { var: stage, value: now.clone(), divisor: 1, modulo: self.t.stages });
        each.push(Stmt::Let {
            var: next,
            value: now.plus(ahead),
            divisor: 1,
            modulo: self.t.stages,
        });
        let part = |me: &Self, k: usize, unit: i64| {
            let all = me.t.lines(&me.t.factors[k]);
            TileSlice { first: Affine::new([(me.t.warp[k], me.t.sides[k] * unit)], 0), all }
        };
        let [a, b] = self.stages.map(|buffer| Matrix { buffer, at: vec![Affine::var(stage)] });
        let (rows, columns) = (part(self, 0, ROWS), part(self, 1, COLUMNS));
        let replaces = false;
        each.push(Stmt::Warp(Warp::WarpgroupMultiply { to: sums, rows, columns, a, b, replaces }));
        let later = self.load_both(&now.plus(ahead), &Affine::var(next));
        each.push(Stmt::If {
            conds: vec![Cond { index: now.plus(ahead), low: 0, high: steps }],
            body: later,
        });
        each.extend([Stmt::CommitCopies, Stmt::AwaitProducts(self.lag as u32)]);
        inner.push(count(it, steps, Mode::Serial, each));
        if self.lag > 0 {
            inner.push(Stmt::AwaitProducts(0));
        }
        // The last copies bring nothing. Awaiting them costs nothing either, and says to tools that
        // look for races that no copy goes on where the sums are stored over the stages.
        if !self.t.tma {
            inner.push(Stmt::AwaitCopies(0));
        }
        inner.push(Stmt::Barrier(Reach::Block));
        // A loop that runs once makes a block of statements around the stages, so that their place
        // in shared memory is free at its end.
        let once = self.t.n.new_var("once");
        body.push(count(once, 1, Mode::Serial, inner));
    }

    /// Stores the sums, through shared memory.
    fn put(&mut self, sums: Source, body: &mut Vec<Stmt>) {
        let t = &mut self.t;
        let unit = [ROWS * t.sides[0], COLUMNS * t.sides[1]];
        let partial = t.partial([0, 1].map(|k| t.warps[k] * unit[k]), body);
        let [i, row, column] = ["i_p", "row", "column"].map(|x| t.n.new_var(x));
        let down = Affine::new([(t.warp[0], unit[0]), (i, ROWS), (self.quarter, 16), (row, 1)], 0);
        let across = Affine::new([(t.warp[1], unit[1]), (column, 1)], 0);
        let put = Warp::Store {
            from: Matrix { buffer: sums, at: vec![Affine::var(i)] },
            row,
            column,
            to: partial,
            index: vec![Affine::var(t.group), down, across],
        };
        body.push(count(i, t.sides[0], Mode::Unroll, vec![Stmt::Warp(put)]));
        t.finish(partial, None, body);
    }
}
