//! Attention of 16-bit tensors by tensor cores (`mma.sync`, compute capability 8.0 and later).
//! After FlashAttention-2 (Dao, 2023): a warp has whole rows of scores in its registers, so that
//! the warps of a block share nothing but tiles of keys and values in shared memory.
//!
//! Each step of the program: a warp multiplies its rows of queries with a tile of keys, turns the
//! sums into scores, lets the four threads of a row agree on its largest score, and rounds the
//! powers to the format of the values. These fragments of powers are at once the first factor of
//! the second product, because factors lie in registers as sums do. Input: an [`Attention`] and a
//! GPU; output: the sketch `gpu_attention_tensor`. The softmax steps are in `rows.rs`.

use super::super::super::{Draft, overlap_at_most, powers};
use super::super::Program;
use super::super::loops::{around, count};
use super::super::resources::{Block, WARP, warp_registers};
use super::super::tensor::tile::guarded;
use super::problem::{Attention, Extent, Operand};
use super::rows::{Held, Rows, SIDE};
use crate::nest::{Matrix, Mode, Nest, Reach, Scope, Stmt, Warp};
use squall_core::expr::{Affine, Binary, Cond, Expr, Source, Var};
use squall_core::space::{Knob, Role, Term};
use squall_core::{Configuration, DType, Gpu, Space};
use std::sync::Arc;

/// Elements left free behind each line of a tile in shared memory: eight lines of 16 bytes are read
/// at once and should not begin in the same banks.
const FREE: i64 = 8;

/// The sketch by warps, where the device and the tensors' formats allow it.
pub fn derive(p: &Arc<Attention>, gpu: Gpu) -> Option<Program> {
    if gpu.capability < 80 {
        return None;
    }
    let format = format(p)?;
    let space = space(p, gpu)?;
    let p = Arc::clone(p);
    let make = move |c: &Configuration| Ok(Writer::new(&p, format, c).program());
    Some(Program { name: "gpu_attention_tensor".into(), space, gpu, make: Box::new(make) })
}

/// The format of 16 bits that all operands have, where they are multiplied as they are.
pub fn format(p: &Attention) -> Option<DType> {
    let operands = [&p.scores.operands[0], &p.scores.operands[1], &p.values.operands[1]];
    let format = p.base.buffer(operands[0].source).dtype;
    let is_product = |e: &Expr| match e {
        Expr::Binary(Binary::Mul, x, y) => {
            [x, y].into_iter().all(|e| matches!(**e, Expr::Load { .. }))
        }
        _ => false,
    };
    let are_alike = operands.iter().all(|o| p.base.buffer(o.source).dtype == format);
    let are_products = is_product(&p.scores.value) && is_product(&p.values.value);
    (format.is_half() && are_alike && are_products).then_some(format)
}

/// How many 16x16 matrices cover an extent.
fn matrices(extent: i64) -> i64 {
    (extent + SIDE - 1) / SIDE
}

/// Whether the elements of an operand along the sum lie side by side in memory.
fn sum_is_inner(o: &Operand, sum: Extent) -> bool {
    o.index.last().is_some_and(|a| a.uses(sum.0))
}

fn space(p: &Attention, gpu: Gpu) -> Option<Space> {
    let tile = |axis: &str, level| Role::Tile { axis: axis.into(), level };
    let (rows, keys) = (p.row.1, p.key.1);
    let (depth, columns) = (matrices(p.depth.1), matrices(p.column.1));
    let wide = [1, 2, 3, 4, 5, 6, 8].into_iter().filter(|n| *n == 1 || n * SIDE < keys + SIDE);
    let knobs = vec![
        Knob::ints("m_t", tile("m", 0), powers(1, 8)),
        Knob::ints("m_i", tile("m", 1), [1, 2, 4]),
        Knob::ints("n_i", tile("n", 0), wide),
        Knob::ints("stages", Role::Choice, [1, 2]),
        Knob::words("query", Role::Choice, &["held", "loaded"]),
    ];
    let is_held = knobs[4].is("held");
    let mut d = Draft { knobs, ..Draft::default() };
    let product = |parts: Vec<Term>| Term::product(parts);
    let knob = |name: &str| Term::knob(name);
    let tall = || product(vec![knob("m_t"), knob("m_i"), Term::from(SIDE)]);
    let wide = || product(vec![knob("n_i"), Term::from(SIDE)]);
    d.must.push(tall().at_most(rows));
    d.should.push(overlap_at_most(rows, tall, 4));
    let sums = product(vec![knob("m_i"), Term::sum([knob("n_i"), Term::from(columns)])]);
    // Powers lie where the scores that they are made of are no longer needed.
    let more = product(vec![is_held, Term::from(depth - 1)]);
    let rows_held = product(vec![knob("m_i"), Term::sum([Term::from(1), more])]);
    let factors = Term::sum([rows_held, knob("n_i")]);
    // A tile lies as its operand does: eight elements are left free behind what lies side by side.
    let bytes = |o: &Operand, sum: Extent, (places, lines): (Term, Term), stages: Term| {
        let free = |t: Term| Term::sum([t, Term::from(FREE)]);
        let (outer, inner) = if sum_is_inner(o, sum) { (lines, places) } else { (places, lines) };
        Term::product([outer, free(inner), stages, Term::from(2)])
    };
    let [query, key] = &p.scores.operands;
    let along = || Term::from(SIDE * depth);
    let shared = Term::sum([
        bytes(query, p.depth, (along(), tall()), Term::from(1)),
        bytes(key, p.depth, (along(), wide()), knob("stages")),
        bytes(&p.values.operands[1], p.key, (wide(), Term::from(SIDE * columns)), knob("stages")),
    ]);
    let block = Block {
        threads: product(vec![knob("m_t"), Term::from(WARP)]),
        registers: Some(warp_registers(sums, factors, 4)),
        shared: vec![shared],
    };
    d.must.extend(block.fits(gpu));
    d.open()
}

/// An axis of a tile in shared memory: how much of it there is from where on, and how many places
/// the tile has for it.
struct TileAxis {
    axis: Extent,
    start: Affine,
    places: i64,
}

/// A tile of an operand: along its outer and its inner dimension.
struct Tile<'a> {
    operand: &'a Operand,
    buffer: Source,
    /// Whether the sum's axis is the inner one.
    sum_is_inner: bool,
}

/// Fragments of a warp.
#[derive(Clone, Copy)]
struct Fragments {
    query: Source,
    key: Source,
    score: Source,
    power: Source,
    value: Source,
    acc: Source,
}

struct Writer<'a> {
    r: Rows<'a>,
    warps: i64,
    /// Matrices of the first sum and of the output's columns.
    depth: i64,
    columns: i64,
    stages: i64,
    is_held: bool,
    warp: Var,
}

impl<'a> Writer<'a> {
    fn new(p: &'a Attention, format: DType, c: &Configuration) -> Writer<'a> {
        let get = |k: &str| c.int(k).unwrap_or(1);
        let mut r = Rows::new(p, format, get("m_i"), get("n_i"));
        let warp = r.n.new_var("warp");
        r.warp = Affine::var(warp);
        Writer {
            r,
            warps: get("m_t"),
            depth: matrices(p.depth.1),
            columns: matrices(p.column.1),
            stages: get("stages"),
            is_held: c.word("query") == Some("held"),
            warp,
        }
    }

    /// Matrices of a warp.
    fn fragment(&mut self, name: &str, lead: &[i64], dtype: DType) -> Source {
        let shape = [lead, &[SIDE, SIDE]].concat();
        self.r.buffer(name, shape, Scope::Fragment, dtype)
    }

    /// Rows of a block's tile, and keys of one of its tiles.
    fn tall(&self) -> i64 {
        self.warps * self.r.rows * SIDE
    }

    fn program(mut self) -> Nest {
        let p = self.r.p;
        let (tall, wide, depth, columns) =
            (self.tall(), self.r.wide(), self.depth * SIDE, self.columns * SIDE);
        let query = self.tile("query_s", &p.scores.operands[0], (p.depth.0, depth), tall, 1);
        let key = self.tile("keys_s", &p.scores.operands[1], (p.depth.0, depth), wide, self.stages);
        let value =
            self.tile("values_s", &p.values.operands[1], (p.key.0, wide), columns, self.stages);
        let held = if self.is_held { self.depth } else { 1 };
        let f = Fragments {
            query: self.fragment("query_f", &[self.r.rows, held], self.r.format),
            key: self.fragment("keys_f", &[self.r.keys], self.r.format),
            score: self.fragment("scores_f", &[self.r.rows, self.r.keys], DType::F32),
            power: self.fragment("powers_f", &[self.r.rows, self.r.keys], self.r.format),
            value: self.fragment("values_f", &[self.columns], self.r.format),
            acc: self.fragment("acc_f", &[self.r.rows, self.columns], DType::F32),
        };
        let (own, mut body) = self.r.begin();
        let fragments = [f.query, f.key, f.score, f.power, f.value, f.acc];
        let shared = [query.buffer, key.buffer, value.buffer];
        body.extend(shared.into_iter().chain(fragments).map(Stmt::Local));
        body.extend(self.zeroed(f.acc, self.columns));
        let none = Affine::constant(0);
        body.push(self.fetch_query(&query));
        body.push(self.fetch_keys(&key, &none, &none));
        if self.stages > 1 {
            body.push(self.fetch_values(&value, &none, &none));
        }
        body.push(Stmt::CommitCopies);
        if self.stages == 1 || self.is_held {
            body.extend([Stmt::AwaitCopies(0), Stmt::Barrier(Reach::Block)]);
        }
        if self.is_held {
            for k in 0..self.depth {
                body.extend(self.load_query(&query, f.query, k, k));
            }
        }
        let each = match self.stages {
            1 => self.step_alone([&query, &key, &value], f, own),
            _ => self.step_of_stages([&query, &key, &value], f, own),
        };
        body.push(count(self.r.step, self.r.steps(), Mode::Serial, each));
        let (sum, unpack) = self.unpacked(f.acc);
        body.extend(unpack);
        body.extend(self.r.finish(own, sum, self.columns));
        body.push(Stmt::Barrier(Reach::Block));
        let threads = [(self.warp, self.warps), (self.r.lane, WARP)];
        self.r.launched(&threads, tall, body)
    }

    /// A tile of keys whose values arrive while scores are computed, and the next keys while values
    /// are summed.
    fn step_alone(
        &mut self,
        [query, key, value]: [&Tile<'_>; 3],
        f: Fragments,
        own: Held,
    ) -> Vec<Stmt> {
        let barrier = || Stmt::Barrier(Reach::Block);
        let (none, step) = (Affine::constant(0), Affine::var(self.r.step));
        let mut body = vec![self.fetch_values(value, &step, &none), Stmt::CommitCopies];
        body.extend(self.scores([query, key], f, &none));
        body.push(barrier());
        let fetch = self.fetch_keys(key, &step.plus(1), &none);
        body.extend([self.r.if_next(vec![fetch]), Stmt::CommitCopies]);
        body.extend(self.powers(f, own));
        body.extend([Stmt::AwaitCopies(1), barrier()]);
        body.extend(self.weighted(value, f, &none));
        body.extend([Stmt::AwaitCopies(0), barrier()]);
        body
    }

    /// A tile of keys and values that was asked for a step ago; the next one arrives meanwhile.
    fn step_of_stages(
        &mut self,
        [query, key, value]: [&Tile<'_>; 3],
        f: Fragments,
        own: Held,
    ) -> Vec<Stmt> {
        let [stage, next] = ["stage", "next"].map(|x| self.r.n.new_var(x));
        let after = Affine::new([(self.r.step, 1)], 1);
        let (now, modulo) = (Affine::var(self.r.step), self.stages);
        let mut body = vec![
            Stmt::AwaitCopies(0),
            Stmt::Barrier(Reach::Block),
            Stmt::Let { var: stage, value: now, divisor: 1, modulo },
            Stmt::Let { var: next, value: after.clone(), divisor: 1, modulo },
        ];
        let (stage, next) = (Affine::var(stage), Affine::var(next));
        let fetch =
            vec![self.fetch_keys(key, &after, &next), self.fetch_values(value, &after, &next)];
        body.extend([self.r.if_next(fetch), Stmt::CommitCopies]);
        body.extend(self.scores([query, key], f, &stage));
        body.extend(self.powers(f, own));
        body.extend(self.weighted(value, f, &stage));
        body
    }

    /// A shared tile of an operand: `sum` is the axis that is summed over with its places, and
    /// `lines` the places of the other one. What lies side by side in memory does so in the tile.
    fn tile<'o>(
        &mut self,
        name: &str,
        operand: &'o Operand,
        sum: Extent,
        lines: i64,
        stages: i64,
    ) -> Tile<'o> {
        let sum_is_inner = sum_is_inner(operand, sum);
        let (outer, inner) = if sum_is_inner { (lines, sum.1) } else { (sum.1, lines) };
        let shape = vec![stages, outer, inner + FREE];
        let buffer = self.r.buffer(name, shape, Scope::Shared, self.r.format);
        Tile { operand, buffer, sum_is_inner }
    }

    fn fetch_query(&mut self, to: &Tile<'_>) -> Stmt {
        let p = self.r.p;
        let sum = TileAxis { axis: p.depth, start: Affine::constant(0), places: self.depth * SIDE };
        let rows = TileAxis { axis: p.row, start: Affine::var(self.r.start), places: self.tall() };
        self.fetch(to, &Affine::constant(0), sum, rows)
    }

    /// Copies the keys of a step to a stage of their tile.
    fn fetch_keys(&mut self, to: &Tile<'_>, step: &Affine, stage: &Affine) -> Stmt {
        let p = self.r.p;
        let sum = TileAxis { axis: p.depth, start: Affine::constant(0), places: self.depth * SIDE };
        let keys =
            TileAxis { axis: p.key, start: step.scale(self.r.wide()), places: self.r.wide() };
        self.fetch(to, stage, sum, keys)
    }

    /// Copies the values of a step.
    fn fetch_values(&mut self, to: &Tile<'_>, step: &Affine, stage: &Affine) -> Stmt {
        let p = self.r.p;
        let keys =
            TileAxis { axis: p.key, start: step.scale(self.r.wide()), places: self.r.wide() };
        let places = self.columns * SIDE;
        let columns = TileAxis { axis: p.column, start: Affine::constant(0), places };
        self.fetch(to, stage, keys, columns)
    }

    /// Copies an operand's elements at places of a sum and of the result to its tile; zeros where
    /// there are none.
    fn fetch(&mut self, to: &Tile<'_>, stage: &Affine, sum: TileAxis, line: TileAxis) -> Stmt {
        let (outer, inner) = if to.sum_is_inner { (line, sum) } else { (sum, line) };
        let width = self.width(to.operand, &inner);
        let [x, y, lane] = ["x", "y", "part"].map(|x| self.r.n.new_var(x));
        let lanes = (width > 1).then_some((lane, 1));
        let at = [Affine::var(x), Affine::new([(y, width)].into_iter().chain(lanes), 0)];
        let both = [&outer, &inner];
        let place = |v: Var| match both.iter().position(|b| b.axis.0 == v) {
            Some(i) => both[i].start.add(&at[i]),
            None => Affine::var(v),
        };
        let load = Expr::load(
            to.operand.source,
            to.operand.index.iter().map(|a| a.map_vars(place)).collect(),
        );
        let cut = |(b, at): (&&TileAxis, &Affine)| {
            let is_cut = b.axis.1 % b.places != 0 && b.axis.0 != self.r.p.row.0;
            is_cut.then(|| Cond { index: b.start.add(at), low: 0, high: b.axis.1 })
        };
        let conds: Vec<Cond> = both.iter().zip(&at).filter_map(cut).collect();
        let value = guarded(conds, load);
        let index = [vec![stage.clone()], at.to_vec()].concat();
        let mut copy = vec![Stmt::Store { buffer: to.buffer, index, value }];
        if width > 1 {
            copy = vec![count(lane, width, Mode::Vector, copy)];
        }
        around(&[(x, outer.places), (y, inner.places / width)], Mode::Share, copy).remove(0)
    }

    /// How many elements along a tile's inner axis are copied at once: as many as are aligned.
    fn width(&self, o: &Operand, inner: &TileAxis) -> i64 {
        let (v, extent) = inner.axis;
        let Some(line) = self.r.n.buffer(o.source).shape.last() else { return 1 };
        // A tile of rows may be moved back to any place.
        let is_still = v != self.r.p.row.0 || self.r.p.row.1 % self.tall() == 0;
        let is_last = o.index.last().and_then(Affine::as_var) == Some(v);
        let is_aligned = is_still && is_last;
        let fits = |w: &i64| [*line, extent].iter().all(|n| n % w == 0);
        [8, 4].into_iter().filter(|_| is_aligned).find(fits).unwrap_or(1)
    }

    /// Loads matrix `k` of the warp's rows along the sum.
    fn load_query(&mut self, from: &Tile<'_>, to: Source, k: i64, held: i64) -> Vec<Stmt> {
        let i = self.r.n.new_var("i");
        let first = Affine::new([(self.warp, self.r.rows * SIDE), (i, SIDE)], 0);
        let (none, at) = (Affine::constant(0), vec![Affine::var(i), Affine::constant(held)]);
        let to = Matrix { buffer: to, at };
        let load = self.load(from, &none, k * SIDE, first, self.tall(), to);
        vec![count(i, self.r.rows, Mode::Unroll, vec![load])]
    }

    /// Loads a matrix of a factor: at a place of the sum, from its `first` row on.
    fn load(
        &mut self,
        from: &Tile<'_>,
        stage: &Affine,
        sum: i64,
        first: Affine,
        lines: i64,
        to: Matrix,
    ) -> Stmt {
        let [row, column] = ["row", "column"].map(|x| self.r.n.new_var(x));
        let along = Affine::new([(column, 1)], sum);
        let line = Affine::var(row);
        let (outer, inner) = if from.sum_is_inner { (line, along) } else { (along, line) };
        Stmt::Warp(Warp::Load {
            to,
            rest: None,
            rows: vec![(row, lines)],
            first,
            column,
            columns: SIDE,
            from: from.buffer,
            index: vec![stage.clone(), outer, inner],
        })
    }

    /// Adds the product of the warp's rows with a second factor of a number of matrices.
    fn multiply(&mut self, to: Source, a: (Source, i64), b: (Source, i64)) -> Stmt {
        let [i, j] = ["i", "j"].map(|x| self.r.n.new_var(x));
        let matrix = |buffer, at: Vec<Affine>| Matrix { buffer, at };
        let product = Warp::Multiply {
            to: matrix(to, vec![Affine::var(i), Affine::var(j)]),
            a: matrix(a.0, vec![Affine::var(i), Affine::constant(a.1)]),
            b: matrix(b.0, vec![Affine::var(j)]),
        };
        around(&[(i, self.r.rows), (j, b.1)], Mode::Unroll, vec![Stmt::Warp(product)]).remove(0)
    }

    /// Sums of the first product.
    fn scores(&mut self, [query, key]: [&Tile<'_>; 2], f: Fragments, stage: &Affine) -> Vec<Stmt> {
        let mut body = self.zeroed(f.score, self.r.keys);
        for k in 0..self.depth {
            let held = if self.is_held { k } else { 0 };
            if !self.is_held {
                body.extend(self.load_query(query, f.query, k, 0));
            }
            let j = self.r.n.new_var("j");
            let to = Matrix { buffer: f.key, at: vec![Affine::var(j)] };
            let first = Affine::new([(j, SIDE)], 0);
            let load = self.load(key, stage, k * SIDE, first, self.r.wide(), to);
            body.push(count(j, self.r.keys, Mode::Unroll, vec![load]));
            body.push(self.multiply(f.score, (f.query, held), (f.key, self.r.keys)));
        }
        body
    }

    /// Adds the product of powers and values.
    fn weighted(&mut self, value: &Tile<'_>, f: Fragments, stage: &Affine) -> Vec<Stmt> {
        let mut body = Vec::new();
        for k in 0..self.r.keys {
            let j = self.r.n.new_var("j");
            let to = Matrix { buffer: f.value, at: vec![Affine::var(j)] };
            let first = Affine::new([(j, SIDE)], 0);
            let load = self.load(value, stage, k * SIDE, first, self.columns * SIDE, to);
            body.push(count(j, self.columns, Mode::Unroll, vec![load]));
            body.push(self.multiply(f.acc, (f.power, k), (f.value, self.columns)));
        }
        body
    }

    fn zeroed(&mut self, buffer: Source, columns: i64) -> Vec<Stmt> {
        let (loops, at) = self.each_matrix(columns);
        around(&loops, Mode::Unroll, vec![Stmt::Warp(Warp::Zero(Matrix { buffer, at }))])
    }

    /// Loops over a warp's matrices.
    fn each_matrix(&mut self, columns: i64) -> (Vec<(Var, i64)>, Vec<Affine>) {
        let [i, j] = ["i", "j"].map(|x| self.r.n.new_var(x));
        (vec![(i, self.r.rows), (j, columns)], vec![Affine::var(i), Affine::var(j)])
    }

    /// Moves a warp's matrices to or from what each thread has of them.
    fn moved(&mut self, columns: i64, w: impl Fn(Vec<Affine>) -> Warp) -> Stmt {
        let (loops, at) = self.each_matrix(columns);
        around(&loops, Mode::Unroll, vec![Stmt::Warp(w(at))]).remove(0)
    }

    /// Makes powers of the sums of the first product, as factors, and scales what was summed down
    /// where the tile has a larger score.
    fn powers(&mut self, f: Fragments, own: Held) -> Vec<Stmt> {
        let score = self.r.thread_part("score", self.r.keys);
        let (sum, mut scale) = self.unpacked(f.acc);
        scale.extend(self.r.scaled(sum, self.columns, own));
        scale.push(self.moved(self.columns, |at| Warp::Pack {
            to: Matrix { buffer: f.acc, at: at.clone() },
            from: Matrix { buffer: sum, at },
        }));
        let mut out = vec![Stmt::Local(score)];
        out.push(self.moved(self.r.keys, |at| Warp::Unpack {
            to: Matrix { buffer: score, at: at.clone() },
            from: Matrix { buffer: f.score, at },
        }));
        out.extend(self.r.powers(score, own, scale));
        out.push(self.moved(self.r.keys, |at| Warp::Pack {
            to: Matrix { buffer: f.power, at: at.clone() },
            from: Matrix { buffer: score, at },
        }));
        out
    }

    /// Unpacks each thread's elements of the sums of values into a local buffer.
    fn unpacked(&mut self, acc: Source) -> (Source, Vec<Stmt>) {
        let sum = self.r.thread_part("sum", self.columns);
        let unpack = self.moved(self.columns, |at| Warp::Unpack {
            to: Matrix { buffer: sum, at: at.clone() },
            from: Matrix { buffer: acc, at },
        });
        (sum, vec![Stmt::Local(sum), unpack])
    }
}
