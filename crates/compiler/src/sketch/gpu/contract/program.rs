//! Writes the loop nest of a configuration (a value for each knob) of the contraction sketch: the
//! block, cluster and thread loops, the loop over chunks of the reduction (each fetched to shared
//! memory and added up, optionally one chunk ahead), and the end, where each thread stores its sums
//! or threads first add up partial sums.
//!
//! Input: a [`Contraction`] (a sum over tiles of one or two operands, `problem.rs`) and a
//! configuration; output: a nest. `tiling.rs` says which elements each thread owns; `mod.rs` has
//! the idea of the sketch (a kernel structure with open knobs).

use super::super::loops::{around, count, tiles, total};
use super::super::problem::{Contraction, ContractionOperand, epilogue};
use super::super::span::Span;
use super::tiling::{Own, Packed, SharedTile, Tiling};
use crate::nest::{Mode, Nest, Reach, Scope, Stmt};
use squall_core::Configuration;
use squall_core::expr::{Affine, Cond, Expr, Source, Var};

/// The nest of a configuration.
pub fn program(p: &Contraction, c: &Configuration) -> Result<Nest, String> {
    Tiling::new(p, c)?.program()
}

/// Which elements of an operand a thread's sums read, apart from the step.
struct Reads {
    own: Own,
    /// Places in the chunk and in the window.
    main: Affine,
    inside: Vec<Affine>,
    packed: Vec<Option<Packed>>,
}

/// The tensor that an operand's tile is fetched from, and the span of each dimension.
type From = (Source, Vec<Span>);

impl Tiling<'_> {
    fn program(mut self) -> Result<Nest, String> {
        let p = self.p;
        let shape = (0..self.t.len()).flat_map(|a| [self.v[a], self.i[a]]).collect();
        let acc = self.buffer("acc", shape, Scope::Local);
        let mut body = vec![Stmt::Local(acc)];
        let own = self.own("z");
        let zero =
            Stmt::Store { buffer: acc, index: own.index, value: Expr::Const(p.op.identity()) };
        body.extend(around(&own.loops, Mode::Unroll, vec![zero]));
        self.sum(acc, &mut body);
        if self.groups * self.cluster > 1 {
            self.meet(acc, &mut body)
        } else {
            self.finish(acc, &mut body)
        }
        if let Some(r) = &p.row_steps {
            body = r.ahead(&mut self.n, &self.start, &self.size, body);
        }
        let threads: Vec<(Var, i64)> = [(self.group, self.groups)]
            .into_iter()
            .chain(self.thread.iter().copied().zip(self.t.iter().copied()))
            .collect();
        let body = around(&threads, Mode::Thread, body);
        let mut body = vec![count(self.rank, self.cluster, Mode::Cluster, body)];
        for a in (0..p.axes.len()).rev() {
            body = vec![tiles(self.block[a], self.start[a], p.axes[a].extent, self.size[a], body)];
        }
        self.n.body = body;
        Ok(self.n)
    }

    /// Where all operands are read at a step.
    fn reads_at(&self, r: &Reads, step: &Affine) -> Vec<From> {
        let (p, own) = (self.p, &r.own);
        let one = |(o, packed): (&ContractionOperand, &Option<Packed>)| {
            let Some((source, axes, reduce)) = packed else {
                let mut spans = self.spans(&o.index, step, &own.place, &r.main, &r.inside);
                self.widen(o, &mut spans);
                return (o.source, spans);
            };
            let fixed =
                axes.iter().map(|&a| (Affine::var(self.block[a]), 1, Affine::constant(0), false));
            let tile = axes
                .iter()
                .map(|&a| (Affine::constant(0), self.size[a], own.place[a].clone(), true));
            let span =
                |(base, extent, inner, spatial)| Span { spatial, ..Span::new(base, extent, inner) };
            let middle: Vec<Affine> =
                reduce.iter().map(|&r| Affine::var(p.reduce[r].var)).collect();
            let mut all: Vec<Span> = fixed.map(span).collect();
            all.extend(self.spans(&middle, step, &own.place, &r.main, &r.inside));
            all.extend(tile.map(span));
            self.widen(o, &mut all);
            (*source, all)
        };
        p.operands.iter().zip(&r.packed).map(one).collect()
    }

    /// The loop over the reduction: fetches the tiles of each chunk, and adds up their products.
    fn sum(&mut self, acc: Source, body: &mut Vec<Stmt>) {
        let p = self.p;
        let own = self.own("c");
        let [co, cu, stage] = ["co", "cu", "stage"].map(|x| self.n.new_var(x));
        let main = Affine::new([(self.group, self.chunk), (co, self.unroll), (cu, 1)], 0);
        let within: Vec<Var> =
            p.reduce[1..].iter().map(|r| self.n.new_var(&format!("{}w", r.short))).collect();
        let inside: Vec<Affine> = within.iter().map(|v| Affine::var(*v)).collect();
        let written = self.walked.len();
        let packed: Vec<_> = p.operands.iter().map(|o| o.packed.then(|| self.pack(o))).collect();
        let reads = Reads { own, main, inside, packed };
        let double = self.stages > 1;
        let now = if double {
            Affine::new([(self.step, 2), (stage, 1)], 0)
        } else {
            Affine::var(self.step)
        };
        let from = self.reads_at(&reads, &now);
        let tiles: Vec<SharedTile> =
            from.iter().map(|(source, spans)| self.tile(*source, spans)).collect();
        let at = double.then(|| Affine::var(stage));
        let loads: Vec<Expr> = tiles
            .iter()
            .zip(&from)
            .map(|(t, s)| Expr::load(t.buffer, t.index(at.clone(), |d| s.1[d].inner.clone())))
            .collect();
        let value = p.value.rewrite(&mut |a| a.clone(), &mut |e| match e {
            Expr::Load { source, index } if index.is_empty() => loads[source.0 as usize].clone(),
            e => e,
        });
        let index = reads.own.index.clone();
        let add = Stmt::Update { op: p.op, buffer: acc, index, value };
        let mut sum = around(&reads.own.loops, Mode::Unroll, vec![add]);
        let windows: Vec<(Var, i64)> =
            within.iter().zip(&p.reduce[1..]).skip(written).map(|(v, r)| (*v, r.extent)).collect();
        sum = around(&windows, Mode::Unroll, sum);
        sum = vec![count(cu, self.unroll, Mode::Unroll, sum)];
        let sum = count(co, self.chunk / self.unroll, Mode::Serial, sum);
        if double {
            return self.one_ahead(&reads, &tiles, now, stage, sum, body);
        }
        let barrier = || Stmt::Barrier(Reach::Block);
        let mut inner: Vec<Stmt> = tiles.iter().map(|t| Stmt::Local(t.buffer)).collect();
        inner.extend(self.fetch_all(&from, &tiles, None));
        inner.extend([barrier(), sum, barrier()]);
        let steps = count(self.step, self.steps, Mode::Serial, inner);
        body.extend(self.walk(vec![steps]));
    }

    /// Puts statements into the loops over the reductions that are walked through one place at a
    /// time.
    fn walk(&self, each: Vec<Stmt>) -> Vec<Stmt> {
        let extents = self.p.reduce[1..].iter().map(|r| r.extent);
        let loops: Vec<(Var, i64)> = self.walked.iter().copied().zip(extents).collect();
        around(&loops, Mode::Serial, each)
    }

    /// Adds up each chunk while the next is on its way.
    fn one_ahead(
        &mut self,
        reads: &Reads,
        tiles: &[SharedTile],
        now: Affine,
        stage: Var,
        sum: Stmt,
        body: &mut Vec<Stmt>,
    ) {
        let barrier = || Stmt::Barrier(Reach::Block);
        let mut outer: Vec<Stmt> = tiles.iter().map(|t| Stmt::Local(t.buffer)).collect();
        let zero = Affine::constant(0);
        let first = self.reads_at(reads, &zero);
        outer.extend(self.fetch_all(&first, tiles, Some(&zero)));
        outer.push(barrier());
        let next = now.plus(1);
        let later = self.reads_at(reads, &next);
        let ahead = self.fetch_all(&later, tiles, Some(&Affine::new([(stage, -1)], 1)));
        let ahead =
            Stmt::If { conds: vec![Cond { index: next, low: 0, high: self.steps }], body: ahead };
        let inner = vec![count(stage, 2, Mode::Unroll, vec![ahead, sum, barrier()])];
        outer.extend([count(self.step, self.steps / 2, Mode::Serial, inner), barrier()]);
        // A loop that runs once makes a block of statements around the tiles, so that their place
        // in shared memory is free at its end.
        let once = self.n.new_var("once");
        body.extend(self.walk(vec![count(once, 1, Mode::Serial, outer)]));
    }

    /// Fetches the tiles of all operands.
    fn fetch_all(
        &mut self,
        from: &[From],
        tiles: &[SharedTile],
        stage: Option<&Affine>,
    ) -> Vec<Stmt> {
        let p = self.p;
        let one = |(k, (source, spans)): (usize, &From)| {
            self.fetch(&p.operands[k], *source, spans, &tiles[k], stage.cloned())
        };
        from.iter().enumerate().map(one).collect()
    }

    /// Copies an operand's tile to shared memory, in one of the stages where there are several.
    fn fetch(
        &mut self,
        o: &ContractionOperand,
        source: Source,
        spans: &[Span],
        tile: &SharedTile,
        stage: Option<Affine>,
    ) -> Stmt {
        let mut loops = Vec::new();
        let mut f: Vec<Affine> = vec![Affine::constant(0); spans.len()];
        let mut lanes = None;
        for (d, s) in spans.iter().enumerate().filter(|(_, s)| s.extent > 1) {
            let x = self.n.new_var(&format!("x{d}"));
            if s.lanes > 1 {
                let lane = self.n.new_var("lane");
                loops.push((x, s.extent / s.lanes));
                f[d] = Affine::new([(x, s.lanes), (lane, 1)], 0);
                lanes = Some((lane, s.lanes));
            } else {
                loops.push((x, s.extent));
                f[d] = Affine::var(x);
            }
        }
        let global: Vec<Affine> =
            spans.iter().enumerate().map(|(d, s)| s.base.add(&f[d].scale(s.step))).collect();
        let conds = o.conds_at(&global);
        let element = o.value(source, &global);
        let value = if conds.is_empty() {
            element
        } else {
            Expr::Select { conds, then: Box::new(element), other: Box::new(Expr::Const(o.other)) }
        };
        let index = tile.index(stage, |d| f[d].clone());
        let mut copy = vec![Stmt::Store { buffer: tile.buffer, index, value }];
        if let Some((lane, width)) = lanes {
            copy = vec![count(lane, width, Mode::Vector, copy)];
        }
        if loops.is_empty() {
            loops.push((self.n.new_var("x"), 1));
        }
        around(&loops, Mode::Share, copy).remove(0)
    }

    /// Every thread finishes its own elements.
    fn finish(&mut self, acc: Source, body: &mut Vec<Stmt>) {
        let mut own = self.own("y");
        let y = epilogue(self.p, &self.start, &own.place, &Expr::load(acc, own.index));
        let inner = own.loops.pop();
        let last = inner.map_or_else(Vec::new, |(v, e)| {
            vec![count(v, e, if matches!(e, 2 | 4) { Mode::Vector } else { Mode::Unroll }, vec![y])]
        });
        body.extend(around(&own.loops, Mode::Unroll, last));
    }

    /// Partial sums meet in shared memory; each block of the cluster finishes a slice.
    fn meet(&mut self, acc: Source, body: &mut Vec<Stmt>) {
        let p = self.p;
        let shape: Vec<i64> =
            [self.cluster, self.groups].into_iter().chain(self.size.iter().copied()).collect();
        let partial = self.buffer("partial", shape, Scope::Cluster);
        body.push(Stmt::Local(partial));
        let own = self.own("p");
        let index = |rank: Affine, group: Affine, place: &[Affine]| -> Vec<Affine> {
            [rank, group].into_iter().chain(place.iter().cloned()).collect()
        };
        let put = Stmt::Store {
            buffer: partial,
            index: index(Affine::var(self.rank), Affine::var(self.group), &own.place),
            value: Expr::load(acc, own.index),
        };
        body.extend(around(&own.loops, Mode::Unroll, vec![put]));
        body.push(Stmt::Barrier(Reach::Cluster));
        let cut = self.size.iter().position(|s| s % self.cluster == 0).unwrap_or(0);
        let (mut loops, mut place) = (Vec::new(), Vec::new());
        for (k, axis) in p.axes.iter().enumerate() {
            let e = self.n.new_var(&format!("{}e", axis.short));
            let slice = if k == cut { self.size[k] / self.cluster } else { self.size[k] };
            loops.push((e, slice));
            place.push(if k == cut {
                Affine::new([(self.rank, slice), (e, 1)], 0)
            } else {
                Affine::var(e)
            });
        }
        let [r, g] = ["r", "g"].map(|x| self.n.new_var(x));
        let part = Expr::load(partial, index(Affine::var(r), Affine::var(g), &place));
        let over = [(r, self.cluster), (g, self.groups)];
        let (sum, mut each) = total(&mut self.n, p.op, part, &over);
        each.push(epilogue(p, &self.start, &place, &sum));
        body.extend(around(&loops, Mode::Share, each));
        body.push(Stmt::Barrier(Reach::Cluster));
    }
}
