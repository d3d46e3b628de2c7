//! From a workload to its plain nest: one loop nest a stage, in order, every intermediate in
//! memory. Axes of extent 1 get no loop, but for the one row that a reduction to one element is.

use super::{Buffer, Loop, Mode, Nest, Scope, Stmt};
use squall_core::expr::{Affine, Expr, Source, Var};
use squall_core::workload::{Axis, TensorKind, Workload};

/// The plain nest. The loop over axis `k` of stage `C` is named `k_C`.
pub fn lower(w: &Workload) -> Nest {
    let mut n = Nest {
        name: w.kind.clone(),
        vars: Vec::new(),
        buffers: Vec::new(),
        prepare: Vec::new(),
        body: Vec::new(),
    };
    let weights = inputs(w, &mut n);
    let prepared = |s: Source| {
        let i = s.0 as usize;
        if i < w.inputs.len() && w.inputs[i].kind == TensorKind::Weight {
            let before = w.inputs[..i].iter().filter(|x| x.kind == TensorKind::Weight).count();
            Source((w.inputs.len() + before) as u32)
        } else if i < w.inputs.len() {
            s
        } else {
            Source((i + weights) as u32)
        }
    };
    for (i, input) in w.inputs.iter().enumerate() {
        if input.kind == TensorKind::Weight {
            let source = Source(i as u32);
            let axes: Vec<Axis> = input
                .shape
                .iter()
                .enumerate()
                .map(|(d, &e)| Axis::new(format!("i{d}"), e))
                .collect();
            let (vars, index) = declare(&mut n, &axes, &format!("{}p", input.name), false);
            let store = Stmt::Store {
                buffer: prepared(source),
                index: index.clone(),
                value: Expr::load(source, index),
            };
            let copy = wrap(vec![store], &vars);
            n.prepare.extend(copy);
        }
    }
    // A row kernel needs a row, even if there is only one.
    let row =
        w.stages.iter().any(|s| s.reduction.is_some() && s.axes.iter().all(|a| a.extent == 1));
    for (k, s) in w.stages.iter().enumerate() {
        let scope = if k + 1 == w.stages.len() { Scope::Output } else { Scope::Workspace };
        let shape = w.memory(&s.name, &s.shape());
        let buffer = n.new_buffer(Buffer { name: s.name.clone(), dtype: s.dtype, shape, scope });
        let (spatial, index) = declare(&mut n, &s.axes, &s.name, row);
        let (reduce, reduce_index) = declare(&mut n, s.reduce_axes(), &s.name, false);
        let all: Vec<Affine> = index.iter().chain(&reduce_index).cloned().collect();
        let value =
            s.body.rewrite(&mut |a| a.map_vars(|v| all[v.0 as usize].clone()), &mut |e| match e {
                Expr::Load { source, index } => Expr::Load { source: prepared(source), index },
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
        n.body.extend(wrap(stmts, &spatial));
    }
    n
}

/// Declares the inputs, and counts the weights among them. Weights are read through a copy that
/// `prepare` makes, so that the timed call never needs them.
fn inputs(w: &Workload, n: &mut Nest) -> usize {
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
        });
    }
    for i in 0..w.inputs.len() {
        if let Scope::Weight(_) = n.buffers[i].scope {
            let b = Buffer {
                name: format!("{}p", n.buffers[i].name),
                scope: Scope::Prepared,
                ..n.buffers[i].clone()
            };
            n.buffers.push(b);
        }
    }
    weights
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
