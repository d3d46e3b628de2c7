//! The primitive `reduce_at_store(buffer, partial)`: a buffer of which only the largest (or least)
//! element is read later is not stored. Each value is compared with the extremum so far at the
//! place where it would be stored. The ranges of dynamic quantisation are found so
//! (`sketch/range.rs`). `primitive.rs` lists and applies all primitives.

use super::pack::path_to;
use super::structure::{buffer, drop_buffer};
use crate::nest::{Buffer, Loop, Mode, Nest, Scope, Stmt, accesses, visit, visit_mut};
use squall_core::expr::{Affine, Expr, Source, Var};
use squall_core::workload::Reducer;

/// Where `name` is stored, its elements are instead combined into a partial result for each value
/// of its innermost index, and the reduction that alone reads the buffer reads the partial results.
/// Elements may be stored more than once, so that sums are refused.
pub fn reduce_at_store(n: &mut Nest, name: &str, partial: &str) -> Result<(), String> {
    let b = buffer(n, name)?;
    if buffer(n, partial).is_ok() {
        return Err(format!("the name `{partial}` is taken"));
    }
    if n.buffer(b).scope != Scope::Workspace {
        return Err(format!("`{name}` is not scratch memory of the call"));
    }
    let (at, found) = reduction(n, b, name)?;
    is_only_stored(n, b, name, at)?;
    let of = n.buffer(b).clone();
    let extent = *of.shape.last().ok_or("it has no dimension")?;
    let place = Buffer { name: partial.into(), shape: vec![extent], ..of };
    let p = n.new_buffer(place);
    let (begin, end) =
        (n.new_var(&format!("{partial}_init")), n.new_var(&format!("{partial}_end")));
    let each = |var: Var, stmt: Stmt| {
        Stmt::Loop(Loop { var, extent, mode: Mode::Serial, start: None, body: vec![stmt] })
    };
    let index = |var: Var| vec![Affine::var(var)];
    // The loops over the buffer become one loop over the partial results.
    let Found { op, target, to, outermost } = found;
    let combine = Stmt::Update { op, buffer: target, index: to, value: Expr::load(p, index(end)) };
    let combine = each(end, combine);
    n.replace_loop(outermost, &mut |_| vec![combine.clone()]);
    visit_mut(&mut n.body, &mut |s| {
        if let Stmt::Store { buffer, index, value } = s
            && *buffer == b
        {
            let index = index.last().cloned().into_iter().collect();
            *s = Stmt::Update { op, buffer: p, index, value: value.clone() };
        }
    });
    let value = Expr::Const(op.identity());
    n.body.insert(0, each(begin, Stmt::Store { buffer: p, index: index(begin), value }));
    drop_buffer(n, b);
    Ok(())
}

/// A reduction of a whole buffer to one element.
struct Found {
    op: Reducer,
    target: Source,
    to: Vec<Affine>,
    /// The outermost of the loops over the buffer.
    outermost: Var,
}

/// The top-level statement that alone reads a buffer, and the reduction that it is.
fn reduction(n: &Nest, b: Source, name: &str) -> Result<(usize, Found), String> {
    let reads = |i: &usize| accesses(&n.body[*i..=*i]).iter().any(|a| a.buffer == b && a.read);
    let readers: Vec<usize> = (0..n.body.len()).filter(reads).collect();
    let [at] = readers[..] else {
        return Err(format!("`{name}` is read in several places, or in none"));
    };
    let mut loops = Vec::new();
    path_to(&n.body[at..=at], b, &mut loops);
    let body = |l: &Loop| n.find_loop(l.var).map_or(&[][..], |l| &l.body[..]);
    let whole = || format!("`{name}` is not read by a reduction of all of it");
    let innermost = loops.last().map_or(&[][..], body);
    let [Stmt::Update { op, buffer: target, index: to, value: Expr::Load { index, .. } }] =
        innermost
    else {
        return Err(whole());
    };
    if !matches!(op, Reducer::Max | Reducer::Min) {
        return Err("elements that are stored twice would count twice".into());
    }
    // Each dimension has its own loop over the whole extent, and these are all loops from
    // `outermost` on.
    let shape = &n.buffer(b).shape;
    let mut over = Vec::new();
    for (a, extent) in index.iter().zip(shape) {
        let by = |v: Var| loops.iter().position(|l| l.var == v && l.extent == *extent);
        match (a.as_var().and_then(by), a.terms().is_empty() && a.offset() == 0 && *extent == 1) {
            (Some(l), _) if !over.contains(&l) => over.push(l),
            (None, true) => {}
            _ => return Err(whole()),
        }
    }
    over.sort_unstable();
    let first = loops.len() - over.len();
    let plain = loops[first..].iter().all(|l| l.start.is_none() && body(l).len() == 1);
    let moves = to.iter().any(|a| loops[first..].iter().any(|l| a.uses(l.var)));
    if over.is_empty() || over[0] != first || !plain || moves {
        return Err(whole());
    }
    let outermost = loops[first].var;
    Ok((at, Found { op: *op, target: *target, to: to.clone(), outermost }))
}

/// Whether all statements but the one at `reader` at most store to a buffer, one after the other.
fn is_only_stored(n: &Nest, b: Source, name: &str, reader: usize) -> Result<(), String> {
    let mut wrong = None;
    if accesses(&n.body[reader..=reader]).iter().any(|a| a.buffer == b && a.write) {
        wrong = Some(format!("`{name}` is stored where it is read"));
    }
    for (_, s) in n.body.iter().enumerate().filter(|(i, _)| *i != reader) {
        visit(std::slice::from_ref(s), &mut |s| match s {
            Stmt::Update { buffer, .. } if *buffer == b => {
                wrong = Some(format!("`{name}` is accumulated in"));
            }
            Stmt::Loop(l)
                if l.mode == Mode::Parallel && accesses(&l.body).iter().any(|a| a.buffer == b) =>
            {
                wrong = Some(format!("`{name}` is stored by several threads"));
            }
            _ => {}
        });
    }
    match wrong {
        Some(why) => Err(why),
        None => Ok(()),
    }
}
