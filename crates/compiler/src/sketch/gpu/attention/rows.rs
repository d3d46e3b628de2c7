//! The softmax steps that the two attention sketches by tensor cores share, where matrices lie
//! across the registers of a warp (fragments): a thread makes scores of its sums, finds the largest
//! score of each row, computes powers and scales earlier sums, and finally divides and stores rows
//! of the output.
//!
//! Where a score is a constant factor times a sum, powers of two are computed instead of powers of
//! e, since the device has an instruction for them. Scores with a mask added are not: a mask may be
//! as large as the largest float and cannot be multiplied. `tensor.rs` and `warpgroup.rs` build
//! their nests on [`Rows`].

use super::super::loops::{around, tiles};
use super::super::resources::WARP;
use super::LEAST;
use super::problem::Attention;
use crate::nest::{Buffer, Mode, Nest, Scope, Stmt, THREAD_PART, Warp};
use squall_core::DType;
use squall_core::expr::{Affine, Binary, Cond, Expr, Source, Unary, Var};
use squall_core::workload::Reducer;
use std::f64::consts::{LN_2, LOG2_E};

/// The number of rows, and of columns, of a matrix.
pub const SIDE: i64 = 16;

/// The local buffers of a thread, for each of its rows: the largest score so far, the sum of its
/// own powers, the largest score with the current tile included, and the factor that scales earlier
/// sums down.
#[derive(Clone, Copy)]
pub struct Held {
    largest: Source,
    sums: Source,
    newest: Source,
    factor: Source,
}

/// A thread's elements of a row of matrices: the loops that count them, and their places.
struct Elements {
    loops: Vec<(Var, i64)>,
    /// The index into a buffer `[m_i, matrices, 2, 2, 2]`, and into one of rows, `[m_i, 2]`.
    index: Vec<Affine>,
    row_index: Vec<Affine>,
    row: Affine,
    column: Affine,
}

/// The nest that is being written for a tile of rows and its walk through the keys, and the
/// variables and extents that its threads compute with.
pub struct Rows<'a> {
    pub p: &'a Attention,
    pub n: Nest,
    pub format: DType,
    /// Numbers of 16x16 matrices: along a warp's rows, and along a tile of keys.
    pub rows: i64,
    pub keys: i64,
    /// Variables: the first row of the tile, and the number of the tile of keys.
    pub start: Var,
    pub step: Var,
    /// The number of the warp among the warps of the block's rows, and the thread's number in it.
    pub warp: Affine,
    pub lane: Var,
    /// The thread's row in a matrix, and its pair of columns.
    own_row: Var,
    own_pair: Var,
}

impl<'a> Rows<'a> {
    pub fn new(p: &'a Attention, format: DType, rows: i64, keys: i64) -> Rows<'a> {
        let mut n = p.base.clone();
        let [start, step, lane, own_row, own_pair] =
            ["m0", "step", "lane", "own_row", "own_pair"].map(|x| n.new_var(x));
        let warp = Affine::constant(0);
        Rows { p, n, format, rows, keys, start, step, warp, lane, own_row, own_pair }
    }

    pub fn buffer(&mut self, name: &str, shape: Vec<i64>, scope: Scope, dtype: DType) -> Source {
        self.n.new_buffer(Buffer { name: name.into(), dtype, shape, scope, lenient: false })
    }

    /// Declares a local buffer of a thread's elements of `columns` matrices side by side.
    pub fn thread_part(&mut self, name: &str, columns: i64) -> Source {
        let shape = [vec![self.rows, columns], THREAD_PART.to_vec()].concat();
        self.buffer(name, shape, Scope::Local, DType::F32)
    }

    /// Keys of a tile, and how many tiles there are.
    pub fn wide(&self) -> i64 {
        self.keys * SIDE
    }

    pub fn steps(&self) -> i64 {
        (self.p.key.1 + self.wide() - 1) / self.wide()
    }

    /// Declares what a thread holds of its rows, and where those are.
    pub fn begin(&mut self) -> (Held, Vec<Stmt>) {
        let [largest, sums, newest, factor] = ["largest", "sums", "newest", "factor"]
            .map(|x| self.buffer(x, vec![self.rows, 2], Scope::Local, DType::F32));
        let lane = Affine::var(self.lane);
        let bound = |var, divisor, modulo| Stmt::Let { var, value: lane.clone(), divisor, modulo };
        let mut out = vec![bound(self.own_row, 4, WARP / 4), bound(self.own_pair, 1, 4)];
        out.extend([largest, sums, newest, factor].map(Stmt::Local));
        out.push(self.each_row(&mut |at| {
            vec![
                Stmt::Store { buffer: largest, index: at.clone(), value: Expr::Const(LEAST) },
                Stmt::Store { buffer: sums, index: at, value: Expr::Const(0.0) },
            ]
        }));
        (Held { largest, sums, newest, factor }, out)
    }

    /// Statements for which there has to be a next tile of keys.
    pub fn if_next(&self, body: Vec<Stmt>) -> Stmt {
        let index = Affine::new([(self.step, 1)], 1);
        Stmt::If { conds: vec![Cond { index, low: 0, high: self.steps() }], body }
    }

    /// Statements for each of a thread's rows, given the row's index.
    fn each_row(&mut self, f: &mut dyn FnMut(Vec<Affine>) -> Vec<Stmt>) -> Stmt {
        let [i, r] = ["i", "r"].map(|x| self.n.new_var(x));
        let body = f(vec![Affine::var(i), Affine::var(r)]);
        around(&[(i, self.rows), (r, 2)], Mode::Unroll, body).remove(0)
    }

    /// Loops over a thread's elements of matrices side by side, the first of them in this column.
    fn elements(&mut self, columns: i64, first: &Affine) -> Elements {
        let [i, j, h, r, pair] = ["i", "j", "h", "r", "pair"].map(|x| self.n.new_var(x));
        let own = [(self.start, 1), (self.own_row, 1)];
        let [a, b, c, d, e] = [i, j, h, r, pair].map(Affine::var);
        Elements {
            loops: vec![(i, self.rows), (j, columns), (h, 2), (r, 2), (pair, 2)],
            index: vec![a.clone(), b, c, d.clone(), e],
            row_index: vec![a, d],
            row: Affine::new(own.into_iter().chain([(i, SIDE), (r, 8)]), 0)
                .add(&self.warp.scale(self.rows * SIDE)),
            column: Affine::new([(j, SIDE), (h, 8), (self.own_pair, 2), (pair, 1)], 0).add(first),
        }
    }

    /// Makes powers of the sums of the first product, which the thread has in `score`; between
    /// those and the largest scores that they take in, `scale` scales down what was summed of
    /// values before, by [`Rows::scaled`].
    pub fn powers(&mut self, score: Source, own: Held, scale: Vec<Stmt>) -> Vec<Stmt> {
        let mut out = self.of_sums(score);
        out.extend(self.largest(score, own));
        out.extend(scale);
        let e = self.elements(self.keys, &Affine::constant(0));
        let held = || Expr::load(score, e.index.clone());
        let apart = Expr::binary(Binary::Sub, held(), Expr::load(own.largest, e.row_index.clone()));
        let sum = Stmt::Update {
            op: Reducer::Sum,
            buffer: own.sums,
            index: e.row_index.clone(),
            value: held(),
        };
        let value = power(apart, constant_factor(self.p).is_some());
        let power = Stmt::Store { buffer: score, index: e.index.clone(), value };
        out.extend(around(&e.loops, Mode::Unroll, vec![power, sum]));
        out
    }

    /// Scales a thread's elements of `columns` matrices of output sums.
    pub fn scaled(&mut self, sum: Source, columns: i64, own: Held) -> Vec<Stmt> {
        let e = self.elements(columns, &Affine::constant(0));
        let (held, by) =
            (Expr::load(sum, e.index.clone()), Expr::load(own.factor, e.row_index.clone()));
        let value = Expr::binary(Binary::Mul, held, by);
        let scaled = Stmt::Store { buffer: sum, index: e.index, value };
        around(&e.loops, Mode::Unroll, vec![scaled])
    }

    /// Makes scores of sums; those behind the last key are less than all others.
    fn of_sums(&mut self, score: Source) -> Vec<Stmt> {
        let p = self.p;
        let e = self.elements(self.keys, &Affine::new([(self.step, self.wide())], 0));
        let held = Expr::load(score, e.index.clone());
        let made = match constant_factor(p) {
            Some(by) => Expr::binary(Binary::Mul, held, Expr::Const(by * LOG2_E)),
            None => p.score_at(&e.row, &e.column, &held),
        };
        let value = p.up_to_the_last_key(&e.column, self.wide(), made);
        around(&e.loops, Mode::Unroll, vec![Stmt::Store { buffer: score, index: e.index, value }])
    }

    /// Finds the largest score of each row, this tile's included, and the factor that scales
    /// earlier sums to it.
    fn largest(&mut self, score: Source, own: Held) -> Vec<Stmt> {
        let Held { largest, sums, newest, factor } = own;
        let first = self.each_row(&mut |at| {
            vec![Stmt::Store { buffer: newest, value: Expr::load(largest, at.clone()), index: at }]
        });
        let e = self.elements(self.keys, &Affine::constant(0));
        let max = Stmt::Update {
            op: Reducer::Max,
            buffer: newest,
            index: e.row_index,
            value: Expr::load(score, e.index),
        };
        let mut out = vec![first];
        out.extend(around(&e.loops, Mode::Unroll, vec![max]));
        out.push(Stmt::Warp(Warp::Reduce { op: Reducer::Max, buffer: newest, lanes: 4 }));
        let in_twos = constant_factor(self.p).is_some();
        out.push(self.each_row(&mut |at| {
            let load = |b: Source| Expr::load(b, at.clone());
            let store = |buffer, value| Stmt::Store { buffer, index: at.clone(), value };
            let lost = Expr::binary(Binary::Sub, load(largest), load(newest));
            vec![
                store(factor, power(lost, in_twos)),
                store(largest, load(newest)),
                store(sums, Expr::binary(Binary::Mul, load(sums), load(factor))),
            ]
        }));
        out
    }

    /// The finished nest: block loops over tiles of `tall` rows, thread loops, and the body.
    pub fn launched(mut self, threads: &[(Var, i64)], tall: i64, body: Vec<Stmt>) -> Nest {
        let block = around(threads, Mode::Thread, body);
        let number = self.n.new_var("mb");
        let block = tiles(number, self.start, self.p.row.1, tall, block);
        self.n.body = around(&self.p.batch, Mode::Block, vec![block]);
        self.n
    }

    /// Stores a thread's elements of the output, whose sums lie in `columns` matrices.
    pub fn finish(&mut self, own: Held, sum: Source, columns: i64) -> Vec<Stmt> {
        let p = self.p;
        let mut out =
            vec![Stmt::Warp(Warp::Reduce { op: Reducer::Sum, buffer: own.sums, lanes: 4 })];
        let e = self.elements(columns, &Affine::constant(0));
        let (held, all) =
            (Expr::load(sum, e.index.clone()), Expr::load(own.sums, e.row_index.clone()));
        let store = vec![p.stored_at(&e.row, &e.column, &held, &all)];
        let (around_pairs, pair) = e.loops.split_at(4);
        let is_pair = p.column.1 % 2 == 0;
        let inside = |index: Affine, high: i64, body: Vec<Stmt>| match p.column.1 % SIDE {
            0 => body,
            _ => vec![Stmt::If { conds: vec![Cond { index, low: 0, high }], body }],
        };
        let inner = match is_pair {
            // Both of a pair are inside, or none: pairs are counted.
            true => {
                let first = e.column.substitute(pair[0].0, &Affine::constant(0));
                let halves = Affine::new(first.terms().iter().map(|t| (t.0, t.1 / 2)), 0);
                inside(halves, p.column.1 / 2, around(pair, Mode::Vector, store))
            }
            false => around(pair, Mode::Unroll, inside(e.column.clone(), p.column.1, store)),
        };
        out.extend(around(around_pairs, Mode::Unroll, inner));
        out
    }
}

/// `e` to a difference of scores, which may count in powers of two.
fn power(exponent: Expr, in_twos: bool) -> Expr {
    let exponent = match in_twos {
        true => Expr::binary(Binary::Mul, exponent, Expr::Const(LN_2)),
        false => exponent,
    };
    Expr::unary(Unary::Exp, exponent)
}

/// The factor by which a score is a constant multiple of the first product's sum, if it is one.
fn constant_factor(p: &Attention) -> Option<f64> {
    let of_sum = |e: &Expr| matches!(e, Expr::Load { source, .. } if *source == p.sum);
    match &p.score {
        Expr::Binary(Binary::Mul, x, by) if of_sum(x) => match **by {
            Expr::Const(by) => Some(by),
            _ => None,
        },
        Expr::Binary(Binary::Div, x, by) if of_sum(x) => match **by {
            Expr::Const(by) => Some(1.0 / by),
            _ => None,
        },
        e => of_sum(e).then_some(1.0),
    }
}
