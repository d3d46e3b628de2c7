//! Statistics of whole rows ahead of a matrix product on a GPU, such as each row's mean and
//! deviation of a layer norm. Input: a contraction and the steps over its rows
//! (`core/src/operator/normed.rs`); output: statements by which the threads of a block compute the
//! statistics for the rows of their tile into shared memory, before the block fetches the rows.
//! `contract/program.rs` and `tensor/tile.rs` put them in front of their programs.

use super::super::divisors;
use super::loops::{around, count, total};
use super::problem::{Contraction, RowSteps};
use crate::nest::{Buffer, Mode, Nest, Reach, Scope, Stmt, rewrite};
use squall_core::DType;
use squall_core::expr::{Affine, Expr, Source, Var};
use squall_core::operator::{Normed, RowStep};
use squall_core::workload::Reducer;

/// The most threads that reduce one row together; their partial results meet in shared memory.
const MOST_PARTS: i64 = 32;

impl RowSteps {
    /// The row steps of a contraction that reads their results as buffers of its own; these buffers
    /// are no inputs any more. None where the contraction reads them otherwise than by the rows of
    /// its tile.
    pub fn of(n: &Normed, p: &mut Contraction) -> Option<RowSteps> {
        let of_name = |(step, name): &(usize, String)| Some((*step, p.base.find_buffer(name)?));
        let given = n.given.iter().map(of_name).collect::<Option<Vec<_>>>()?;
        let is_given = |s: Source| given.iter().any(|g| g.1 == s);
        let ahead = p.operands.iter().filter_map(|o| o.prologue.as_ref());
        let mut places: Vec<Vec<Affine>> = Vec::new();
        for e in ahead {
            places.extend(e.loads().iter().filter(|l| is_given(l.0)).map(|l| l.1.to_vec()));
        }
        let first = places.first()?;
        let of_dimension = |(d, a): (usize, &Affine)| match a.as_constant() {
            Some(0) if p.base.buffer(given[0].1).shape[d] == 1 => Some(None),
            Some(_) => None,
            None => Some(Some(p.axes.iter().position(|x| Some(x.var) == a.as_var())?)),
        };
        let rows = first.iter().enumerate().map(of_dimension).collect::<Option<Vec<_>>>()?;
        let is_input = |s: Source| matches!(p.base.buffer(s).scope, Scope::Data(_));
        let is_data = |s: Source| is_input(s) && !is_given(s);
        let are_of_data = n.steps.iter().all(|s| {
            let (RowStep::Reduce(_, e) | RowStep::Number(e)) = s;
            e.loads().iter().all(|l| l.1.is_empty() || is_data(l.0))
        });
        let is_read_alone = p.operands.iter().all(|o| !is_given(o.source));
        // Rows that lie across would be turned by a launch of their own, which has no steps.
        let lies_along = p
            .operands
            .iter()
            .filter(|o| o.prologue.is_some())
            .all(|o| o.index.last().is_some_and(|a| a.as_var() == Some(p.reduce[0].var)));
        if !are_of_data || !is_read_alone || !lies_along || places.iter().any(|i| i != first) {
            return None;
        }
        for (_, buffer) in &given {
            p.base.buffers[buffer.0 as usize].scope = Scope::Local;
        }
        Some(RowSteps { steps: n.steps.clone(), extent: n.extent, given, rows })
    }

    /// The statements that compute the steps for the rows of a block's tile, followed by `body`,
    /// the block's statements that read them. The tile begins at `start` and has `size` along each
    /// axis.
    pub fn ahead(&self, n: &mut Nest, start: &[Var], size: &[i64], body: Vec<Stmt>) -> Vec<Stmt> {
        let mut w = Writer::new(self, n, start, size);
        let mut out = w.steps();
        let mut body = body;
        let made: Vec<(Source, Source)> =
            self.given.iter().map(|(step, from)| (*from, w.results[*step])).collect();
        rewrite(&mut body, &mut Affine::clone, &mut |e| match &e {
            Expr::Load { source, index } => match made.iter().find(|m| m.0 == *source) {
                Some((_, to)) => Expr::load(*to, self.in_tile(index, start)),
                None => e,
            },
            _ => e,
        });
        out.extend(body);
        // The place of the results in shared memory is free behind it.
        out.push(Stmt::Barrier(Reach::Block));
        out
    }

    /// Where the row at a place lies among those of a tile.
    fn in_tile(&self, index: &[Affine], start: &[Var]) -> Vec<Affine> {
        let of = |(a, axis): (&Affine, &Option<usize>)| match axis {
            Some(k) => a.add(&Affine::var(start[*k]).scale(-1)),
            None => Affine::constant(0),
        };
        index.iter().zip(&self.rows).map(of).collect()
    }
}

/// The writer of the statements.
struct Writer<'a> {
    s: &'a RowSteps,
    n: &'a mut Nest,
    start: &'a [Var],
    /// Rows of the tile, by dimension.
    sizes: Vec<i64>,
    /// The results of each step, by rows.
    results: Vec<Source>,
}

impl<'a> Writer<'a> {
    fn new(s: &'a RowSteps, n: &'a mut Nest, start: &'a [Var], size: &[i64]) -> Writer<'a> {
        let sizes: Vec<i64> = s.rows.iter().map(|axis| axis.map_or(1, |k| size[k])).collect();
        let mut w = Writer { s, n, start, sizes, results: Vec::new() };
        w.results =
            s.steps.iter().map(|_| w.buffer("of_row", w.sizes.clone(), Scope::Shared)).collect();
        w
    }

    fn buffer(&mut self, name: &str, shape: Vec<i64>, scope: Scope) -> Source {
        self.n.new_buffer(Buffer {
            name: name.into(),
            dtype: DType::F32,
            shape,
            scope,
            lenient: false,
        })
    }

    /// Variables that count the tile's rows.
    fn rows(&mut self) -> Vec<(Var, i64)> {
        self.sizes.clone().into_iter().map(|size| (self.n.new_var("row"), size)).collect()
    }

    /// The statements that make all steps: each reduction by parts of a row, then its total with
    /// the numbers that are made of it.
    fn steps(&mut self) -> Vec<Stmt> {
        let s = self.s;
        let mut out: Vec<Stmt> = self.results.iter().map(|b| Stmt::Local(*b)).collect();
        let mut at = 0;
        while at < s.steps.len() {
            let rows = self.rows();
            let own: Vec<Affine> = rows.iter().map(|r| Affine::var(r.0)).collect();
            let mut each = Vec::new();
            if let RowStep::Reduce(op, e) = &s.steps[at] {
                let (sum, made) = self.reduced(*op, e, &own, &mut out);
                each = made;
                each.push(self.result(at, &own, sum));
                at += 1;
            }
            while let Some(RowStep::Number(e)) = s.steps.get(at) {
                let value = self.placed(e, &own, &Affine::constant(0));
                each.push(self.result(at, &own, value));
                at += 1;
            }
            out.extend(around(&rows, Mode::Share, each));
            out.push(Stmt::Barrier(Reach::Block));
        }
        out
    }

    fn result(&self, step: usize, row: &[Affine], value: Expr) -> Stmt {
        Stmt::Store { buffer: self.results[step], index: row.to_vec(), value }
    }

    /// An expression of a step at a row of the tile and an element of it.
    fn placed(&self, e: &Expr, row: &[Affine], element: &Affine) -> Expr {
        let at = |v: Var| match row.get(v.0 as usize) {
            Some(own) => match self.s.rows[v.0 as usize] {
                Some(k) => own.add(&Affine::var(self.start[k])),
                None => Affine::constant(0),
            },
            None => element.clone(),
        };
        e.rewrite(&mut |a| a.map_vars(at), &mut |e| match &e {
            Expr::Load { source, index } if index.is_empty() => {
                Expr::load(self.results[source.0 as usize], row.to_vec())
            }
            _ => e,
        })
    }

    /// The total of a reduction at a row, with the statements that make it. Its parts are made
    /// before, by as many threads.
    fn reduced(
        &mut self,
        op: Reducer,
        e: &Expr,
        row: &[Affine],
        out: &mut Vec<Stmt>,
    ) -> (Expr, Vec<Stmt>) {
        let largest =
            |of: i64, most: i64| divisors(of).into_iter().rfind(|d| *d <= most).unwrap_or(1);
        let parts = largest(self.s.extent, MOST_PARTS);
        let each = self.s.extent / parts;
        let unroll = largest(each, 8);
        let shape = [&self.sizes[..], &[parts]].concat();
        let partial = self.buffer("parts", shape, Scope::Shared);
        let sum = self.buffer("sum", vec![1], Scope::Local);
        let rows = self.rows();
        let [part, o, u, r] = ["part", "jo", "ju", "r"].map(|x| self.n.new_var(x));
        let own: Vec<Affine> = rows.iter().map(|r| Affine::var(r.0)).collect();
        // Threads side by side read elements side by side.
        let element = Affine::new([(o, unroll * parts), (u, parts), (part, 1)], 0);
        let zero = || vec![Affine::constant(0)];
        let value = self.placed(e, &own, &element);
        let add = Stmt::Update { op, buffer: sum, index: zero(), value };
        let inner = vec![count(u, unroll, Mode::Unroll, vec![add])];
        let first = Expr::Const(op.identity());
        let index = [&own[..], &[Affine::var(part)]].concat();
        let body = vec![
            Stmt::Local(sum),
            Stmt::Store { buffer: sum, index: zero(), value: first },
            count(o, each / unroll, Mode::Serial, inner),
            Stmt::Store { buffer: partial, index, value: Expr::load(sum, zero()) },
        ];
        out.push(Stmt::Local(partial));
        out.extend(around(&[&rows[..], &[(part, parts)]].concat(), Mode::Share, body));
        out.push(Stmt::Barrier(Reach::Block));
        let index = [row, &[Affine::var(r)]].concat();
        total(self.n, op, Expr::load(partial, index), &[(r, parts)])
    }
}
