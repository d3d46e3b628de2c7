//! Plain loops of a workload (a tensor expression), in two versions. `sketch` is the untuned kernel
//! with one configuration, simple C compiled with full optimisation, which is what reported gains
//! are measured from. `reference` computes in double precision, and every measured kernel's output
//! is compared with its result.
//!
//! Input: a workload. Output: a sketch without knobs, or kernel source. Both lower the workload
//! stage by stage (`nest/lower.rs`) and accumulate in scalars. A reference with many operations
//! instead moves a contiguous loop inside the reduction, packs weights along it, and runs on all
//! threads: a first run waits for it, and a matrix product of 4096 would take minutes otherwise.

use super::{Facts, Sketch, start};
use crate::emit::{Options, emit};
use crate::nest::{Loop, Mode, Nest, Scope, Stmt, accesses, lower};
use crate::schedule::Primitive;
use squall_core::expr::{Affine, Expr, Source, Var};
use squall_core::space::{Knob, Role};
use squall_core::{DType, KernelSource, Space, Target, UNTUNED, Workload};

/// Accumulates every reduction in a scalar, as simple C code does.
pub(super) fn scalars(n: &mut Nest) -> Vec<Primitive> {
    let mut roots = Vec::new();
    reductions(&n.body, &mut roots);
    let mut done = Vec::new();
    for (i, (v, b)) in roots.into_iter().enumerate() {
        let name = n.buffer(b).name.clone();
        let list = vec![
            Primitive::CacheWrite {
                at: n.vars[v.0 as usize].clone(),
                buffer: name.clone(),
                local: format!("acc{i}"),
            },
            Primitive::Forward { buffer: name },
        ];
        if super::attempt(n, &mut done, list.clone()).is_none() {
            let _ = super::attempt(n, &mut done, list[..1].to_vec());
        }
    }
    done
}

/// The outermost loops that only accumulate into one element, each with the buffer of that element.
fn reductions(stmts: &[Stmt], out: &mut Vec<(Var, Source)>) {
    for s in stmts {
        if let Stmt::Loop(l) = s {
            let list = accesses(&l.body);
            let written: Vec<_> = list.iter().filter(|a| a.write).collect();
            match &written[..] {
                [only] if only.read && !moves(&l.body, l.var, only.index) => {
                    out.push((l.var, only.buffer))
                }
                _ => reductions(&l.body, out),
            }
        }
    }
}

/// Whether the index depends on the loop's variable or on that of a loop inside it.
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
    widen(&mut base);
    prefix.extend(scalars(&mut base));
    Sketch {
        name: UNTUNED.into(),
        target: Target { threads: 1, ..f.target.clone() },
        space: one(),
        base,
        prefix,
        primitives: Box::new(|_| Vec::new()),
        full_optimisation: true,
        template: None,
        both: None,
    }
}

/// The space of a kernel without choices.
pub(super) fn one() -> Space {
    match Space::new(vec![Knob::ints("plain", Role::Choice, [1])], &[]) {
        Ok(s) => s,
        Err(e) => unreachable!("one knob with one value is a space: {e}"),
    }
}

/// Plain loops that compute in double precision: the reference of every check. Its interface is
/// that of any kernel, with tensors in the workload's own formats.
pub fn reference(w: &Workload, symbol: &str) -> KernelSource {
    reference_of(w, symbol, w.flop() >= LARGE)
}

/// The reference, with `is_large` saying whether it is parallel and moves loops inside of
/// reductions.
pub fn reference_of(w: &Workload, symbol: &str, is_large: bool) -> KernelSource {
    let mut n = lower(w);
    // The output is computed in a double-precision intermediate and rounded once.
    if let Some(i) = n.buffers.iter().position(|b| b.scope == Scope::Output) {
        let out = n.buffers[i].clone();
        n.buffers[i].scope = Scope::Workspace;
        n.buffers[i].name = format!("{}_exact", out.name);
        let exact = Source(i as u32);
        // Where the output is a part of a larger box, only that part is written.
        let extents = match w.has_gaps() {
            true => w.output().shape(),
            false => vec![out.elements()],
        };
        n.buffers[i].shape.clone_from(&extents);
        let mut target = out.clone();
        if !w.has_gaps() {
            crate::schedule::flatten_accesses(&mut n, exact, &out.shape);
            target.shape.clone_from(&extents);
        }
        let copy = n.new_buffer(target);
        let vars: Vec<Var> = extents.iter().map(|_| n.new_var("i")).collect();
        let index: Vec<Affine> = vars.iter().map(|v| Affine::var(*v)).collect();
        let value = Expr::load(exact, index.clone());
        let store = vec![Stmt::Store { buffer: copy, index, value }];
        let looped = |body, (&var, &extent): (&Var, &i64)| {
            vec![Stmt::Loop(Loop { var, extent, mode: Mode::Serial, start: None, body })]
        };
        let whole = vars.iter().zip(&extents).rev().fold(store, looped);
        n.body.extend(whole);
    }
    widen(&mut n);
    if is_large {
        let mut body = std::mem::take(&mut n.body);
        let sides: Vec<Var> = body.iter_mut().filter_map(|s| stream(&mut n, s)).collect();
        n.body = body;
        sides.into_iter().for_each(|side| pack(&mut n, side));
        return emit(&n, symbol, Options { threads: 0, double: true, full_optimisation: true });
    }
    scalars(&mut n);
    emit(&n, symbol, Options { threads: 1, double: true, full_optimisation: true })
}

/// The number of operations from which on a reference computes neighbouring sums together and uses
/// all threads that its process may use.
const LARGE: u64 = 1 << 22;

/// Intermediates are kept in the precision that is computed in, but whole numbers of 32 bits, which
/// floats do not hold exactly. References keep both in doubles, for which four bytes make room.
fn widen(n: &mut Nest) {
    n.buffers
        .iter_mut()
        .filter(|b| matches!(b.scope, Scope::Workspace | Scope::Local) && !is_whole(b.dtype))
        .for_each(|b| b.dtype = DType::F32);
}

/// Whether elements are whole numbers of 32 bits, or four bytes.
fn is_whole(d: DType) -> bool {
    d == DType::I32 || d.is_packed()
}

/// Computes neighbouring sums together instead of one after another, and shares the outermost loop
/// among threads: a product of 4096 would take minutes otherwise. Gives the variable of the loop
/// along which they are neighbours.
fn stream(n: &mut Nest, s: &mut Stmt) -> Option<Var> {
    let Stmt::Loop(l) = s else { return None };
    let only_one =
        !accesses(&l.body).iter().any(|a| a.write && !a.index.iter().any(|i| i.uses(l.var)));
    let side = interchange(n, &mut l.body);
    if only_one {
        l.mode = Mode::Parallel;
    }
    side
}

/// Lays each packed weight so that the elements that the loop of `side` reads lie side by side.
fn pack(n: &mut Nest, side: Var) {
    let mut found: Vec<(Source, usize)> = Vec::new();
    for a in accesses(&n.body) {
        let is_new = found.iter().all(|(b, _)| *b != a.buffer);
        if let Some(axis) = packed_along(n, &a, side).filter(|_| is_new) {
            found.push((a.buffer, axis));
        }
    }
    for (buffer, axis) in found {
        crate::schedule::move_axis_last(n, buffer, axis);
    }
}

/// The axis of a packed weight along which one loop reads it element by element.
fn packed_along(n: &Nest, a: &crate::nest::Access<'_>, v: Var) -> Option<usize> {
    let mut axes = (0..a.index.len()).filter(|i| a.index[*i].uses(v));
    let axis = axes.next().filter(|i| a.index[*i].coefficient(v) == 1)?;
    let is_packed = n.buffer(a.buffer).scope == Scope::Prepared && axes.next().is_none();
    is_packed.then_some(axis)
}

/// Moves one of the loops around a reduction inside of it: that along which the summands lie side
/// by side in memory, of several the innermost. Each sum's summands stay in order. Gives the
/// variable of the moved loop.
fn interchange(n: &mut Nest, stmts: &mut Vec<Stmt>) -> Option<Var> {
    let (mut vars, mut body) = (Vec::new(), &*stmts);
    let reduce = loop {
        match &body[..] {
            [Stmt::Loop(l)] => {
                vars.push(l.var);
                body = &l.body;
            }
            [Stmt::Store { .. }, Stmt::Loop(reduce)] if !vars.is_empty() => break reduce.clone(),
            _ => return None,
        }
    };
    let update = vec![Stmt::Loop(reduce)];
    let side = *vars.iter().rev().min_by_key(|v| apart(n, &update, **v))?;
    side_by_side(n, stmts, side)
}

/// The number of a reduction's reads whose next element lies apart from the last one where one loop
/// goes on by one. Packed weights that can be laid along that loop do not count.
fn apart(n: &Nest, update: &[Stmt], v: Var) -> usize {
    let step = |a: &crate::nest::Access<'_>| {
        let mut stride = 1;
        let mut step = 0;
        for (index, extent) in a.index.iter().zip(&n.buffer(a.buffer).shape).rev() {
            step += stride * index.coefficient(v);
            stride *= extent;
        }
        step
    };
    let list = accesses(update);
    let read = list.iter().filter(|a| !a.write && packed_along(n, a, v).is_none());
    read.filter(|a| step(a).abs() > 1).count()
}

/// Removes the loop of a variable from the loops around a reduction, and puts one loop around the
/// initial value of the sums and one around their update. Gives the variable of the latter.
fn side_by_side(n: &mut Nest, stmts: &mut Vec<Stmt>, side: Var) -> Option<Var> {
    let [Stmt::Loop(l)] = &mut stmts[..] else { return None };
    if l.var == side {
        let extent = l.extent;
        let mut inner = std::mem::take(&mut l.body);
        // The loops that stay are around both.
        let mut at = &mut inner;
        while let [Stmt::Loop(_)] = &at[..] {
            let [Stmt::Loop(next)] = &mut at[..] else { return None };
            at = &mut next.body;
        }
        let first: Vec<Stmt> = at.drain(..1).collect();
        let v = n.new_var("side");
        innermost(at, v, extent);
        crate::nest::substitute(at, side, &Affine::var(v));
        let around = Loop { var: side, extent, mode: Mode::Serial, start: None, body: first };
        at.insert(0, Stmt::Loop(around));
        *stmts = inner;
        return Some(v);
    }
    side_by_side(n, &mut l.body, side)
}

/// Puts a loop around the update inside of reduction loops.
fn innermost(stmts: &mut Vec<Stmt>, var: Var, extent: i64) {
    match &mut stmts[..] {
        [Stmt::Loop(l)] => innermost(&mut l.body, var, extent),
        _ => {
            let body = std::mem::take(stmts);
            stmts.push(Stmt::Loop(Loop { var, extent, mode: Mode::Serial, start: None, body }));
        }
    }
}
