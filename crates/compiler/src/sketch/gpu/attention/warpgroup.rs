//! Attention of 16-bit tensors by warpgroups (`wgmma`, compute capability 9.0 only). After
//! FlashAttention-3 (Shah et al., 2024): a warpgroup, four warps, has 64 rows. Queries and keys are
//! multiplied from shared memory; powers are the first factor of the second product in the
//! registers where they were computed.
//!
//! The products with values are awaited only when the next scores are, so that the two products
//! follow each other without a gap. While a warpgroup computes on its scores, other warpgroups of
//! the multiprocessor multiply. Input: an [`Attention`] and a GPU; output: the sketch
//! `gpu_attention_warpgroup`. The softmax steps are in `rows.rs`.

use super::super::super::{Draft, overlap_at_most};
use super::super::Program;
use super::super::loops::{around, count};
use super::super::resources::{Block, SWIZZLE_ALIGNMENT, WARP, WARPGROUP};
use super::super::tensor::tile::guarded;
use super::problem::{Attention, Operand};
use super::rows::{Held, Rows, SIDE};
use super::tensor::format;
use crate::nest::{Matrix, Mode, Nest, Reach, Scope, Stmt, TileSlice, Warp};
use squall_core::expr::{Affine, Cond, Expr, Source, Var};
use squall_core::space::{Knob, Role, Term};
use squall_core::{Configuration, DType, Gpu, Space};
use std::sync::Arc;

/// Rows of a warpgroup; also the 16-bit elements of a swizzled row of shared memory (128 bytes).
const ROWS: i64 = 64;

/// The most columns of a warpgroup's sums.
const MOST_COLUMNS: i64 = 256;

/// The sketch by warpgroups, where the device and the tensors' layouts allow it.
pub fn derive(p: &Arc<Attention>, gpu: Gpu) -> Option<Program> {
    if gpu.capability / 10 != 9 {
        return None;
    }
    let format = format(p)?;
    if !lies_in_rows(p) {
        return None;
    }
    let space = space(p, gpu)?;
    let p = Arc::clone(p);
    let make = move |c: &Configuration| Ok(Writer::new(&p, format, c).program());
    Some(Program { name: "gpu_attention_warpgroup".into(), space, gpu, make: Box::new(make) })
}

/// Whether depth and columns are whole swizzled rows that lie side by side in memory.
fn lies_in_rows(p: &Attention) -> bool {
    let ends_with = |o: &Operand, v: Var| {
        o.index.last().and_then(Affine::as_var) == Some(v)
            && p.base.buffer(o.source).shape.last().is_some_and(|n| n % 8 == 0)
    };
    let [query, key] = &p.scores.operands;
    let is_whole = |extent: i64| extent % ROWS == 0 && extent <= MOST_COLUMNS;
    ends_with(query, p.depth.0)
        && ends_with(key, p.depth.0)
        && ends_with(&p.values.operands[1], p.column.0)
        && is_whole(p.depth.1)
        && is_whole(p.column.1)
}

/// The space of the sketch.
fn space(p: &Attention, gpu: Gpu) -> Option<Space> {
    let tile = |axis: &str, level| Role::Tile { axis: axis.into(), level };
    let (rows, keys) = (p.row.1, p.key.1);
    let wide = [1, 2, 3].into_iter().filter(|n| *n == 1 || n * ROWS < keys + ROWS);
    let knobs = vec![
        Knob::ints("m_t", tile("m", 0), 1..=4),
        Knob::ints("n_i", tile("n", 0), wide),
        Knob::ints("stages", Role::Choice, [2, 3, 4]),
    ];
    let mut d = Draft { knobs, ..Draft::default() };
    let tall = || Term::product([Term::knob("m_t"), Term::from(ROWS)]);
    let wide = || Term::product([Term::knob("n_i"), Term::from(ROWS)]);
    d.must.push(tall().at_most(rows));
    d.should.push(overlap_at_most(rows, tall, 4));
    // Registers for scores and for their powers, half as large; for sums of values; and for
    // addresses.
    let scores = Term::product([Term::knob("n_i"), Term::from(ROWS * 3 / 4)]);
    let registers = Term::sum([scores, Term::from(p.column.1 / 2 + 40)]);
    let lines = |n: Term, width: i64| Term::product([n, Term::from(2 * width)]);
    let stages = Term::product([wide(), Term::knob("stages")]);
    let shared = Term::sum([
        lines(tall(), p.depth.1),
        lines(stages.clone(), p.depth.1),
        lines(stages, p.column.1),
        Term::from(SWIZZLE_ALIGNMENT),
    ]);
    let threads = Term::product([Term::knob("m_t"), Term::from(WARPGROUP)]);
    let block = Block { threads, registers: Some(registers), shared: vec![shared] };
    d.must.extend(block.fits(gpu));
    d.open()
}

/// Where tiles lie in shared memory.
#[derive(Clone, Copy)]
struct Tiles {
    query: Source,
    key: Source,
    value: Source,
}

/// The fragments of a warpgroup, which lie in its registers.
#[derive(Clone, Copy)]
struct Fragments {
    score: Source,
    power: Source,
    acc: Source,
}

struct Writer<'a> {
    r: Rows<'a>,
    groups: i64,
    stages: i64,
    group: Var,
    quarter: Var,
}

impl<'a> Writer<'a> {
    fn new(p: &'a Attention, format: DType, c: &Configuration) -> Writer<'a> {
        let get = |k: &str| c.int(k).unwrap_or(1);
        let mut r = Rows::new(p, format, 1, get("n_i") * ROWS / SIDE);
        let [group, quarter] = ["group", "quarter"].map(|x| r.n.new_var(x));
        r.warp = Affine::new([(group, 4), (quarter, 1)], 0);
        Writer { r, groups: get("m_t"), stages: get("stages"), group, quarter }
    }

    fn tall(&self) -> i64 {
        self.groups * ROWS
    }

    fn program(mut self) -> Nest {
        let (p, format) = (self.r.p, self.r.format);
        let (tall, wide, stages) = (self.tall(), self.r.wide(), self.stages);
        let (depth, columns) = (p.depth.1 / ROWS, p.column.1 / ROWS);
        let mut rows = |name, shape| self.r.buffer(name, shape, Scope::Swizzled, format);
        let t = Tiles {
            query: rows("query_s", vec![depth, tall, ROWS]),
            key: rows("keys_s", vec![stages, depth, wide, ROWS]),
            value: rows("values_s", vec![stages, wide / ROWS, columns, ROWS, ROWS]),
        };
        let mut held = |name, shape, dtype| self.r.buffer(name, shape, Scope::Fragment, dtype);
        let f = Fragments {
            score: held("scores_f", vec![1, SIDE, wide], DType::F32),
            power: held("powers_f", vec![wide / ROWS, ROWS / SIDE, SIDE, SIDE], format),
            acc: held("acc_f", vec![1, SIDE, p.column.1], DType::F32),
        };
        let (own, mut body) = self.r.begin();
        let buffers = [t.query, t.key, t.value, f.score, f.power, f.acc];
        body.extend(buffers.map(Stmt::Local));
        let zeroed = |buffer| Warp::Zero(Matrix { buffer, at: vec![Affine::constant(0)] });
        body.extend([f.score, f.acc].map(|b| Stmt::Warp(zeroed(b))));
        body.push(self.fetch_query(t.query));
        // With more than two stages, one is being multiplied, one has the values of the step
        // before, whose products may still read them, and the others are on their way.
        let ahead = (self.stages - 2).max(1);
        for s in 0..ahead {
            let fetch = self.fetch(t, &Affine::constant(s), &Affine::constant(s));
            body.extend(if s < self.r.steps() { fetch } else { Vec::new() });
            body.push(Stmt::CommitCopies);
        }
        let each = self.each_tile(t, f, own, ahead);
        body.push(count(self.r.step, self.r.steps(), Mode::Serial, each));
        body.extend([Stmt::AwaitProducts(0), Stmt::AwaitCopies(0)]);
        let (sum, unpack) = self.unpacked(f.acc);
        body.extend(unpack);
        body.extend(self.r.finish(own, sum, p.column.1 / SIDE));
        body.push(Stmt::Barrier(Reach::Block));
        let threads = [(self.group, self.groups), (self.quarter, 4), (self.r.lane, WARP)];
        self.r.launched(&threads, tall, body)
    }

    /// The statements for a tile of keys and values; `ahead` tiles are fetched ahead.
    fn each_tile(&mut self, t: Tiles, f: Fragments, own: Held, ahead: i64) -> Vec<Stmt> {
        let barrier = || Stmt::Barrier(Reach::Block);
        let [stage, next] = ["stage", "next"].map(|x| self.r.n.new_var(x));
        let (now, modulo) = (Affine::var(self.r.step), self.stages);
        let later = now.plus(ahead);
        let mut body = vec![
            Stmt::AwaitCopies((ahead - 1) as u32),
            barrier(),
            Stmt::Let { var: stage, value: now, divisor: 1, modulo },
            Stmt::Let { var: next, value: later.clone(), divisor: 1, modulo },
        ];
        let (stage, next) = (Affine::var(stage), Affine::var(next));
        let fetch = self.fetch(t, &later, &next);
        let conds = vec![Cond { index: later, low: 0, high: self.r.steps() }];
        let fetch = [Stmt::If { conds, body: fetch }, Stmt::CommitCopies];
        // The products of a step before last are done: where their stage is the next one, it is
        // free from here on, and else when all have awaited the last step's.
        let is_free = self.stages > 2;
        if is_free {
            body.extend(fetch.clone());
        }
        body.extend(self.scores(t, f, &stage));
        body.push(Stmt::AwaitProducts(0));
        if !is_free {
            body.push(barrier());
            body.extend(fetch);
        }
        body.extend(self.powers(f, own));
        body.extend(self.weighted(t, f, &stage));
        body
    }

    /// Begins the first product of the warpgroup's rows with a tile of keys.
    fn scores(&mut self, t: Tiles, f: Fragments, stage: &Affine) -> Vec<Stmt> {
        let wide = self.r.wide();
        let first = Affine::new([(self.group, ROWS)], 0);
        let product = |d: i64| Warp::WarpgroupMultiply {
            to: f.score,
            rows: TileSlice { first: first.clone(), all: self.tall() },
            columns: TileSlice { first: Affine::constant(0), all: wide },
            a: Matrix { buffer: t.query, at: vec![Affine::constant(d)] },
            b: Matrix { buffer: t.key, at: vec![stage.clone(), Affine::constant(d)] },
            replaces: d == 0,
        };
        (0..self.r.p.depth.1 / ROWS).map(|d| Stmt::Warp(product(d))).collect()
    }

    /// Begins the second product, of powers and a tile of values.
    fn weighted(&mut self, t: Tiles, f: Fragments, stage: &Affine) -> Vec<Stmt> {
        let none = || Affine::constant(0);
        let product = |x: i64| Warp::WarpgroupMultiply {
            to: f.acc,
            rows: TileSlice { first: none(), all: ROWS },
            columns: TileSlice { first: none(), all: self.r.p.column.1 },
            a: Matrix { buffer: f.power, at: vec![Affine::constant(x)] },
            b: Matrix { buffer: t.value, at: vec![stage.clone(), Affine::constant(x)] },
            replaces: false,
        };
        (0..self.r.wide() / ROWS).map(|x| Stmt::Warp(product(x))).collect()
    }

    /// Makes powers of scores, as factors, and scales what was summed down where the tile has a
    /// larger score.
    fn powers(&mut self, f: Fragments, own: Held) -> Vec<Stmt> {
        let zero = || vec![Affine::constant(0)];
        let score = self.r.thread_part("score", self.r.keys);
        let (sum, mut scale) = self.unpacked(f.acc);
        scale.extend(self.r.scaled(sum, self.r.p.column.1 / SIDE, own));
        scale.push(Stmt::Warp(Warp::Pack {
            to: Matrix { buffer: f.acc, at: zero() },
            from: Matrix { buffer: sum, at: zero() },
        }));
        let mut out = vec![Stmt::Local(score)];
        out.push(Stmt::Warp(Warp::Unpack {
            to: Matrix { buffer: score, at: zero() },
            from: Matrix { buffer: f.score, at: zero() },
        }));
        out.extend(self.r.powers(score, own, scale));
        let [x, k] = ["x", "k"].map(|x| self.r.n.new_var(x));
        let each = ROWS / SIDE;
        let pack = Stmt::Warp(Warp::Pack {
            to: Matrix { buffer: f.power, at: vec![Affine::var(x), Affine::var(k)] },
            from: Matrix {
                buffer: score,
                at: vec![Affine::constant(0), Affine::new([(x, each), (k, 1)], 0)],
            },
        });
        let loops = [(x, self.r.wide() / ROWS), (k, each)];
        out.extend(around(&loops, Mode::Unroll, vec![pack]));
        out
    }

    /// Unpacks each thread's elements of the sums of values into a local buffer.
    fn unpacked(&mut self, acc: Source) -> (Source, Vec<Stmt>) {
        let sum = self.r.thread_part("sum", self.r.p.column.1 / SIDE);
        let zero = || vec![Affine::constant(0)];
        let unpack = Warp::Unpack {
            to: Matrix { buffer: sum, at: zero() },
            from: Matrix { buffer: acc, at: zero() },
        };
        (sum, vec![Stmt::Local(sum), Stmt::Warp(unpack)])
    }

    /// Copies the keys and values of a step to a stage.
    fn fetch(&mut self, t: Tiles, step: &Affine, stage: &Affine) -> Vec<Stmt> {
        let (p, wide) = (self.r.p, self.r.wide());
        let first = step.scale(wide);
        let key = self.copy(
            &p.scores.operands[1],
            p.key.0,
            wide,
            &first,
            p.depth,
            &mut |line, block, place| {
                let index = vec![stage.clone(), Affine::var(block), Affine::var(line), place];
                (t.key, index)
            },
        );
        vec![key, self.values(t.value, step, stage)]
    }

    /// Copies the values of a step to a stage, where they lie across: blocks of 64 columns, in
    /// which each key has a row.
    fn values(&mut self, to: Source, step: &Affine, stage: &Affine) -> Stmt {
        let p = self.r.p;
        let [x, line, block, part, lane] =
            ["x", "line", "block", "part", "v"].map(|x| self.r.n.new_var(x));
        let place = Affine::new([(part, 8), (lane, 1)], 0);
        let key = Affine::new([(x, ROWS), (line, 1)], 0);
        let from = step.scale(self.r.wide()).add(&key);
        let column = Affine::new([(block, ROWS)], 0).add(&place);
        let value = self.element(&p.values.operands[1], (p.key.0, from), (p.column.0, column));
        let index =
            vec![stage.clone(), Affine::var(x), Affine::var(block), Affine::var(line), place];
        let copy =
            vec![count(lane, 8, Mode::Vector, vec![Stmt::Store { buffer: to, index, value }])];
        let loops =
            [(x, self.r.wide() / ROWS), (line, ROWS), (block, p.column.1 / ROWS), (part, ROWS / 8)];
        around(&loops, Mode::Share, copy).remove(0)
    }

    fn fetch_query(&mut self, to: Source) -> Stmt {
        let (p, tall) = (self.r.p, self.tall());
        let first = Affine::var(self.r.start);
        self.copy(
            &p.scores.operands[0],
            p.row.0,
            tall,
            &first,
            p.depth,
            &mut |line, block, place| (to, vec![Affine::var(block), Affine::var(line), place]),
        )
    }

    /// Copies lines of an operand to swizzled rows: a number of lines of an axis from its first one
    /// on, each along the other axis, eight elements a thread. `to` maps a line, a block of 64 and
    /// a place in it to the shared buffer.
    fn copy(
        &mut self,
        o: &Operand,
        axis: Var,
        lines: i64,
        first: &Affine,
        along: (Var, i64),
        to: &mut dyn FnMut(Var, Var, Affine) -> (Source, Vec<Affine>),
    ) -> Stmt {
        let [line, block, part, lane] = ["line", "block", "part", "v"].map(|x| self.r.n.new_var(x));
        let place = Affine::new([(part, 8), (lane, 1)], 0);
        let at = Affine::new([(block, ROWS)], 0).add(&place);
        let value = self.element(o, (axis, first.add(&Affine::var(line))), (along.0, at));
        let (buffer, index) = to(line, block, place);
        let copy = vec![count(lane, 8, Mode::Vector, vec![Stmt::Store { buffer, index, value }])];
        let loops = [(line, lines), (block, along.1 / ROWS), (part, ROWS / 8)];
        around(&loops, Mode::Share, copy).remove(0)
    }

    /// An operand's element at places of two axes, zero behind the last key.
    fn element(&self, o: &Operand, line: (Var, Affine), place: (Var, Affine)) -> Expr {
        let p = self.r.p;
        let there = |v: Var| match v {
            v if v == line.0 => line.1.clone(),
            v if v == place.0 => place.1.clone(),
            v => Affine::var(v),
        };
        let load = Expr::load(o.source, o.index.iter().map(|a| a.map_vars(there)).collect());
        let is_cut = line.0 == p.key.0 && p.key.1 % self.r.wide() != 0;
        let inside = is_cut.then(|| Cond { index: line.1.clone(), low: 0, high: p.key.1 });
        guarded(inside.into_iter().collect(), load)
    }
}
