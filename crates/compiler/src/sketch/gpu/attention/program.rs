//! Writes the loop nest of attention by plain threads: a block loop over tiles of rows of each
//! head, and inside a loop over tiles of keys that computes scores, updates each row's maximum and
//! sum (online softmax), and adds powers times values to the output's sums.
//!
//! Input: an [`Attention`] (`problem.rs`) and a configuration (a value for each knob) of the space
//! in `mod.rs`; output: a nest.

use super::super::loops::{around, count, tiles};
use super::super::tensor::tile::guarded;
use super::LEAST;
use super::problem::{Attention, Operand, Product};
use crate::nest::{Buffer, Mode, Nest, Reach, Scope, Stmt};
use squall_core::expr::{Affine, Binary, Cond, Expr, Source, Unary, Var};
use squall_core::workload::Reducer;
use squall_core::{Configuration, DType};

/// The most multiplications that are written out.
const MOST_UNROLLED: i64 = 2048;

/// The nest of a configuration.
pub fn program(p: &Attention, c: &Configuration) -> Result<Nest, String> {
    Writer::new(p, c)?.program()
}

/// Elements of a tile that a thread owns along one axis: `far` groups of `near` neighbours, with
/// the elements of the other threads between the groups.
#[derive(Clone, Copy)]
struct Share {
    thread: Var,
    threads: i64,
    far: i64,
    near: i64,
}

/// Loops over the elements that a thread owns along one axis.
struct Own {
    loops: [(Var, i64); 2],
    place: Affine,
    index: [Affine; 2],
}

/// The buffers of a block in shared memory.
#[derive(Clone, Copy)]
struct Tiles {
    query: Source,
    key: Source,
    value: Source,
    powers: Source,
    /// The partial maximum or sum of each of the threads that share a row.
    part: Source,
}

/// The local buffers of a thread. For each of its rows: the largest score so far, the sum of
/// powers, the largest score with the current tile included, and the factor that scales earlier
/// sums down to it. Then the scores of the tile, and the sums of values.
#[derive(Clone, Copy)]
struct Held {
    largest: Source,
    sums: Source,
    newest: Source,
    factor: Source,
    score: Source,
    acc: Source,
}

struct Writer<'a> {
    p: &'a Attention,
    n: Nest,
    rows: Share,
    keys: Share,
    columns: Share,
    unroll: i64,
    vector: i64,
    pad: i64,
    /// Where the tile of rows begins, and the number of the tile of keys.
    start: Var,
    step: Var,
}

impl<'a> Writer<'a> {
    fn new(p: &'a Attention, c: &Configuration) -> Result<Writer<'a>, String> {
        let get = |k: &str| c.int(k).unwrap_or(1);
        let mut n = p.base.clone();
        let [ty, tx, start, step] = ["mt", "nt", "m0", "step"].map(|x| n.new_var(x));
        let across = get("n_t");
        let near = |own: i64| [4, 2].into_iter().find(|k| own % k == 0).unwrap_or(own);
        let share = |thread, threads, own: i64| {
            let near = near(own);
            Share { thread, threads, far: own / near, near }
        };
        let rows = Share { thread: ty, threads: get("m_t"), far: 1, near: get("m_i") };
        let keys = share(tx, across, get("n_i"));
        let columns = share(tx, across, p.column.1 / across);
        let unroll = get("unroll");
        let written = unroll * rows.near * keys.own().max(columns.own());
        if written > MOST_UNROLLED {
            return Err(format!(
                "{written} multiplications written out, {MOST_UNROLLED} are the most"
            ));
        }
        let (vector, pad) = (get("vector"), get("pad"));
        Ok(Writer { p, n, rows, keys, columns, unroll, vector, pad, start, step })
    }

    fn buffer(&mut self, name: &str, shape: Vec<i64>, scope: Scope, dtype: DType) -> Source {
        self.n.new_buffer(Buffer { name: name.into(), dtype, shape, scope, lenient: false })
    }

    fn local(&mut self, name: &str, shape: Vec<i64>) -> Source {
        self.buffer(name, shape, Scope::Local, DType::F32)
    }

    fn own(&mut self, s: Share, name: &str) -> Own {
        let [far, near] = ["v", "i"].map(|x| self.n.new_var(&format!("{name}{x}")));
        let mut place = Affine::new([(s.thread, s.near), (near, 1)], 0);
        if s.far > 1 {
            place.add_term(far, s.threads * s.near);
        }
        Own {
            loops: [(far, s.far), (near, s.near)],
            place,
            index: [Affine::var(far), Affine::var(near)],
        }
    }

    /// Loops over a thread's elements along rows and along another axis, their places, and their
    /// index in the thread's local buffers.
    fn both(&mut self, s: Share, name: &str) -> (Vec<(Var, i64)>, Affine, Affine, Vec<Affine>) {
        let row = self.own(self.rows, &format!("m{name}"));
        let other = self.own(s, &format!("n{name}"));
        let loops = vec![row.loops[1], other.loops[0], other.loops[1]];
        let [_, i] = row.index;
        let index = [vec![i], other.index.to_vec()].concat();
        (loops, row.place, other.place, index)
    }

    fn program(mut self) -> Result<Nest, String> {
        let p = self.p;
        let keys = self.keys.size();
        let held = vec![self.rows.near];
        let [largest, sums, newest, factor] =
            ["largest", "sums", "newest", "factor"].map(|x| self.local(x, held.clone()));
        let acc = self.local("acc", vec![self.rows.near, self.columns.far, self.columns.near]);
        let score = self.local("score", vec![self.rows.near, self.keys.far, self.keys.near]);
        let query = self.tile("query_s", &p.scores.operands[0], p.depth.1, self.rows.size());
        let key = self.tile("keys_s", &p.scores.operands[1], p.depth.1, keys);
        let value = self.tile("values_s", &p.values.operands[1], keys, p.column.1);
        let shape = vec![keys, self.rows.size() + self.pad];
        let powers = self.buffer("powers_s", shape, Scope::Shared, DType::F32);
        let shape = vec![self.keys.threads, self.rows.size()];
        let part = self.buffer("part", shape, Scope::Shared, DType::F32);
        let shared = Tiles { query, key, value, powers, part };
        let own = Held { largest, sums, newest, factor, score, acc };
        let locals = [query, key, value, powers, part, largest, sums, newest, factor, score, acc];
        let mut body: Vec<Stmt> = locals.map(Stmt::Local).to_vec();
        body.push(self.each_row(|at| {
            vec![
                Stmt::Store { buffer: largest, index: at.clone(), value: Expr::Const(LEAST) },
                Stmt::Store { buffer: sums, index: at, value: Expr::Const(0.0) },
            ]
        }));
        body.extend(self.zeroed(acc, self.columns));
        let rows = Affine::var(self.start);
        body.push(self.fetch(
            &p.scores.operands[0],
            query,
            (p.depth, Affine::constant(0), p.depth.1),
            (p.row, rows, self.rows.size()),
        ));
        body.push(self.fetch_keys(key, &Affine::constant(0)));
        body.extend([Stmt::CommitCopies, Stmt::AwaitCopies(0), Stmt::Barrier(Reach::Block)]);
        let each = self.each_tile(shared, own);
        body.push(count(self.step, self.steps(), Mode::Serial, each));
        body.extend(self.finish(sums, part, acc));
        let threads =
            [(self.rows.thread, self.rows.threads), (self.keys.thread, self.keys.threads)];
        let block = around(&threads, Mode::Thread, body);
        let number = self.n.new_var("mb");
        let block = tiles(number, self.start, p.row.1, self.rows.size(), block);
        self.n.body = around(&p.batch, Mode::Block, vec![block]);
        Ok(self.n)
    }

    /// How many tiles of keys there are.
    fn steps(&self) -> i64 {
        (self.p.key.1 + self.keys.size() - 1) / self.keys.size()
    }

    /// Statements for each of a thread's rows, given the row's index.
    fn each_row(&mut self, f: impl FnOnce(Vec<Affine>) -> Vec<Stmt>) -> Stmt {
        let i = self.n.new_var("i");
        count(i, self.rows.near, Mode::Unroll, f(vec![Affine::var(i)]))
    }

    /// The statements for each tile of keys, which has arrived before. Its values are fetched while
    /// scores are computed, and the next keys while values are summed.
    fn each_tile(&mut self, shared: Tiles, own: Held) -> Vec<Stmt> {
        let p = self.p;
        let barrier = || Stmt::Barrier(Reach::Block);
        let keys = self.keys.size();
        let from = Affine::new([(self.step, keys)], 0);
        let mut body = vec![self.fetch(
            &p.values.operands[1],
            shared.value,
            (p.key, from.clone(), keys),
            (p.column, Affine::constant(0), p.column.1),
        )];
        body.push(Stmt::CommitCopies);
        body.extend(self.zeroed(own.score, self.keys));
        let (query, key) = (shared.query, shared.key);
        body.push(self.product(&p.scores, query, key, p.depth.1, own.score, self.keys));
        body.extend(self.scores(own.score, &from));
        body.extend(self.largest_here(own.score, own.newest, shared.part));
        body.push(barrier());
        let next = from.plus(keys);
        let fetch = self.fetch_keys(shared.key, &next);
        let is_next = Cond { index: Affine::new([(self.step, 1)], 1), low: 0, high: self.steps() };
        body.push(Stmt::If { conds: vec![is_next], body: vec![fetch] });
        body.push(Stmt::CommitCopies);
        body.extend(self.scaled_down(&own, shared.part));
        body.extend(self.powers(&own, shared.powers));
        body.extend([Stmt::AwaitCopies(1), barrier()]);
        let (powers, value) = (shared.powers, shared.value);
        body.push(self.product(&p.values, powers, value, keys, own.acc, self.columns));
        body.extend([Stmt::AwaitCopies(0), barrier()]);
        body
    }

    /// Copies a tile of keys that begins there.
    fn fetch_keys(&mut self, to: Source, from: &Affine) -> Stmt {
        let p = self.p;
        self.fetch(
            &p.scores.operands[1],
            to,
            (p.depth, Affine::constant(0), p.depth.1),
            (p.key, from.clone(), self.keys.size()),
        )
    }

    /// Declares a shared tile: places along a sum by places along the result.
    fn tile(&mut self, name: &str, o: &Operand, sum: i64, lines: i64) -> Source {
        let dtype = self.n.buffer(o.source).dtype;
        let shape = vec![sum, lines + self.pad];
        self.buffer(name, shape, Scope::Shared, dtype)
    }

    /// Copies an operand's elements at a number of places of a sum and of the result to shared
    /// memory; nothing is read behind the last key.
    fn fetch(
        &mut self,
        o: &Operand,
        tile: Source,
        sum: ((Var, i64), Affine, i64),
        line: ((Var, i64), Affine, i64),
    ) -> Stmt {
        let last = &o.index[o.index.len() - 1];
        let both = [sum, line];
        let mut place: Vec<Affine> = Vec::new();
        let mut loops: Vec<(Var, i64)> = Vec::new();
        let mut conds = Vec::new();
        let mut lane = None;
        for ((v, extent), start, size) in &both {
            let x = self.n.new_var("x");
            let is_cut = *v == self.p.key.0;
            let is_whole = |n: i64| n % self.vector == 0;
            // A tile that starts where another one ends, or that is moved back, may not be aligned.
            let is_aligned = (start.terms().is_empty() || is_cut)
                && is_whole(*size)
                && is_whole(*extent)
                && self.n.buffer(o.source).shape.last().is_some_and(|n| is_whole(*n));
            let at = if self.vector > 1 && last.as_var() == Some(*v) && is_aligned {
                let l = self.n.new_var("lane");
                lane = Some(l);
                loops.push((x, size / self.vector));
                Affine::new([(x, self.vector), (l, 1)], 0)
            } else {
                loops.push((x, *size));
                Affine::var(x)
            };
            if is_cut {
                conds.push(Cond { index: start.add(&at), low: 0, high: *extent });
            }
            place.push(at);
        }
        let index = |a: &Affine| {
            a.map_vars(|v| match both.iter().position(|b| b.0.0 == v) {
                Some(i) => both[i].1.add(&place[i]),
                None => Affine::var(v),
            })
        };
        let load = Expr::load(o.source, o.index.iter().map(index).collect());
        let value = guarded(conds, load);
        // Threads side by side read elements side by side.
        if last.uses(both[0].0.0) {
            loops.reverse();
        }
        let mut copy = vec![Stmt::Store { buffer: tile, index: place, value }];
        if let Some(l) = lane {
            copy = vec![count(l, self.vector, Mode::Vector, copy)];
        }
        around(&loops, Mode::Share, copy).remove(0)
    }

    /// Sets what a thread holds of rows and another axis to zero.
    fn zeroed(&mut self, acc: Source, of: Share) -> Vec<Stmt> {
        let (loops, _, _, index) = self.both(of, "z");
        let zero = Stmt::Store { buffer: acc, index, value: Expr::Const(0.0) };
        around(&loops, Mode::Unroll, vec![zero])
    }

    /// Adds a product of two tiles to what a thread holds.
    fn product(
        &mut self,
        product: &Product,
        a: Source,
        b: Source,
        depth: i64,
        acc: Source,
        of: Share,
    ) -> Stmt {
        let unroll = (1..=self.unroll).rev().find(|u| depth % u == 0).unwrap_or(1);
        let [o, u] = ["ko", "ku"].map(|x| self.n.new_var(x));
        let at = Affine::new([(o, unroll), (u, 1)], 0);
        let (loops, row, line, index) = self.both(of, "p");
        let loads = [(a, row), (b, line)].map(|(s, x)| Expr::load(s, vec![at.clone(), x]));
        let value = product.value.rewrite(&mut Affine::clone, &mut |e| match e {
            Expr::Load { source, index } if index.is_empty() => loads[source.0 as usize].clone(),
            e => e,
        });
        let add = Stmt::Update { op: Reducer::Sum, buffer: acc, index, value };
        let inner = around(&loops, Mode::Unroll, vec![add]);
        let inner = vec![count(u, unroll, Mode::Unroll, inner)];
        count(o, depth / unroll, Mode::Serial, inner)
    }

    /// Makes scores of sums; those behind the last key are less than all others.
    fn scores(&mut self, score: Source, from: &Affine) -> Vec<Stmt> {
        let p = self.p;
        let (loops, row, key, index) = self.both(self.keys, "e");
        let (row, key) = (row.add(&Affine::var(self.start)), key.add(from));
        let made = p.score_at(&row, &key, &Expr::load(score, index.clone()));
        let value = p.up_to_the_last_key(&key, self.keys.size(), made);
        around(&loops, Mode::Unroll, vec![Stmt::Store { buffer: score, index, value }])
    }

    /// Lets the threads of a row know the largest of each one's scores.
    fn largest_here(&mut self, score: Source, newest: Source, part: Source) -> Vec<Stmt> {
        let least = self.each_row(|at| {
            vec![Stmt::Store { buffer: newest, index: at, value: Expr::Const(LEAST) }]
        });
        let (loops, _, _, index) = self.both(self.keys, "l");
        let row = vec![index[0].clone()];
        let value = Expr::load(score, index);
        let max = Stmt::Update { op: Reducer::Max, buffer: newest, index: row, value };
        let mut out = vec![least];
        out.extend(around(&loops, Mode::Unroll, vec![max]));
        out.push(self.told(newest, part));
        out
    }

    /// Shares what a thread has of each row.
    fn told(&mut self, own: Source, part: Source) -> Stmt {
        let row = self.own(self.rows, "mw");
        let index = vec![Affine::var(self.keys.thread), row.place];
        let value = Expr::load(own, vec![row.index[1].clone()]);
        let put = Stmt::Store { buffer: part, index, value };
        count(row.loops[1].0, self.rows.near, Mode::Unroll, vec![put])
    }

    /// Combines what the threads of a row have of it.
    fn met(&mut self, op: Reducer, own: Source, part: Source) -> Vec<Stmt> {
        let row = self.own(self.rows, "mr");
        let t = self.n.new_var("of");
        let value = Expr::load(part, vec![Affine::var(t), row.place]);
        let index = vec![row.index[1].clone()];
        let add = Stmt::Update { op, buffer: own, index, value };
        around(&[(t, self.keys.threads), row.loops[1]], Mode::Unroll, vec![add])
    }

    /// Takes the largest scores of a tile in, and scales what was summed before.
    fn scaled_down(&mut self, own: &Held, part: Source) -> Vec<Stmt> {
        let Held { largest, sums, newest, factor, acc, .. } = *own;
        let mut out = vec![self.each_row(|at| {
            vec![Stmt::Store { buffer: newest, value: Expr::load(largest, at.clone()), index: at }]
        })];
        out.extend(self.met(Reducer::Max, newest, part));
        out.push(self.each_row(|at| {
            let load = |b: Source| Expr::load(b, at.clone());
            let lost = Expr::binary(Binary::Sub, load(largest), load(newest));
            let store = |buffer, value| Stmt::Store { buffer, index: at.clone(), value };
            vec![
                store(factor, Expr::unary(Unary::Exp, lost)),
                store(largest, load(newest)),
                store(sums, Expr::binary(Binary::Mul, load(sums), load(factor))),
            ]
        }));
        let (loops, _, _, index) = self.both(self.columns, "f");
        let by = Expr::load(factor, vec![index[0].clone()]);
        let value = Expr::binary(Binary::Mul, Expr::load(acc, index.clone()), by);
        out.extend(around(&loops, Mode::Unroll, vec![Stmt::Store { buffer: acc, index, value }]));
        out
    }

    /// Powers of what scores lack of the largest: to shared memory, and added to their sums.
    fn powers(&mut self, own: &Held, powers: Source) -> Vec<Stmt> {
        let Held { score, largest, sums, .. } = *own;
        let (loops, row, key, index) = self.both(self.keys, "x");
        let own = vec![index[0].clone()];
        let held = || Expr::load(score, index.clone());
        let apart = Expr::binary(Binary::Sub, held(), Expr::load(largest, own.clone()));
        let value = Expr::unary(Unary::Exp, apart);
        let each = vec![
            Stmt::Store { buffer: score, index: index.clone(), value },
            Stmt::Update { op: Reducer::Sum, buffer: sums, index: own, value: held() },
            Stmt::Store { buffer: powers, index: vec![key, row], value: held() },
        ];
        around(&loops, Mode::Unroll, each)
    }

    /// Stores a thread's elements of the output.
    fn finish(&mut self, sums: Source, part: Source, acc: Source) -> Vec<Stmt> {
        let p = self.p;
        let mut out = vec![self.told(sums, part), Stmt::Barrier(Reach::Block)];
        out.push(
            self.each_row(|at| {
                vec![Stmt::Store { buffer: sums, index: at, value: Expr::Const(0.0) }]
            }),
        );
        out.extend(self.met(Reducer::Sum, sums, part));
        let (mut loops, row, column, index) = self.both(self.columns, "y");
        let row = row.add(&Affine::var(self.start));
        let (own, all) = (Expr::load(sums, vec![index[0].clone()]), Expr::load(acc, index));
        let store = vec![p.stored_at(&row, &column, &all, &own)];
        let last = loops.pop();
        let is_vector = |e: i64| matches!(e, 2 | 4);
        let inner = last.map_or_else(Vec::new, |(v, e)| {
            vec![count(v, e, if is_vector(e) { Mode::Vector } else { Mode::Unroll }, store)]
        });
        out.extend(around(&loops, Mode::Unroll, inner));
        // The place of the shared tiles is free from here on.
        out.push(Stmt::Barrier(Reach::Block));
        out
    }
}

impl Share {
    /// Elements of one thread, and of the tile.
    fn own(&self) -> i64 {
        self.far * self.near
    }

    fn size(&self) -> i64 {
        self.threads * self.own()
    }
}
