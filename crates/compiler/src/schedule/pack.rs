//! The primitives `pack(buffer, loop, packed)` and `pack_near`: they copy an operand into the order
//! in which a loop nest reads it, so that the innermost loops walk through memory vector by vector
//! (as the packing of GotoBLAS does). Weights are copied ahead of the timed call, data at its start
//! or, with `pack_near`, at the start of each iteration of a loop. Input: a nest; output: the nest
//! with the copy and the changed reads, or the reason why not. `primitive.rs` lists and applies all
//! primitives.

use super::loops::named;
use super::structure::buffer;
use crate::nest::{Buffer, Loop, Mode, Nest, Scope, Stmt, accesses, loop_over, rewrite, visit};
use squall_core::expr::{Affine, Expr, Source, Var};

/// Copies the buffer `name` in the order in which the loop `at` reads it.
pub fn pack(n: &mut Nest, name: &str, at: &str, packed: &str) -> Result<(), String> {
    let b = buffer(n, name)?;
    let l = named(n, at)?;
    let scope = match n.buffer(b).scope {
        Scope::Prepared => Scope::Prepared,
        Scope::Data(_) => Scope::Workspace,
        Scope::Workspace => {
            // The copy stands before the top-level nest that reads it, after the one that writes.
            let inside = |s: &Stmt| loop_over(std::slice::from_ref(s), l.var).is_some();
            let reader = n.body.iter().position(inside).unwrap_or(0);
            if n.body[reader..]
                .iter()
                .any(|s| accesses(std::slice::from_ref(s)).iter().any(|a| a.buffer == b && a.write))
            {
                return Err(format!("`{name}` is written where or after `{at}` reads it"));
            }
            Scope::Workspace
        }
        _ => return Err(format!("`{name}` is not an input of `{at}`")),
    };
    if n.find_buffer(packed).is_some() {
        return Err(format!("the name `{packed}` is taken"));
    }
    let list: Vec<Vec<Affine>> =
        accesses(&l.body).iter().filter(|a| a.buffer == b).map(|a| a.index.to_vec()).collect();
    let [index] = &list[..] else {
        return Err(format!("`{name}` is read in {} places inside `{at}`", list.len()));
    };
    let index = index.clone();
    // Loops around the read, outermost first, that move it.
    let mut path = Vec::new();
    if !path_to(&n.body, b, &mut path) {
        return Err(format!("`{name}` is not read in the timed call"));
    }
    let used: Vec<Loop> = path.into_iter().filter(|l| index.iter().any(|a| l.moves(a))).collect();
    let var_of =
        |l: &Loop| -> Vec<Var> { std::iter::once(l.var).chain(l.start.map(|s| s.var)).collect() };
    let known: Vec<Var> = used.iter().flat_map(var_of).collect();
    if index.iter().flat_map(|a| a.terms()).any(|(v, _)| !known.contains(v)) {
        return Err(format!("an index of `{name}` moves with a loop that is not around it"));
    }
    let near: Vec<Affine> = used.iter().map(|l| Affine::var(l.var)).collect();
    let dtype = n.buffer(b).dtype;
    let p = n.new_buffer(Buffer {
        name: packed.into(),
        dtype,
        shape: used.iter().map(|l| l.extent).collect(),
        scope,
        lenient: false,
    });
    let var = l_var(n, at)?;
    n.replace_loop(var, &mut |l| {
        let mut s = vec![Stmt::Loop(l)];
        rewrite(&mut s, &mut |a| a.clone(), &mut |e| match e {
            Expr::Load { source, .. } if source == b => Expr::load(p, near.clone()),
            e => e,
        });
        s
    });
    let mut body = copying(n, b, p, index, &used);
    if scope == Scope::Prepared {
        n.prepare.append(&mut body);
        drop_plain_copy(n, b);
    } else {
        let produced = n.body.iter().rposition(|s| {
            accesses(std::slice::from_ref(s)).iter().any(|a| a.buffer == b && a.write)
        });
        let i = produced.map_or(0, |i| i + 1);
        n.body.splice(i..i, body);
    }
    Ok(())
}

/// As [`pack`], but copies only what one iteration of the loop reads, at the iteration's start, so
/// that the copy stays in the cache that it was written to.
pub fn pack_near(n: &mut Nest, name: &str, at: &str, packed: &str) -> Result<(), String> {
    let b = buffer(n, name)?;
    let l = named(n, at)?;
    if !matches!(n.buffer(b).scope, Scope::Data(_)) {
        return Err(format!("`{name}` is not data that the caller gives"));
    }
    if n.find_buffer(packed).is_some() {
        return Err(format!("the name `{packed}` is taken"));
    }
    if !matches!(l.mode, Mode::Serial | Mode::Parallel) {
        return Err(format!("`{at}` is written out: its copies would be, too"));
    }
    let var = l.var;
    let list: Vec<Vec<Affine>> =
        accesses(&l.body).iter().filter(|a| a.buffer == b).map(|a| a.index.to_vec()).collect();
    let [index] = &list[..] else {
        return Err(format!("`{name}` is read in {} places inside `{at}`", list.len()));
    };
    let index = index.clone();
    let mut path = Vec::new();
    path_to(&l.body, b, &mut path);
    let used: Vec<Loop> = path.into_iter().filter(|l| index.iter().any(|a| l.moves(a))).collect();
    let dtype = n.buffer(b).dtype;
    let p = n.new_buffer(Buffer {
        name: packed.into(),
        dtype,
        shape: used.iter().map(|l| l.extent).collect(),
        scope: Scope::Local,
        lenient: false,
    });
    let near: Vec<Affine> = used.iter().map(|l| Affine::var(l.var)).collect();
    let copy = copying(n, b, p, index, &used);
    n.replace_loop(var, &mut |mut l| {
        rewrite(&mut l.body, &mut |a| a.clone(), &mut |e| match e {
            Expr::Load { source, .. } if source == b => Expr::load(p, near.clone()),
            e => e,
        });
        l.body.splice(0..0, [Stmt::Local(p)].into_iter().chain(copy.iter().cloned()));
        vec![Stmt::Loop(l)]
    });
    Ok(())
}

/// The nest that copies what `index` reads of `b` under the loops `used` into `p`, by the same
/// loops under new names.
fn copying(n: &mut Nest, b: Source, p: Source, index: Vec<Affine>, used: &[Loop]) -> Vec<Stmt> {
    let mut far = index;
    let mut copies = Vec::new();
    for l in used {
        let v = n.new_var(&format!("{}_pack", n.vars[l.var.0 as usize].clone()));
        let start = l.start.map(|s| crate::nest::Start {
            var: n.new_var(&format!("{}_pack", n.vars[s.var.0 as usize].clone())),
            ..s
        });
        for a in &mut far {
            *a = a.substitute(l.var, &Affine::var(v));
            if let (Some(old), Some(new)) = (l.start, start) {
                *a = a.substitute(old.var, &Affine::var(new.var));
            }
        }
        copies.push(Loop { var: v, extent: l.extent, mode: Mode::Serial, start, body: Vec::new() });
    }
    let flat = squall_core::workload::flatten(&far, &n.buffer(b).shape);
    let unit = |l: &Loop| flat.coefficient(l.var) == 1;
    // Weights are packed once, ahead of time, so faster code for it is not worth its size.
    let timed = n.buffer(p).scope != Scope::Prepared;
    let mut near: Vec<Affine> = copies.iter().map(|l| Affine::var(l.var)).collect();
    match copies.as_mut_slice() {
        // Vector loops stay vector loops where their lanes are contiguous in the source.
        [.., last]
            if unit(last)
                && (used.last().is_some_and(|l| l.mode == Mode::Vector)
                    || timed && is_vector(last)) =>
        {
            last.mode = Mode::Vector;
        }
        // The copy takes four columns of a few rows at a time, because the emitter then loads along
        // the rows and transposes.
        [.., along, last]
            if timed
                && is_vector(last)
                && unit(along)
                && along.start.is_none()
                && along.extent % 4 == 0 =>
        {
            last.mode = Mode::Vector;
            along.extent /= 4;
            let four = Loop {
                var: n.new_var("u_pack"),
                extent: 4,
                mode: Mode::Unroll,
                start: None,
                body: Vec::new(),
            };
            let column = Affine::var(along.var).scale(4).add(&Affine::var(four.var));
            let whole = along.var;
            far.iter_mut().chain(&mut near).for_each(|a| *a = a.substitute(whole, &column));
            copies.insert(copies.len() - 1, four);
        }
        _ => {}
    }
    let mut body = vec![Stmt::Store { buffer: p, index: near, value: Expr::load(b, far) }];
    while let Some(mut l) = copies.pop() {
        l.body = body;
        body = vec![Stmt::Loop(l)];
    }
    body
}

/// Whether a loop of a copy can run as one vector.
fn is_vector(l: &Loop) -> bool {
    [4, 8, 16].contains(&l.extent) && l.start.is_none()
}

fn l_var(n: &Nest, at: &str) -> Result<Var, String> {
    Ok(named(n, at)?.var)
}

/// The loops around the first read of a buffer, outermost first, without their bodies; false where
/// it is not read.
pub(super) fn path_to(stmts: &[Stmt], b: Source, path: &mut Vec<Loop>) -> bool {
    for s in stmts {
        match s {
            Stmt::Loop(l) => {
                path.push(Loop { body: Vec::new(), ..l.clone() });
                if path_to(&l.body, b, path) {
                    return true;
                }
                path.pop();
            }
            Stmt::If { body, .. } if path_to(body, b, path) => return true,
            Stmt::Store { value, .. } | Stmt::Update { value, .. }
                if value.loads().iter().any(|(s, _)| *s == b) =>
            {
                return true;
            }
            _ => {}
        }
    }
    false
}

/// A prepared copy in the weight's own layout is dead once its last reader in the timed call has
/// a packed one: the packing nest then reads the weight itself.
fn drop_plain_copy(n: &mut Nest, plain: Source) {
    if accesses(&n.body).iter().any(|a| a.buffer == plain) {
        return;
    }
    let mut weight = None;
    for (i, s) in n.prepare.iter().enumerate() {
        let mut at = s;
        while let Stmt::Loop(l) = at {
            match &l.body[..] {
                [only] => at = only,
                _ => break,
            }
        }
        if let Stmt::Store { buffer, index, value: Expr::Load { source, index: from } } = at
            && *buffer == plain
            && index == from
            && matches!(n.buffer(*source).scope, Scope::Weight(_))
            && n.buffer(*source).shape == n.buffer(plain).shape
        {
            weight = Some((i, *source));
        }
    }
    let Some((i, weight)) = weight else { return };
    let mut others = false;
    visit(&n.prepare, &mut |s| {
        if let Stmt::Update { value, .. } = s {
            others |= value.loads().iter().any(|(s, _)| *s == plain);
        }
    });
    if others {
        return;
    }
    n.prepare.remove(i);
    rewrite(&mut n.prepare, &mut |a| a.clone(), &mut |e| match e {
        Expr::Load { source, index } if source == plain => Expr::load(weight, index),
        e => e,
    });
    super::structure::drop_buffer(n, plain);
}
