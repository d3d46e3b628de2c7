//! The primitive `compute_at(buffer, loop)`, as in Halide: the part of a buffer that an iteration
//! of a loop reads is computed at the start of that iteration. Elements that neighbouring
//! iterations share are computed twice; in return the buffer stays in a near cache.
//!
//! Input: a loop nest in which a local buffer is made by one store ahead of the loop; output: the
//! nest with that store narrowed and moved, or the reason why not. `primitive.rs` lists and applies
//! all primitives.

use super::loops::named;
use super::structure::buffer;
use crate::nest::{Loop, Mode, Nest, Scope, Stmt, accesses, largest_values, loop_over};
use squall_core::expr::{Affine, Names, Source, Var};
use std::collections::HashMap;

/// Computes the part of the local buffer `name` that an iteration of `at` reads at its start.
pub fn compute_at(n: &mut Nest, name: &str, at: &str) -> Result<(), String> {
    let b = buffer(n, name)?;
    let l = named(n, at)?;
    if n.buffer(b).scope != Scope::Local {
        return Err(format!("`{name}` is not an intermediate of a loop"));
    }
    if !matches!(l.mode, Mode::Serial | Mode::Parallel) {
        return Err(format!("`{at}` is written out: what it computes would be, too"));
    }
    let parts = parts(n, b, l, name)?;
    let var = l.var;
    let mut body = std::mem::take(&mut n.body);
    let taken = take(n, &mut body, b, var);
    n.body = body;
    let mut producer = taken.ok_or_else(|| {
        format!("`{name}` is not made ahead of `{at}` by one store, of what stays as it is")
    })?;
    narrow(n, b, &mut producer, &parts);
    n.replace_loop(var, &mut |mut l| {
        super::buffers::reindex_in(&mut l.body, b, &|index| {
            let moved = |(a, part): (&Affine, &Option<Part>)| match part {
                Some(p) => a.add(&p.start.scale(-1)),
                None => a.clone(),
            };
            index.iter().zip(&parts).map(moved).collect()
        });
        l.body.splice(0..0, [Stmt::Local(b), producer.clone()]);
        vec![Stmt::Loop(l)]
    });
    Ok(())
}

/// The part of a dimension that an iteration reads: `extent` elements from `start` on.
struct Part {
    start: Affine,
    extent: i64,
}

/// For each dimension of a buffer the part that an iteration of a loop reads, or `None` where that
/// part is the same in all iterations.
fn parts(n: &Nest, b: Source, l: &Loop, name: &str) -> Result<Vec<Option<Part>>, String> {
    let at = n.var(l.var);
    let reads = accesses(&l.body);
    let reads: Vec<&[Affine]> = reads.iter().filter(|a| a.buffer == b).map(|a| a.index).collect();
    let all = accesses(&n.body).into_iter().filter(|a| a.buffer == b);
    let (writes, others): (Vec<_>, Vec<_>) = all.partition(|a| a.write);
    if writes.len() != 1 || writes[0].read || others.len() != reads.len() || reads.is_empty() {
        return Err(format!("`{name}` is not made by one store and read only in `{at}`"));
    }
    let inner = largest_values(&l.body);
    let everywhere = largest_values(&n.body);
    let mut parts = Vec::new();
    for (d, &whole) in n.buffer(b).shape.iter().enumerate() {
        if reads.iter().all(|i| !l.moves(&i[d])) {
            parts.push(None);
            continue;
        }
        let is_outer = |v: &Var| !inner.contains_key(v);
        let outer =
            |a: &Affine| Affine::new(a.terms().iter().copied().filter(|(v, _)| is_outer(v)), 0);
        let start = outer(&reads[0][d]);
        if reads.iter().any(|i| outer(&i[d]) != start) {
            return Err(format!("places in `{at}` read different parts of `{name}`"));
        }
        let ranges = reads.iter().map(|i| i[d].add(&start.scale(-1)).range(|v| inner[&v]));
        let (low, high) = ranges.fold((i64::MAX, i64::MIN), |(l, h), r| (l.min(r.0), h.max(r.1)));
        let start = start.plus(low);
        if let Some((v, _)) = start.terms().iter().find(|(v, _)| !everywhere.contains_key(v)) {
            return Err(format!("`{}` is no counter of a loop", n.var(*v)));
        }
        let (first, last) = start.range(|v| everywhere[&v]);
        let extent = high - low + 1;
        if first < 0 || last + extent > whole {
            return Err(format!("reads in `{at}` may lie outside of `{name}`"));
        }
        parts.push(Some(Part { start, extent }));
    }
    match parts.iter().any(Option::is_some) {
        true => Ok(parts),
        false => Err(format!("each iteration of `{at}` reads the same of `{name}`")),
    }
}

/// Removes from a block a local buffer's declaration and the nest that fills it, where a loop
/// follows both, and returns the nest. `None`, and nothing is removed, unless the nest is one of
/// pure loops around a store at plain counters that fills the buffer, from values that are not
/// written between the nest and the loop.
fn take(n: &Nest, stmts: &mut Vec<Stmt>, b: Source, at: Var) -> Option<Stmt> {
    let declared = stmts.iter().position(|s| matches!(s, Stmt::Local(x) if *x == b));
    let Some(declared) = declared else {
        return stmts.iter_mut().find_map(|s| match s {
            Stmt::Loop(Loop { body, .. }) | Stmt::If { body, .. } => take(n, body, b, at),
            _ => None,
        });
    };
    let writes = |s: &Stmt, of: Source| {
        accesses(std::slice::from_ref(s)).iter().any(|a| a.buffer == of && a.write)
    };
    let made = stmts.iter().position(|s| writes(s, b))?;
    let read = stmts.iter().position(|s| loop_over(std::slice::from_ref(s), at).is_some())?;
    let sources = plain_store(n, &stmts[made], b)?;
    let is_changed = stmts[made + 1..].iter().any(|s| sources.iter().any(|&of| writes(s, of)));
    if declared > made || made >= read || is_changed {
        return None;
    }
    let nest = stmts.remove(made);
    stmts.remove(declared);
    Some(nest)
}

/// The buffers that a nest reads, if the nest is serial loops around one store, at their counters,
/// of every element of a buffer.
fn plain_store(n: &Nest, s: &Stmt, b: Source) -> Option<Vec<Source>> {
    let mut counters = Vec::new();
    let mut at = s;
    while let Stmt::Loop(Loop { var, extent, body, start: None, mode: Mode::Serial }) = at {
        counters.push((*var, *extent));
        let [only] = &body[..] else { return None };
        at = only;
    }
    let Stmt::Store { buffer, index, value } = at else { return None };
    // Dimensions of one element have no counter.
    let is_whole = |(a, &extent): (&Affine, &i64)| match a.as_var() {
        Some(v) => counters.contains(&(v, extent)),
        None => a.as_constant() == Some(0) && extent == 1,
    };
    let is_plain = *buffer == b
        && index.iter().zip(&n.buffer(b).shape).all(is_whole)
        && counters.iter().all(|(c, _)| index.iter().filter(|a| a.uses(*c)).count() == 1);
    is_plain.then(|| value.loads().into_iter().map(|(of, _)| of).collect())
}

/// Narrows a nest of [`plain_store`] and its buffer to the parts.
fn narrow(n: &mut Nest, b: Source, s: &mut Stmt, parts: &[Option<Part>]) {
    let (mut extents, mut starts) = (HashMap::new(), HashMap::new());
    crate::nest::visit_mut(std::slice::from_mut(s), &mut |s| {
        let Stmt::Store { index, value, .. } = s else { return };
        for (d, part) in parts.iter().enumerate() {
            if let (Some(part), Some(v)) = (part, index[d].as_var()) {
                n.buffers[b.0 as usize].shape[d] = part.extent;
                extents.insert(v, part.extent);
                starts.insert(v, part.start.add(&Affine::var(v)));
            }
        }
        *value = value.map_vars(|v| starts.get(&v).cloned().unwrap_or_else(|| Affine::var(v)));
    });
    crate::nest::visit_mut(std::slice::from_mut(s), &mut |s| {
        if let Stmt::Loop(l) = s
            && let Some(&extent) = extents.get(&l.var)
        {
            l.extent = extent;
        }
    });
}
