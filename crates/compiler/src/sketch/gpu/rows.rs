//! The rule for row kernels on a GPU (softmax, normalisation, reductions along rows): one block
//! computes one row.
//!
//! The loop nest with all stages joined at the rows comes from `sketch/rows.rs`. Every pass over a
//! row is shared among the block's threads, and a thread meets the same elements in every pass. A
//! reduction is summed up by each thread, then across threads in two steps through shared memory.
//! Knobs: `threads`, `vector` (elements that a thread takes at once), `fan` (partial results that
//! the first of the two steps leaves). `mod.rs` lists the rules.

use super::super::{Facts, divisors, powers, rows::joined};
use super::Program;
use super::loops::{around, count, launches};
use crate::nest::{Buffer, Loop, Mode, Nest, Reach, Scope, Stmt};
use squall_core::expr::{Affine, Expr, Source, Var};
use squall_core::space::{Knob, Role, Term};
use squall_core::{Configuration, DType, Gpu, Space};

/// The sketches of a workload whose stages can be joined at rows; none for other workloads.
pub fn derive(f: &Facts<'_>, gpu: Gpu) -> Vec<Program> {
    if f.workload.stages.iter().all(|s| s.reduction.is_none()) {
        return Vec::new();
    }
    [false, true].into_iter().filter_map(|inline| sketch(f, gpu, inline)).collect()
}

fn sketch(f: &Facts<'_>, gpu: Gpu, inline: bool) -> Option<Program> {
    let j = joined(f, inline)?;
    let mut base = j.nest;
    let extent = j.passes.iter().map(|p| p.1).max()?;
    let rows: Vec<(Var, i64)> = j
        .rows
        .iter()
        .map(|(name, e)| base.find_var(name).map(|v| (v, *e)))
        .collect::<Option<_>>()?;
    let row = base.find_loop(rows.last()?.0)?.body.clone();
    // A sum in memory is refused, because every thread of the block would add to it.
    let mut own = true;
    crate::nest::visit(&row, &mut |s| {
        if let Stmt::Update { buffer, .. } = s {
            own &= base.buffer(*buffer).scope == Scope::Local;
        }
    });
    if !own {
        return None;
    }
    let prepare = std::mem::take(&mut base.prepare);
    base.prepare = launches(&mut base, prepare);
    let vectors = divisors(extent)
        .into_iter()
        .filter(|v| [1, 2, 4].contains(v) && j.passes.iter().all(|p| p.1 % v == 0));
    let knobs = vec![
        Knob::ints("threads", Role::Parallel, powers(32, 1024)),
        Knob::ints("vector", Role::Vector, vectors),
        Knob::ints("fan", Role::Unroll, [8, 16, 32]),
    ];
    let space = Space::new(
        knobs,
        &[Term::product(["threads", "vector"].map(Term::knob)).at_most((2 * extent).max(32))],
    )
    .ok()?;
    let make = move |c: &Configuration| {
        let get = |k: &str| c.int(k).unwrap_or(1);
        let mut w = Writer {
            n: base.clone(),
            threads: get("threads"),
            vector: get("vector"),
            fan: get("fan"),
            t: None,
            part: None,
        };
        Ok(w.program(&rows, &row))
    };
    let name = if inline { "gpu_rows,recompute" } else { "gpu_rows" };
    Some(Program { name: name.into(), space, gpu, make: Box::new(make) })
}

struct Writer {
    n: Nest,
    threads: i64,
    vector: i64,
    /// Partial results that are left after the first step across threads.
    fan: i64,
    t: Option<Var>,
    /// A thread's partial result, and the shared ones of the two steps.
    part: Option<[Source; 3]>,
}

impl Writer {
    fn buffer(&mut self, name: &str, size: i64, scope: Scope) -> Source {
        self.n.new_buffer(Buffer {
            name: name.into(),
            dtype: DType::F32,
            shape: vec![size],
            scope,
            lenient: false,
        })
    }

    fn program(&mut self, rows: &[(Var, i64)], row: &[Stmt]) -> Nest {
        let t = self.n.new_var("t");
        self.t = Some(t);
        let parts = [
            ("part", 1, Scope::Local),
            ("across", self.threads, Scope::Shared),
            ("some", self.fan, Scope::Shared),
        ];
        let parts = parts.map(|(name, size, scope)| self.buffer(name, size, scope));
        self.part = Some(parts);
        let mut body: Vec<Stmt> = parts.into_iter().map(Stmt::Local).collect();
        for s in row {
            self.stmt(s, &mut body);
        }
        body.push(Stmt::Barrier(Reach::Block));
        let threads = count(t, self.threads, Mode::Thread, body);
        self.n.body = around(rows, Mode::Block, vec![threads]);
        std::mem::replace(
            &mut self.n,
            Nest {
                name: String::new(),
                vars: vec![],
                buffers: vec![],
                prepare: vec![],
                body: vec![],
            },
        )
    }

    fn stmt(&mut self, s: &Stmt, out: &mut Vec<Stmt>) {
        match s {
            Stmt::Local(b) => {
                // Buffers with a value for each element of the row are shared; each thread has
                // single values of its own.
                if self.n.buffer(*b).elements() > 1 {
                    self.n.buffers[b.0 as usize].scope = Scope::Shared;
                }
                out.push(s.clone());
            }
            Stmt::Loop(l) => match &l.body[..] {
                [Stmt::Update { op, buffer, index, value }]
                    if !index.iter().any(|a| a.uses(l.var)) =>
                {
                    let Some([part, across, some]) = self.part else { return };
                    let zero = || vec![Affine::constant(0)];
                    let identity = || Expr::Const(op.identity());
                    out.push(Stmt::Store { buffer: part, index: zero(), value: identity() });
                    let add =
                        Stmt::Update { op: *op, buffer: part, index: zero(), value: value.clone() };
                    out.push(self.pass(l.var, l.extent, vec![add]));
                    let t = Affine::var(self.t.unwrap_or(Var(0)));
                    out.push(Stmt::Store {
                        buffer: across,
                        index: vec![t],
                        value: Expr::load(part, zero()),
                    });
                    out.push(Stmt::Barrier(Reach::Block));
                    let fan = self.fan.min(self.threads);
                    let [f, g, h] = ["f", "g", "h"].map(|x| self.n.new_var(x));
                    let from = Affine::new([(f, 1), (g, fan)], 0);
                    let step = vec![
                        Stmt::Store { buffer: part, index: zero(), value: identity() },
                        count(
                            g,
                            self.threads / fan,
                            Mode::Unroll,
                            vec![Stmt::Update {
                                op: *op,
                                buffer: part,
                                index: zero(),
                                value: Expr::load(across, vec![from]),
                            }],
                        ),
                        Stmt::Store {
                            buffer: some,
                            index: vec![Affine::var(f)],
                            value: Expr::load(part, zero()),
                        },
                    ];
                    out.push(count(f, fan, Mode::Share, step));
                    out.push(Stmt::Barrier(Reach::Block));
                    let all = Stmt::Update {
                        op: *op,
                        buffer: *buffer,
                        index: index.clone(),
                        value: Expr::load(some, vec![Affine::var(h)]),
                    };
                    out.push(count(h, fan, Mode::Unroll, vec![all]));
                }
                [Stmt::Loop(inner)] => self.nested(l, inner, out),
                body => {
                    out.push(self.pass(l.var, l.extent, body.to_vec()));
                    // A plain copy may be asynchronous, and arrives only at a barrier.
                    if let [Stmt::Store { value: Expr::Load { .. } | Expr::Select { .. }, .. }] =
                        body
                    {
                        out.push(Stmt::Barrier(Reach::Block));
                    }
                }
            },
            // Every thread computes single values for itself, so all threads write the same result.
            other => out.push(other.clone()),
        }
    }

    /// A loop around passes. A thread meets other elements in these than in a pass of one loop, so
    /// that all threads wait ahead of it and behind it.
    fn nested(&mut self, outer: &Loop, inner: &Loop, out: &mut Vec<Stmt>) {
        let mut body = Vec::new();
        self.stmt(&Stmt::Loop(inner.clone()), &mut body);
        out.push(Stmt::Barrier(Reach::Block));
        out.push(Stmt::Loop(Loop { body, ..outer.clone() }));
        out.push(Stmt::Barrier(Reach::Block));
    }

    /// A pass over the row, vectors dealt to threads.
    fn pass(&mut self, var: Var, extent: i64, mut body: Vec<Stmt>) -> Stmt {
        let [o, v] = ["x", "v"].map(|x| self.n.new_var(x));
        crate::nest::substitute(&mut body, var, &Affine::new([(o, self.vector), (v, 1)], 0));
        count(o, extent / self.vector, Mode::Share, vec![count(v, self.vector, Mode::Vector, body)])
    }
}
