//! The matrix products of one step of the reduction in the sketch for tensor cores by warps: one
//! product for each 16-wide slice of the chunk and each position of the window, as `warp_load` and
//! `warp_multiply` statements. Input: the tiles in shared memory and the number of the step;
//! output: statements for `program.rs`.
//!
//! The matrices of a product can be loaded while the product before it is multiplied, and those of
//! the next step's first product while this step's last is: then no warp waits behind the barrier
//! between steps with nothing to multiply.

use super::super::loops::count;
use super::super::problem::Contraction;
use super::roles::{Factor, SIDE, TileLayout, slides};
use super::shared::SharedTile;
use super::tile::{Ahead, Tiling, sum_of};
use crate::nest::{Buffer, Matrix, Mode, Scope, Stmt, Warp};
use squall_core::expr::{Affine, Source, Var};
use std::collections::BTreeMap;

/// The products of a step, and the fragments that hold their matrices.
pub struct Products {
    /// For each product the slice of the chunk, and the position in the window's unrolled loops.
    at: Vec<(i64, Vec<i64>)>,
    /// Variables of the window's loops that are not unrolled; a loop around the step counts the
    /// first of them, if `counted` is one.
    within: Vec<Var>,
    counted: usize,
    /// Consecutive products that share the matrices that a run of neighbours reads (knob `run`).
    last: i64,
    /// How many sets of matrices the fragments hold: one, or two where the next product's are
    /// loaded ahead.
    held: i64,
    /// The elements of a line of the window that a run of neighbours reads: for each, the neighbour
    /// and the position that stand for it, in order.
    lines: [Vec<(i64, i64)>; 2],
    whole: [Source; 2],
    /// The matrices of the remainders that rounding to tf32 leaves of 32-bit floats.
    rest: Option<[Source; 2]>,
}

/// A factor's matrices for one product.
struct Matrices {
    /// The fragment that they are loaded to, and the fragment of the remainders of rounding.
    whole: Source,
    rest: Option<Source>,
    /// Which of the fragment's matrices they are.
    which: [Affine; 2],
    /// Slice of the chunk, and neighbour of the run, that they stand for.
    slice: i64,
    neighbour: i64,
}

impl Products {
    pub fn len(&self) -> usize {
        self.at.len()
    }

    /// The matrices' declarations.
    pub fn locals(&self) -> Vec<Stmt> {
        self.whole.iter().chain(self.rest.iter().flatten()).map(|b| Stmt::Local(*b)).collect()
    }

    /// Which of its loads a factor's matrices come from, by the number of the products.
    fn load_of(&self, run: i64, i: usize) -> i64 {
        (if run > 1 { i as i64 / self.last } else { i as i64 }) % self.held
    }
}

/// The elements of a line of the window that a run of a factor's neighbours reads.
fn lines(p: &Contraction, f: &Factor, run: i64) -> Vec<(i64, i64)> {
    let Some(s) = slides(p, f).filter(|_| run > 1) else { return vec![(0, 0)] };
    let all =
        (0..run).flat_map(|j| (0..s.extent).map(move |w| (s.step * j + s.dilation * w, (j, w))));
    all.collect::<BTreeMap<_, _>>().into_values().collect()
}

impl Tiling<'_> {
    /// The products of a step. A loop around it may count the positions of the window's first axis
    /// by `outer`.
    pub fn products(&mut self, outer: Option<Var>) -> Products {
        let windows = self.windows();
        let counted = usize::from(outer.is_some());
        let looped = windows.len() - self.unroll.min(windows.len() - counted);
        let own = windows[counted..looped].iter().map(|r| self.n.new_var(&format!("{}w", r.short)));
        let within: Vec<Var> = outer.into_iter().chain(own).collect();
        let mut places: Vec<Vec<i64>> = vec![Vec::new()];
        for r in &windows[looped..] {
            places = places
                .iter()
                .flat_map(|at| (0..r.extent).map(move |w| at.iter().copied().chain([w]).collect()))
                .collect();
        }
        let last = if places[0].is_empty() { 1 } else { windows[windows.len() - 1].extent };
        let slices = self.chunk / self.depth;
        let at: Vec<(i64, Vec<i64>)> =
            (0..slices).flat_map(|s| places.iter().map(move |w| (s, w.clone()))).collect();
        let held = if self.ahead != Ahead::None && at.len() > 1 { 2 } else { 1 };
        let lines = [0, 1].map(|k| lines(self.p, &self.factors[k], self.run[k]));
        let mut fragment = |name: &str, k: usize| {
            let shape = vec![held, lines[k].len() as i64, self.sides[k], SIDE, self.depth];
            self.n.new_buffer(Buffer {
                name: name.into(),
                dtype: self.format,
                shape,
                scope: Scope::Fragment,
                lenient: false,
            })
        };
        let whole = [fragment("left", 0), fragment("right", 1)];
        let rest = self.split.then(|| [fragment("left_rest", 0), fragment("right_rest", 1)]);
        Products { at, within, counted, last, held, lines, whole, rest }
    }

    /// Adds what a step gives, all of it between two barriers.
    pub fn multiply(
        &mut self,
        sums: Source,
        shared: &[SharedTile; 2],
        stage: &Affine,
        outer: Option<Var>,
    ) -> Vec<Stmt> {
        let q = self.products(outer);
        let mut body = q.locals();
        for i in 0..q.len() {
            if i == 0 || q.held == 1 {
                body.extend(self.load_product(&q, shared, stage, i));
            }
            if q.held > 1 && i + 1 < q.len() {
                body.extend(self.load_product(&q, shared, stage, i + 1));
            }
            body.extend(self.multiply_product(&q, sums, i));
        }
        for (v, r) in q.within.iter().zip(self.windows()).skip(q.counted).rev() {
            body = vec![count(*v, r.extent, Mode::Serial, body)];
        }
        body
    }

    /// Loads the matrices of a product. What a run of neighbours reads along the window's last axis
    /// is loaded once for all positions along that axis.
    pub fn load_product(
        &mut self,
        q: &Products,
        shared: &[SharedTile; 2],
        stage: &Affine,
        i: usize,
    ) -> Vec<Stmt> {
        let (slice, ref w) = q.at[i];
        let mut all = Vec::new();
        for k in 0..2 {
            if self.run[k] > 1 && i as i64 % q.last != 0 {
                continue;
            }
            for (number, (neighbour, position)) in q.lines[k].iter().enumerate() {
                let mut inside: Vec<Affine> = q
                    .within
                    .iter()
                    .map(|v| Affine::var(*v))
                    .chain(w.iter().map(|w| Affine::constant(*w)))
                    .collect();
                if let (Some(last), true) = (inside.last_mut(), self.run[k] > 1) {
                    *last = Affine::constant(*position);
                }
                let which = [q.load_of(self.run[k], i), number as i64].map(Affine::constant);
                let matrices = Matrices {
                    whole: q.whole[k],
                    rest: q.rest.map(|r| r[k]),
                    which,
                    slice,
                    neighbour: *neighbour,
                };
                all.push(self.load_matrices(k, &shared[k], stage, &inside, &matrices));
            }
        }
        all
    }

    /// Multiplies the matrices. Small products come first, because sums then lose less of them.
    /// Neighbouring products add to different sums, so that none waits for another.
    pub fn multiply_product(&mut self, q: &Products, sums: Source, i: usize) -> Vec<Stmt> {
        let mut body = Vec::new();
        let position = q.at[i].1.last().copied().unwrap_or(0);
        let mut pairs =
            q.rest.map_or_else(Vec::new, |r| vec![(q.whole[0], r[1]), (r[0], q.whole[1])]);
        pairs.push((q.whole[0], q.whole[1]));
        for (a, b) in pairs {
            for place in 0..self.run[0] * self.run[1] {
                let each = self.each("m");
                let one = |buffer, k: usize| {
                    let number = self.line(k, &q.lines[k], place, position);
                    let which = Affine::constant(q.load_of(self.run[k], i));
                    Matrix {
                        buffer,
                        at: vec![which, Affine::constant(number), Affine::var(each[k])],
                    }
                };
                let product =
                    Warp::Multiply { to: sum_of(sums, place, &each), a: one(a, 0), b: one(b, 1) };
                body.extend(self.over(&each, vec![Stmt::Warp(product)]));
            }
        }
        body
    }

    /// The number among a factor's lines of what a neighbour reads at a position of the window.
    fn line(&self, k: usize, lines: &[(i64, i64)], place: i64, position: i64) -> i64 {
        let Some(s) = slides(self.p, &self.factors[k]).filter(|_| self.run[k] > 1) else {
            return 0;
        };
        let at = |(j, w): (i64, i64)| s.step * j + s.dilation * w;
        lines.iter().position(|l| at(*l) == at((place, position))).unwrap_or(0) as i64
    }

    /// Loads a warp's matrices of a factor at a position of the window.
    fn load_matrices(
        &mut self,
        k: usize,
        tile: &SharedTile,
        stage: &Affine,
        within: &[Affine],
        m: &Matrices,
    ) -> Stmt {
        let f = self.factors[k].clone();
        let i = self.n.new_var(["il", "jl"][k]);
        let column = self.n.new_var(["kl", "kr"][k]);
        let p = self.p;
        let matrix = |buffer| Matrix {
            buffer,
            at: m.which.iter().cloned().chain([Affine::var(i)]).collect(),
        };
        let first = Affine::new([(self.warp[k], SIDE * self.sides[k]), (i, SIDE)], 0);
        let (to, from) = (matrix(m.whole), tile.buffer);
        if self.tma {
            let (rows, index) = self.swizzled(&f, stage, m.slice, column);
            let columns = self.depth;
            let load = Warp::Load { to, rest: None, rows, first, column, columns, from, index };
            return count(i, self.sides[k], Mode::Unroll, vec![Stmt::Warp(load)]);
        }
        // The row counts the first neighbour of each run.
        let run = |a: usize| if f.axes.last() == Some(&a) { self.run[k] } else { 1 };
        let rows: Vec<(Var, i64)> = f
            .axes
            .iter()
            .map(|&a| (self.n.new_var(&format!("{}r", p.axes[a].short)), self.size[a] / run(a)))
            .collect();
        let neighbours = |a: usize| if run(a) > 1 { m.neighbour } else { 0 };
        let at: Vec<(usize, Affine)> = f
            .axes
            .iter()
            .zip(&rows)
            .map(|(&a, r)| (a, Affine::new([(r.0, run(a))], neighbours(a))))
            .collect();
        let main = Affine::new([(self.group, self.chunk), (column, 1)], m.slice * self.depth);
        // The reductions that are walked through only move the start of a tile.
        let walked = std::iter::repeat_n(Affine::constant(0), self.walked);
        let within: Vec<Affine> = walked.chain(within.iter().cloned()).collect();
        let spans = self.spans(&f, &Affine::constant(0), &at, &within, &main);
        let columns = match f.layout {
            TileLayout::Sliding => self.depth.min(p.reduce[0].extent - m.slice * self.depth),
            _ => self.depth,
        };
        let index = tile.index(stage, f.layout.gathered(), |d| spans[d].inner.clone());
        let rest = m.rest.map(matrix);
        let load = Warp::Load { to, rest, rows, first, column, columns, from, index };
        count(i, self.sides[k], Mode::Unroll, vec![Stmt::Warp(load)])
    }
}
