//! Plain loops: the untuned default that gains are measured from, and the reference in double
//! precision that every kernel's output is compared with.

use super::{Facts, Sketch, start};
use crate::emit::{Options, emit};
use crate::nest::{Buffer, Loop, Mode, Nest, Scope, Stmt, accesses, lower};
use crate::schedule::Primitive;
use squall_core::expr::{Affine, Expr, Source, Var};
use squall_core::space::{Knob, Role};
use squall_core::{KernelSource, Space, Target, TargetKind, Tunable, Workload};
use std::sync::Arc;

/// Accumulates every reduction in a scalar, as anyone would write it.
pub(super) fn scalars(n: &mut Nest) -> Vec<Primitive> {
    let mut roots = Vec::new();
    reductions(&n.body, &mut roots);
    let mut done = Vec::new();
    for (i, (v, b)) in roots.into_iter().enumerate() {
        let name = n.buffer(b).name.clone();
        let list = vec![Primitive::CacheWrite(n.vars[v.0 as usize].clone(), name.clone(), format!("acc{i}")), Primitive::Forward(name)];
        if super::attempt(n, &mut done, list.clone()).is_none() {
            let _ = super::attempt(n, &mut done, list[..1].to_vec());
        }
    }
    done
}

/// Outermost loops that only accumulate into one element, with what they accumulate into.
fn reductions(stmts: &[Stmt], out: &mut Vec<(Var, Source)>) {
    for s in stmts {
        if let Stmt::Loop(l) = s {
            let list = accesses(&l.body);
            let written: Vec<_> = list.iter().filter(|a| a.write).collect();
            match &written[..] {
                [only] if only.read && !moves(&l.body, l.var, only.index) => out.push((l.var, only.buffer)),
                _ => reductions(&l.body, out),
            }
        }
    }
}

/// Whether the loop or one inside it moves through the index.
fn moves(body: &[Stmt], v: Var, index: &[Affine]) -> bool {
    let mut vars = vec![v];
    crate::nest::visit(body, &mut |s| {
        if let Stmt::Loop(l) = s {
            vars.push(l.var);
        }
    });
    index.iter().any(|a| vars.iter().any(|v| a.uses(*v)))
}

/// The plain loops as a sketch of one configuration.
pub fn sketch(f: &Facts<'_>) -> Sketch {
    let (mut base, mut prefix) = start(f.workload);
    prefix.extend(scalars(&mut base));
    Sketch {
        name: "untuned".into(),
        target: Target { threads: 1, ..f.target.clone() },
        space: one(),
        base,
        prefix,
        plan: Box::new(|_| Vec::new()),
        full_optimisation: true,
    }
}

/// The space of a kernel without choices.
pub(super) fn one() -> Space {
    match Space::new(vec![Knob::ints("plain", Role::Choice, [1])], &[]) {
        Ok(s) => s,
        Err(e) => unreachable!("one knob with one value is a space: {e}"),
    }
}

/// Plain loops with exactly one configuration: what a C programmer gets from the compiler.
pub fn untuned(w: &Workload, t: &Target) -> Arc<dyn Tunable> {
    let facts = Facts { workload: w, target: t };
    match t.kind {
        TargetKind::Cpu => Arc::new(sketch(&facts)),
        TargetKind::Cuda(gpu) => Arc::new(super::gpu::plain(&facts, gpu)),
    }
}

/// Plain loops that compute in double precision: the reference of every check. Its interface is
/// that of any kernel, with tensors in the workload's own formats.
pub fn reference(w: &Workload, symbol: &str) -> KernelSource {
    let mut n = lower(w);
    // The output is computed in a double-precision intermediate and rounded once.
    if let Some(i) = n.buffers.iter().position(|b| b.scope == Scope::Output) {
        let out = n.buffers[i].clone();
        n.buffers[i].scope = Scope::Workspace;
        n.buffers[i].name = format!("{}_exact", out.name);
        let copy = n.new_buffer(Buffer { shape: vec![out.elements()], ..out });
        let flat = n.buffers[copy.0 as usize].shape.clone();
        let exact = Source(i as u32);
        let shape = n.buffers[i].shape.clone();
        n.buffers[i].shape = flat.clone();
        crate::schedule::flatten_accesses(&mut n, exact, &shape);
        let v = n.new_var("i");
        let value = Expr::load(exact, vec![Affine::var(v)]);
        let body = vec![Stmt::Store { buffer: copy, index: vec![Affine::var(v)], value }];
        n.body.push(Stmt::Loop(Loop { var: v, extent: flat[0], mode: Mode::Serial, start: None, body }));
    }
    scalars(&mut n);
    emit(&n, symbol, Options { threads: 1, double: true, full_optimisation: true })
}
