//! The rule for reductions across columns on a GPU: softmax over channels, pooling that divides by
//! the number of elements in each window, norms over other than the last axis.
//!
//! Input: a workload with reductions whose results an element of the last stage reads at places
//! that only some of its axes decide, the columns, the innermost axis among them. Output: one
//! launch in which each thread computes all reductions of its column into registers, one behind the
//! other, and then the column's elements: neighbouring threads read neighbouring elements, and
//! nothing but the result is written to memory. Elementwise stages are computed again at each use.
//! Knobs: `threads` of a block and `unroll`, the iterations of a reduction that are written out.
//! Plain loops would take a launch a stage and a pass through memory for each. `mod.rs` lists the
//! rules.

use super::super::{Facts, attempt, divisors, powers, start};
use super::Program;
use super::loops::{around, count, launches, launches_of};
use crate::nest::{Loop, Mode, Nest, Scope, Stmt, chain, rewrite, substitute, visit, visit_mut};
use crate::schedule::Primitive;
use squall_core::expr::{Affine, Expr, Source, Var};
use squall_core::space::{Knob, Role};
use squall_core::{Configuration, Gpu, Space};

/// Nested loops of at most this many iterations in all are written out whole.
const WRITTEN_OUT: i64 = 32;

/// The sketch of a workload whose reductions belong to columns; none for other workloads.
pub fn derive(f: &Facts<'_>, gpu: Gpu) -> Vec<Program> {
    sketch(f, gpu).into_iter().collect()
}

fn sketch(f: &Facts<'_>, gpu: Gpu) -> Option<Program> {
    let w = f.workload;
    let (mut base, mut prefix) = start(w);
    let ahead = &w.stages[..w.stages.len() - 1];
    for s in ahead.iter().filter(|s| s.reduction.is_none() && !w.is_of_weights(s)) {
        attempt(&mut base, &mut prefix, vec![Primitive::Inline { buffer: s.name.clone() }])?;
    }
    let parts: Vec<Part> = base.body.iter().map(|s| Part::of(&base, s)).collect::<Option<_>>()?;
    let column = Column::of(&mut base, parts)?;
    let prepare = std::mem::take(&mut base.prepare);
    base.prepare = launches(&mut base, prepare);
    let knobs = vec![
        Knob::ints("threads", Role::Parallel, powers(32, 512)),
        Knob::ints("unroll", Role::Unroll, [1, 2, 4, 8]),
    ];
    let space = Space::new(knobs, &[]).ok()?;
    let make = move |c: &Configuration| {
        let get = |k: &str| c.int(k).unwrap_or(1);
        let mut n = base.clone();
        let mut body = column.body.clone();
        if get("unroll") > 1 {
            body.iter_mut().for_each(|s| unroll(&mut n, s, get("unroll")));
        }
        let nest = around(&column.axes, Mode::Serial, body);
        n.body = launches_of(&mut n, nest, get("threads"));
        Ok(n)
    };
    Some(Program { name: "gpu_columns".into(), space, gpu, make: Box::new(make) })
}

/// A stage of a plain nest: loops around the statements of one element.
struct Part {
    loops: Vec<(Var, i64)>,
    element: Vec<Stmt>,
    buffer: Source,
    index: Vec<Affine>,
}

impl Part {
    fn of(n: &Nest, stage: &Stmt) -> Option<Part> {
        let around = if let Stmt::Loop(top) = stage { chain(top) } else { Vec::new() };
        let loops = around.iter().map(|l| (l.var, l.extent)).collect();
        let element = around.last().map_or(std::slice::from_ref(stage), |l| &l.body[..]);
        let Some(Stmt::Store { buffer, index, .. }) = element.first() else { return None };
        let is_plain = |s: &Stmt| match s {
            Stmt::Store { buffer: b, .. } | Stmt::Update { buffer: b, .. } => b == buffer,
            Stmt::Loop(l) => l.start.is_none(),
            _ => false,
        };
        let mut are_plain = n.buffer(*buffer).shape.len() == index.len();
        visit(element, &mut |s| are_plain &= is_plain(s));
        let (buffer, index) = (*buffer, index.clone());
        are_plain.then(|| Part { loops, element: element.to_vec(), buffer, index })
    }

    /// Whether its element is reduced, and not only stored.
    fn reduces(&self) -> bool {
        self.element.len() > 1
    }
}

/// The work of one thread: the loops that make columns, and the statements inside of them.
struct Column {
    axes: Vec<(Var, i64)>,
    body: Vec<Stmt>,
}

impl Column {
    fn of(n: &mut Nest, mut parts: Vec<Part>) -> Option<Column> {
        let last = parts.pop().filter(|last| last.reduces() || !parts.is_empty())?;
        let mut read = Vec::new();
        for (source, index) in loads(&last.element) {
            if parts.iter().any(|p| p.buffer == source) {
                read.extend(index.iter().flat_map(vars));
            }
        }
        let is_axis = |l: &&(Var, i64)| parts.is_empty() || read.contains(&l.0);
        let axes: Vec<(Var, i64)> = last.loops.iter().filter(is_axis).copied().collect();
        let along: Vec<(Var, i64)> =
            last.loops.iter().filter(|l| !axes.contains(l)).copied().collect();
        // Neighbouring threads shall have neighbouring elements.
        if !last.loops.last().is_some_and(|l| axes.contains(l)) {
            return None;
        }
        let mut body = match last.reduces() {
            true => {
                let (own, value) = own_sum(n, &last);
                let index = last.index.clone();
                [own, vec![Stmt::Store { buffer: last.buffer, index, value }]].concat()
            }
            false => last.element.clone(),
        };
        body = around(&along, Mode::Serial, body);
        for part in parts.into_iter().rev() {
            let places: Vec<Vec<Affine>> = loads(&body)
                .into_iter()
                .filter(|(source, _)| *source == part.buffer)
                .map(|(_, index)| index)
                .collect();
            let Some(first) = places.first() else { continue };
            let of_column =
                first.iter().flat_map(vars).all(|v| axes.iter().any(|axis| axis.0 == v));
            if !of_column || places.iter().any(|p| p != first) || !part.reduces() {
                return None;
            }
            // A place behind a test may lie outside of the stage, whose reduction has no test.
            let last_of =
                |v: Var| axes.iter().find(|axis| axis.0 == v).map_or(0, |axis| axis.1 - 1);
            let is_inside = |(at, extent): (&Affine, &i64)| {
                let (low, high) = at.range(last_of);
                low >= 0 && high < *extent
            };
            if !first.iter().zip(&n.buffer(part.buffer).shape).all(is_inside) {
                return None;
            }
            let mut ahead = part.element.clone();
            for (own, at) in part.index.iter().zip(first) {
                match own.as_var() {
                    Some(v) => substitute(&mut ahead, v, at),
                    None if own.as_constant().is_some() => {}
                    None => return None,
                }
            }
            ahead.insert(0, Stmt::Local(part.buffer));
            body = [ahead, body].concat();
            in_register(n, part.buffer, &mut body);
        }
        Some(Column { axes, body })
    }
}

/// The last stage's reduction in a register, and its value.
fn own_sum(n: &mut Nest, last: &Part) -> (Vec<Stmt>, Expr) {
    let mut own = n.buffer(last.buffer).clone();
    own.name = format!("{}_sum", own.name);
    (own.shape, own.scope) = (vec![1], Scope::Local);
    let own = n.new_buffer(own);
    let mut element = last.element.clone();
    replace(&mut element, last.buffer, own);
    element.insert(0, Stmt::Local(own));
    (element, Expr::load(own, vec![Affine::constant(0)]))
}

/// Keeps a stage's one element of the column in a register.
fn in_register(n: &mut Nest, buffer: Source, body: &mut [Stmt]) {
    let kept = &mut n.buffers[buffer.0 as usize];
    (kept.shape, kept.scope) = (vec![1], Scope::Local);
    replace(body, buffer, buffer);
}

/// Reads and writes the one element of `to` in the place of all elements of `from`.
fn replace(body: &mut [Stmt], from: Source, to: Source) {
    let zero = || vec![Affine::constant(0)];
    visit_mut(body, &mut |s| {
        if let Stmt::Store { buffer, index, .. } | Stmt::Update { buffer, index, .. } = s
            && *buffer == from
        {
            (*buffer, *index) = (to, zero());
        }
    });
    rewrite(body, &mut Affine::clone, &mut |e| match e {
        Expr::Load { source, .. } if source == from => Expr::load(to, zero()),
        e => e,
    });
}

fn loads(stmts: &[Stmt]) -> Vec<(Source, Vec<Affine>)> {
    let mut out = Vec::new();
    visit(stmts, &mut |s| {
        if let Stmt::Store { value, .. } | Stmt::Update { value, .. } = s {
            out.extend(value.loads().into_iter().map(|(source, index)| (source, index.to_vec())));
        }
    });
    out
}

fn vars(a: &Affine) -> Vec<Var> {
    a.terms().iter().map(|t| t.0).collect()
}

/// Writes the iterations of the innermost loops out, all of short ones.
fn unroll(n: &mut Nest, s: &mut Stmt, by: i64) {
    let Stmt::Loop(l) = s else { return };
    let inside = |stmts: &[Stmt]| {
        let mut product = 1;
        visit(stmts, &mut |s| {
            if let Stmt::Loop(l) = s {
                product *= l.extent;
            }
        });
        product
    };
    let inner = inside(&l.body);
    if l.extent * inner <= WRITTEN_OUT {
        visit_mut(std::slice::from_mut(s), &mut |s| {
            if let Stmt::Loop(l) = s {
                l.mode = Mode::Unroll;
            }
        });
        return;
    }
    if inner > 1 {
        l.body.iter_mut().for_each(|s| unroll(n, s, by));
        return;
    }
    let factor = divisors(l.extent).into_iter().rfind(|d| *d <= by).unwrap_or(1);
    let [outer, inner] = ["o", "u"].map(|name| n.new_var(name));
    let mut body = std::mem::take(&mut l.body);
    substitute(&mut body, l.var, &Affine::new([(outer, factor), (inner, 1)], 0));
    let written = count(inner, factor, Mode::Unroll, body);
    *l = Loop {
        var: outer,
        extent: l.extent / factor,
        mode: Mode::Serial,
        start: None,
        body: vec![written],
    };
}
