//! A configuration of the tensor cores' sketch on its way to a nest.

use super::problem::{Operand, Problem};
use super::span::{Part, Span};
use super::tensor::{Factor, Layout, Roles, SIDE};
use super::tensor_shared::{Tile, pieces};
use super::{around, count, line_width, tiles};
use crate::nest::{Buffer, Matrix, Mode, Nest, Reach, Scope, Stmt, Warp};
use squall_core::expr::{Affine, Cond, Expr, Source, Var};
use squall_core::{Configuration, DType};

pub(super) struct Tiling<'a> {
    pub(super) p: &'a Problem,
    pub(super) format: DType,
    pub(super) split: bool,
    pub(super) depth: i64,
    /// Rows and columns, and what they read.
    pub(super) factors: [Factor; 2],
    pub(super) operands: Vec<Operand>,
    pub(super) n: Nest,
    /// Elements of a tile, by axis.
    pub(super) size: Vec<i64>,
    /// Warps along rows and columns, and matrices of each.
    pub(super) warps: [i64; 2],
    pub(super) sides: [i64; 2],
    /// Neighbours along the last axis that each row or column of a matrix stands for.
    pub(super) run: [i64; 2],
    pub(super) chunk: i64,
    pub(super) groups: i64,
    pub(super) cluster: i64,
    pub(super) steps: i64,
    pub(super) stages: i64,
    /// Steps that are fetched before the first is multiplied.
    flying: i64,
    pub(super) pad: i64,
    /// Whether tiles arrive as boxes.
    pub(super) boxed: bool,
    /// Loops over the window that are written out, the innermost first.
    pub(super) unroll: usize,
    /// Whether weights arrive in pieces, one for each position of the window's first loop.
    piecewise: bool,
    /// Whether matrices are loaded one slice ahead; and the next step's first ones, too.
    pub(super) ahead: bool,
    across: bool,
    pub(super) block: Vec<Var>,
    pub(super) start: Vec<Var>,
    /// Which warp of a group along rows and columns; which group; thread of the warp.
    pub(super) warp: [Var; 2],
    pub(super) group: Var,
    pub(super) lane: Var,
    pub(super) rank: Var,
}

/// A value, zero where a condition does not hold.
pub(super) fn guarded(conds: Vec<Cond>, value: Expr) -> Expr {
    if conds.is_empty() {
        value
    } else {
        Expr::Select { conds, then: Box::new(value), other: Box::new(Expr::Const(0.0)) }
    }
}

/// A warp's matrix of sums, by its place in the run and its number along rows and columns.
pub(super) fn sum_of(sums: Source, position: i64, at: &[Var; 2]) -> Matrix {
    Matrix {
        buffer: sums,
        at: [Affine::constant(position)]
            .into_iter()
            .chain(at.iter().map(|v| Affine::var(*v)))
            .collect(),
    }
}

impl<'a> Tiling<'a> {
    pub fn new(p: &'a Problem, roles: &'a Roles, c: &Configuration) -> Tiling<'a> {
        let get = |k: &str| c.int(k).unwrap_or(1);
        let warps = [get("warps_rows"), get("warps_columns")];
        let mut t = Tiling::cut(p, roles, c, warps, [SIDE, SIDE], get("chunk"));
        // With a stage more than there are steps all of them are on their way at once.
        t.stages = t.stages.min(t.steps);
        for f in 0..2 {
            match (t.factors[f].layout, c.int("turn")) {
                (Layout::Turned, Some(1)) => t.turn(f),
                (Layout::Turned, Some(2)) => t.factors[f].layout = Layout::Planes,
                _ => {}
            }
        }
        t
    }

    /// What warps and groups of warps begin with: `warps` of them along rows and columns, each with
    /// `unit` of them times a number of its own; `chunk` elements of the reduction a step.
    pub(super) fn cut(
        p: &'a Problem,
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
        let steps = up(p.reduce[0].extent, chunk * groups * cluster);
        let stages = get("stages");
        let unroll = c.int("unroll").map_or(0, |u| u as usize);
        let mut n = p.base.clone();
        let fresh = |n: &mut Nest, what: &str| -> Vec<Var> {
            p.axes.iter().map(|a| n.new_var(&format!("{}{what}", a.short))).collect()
        };
        let (block, start) = (fresh(&mut n, "b"), fresh(&mut n, "0"));
        let [rows, columns, group, lane, rank] =
            ["warp_rows", "warp_columns", "group", "lane", "rank"].map(|x| n.new_var(x));
        let boxed = c.int("boxes") == Some(1) || c.int("pad") == Some(2);
        let pad = if boxed { 0 } else { get("pad") * roles.depth() / 2 };
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
            steps,
            stages,
            flying: stages - 1,
            pad,
            boxed,
            unroll,
            piecewise: c.int("piecewise") == Some(1),
            ahead: get("ahead") > 0,
            across: get("ahead") > 1,
            block,
            start,
            warp: [rows, columns],
            group,
            lane,
            rank,
        }
    }

    pub fn program(mut self) -> Nest {
        let ahead = std::mem::take(&mut self.n.body);
        let positions = self.run[0] * self.run[1];
        let sums = self.buffer(
            "sums",
            vec![positions, self.sides[0], self.sides[1], SIDE, SIDE],
            Scope::Fragment,
            DType::F32,
        );
        let mut body = Vec::new();
        // Others may bring their sums as soon as this block has begun.
        let gathered = (self.cluster > 1).then(|| {
            body.push(Stmt::Barrier(Reach::Cluster));
            self.gather(&mut body)
        });
        body.push(Stmt::Local(sums));
        for position in 0..positions {
            let at = self.each("z");
            let zero = Stmt::Warp(Warp::Zero(sum_of(sums, position, &at)));
            body.extend(self.over(&at, vec![zero]));
        }
        self.sum(sums, &mut body);
        self.put(sums, gathered, &mut body);
        let threads = [
            (self.group, self.groups),
            (self.warp[0], self.warps[0]),
            (self.warp[1], self.warps[1]),
            (self.lane, 32),
        ];
        self.launch(&threads, body, ahead)
    }

    /// The program whose threads run `body`, behind launches that go `ahead`.
    pub(super) fn launch(
        mut self,
        threads: &[(Var, i64)],
        body: Vec<Stmt>,
        ahead: Vec<Stmt>,
    ) -> Nest {
        let p = self.p;
        let body = around(threads, Mode::Thread, body);
        let mut body = vec![count(self.rank, self.cluster, Mode::Cluster, body)];
        for a in (0..p.axes.len()).rev() {
            body = vec![tiles(self.block[a], self.start[a], p.axes[a].extent, self.size[a], body)];
        }
        self.n.body = ahead.into_iter().chain(body).collect();
        self.n
    }

    pub(super) fn buffer(
        &mut self,
        name: &str,
        shape: Vec<i64>,
        scope: Scope,
        dtype: DType,
    ) -> Source {
        self.n.new_buffer(Buffer { name: name.into(), dtype, shape, scope })
    }

    /// Variables that count a warp's matrices of sums.
    pub(super) fn each(&mut self, suffix: &str) -> [Var; 2] {
        ["i", "j"].map(|x| self.n.new_var(&format!("{x}_{suffix}")))
    }

    pub(super) fn over(&self, at: &[Var; 2], body: Vec<Stmt>) -> Vec<Stmt> {
        around(&[(at[0], self.sides[0]), (at[1], self.sides[1])], Mode::Unroll, body)
    }

    /// Elements of the reduction in one step of a block.
    pub(super) fn whole(&self) -> i64 {
        self.chunk * self.groups
    }

    /// The number of a step among those of all blocks of the cluster.
    pub(super) fn number(&self, step: &Affine) -> Affine {
        Affine::new([(self.rank, self.steps)], 0).add(step)
    }

    /// Rows or columns of a factor's tile.
    pub(super) fn lines(&self, f: &Factor) -> i64 {
        f.axes.iter().map(|&a| self.size[a]).product()
    }

    /// Whether chunks run over the reduction's end.
    pub(super) fn runs_over(&self) -> bool {
        self.steps * self.whole() * self.cluster > self.p.reduce[0].extent
    }

    /// The tile of a factor at a step, by dimensions of its source. `rows` says which row of the
    /// tile is meant, `within` the position in the window, `main` the place in the reduction's
    /// chunk.
    pub(super) fn spans(
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
        if f.layout == Layout::Packed {
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
        let from = number.scale(self.whole());
        let part = |part| match part {
            Part::Axis(k) => (Affine::var(self.start[k]), row(k), self.size[k]),
            Part::Chunk if f.layout == Layout::Sliding => {
                (Affine::constant(0), main.clone(), p.reduce[0].extent)
            }
            Part::Chunk => (from.clone(), main.clone(), self.whole()),
            Part::Window(k) => (Affine::constant(0), within[k].clone(), p.reduce[k + 1].extent),
        };
        let mut out: Vec<Span> = o.index.iter().map(|a| Span::of(p, a, &part)).collect();
        if f.layout.gathered()
            && let Some(s) = out.last_mut().filter(|s| s.step == 1 && s.extent > 1)
            && let Some(width) = line_width(p, &self.n, o, &self.size, f.layout == Layout::Planes)
        {
            s.align(width);
        }
        out
    }

    /// Copies a factor's tile to one of the stages, or the piece of it at one place of a dimension.
    fn fetch(
        &mut self,
        f: &Factor,
        t: &Tile,
        spans: &[Span],
        stage: &Affine,
        piece: Option<&(usize, Affine)>,
    ) -> Stmt {
        let o = self.operands[f.operand].clone();
        let planes = f.layout.gathered();
        let width = if planes { spans.last().map_or(1, |s| s.lanes) } else { self.depth / 2 };
        // Whole lines go from last to last dimension; where they turn, a lane takes a column of the
        // source.
        let across = planes || t.order.last() != Some(&t.along);
        let vector = if across { spans.len() - 1 } else { t.along };
        let lane = self.n.new_var("v");
        let (mut loops, mut at) = (Vec::new(), vec![Affine::constant(0); spans.len()]);
        let mut dims: Vec<usize> =
            (0..spans.len()).filter(|&d| spans[d].extent > 1 || d == vector).collect();
        if f.layout == Layout::Turned {
            dims.sort_by_key(|&d| d != vector);
        }
        for d in dims {
            if let Some((_, place)) = piece.filter(|p| p.0 == d) {
                at[d] = place.clone();
                continue;
            }
            let x = self.n.new_var(&format!("x{d}"));
            if d == vector && width > 1 {
                loops.push((x, spans[d].extent / width));
                at[d] = Affine::new([(x, width), (lane, 1)], 0);
            } else {
                loops.push((x, spans[d].extent));
                at[d] = Affine::var(x);
            }
        }
        let global: Vec<Affine> =
            spans.iter().enumerate().map(|(d, s)| s.base.add(&at[d].scale(s.step))).collect();
        let guard = |c: &Cond| {
            let d = o.index.iter().position(|a| a.terms() == c.index.terms()).unwrap_or(0);
            Cond { index: global[d].plus(c.index.offset() - o.index[d].offset()), ..c.clone() }
        };
        let packed = f.layout == Layout::Packed;
        let mut conds: Vec<Cond> =
            if packed { Vec::new() } else { o.conds.iter().map(guard).collect() };
        if !packed && !f.filled && f.layout != Layout::Sliding && self.runs_over() {
            // Without the groups that may stand beside the reduction.
            let rest =
                o.index[f.along].map_vars(|v| match self.p.axes.iter().position(|x| x.var == v) {
                    Some(a) => Affine::var(self.start[a]),
                    None => Affine::constant(0),
                });
            conds.push(Cond {
                index: global[f.along].add(&rest.scale(-1)),
                low: 0,
                high: self.p.reduce[0].extent,
            });
        }
        let load = Expr::load(t.from, global);
        let index = t.index(stage, planes, |d| at[d].clone());
        let mut copy = vec![Stmt::Store { buffer: t.buffer, index, value: guarded(conds, load) }];
        if width > 1 {
            copy = vec![count(lane, width, Mode::Vector, copy)];
        }
        around(&loops, Mode::Share, copy).remove(0)
    }

    /// Walks through the reduction.
    fn sum(&mut self, sums: Source, body: &mut Vec<Stmt>) {
        let p = self.p;
        let all = self.factors.clone();
        let factors = [&all[0], &all[1]];
        let from = factors.map(|f| match f.layout {
            Layout::Packed => self.pack(&p.operands[f.operand]),
            _ => self.operands[f.operand].source,
        });
        let none = Affine::constant(0);
        let still = vec![none.clone(); p.reduce.len()];
        let shapes = factors.map(|f| self.spans(f, &none, &[], &still, &none));
        let shared = [0, 1].map(|i| self.tile(factors[i], from[i], &shapes[i]));
        let fetch_one = |me: &mut Self,
                         i: usize,
                         step: &Affine,
                         stage: &Affine,
                         piece: Option<&(usize, Affine)>|
         -> Vec<Stmt> {
            if me.boxed {
                return me.boxes(
                    factors[i],
                    (from[i], shared[i].buffer),
                    &me.number(step),
                    &still,
                    stage,
                );
            }
            let spans = me.spans(factors[i], step, &[], &still, &none);
            vec![me.fetch(factors[i], &shared[i], &spans, stage, piece)]
        };
        let fetch = |me: &mut Self, step: &Affine, stage: &Affine| -> Vec<Stmt> {
            (0..2).flat_map(|i| fetch_one(me, i, step, stage, None)).collect()
        };
        // Where a weight's tile has the window's first loop.
        let pieces = [0, 1].map(|i| pieces(p, factors[i]).filter(|_| self.piecewise));
        let mut inner: Vec<Stmt> = shared.iter().map(|t| Stmt::Local(t.buffer)).collect();
        let ahead = self.flying;
        if ahead > 0 {
            let s = self.n.new_var("s");
            let mut first = fetch(self, &Affine::var(s), &Affine::var(s));
            first.push(Stmt::CommitCopies);
            inner.push(count(s, ahead, Mode::Unroll, first));
        }
        let barrier = || Stmt::Barrier(Reach::Block);
        let arrived = || [Stmt::AwaitCopies((ahead - 1) as u32), barrier()];
        // Matrices that outlive a step.
        let kept = self.across.then(|| self.products(None));
        if let Some(products) = &kept {
            inner.extend(products.locals());
            inner.extend(arrived());
            inner.extend(self.load_product(products, &shared, &none, 0));
        }
        let step = self.n.new_var("step");
        let now = Affine::var(step);
        let mut each = Vec::new();
        if ahead > 0 {
            let [stage, next] = ["stage", "next"].map(|x| self.n.new_var(x));
            let stages = self.stages;
            let number = |var: Var, from: i64| Stmt::Let {
                var,
                value: now.plus(from),
                divisor: 1,
                modulo: stages,
            };
            let numbers = [number(stage, 0), number(next, ahead)];
            let mut later = Vec::new();
            if ahead < self.steps {
                let body = fetch(self, &now.plus(ahead), &Affine::var(next));
                later.push(Stmt::If {
                    conds: vec![Cond { index: now.plus(ahead), low: 0, high: self.steps }],
                    body,
                });
            }
            later.push(Stmt::CommitCopies);
            if let Some(products) = &kept {
                let after = self.n.new_var("after");
                each.extend(numbers);
                each.push(number(after, 1));
                for i in 0..products.len() {
                    // While the last is multiplied, the next step's first one is loaded.
                    if i + 1 == products.len() {
                        each.extend(arrived());
                        each.extend(self.load_product(products, &shared, &Affine::var(after), 0));
                    } else {
                        each.extend(self.load_product(
                            products,
                            &shared,
                            &Affine::var(stage),
                            i + 1,
                        ));
                    }
                    each.extend(self.multiply_product(products, sums, i));
                    each.append(&mut later);
                }
            } else {
                each.extend(arrived());
                each.extend(numbers);
                each.append(&mut later);
                each.extend(self.multiply(sums, &shared, &Affine::var(stage), None));
            }
        } else {
            let at = |i: usize, place: &Affine| pieces[i].map(|d| (d, place.clone()));
            for i in 0..2 {
                each.extend(fetch_one(self, i, &now, &none, at(i, &none).as_ref()));
            }
            each.push(Stmt::CommitCopies);
            if self.piecewise {
                // The next piece is on its way while one is multiplied.
                let first = &p.reduce[1];
                let w = self.n.new_var(&format!("{}w", first.short));
                let next = Affine::new([(w, 1)], 1);
                let cut = (0..2).filter(|&i| pieces[i].is_some());
                let later = cut
                    .flat_map(|i| fetch_one(self, i, &now, &none, at(i, &next).as_ref()))
                    .collect();
                let mut piece = vec![Stmt::If {
                    conds: vec![Cond { index: next.clone(), low: 0, high: first.extent }],
                    body: later,
                }];
                piece.extend([Stmt::CommitCopies, Stmt::AwaitCopies(1), barrier()]);
                piece.extend(self.multiply(sums, &shared, &none, Some(w)));
                let mode =
                    if self.unroll >= p.reduce.len() - 1 { Mode::Unroll } else { Mode::Serial };
                each.push(count(w, first.extent, mode, piece));
            } else {
                each.extend([Stmt::AwaitCopies(0), barrier()]);
                each.extend(self.multiply(sums, &shared, &none, None));
            }
            // Where one step is all, the barrier behind the steps is the one.
            if self.steps > 1 {
                each.push(barrier());
            }
        }
        inner.push(count(step, self.steps, Mode::Serial, each));
        if self.direct().is_some() {
            return body.extend(inner);
        }
        inner.push(barrier());
        // A loop that runs once gives the tiles a block of statements, at whose end their place is
        // free.
        let once = self.n.new_var("once");
        body.push(count(once, 1, Mode::Serial, inner));
    }

    /// Where an element of the tile lies among rows or columns.
    pub(super) fn place(&self, f: &Factor, at: &[Affine]) -> Affine {
        f.axes.iter().fold(Affine::constant(0), |sum, &a| sum.scale(self.size[a]).add(&at[a]))
    }

    /// The epilogue at tile elements, the sum being `sum`.
    pub(super) fn result(&self, place: &[Affine], sum: &Expr) -> Stmt {
        super::epilogue(self.p, &self.start, place, sum)
    }
}
