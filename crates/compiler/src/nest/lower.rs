//! Lowering: from a workload (a tensor expression in stages) to its plain nest, one loop nest a
//! stage in the stages' order, with every intermediate in memory. All schedules of a CPU and all
//! GPU sketches start from this nest.
//!
//! A stage `C[m, n] = sum over k` becomes loops `m_C`, `n_C` around `C[m_C, n_C] = 0` and a loop
//! `k_C` around `C[m_C, n_C] += ..`. Axes of extent 1 get no loop, except for the one row of a
//! reduction to a single element. Weights are first copied to buffers of the scope `prepared`,
//! outside of the timed call.

use super::lenient::lenient;
use super::{Buffer, Loop, Mode, Nest, Scope, Stmt};
use squall_core::expr::{Affine, Expr, Source, Var};
use squall_core::workload::{Axis, Stage, TensorKind, Workload};

/// The plain nest. The loop over axis `k` of stage `C` is named `k_C`.
pub fn lower(w: &Workload) -> Nest {
    let mut n = Nest {
        name: w.kind.clone(),
        vars: Vec::new(),
        buffers: Vec::new(),
        prepare: Vec::new(),
        body: Vec::new(),
    };
    let copies = inputs(w, &mut n);
    let weights = copies.iter().flatten().count();
    let prepared = |s: Source| match copies.get(s.0 as usize) {
        Some(copy) => copy.unwrap_or(s),
        None => Source(s.0 + weights as u32),
    };
    for (i, input) in w.inputs.iter().enumerate() {
        if let Some(buffer) = copies[i] {
            let source = Source(i as u32);
            let axes: Vec<Axis> = input
                .shape
                .iter()
                .enumerate()
                .map(|(d, &e)| Axis::new(format!("i{d}"), e))
                .collect();
            let (vars, index) = declare(&mut n, &axes, &format!("{}p", input.name), false);
            let store =
                Stmt::Store { buffer, index: index.clone(), value: Expr::load(source, index) };
            let copy = wrap(vec![store], &vars);
            n.prepare.extend(copy);
        }
    }
    // A row kernel needs a row, even if there is only one.
    let row =
        w.stages.iter().any(|s| s.reduction.is_some() && s.axes.iter().all(|a| a.extent == 1));
    let lenient = lenient(w);
    for (k, s) in w.stages.iter().enumerate() {
        let ahead = w.is_of_weights(s);
        let scope = match k + 1 == w.stages.len() {
            true => Scope::Output,
            false if ahead => Scope::Prepared,
            false => Scope::Workspace,
        };
        let shape = w.memory(&s.name, &s.shape());
        let buffer = n.new_buffer(Buffer {
            name: s.name.clone(),
            dtype: s.dtype,
            shape,
            scope,
            lenient: lenient[k],
        });
        let (spatial, index) = declare(&mut n, &s.axes, &s.name, row);
        let (reduce, reduce_index) = declare(&mut n, s.reduce_axes(), &s.name, false);
        let all: Vec<Affine> = index.iter().chain(&reduce_index).cloned().collect();
        let value =
            s.body.rewrite(&mut |a| a.map_vars(|v| all[v.0 as usize].clone()), &mut |e| match e {
                // Stages that are computed ahead read the weights themselves.
                Expr::Load { source, index } if !ahead => {
                    Expr::Load { source: prepared(source), index }
                }
                e => e,
            });
        let stmts = match &s.reduction {
            None => vec![Stmt::Store { buffer, index, value }],
            Some(r) => {
                let init = Stmt::Store {
                    buffer,
                    index: index.clone(),
                    value: Expr::Const(r.op.identity()),
                };
                let update = Stmt::Update { op: r.op, buffer, index, value };
                let mut v = vec![init];
                v.extend(wrap(vec![update], &reduce));
                v
            }
        };
        let whole = wrap(stmts, &spatial);
        if ahead { n.prepare.extend(whole) } else { n.body.extend(whole) }
    }
    n
}

/// Whether an input is a weight that only stages which are computed ahead read.
fn is_read_ahead(w: &Workload, input: usize) -> bool {
    let reads = |s: &Stage| s.body.loads().iter().any(|(x, _)| x.0 as usize == input);
    let mut readers = w.stages.iter().filter(|s| reads(s)).peekable();
    readers.peek().is_some() && readers.all(|s| w.is_of_weights(s))
}

/// Declares the inputs, and gives for each the copy that it is read through. Weights are read
/// through a copy that `prepare` makes, so that the timed call never needs them.
fn inputs(w: &Workload, n: &mut Nest) -> Vec<Option<Source>> {
    let (mut data, mut weights) = (0, 0);
    for i in &w.inputs {
        let count = if i.kind == TensorKind::Data { &mut data } else { &mut weights };
        let scope =
            if i.kind == TensorKind::Data { Scope::Data(*count) } else { Scope::Weight(*count) };
        *count += 1;
        n.buffers.push(Buffer {
            name: i.name.clone(),
            dtype: i.dtype,
            shape: w.memory(&i.name, &i.shape),
            scope,
            lenient: false,
        });
    }
    let copied = |i: usize, n: &mut Nest| {
        let is_weight = matches!(n.buffers[i].scope, Scope::Weight(_));
        (is_weight && !is_read_ahead(w, i)).then(|| {
            let name = format!("{}p", n.buffers[i].name);
            n.new_buffer(Buffer { name, scope: Scope::Prepared, ..n.buffers[i].clone() })
        })
    };
    (0..w.inputs.len()).map(|i| copied(i, n)).collect()
}

/// Variables for axes; one of extent 1 is the constant 0, but the first where `row` asks for its
/// loop.
fn declare(n: &mut Nest, axes: &[Axis], stage: &str, row: bool) -> (Vec<(Var, i64)>, Vec<Affine>) {
    let mut vars = Vec::new();
    let index = axes
        .iter()
        .enumerate()
        .map(|(i, a)| {
            if a.extent == 1 && !(row && i == 0) {
                return Affine::constant(0);
            }
            let v = n.new_var(&format!("{}_{stage}", a.name));
            vars.push((v, a.extent));
            Affine::var(v)
        })
        .collect();
    (vars, index)
}

/// Loops around statements, the first variable outermost.
fn wrap(stmts: Vec<Stmt>, vars: &[(Var, i64)]) -> Vec<Stmt> {
    vars.iter().rev().fold(stmts, |body, &(var, extent)| {
        vec![Stmt::Loop(Loop { var, extent, mode: Mode::Serial, start: None, body })]
    })
}
