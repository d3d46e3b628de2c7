//! The tiling of the sketches for tensor cores: the part of the product that a configuration (a
//! value for each knob) gives to blocks, warps and steps, and the elements of a factor that belong
//! to a step. Input: a contraction (a sum over tiles of one or two operands, `problem.rs`), the
//! roles of its operands (which gives the product's rows, which its columns) and a configuration;
//! output: a [`Tiling`], which also holds the loop nest under construction. `repack`, `load`,
//! `multiply`, `store` and `program` are methods on it, here and in `warpgroup`.

use super::super::super::tile::TileAxis;
use super::super::loops::{around, count, tiles};
use super::super::problem::{Contraction, ContractionOperand, epilogue, line_width};
use super::super::span::{Span, SpannedLoop};
use super::roles::{Factor, Roles, TileLayout};
use crate::nest::{Buffer, Matrix, Mode, Nest, Scope, Stmt};
use squall_core::expr::{Affine, Cond, Expr, Source, Var};
use squall_core::{Configuration, DType};

/// The matrices that are loaded from shared memory while others are multiplied.
#[derive(Clone, Copy, PartialEq)]
pub enum Ahead {
    /// No matrices.
    None,
    /// The matrices of the next product of a step.
    Slice,
    /// Also the matrices of the next step's first product.
    Step,
}

/// A configuration, and the nest that is written for it.
pub struct Tiling<'a> {
    pub p: &'a Contraction,
    pub format: DType,
    pub split: bool,
    pub depth: i64,
    /// The factor of the rows and the factor of the columns, and the operands that they read.
    pub factors: [Factor; 2],
    pub operands: Vec<ContractionOperand>,
    pub n: Nest,
    /// Elements of a tile, by axis.
    pub size: Vec<i64>,
    /// Warps along rows and columns, and 16x16 matrices of each warp along both.
    pub warps: [i64; 2],
    pub sides: [i64; 2],
    /// How many outputs side by side along the last axis each row or column of a matrix stands for
    /// (knob `run`).
    pub run: [i64; 2],
    pub chunk: i64,
    pub groups: i64,
    pub cluster: i64,
    /// How many of the reductions behind the first are walked through, with separate steps for each
    /// of their places. The others are a window, all of whose places belong to one step.
    pub walked: usize,
    /// Steps of a block.
    pub steps: i64,
    pub stages: i64,
    /// Steps that are fetched before the first is multiplied.
    pub fetched_first: i64,
    /// Elements left free behind each row of shared memory.
    pub pad: i64,
    /// Whether tiles arrive as TMA tiles.
    pub tma: bool,
    /// Loops over the window that are written out, the innermost first.
    pub unroll: usize,
    /// Whether weights arrive in pieces, one for each position of the window's first loop.
    pub pieces: bool,
    pub ahead: Ahead,
    /// Variables: number and first element of the block's tile, by axis.
    pub block: Vec<Var>,
    pub start: Vec<Var>,
    /// Which warp of a group along rows and columns; which group; thread of the warp; block of the
    /// cluster.
    pub warp: [Var; 2],
    pub group: Var,
    pub lane: Var,
    pub rank: Var,
}

/// Which part of the reduction a step takes: a chunk, counted over all blocks of the cluster, and
/// a position of the window.
pub struct Step {
    pub number: Affine,
    pub window: Vec<Affine>,
}

/// A value, zero where a condition does not hold.
pub fn guarded(conds: Vec<Cond>, value: Expr) -> Expr {
    if conds.is_empty() {
        value
    } else {
        Expr::Select { conds, then: Box::new(value), other: Box::new(Expr::Const(0.0)) }
    }
}

/// A warp's matrix of sums, by its place in the run and its number along rows and columns.
pub fn sum_of(sums: Source, position: i64, at: &[Var; 2]) -> Matrix {
    Matrix {
        buffer: sums,
        at: [Affine::constant(position)]
            .into_iter()
            .chain(at.iter().map(|v| Affine::var(*v)))
            .collect(),
    }
}

impl<'a> Tiling<'a> {
    /// The tile that both sketches start from, by warps and by warpgroups: `warps` of them along
    /// rows and columns, each of which takes a multiple of `unit` rows and columns, and `chunk`
    /// elements of the reduction a step.
    pub fn cut(
        p: &'a Contraction,
        roles: &'a Roles,
        c: &Configuration,
        warps: [i64; 2],
        unit: [i64; 2],
        chunk: i64,
    ) -> Tiling<'a> {
        let get = |k: &str| c.int(k).unwrap_or(1);
        let size: Vec<i64> = p.axes.iter().map(|a| get(&format!("{}_b", a.short))).collect();
        let factors = [roles.rows.clone(), roles.columns.clone()];
        let run = [0, 1].map(|k| if roles.sliding(p) == Some(k) { get("run") } else { 1 });
        let up = |x: i64, y: i64| (x + y - 1) / y;
        let total = |k: usize| factors[k].axes.iter().map(|&a| size[a]).product::<i64>() / run[k];
        let sides = [0, 1].map(|k| up(total(k), unit[k] * warps[k]));
        let (groups, cluster) = (get("split_warps"), get("split_blocks"));
        let walked = if roles.images { p.reduce.len() - 2 } else { 0 };
        let places: i64 = p.reduce[1..1 + walked].iter().map(|r| r.extent).product();
        let steps = match walked {
            0 => up(p.reduce[0].extent, chunk * groups * cluster),
            _ => places / cluster,
        };
        let stages = get("stages");
        let mut n = p.base.clone();
        let fresh = |n: &mut Nest, what: &str| -> Vec<Var> {
            p.axes.iter().map(|a| n.new_var(&format!("{}{what}", a.short))).collect()
        };
        let (block, start) = (fresh(&mut n, "b"), fresh(&mut n, "0"));
        let [rows, columns, group, lane, rank] =
            ["warp_rows", "warp_columns", "group", "lane", "rank"].map(|x| n.new_var(x));
        let free = if c.word("rows") == Some("padded") { roles.depth() / 2 } else { 0 };
        Tiling {
            p,
            format: roles.format,
            split: roles.split,
            depth: roles.depth(),
            factors,
            operands: p.operands.clone(),
            n,
            size,
            warps,
            sides,
            run,
            chunk,
            groups,
            cluster,
            walked,
            steps,
            stages,
            fetched_first: stages - 1,
            pad: free,
            tma: c.word("copy") == Some("tma"),
            unroll: c.int("unroll").map_or(0, |u| u as usize),
            pieces: c.word("weights") == Some("pieces"),
            ahead: match c.word("ahead") {
                Some("slice") => Ahead::Slice,
                Some("step") => Ahead::Step,
                _ => Ahead::None,
            },
            block,
            start,
            warp: [rows, columns],
            group,
            lane,
            rank,
        }
    }

    /// The program whose threads run `body`, behind launches that go `before`.
    pub fn launch(mut self, threads: &[(Var, i64)], body: Vec<Stmt>, before: Vec<Stmt>) -> Nest {
        let p = self.p;
        let body = match &p.row_steps {
            Some(r) => r.ahead(&mut self.n, &self.start, &self.size, body),
            None => body,
        };
        let body = around(threads, Mode::Thread, body);
        let mut body = vec![count(self.rank, self.cluster, Mode::Cluster, body)];
        for a in (0..p.axes.len()).rev() {
            body = vec![tiles(self.block[a], self.start[a], p.axes[a].extent, self.size[a], body)];
        }
        self.n.body = before.into_iter().chain(body).collect();
        self.n
    }

    pub fn buffer(&mut self, name: &str, shape: Vec<i64>, scope: Scope, dtype: DType) -> Source {
        self.n.new_buffer(Buffer { name: name.into(), dtype, shape, scope, lenient: false })
    }

    /// Variables that count a warp's matrices of sums.
    pub fn each(&mut self, suffix: &str) -> [Var; 2] {
        ["i", "j"].map(|x| self.n.new_var(&format!("{x}_{suffix}")))
    }

    /// Loops over a warp's matrices of sums.
    pub fn over(&self, at: &[Var; 2], body: Vec<Stmt>) -> Vec<Stmt> {
        around(&[(at[0], self.sides[0]), (at[1], self.sides[1])], Mode::Unroll, body)
    }

    /// Elements of the reduction in one step of a block.
    pub fn whole(&self) -> i64 {
        self.chunk * self.groups
    }

    /// The number of a step among the steps of all blocks of the cluster.
    pub fn number(&self, step: &Affine) -> Affine {
        Affine::new([(self.rank, self.steps)], 0).add(step)
    }

    /// Rows or columns of a factor's tile.
    pub fn lines(&self, f: &Factor) -> i64 {
        f.axes.iter().map(|&a| self.size[a]).product()
    }

    /// Elements of the first reduction that all steps take together, with those behind its end.
    pub fn reached(&self) -> i64 {
        if self.walked > 0 { self.whole() } else { self.steps * self.whole() * self.cluster }
    }

    /// Whether chunks run over the reduction's end.
    pub fn runs_over(&self) -> bool {
        self.reached() > self.p.reduce[0].extent
    }

    /// The reductions all of whose places a step has.
    pub fn windows(&self) -> &'a [TileAxis] {
        &self.p.reduce[1 + self.walked..]
    }

    /// The places of the walked reductions at a step, and the statements that bind them.
    pub fn walk(&mut self, step: &Affine) -> (Vec<Stmt>, Vec<Affine>) {
        let value = self.number(step);
        let (mut bound, mut places, mut divisor) = (Vec::new(), Vec::new(), 1);
        for r in self.p.reduce[1..1 + self.walked].iter().rev() {
            let var = self.n.new_var(&r.short);
            bound.push(Stmt::Let { var, value: value.clone(), divisor, modulo: r.extent });
            places.insert(0, Affine::var(var));
            divisor *= r.extent;
        }
        (bound, places)
    }

    /// Where an element of the tile lies among rows or columns.
    pub fn place(&self, f: &Factor, at: &[Affine]) -> Affine {
        f.axes.iter().fold(Affine::constant(0), |sum, &a| sum.scale(self.size[a]).add(&at[a]))
    }

    /// The epilogue at tile elements, the sum being `sum`.
    pub fn result(&self, place: &[Affine], sum: &Expr) -> Stmt {
        epilogue(self.p, &self.start, place, sum)
    }

    /// The tile of a factor at a step, by dimensions of its source. `rows` says which row of the
    /// tile is meant, `within` the places of the walked reductions and then the position in the
    /// window, `main` the place in the reduction's chunk.
    pub fn spans(
        &self,
        f: &Factor,
        step: &Affine,
        rows: &[(usize, Affine)],
        within: &[Affine],
        main: &Affine,
    ) -> Vec<Span> {
        let (p, o) = (self.p, &self.operands[f.operand]);
        let number = self.number(step);
        let row = |a: usize| {
            rows.iter().find(|r| r.0 == a).map_or_else(|| Affine::constant(0), |r| r.1.clone())
        };
        let constant = |base: Affine| Span::new(base, 1, Affine::constant(0));
        if f.layout == TileLayout::Packed {
            let used = |v: Var| o.index.iter().any(|i| i.uses(v));
            let axes: Vec<usize> = (0..p.axes.len()).filter(|&a| used(p.axes[a].var)).collect();
            let fetched =
                |extent: i64, inner: Affine| Span::new(Affine::constant(0), extent, inner);
            let mut out: Vec<Span> =
                axes.iter().map(|&a| constant(Affine::var(self.block[a]))).collect();
            out.push(constant(number));
            let windows = (1..p.reduce.len()).filter(|&r| used(p.reduce[r].var));
            out.extend(windows.map(|r| fetched(p.reduce[r].extent, within[r - 1].clone())));
            out.extend(axes.iter().map(|&a| fetched(self.size[a], row(a))));
            out.push(fetched(self.whole(), main.clone()));
            return out;
        }
        let from = number.scale(if self.walked > 0 { 0 } else { self.whole() });
        let part = |part| match part {
            SpannedLoop::Axis(k) => (Affine::var(self.start[k]), row(k), self.size[k]),
            SpannedLoop::Chunk if f.layout == TileLayout::Sliding => {
                (Affine::constant(0), main.clone(), p.reduce[0].extent)
            }
            SpannedLoop::Chunk => (from.clone(), main.clone(), self.whole()),
            SpannedLoop::Window(k) if k < self.walked => {
                (within[k].clone(), Affine::constant(0), 1)
            }
            SpannedLoop::Window(k) => {
                (Affine::constant(0), within[k].clone(), p.reduce[k + 1].extent)
            }
        };
        let mut out: Vec<Span> = o.index.iter().map(|a| Span::of(p, a, &part)).collect();
        if f.layout.gathered()
            && let Some(s) = out.last_mut().filter(|s| s.step == 1 && s.extent > 1)
            && let Some(width) =
                line_width(p, &self.n, o, &self.size, f.layout == TileLayout::Planes)
        {
            s.align(width);
        }
        out
    }

    /// The element of a factor at a row of the tile and place in a step's part of the reduction;
    /// zero outside.
    pub fn element(
        &self,
        f: &Factor,
        from: Source,
        step: &Step,
        at: &[Affine],
        main: &Affine,
    ) -> Expr {
        let p = self.p;
        if f.layout == TileLayout::Packed {
            let o = &p.operands[f.operand];
            let used = |v: Var| o.index.iter().any(|i| i.uses(v));
            let axes: Vec<usize> = (0..p.axes.len()).filter(|&a| used(p.axes[a].var)).collect();
            let mut index: Vec<Affine> = axes.iter().map(|&a| Affine::var(self.block[a])).collect();
            index.push(step.number.clone());
            index.extend(
                (1..p.reduce.len())
                    .filter(|&r| used(p.reduce[r].var))
                    .map(|r| step.window[r - 1].clone()),
            );
            index.extend(axes.iter().map(|&a| at[a].clone()));
            index.push(main.clone());
            return Expr::load(from, index);
        }
        let k = step.number.scale(self.whole()).add(main);
        let o = self.operands[f.operand].clone();
        let place = |v: Var| match (
            p.axes.iter().position(|a| a.var == v),
            p.reduce.iter().position(|r| r.var == v),
        ) {
            (Some(a), _) => at[a].add(&Affine::var(self.start[a])),
            (None, Some(0)) => k.clone(),
            (None, Some(r)) => step.window[r - 1].clone(),
            (None, None) => Affine::var(v),
        };
        let mut conds: Vec<Cond> =
            o.conds.iter().map(|c| Cond { index: c.index.map_vars(place), ..c.clone() }).collect();
        if !f.filled && self.runs_over() {
            conds.push(Cond { index: k.clone(), low: 0, high: p.reduce[0].extent });
        }
        guarded(conds, Expr::load(from, o.index.iter().map(|i| i.map_vars(place)).collect()))
    }
}
