//! Schedule primitives that move statements between loops: `inline(buffer)` computes a stage where
//! it is read, `join(first, second)` merges two adjacent loops of equal extent, and `fission(loop,
//! [names])` distributes a loop over the statements of its body. Input: a loop nest and names;
//! output: the rewritten nest, or the reason why not. `primitive.rs` lists and applies all
//! primitives.

use super::dependence::{DependenceAxis, exchangeable, independent};
use super::loops::{fresh, named};
use crate::nest::{Loop, Nest, Scope, Start, Stmt, accesses, rewrite, substitute};
use squall_core::expr::{Affine, Expr, Source, Var};

/// The buffer of a name.
pub fn buffer(n: &Nest, name: &str) -> Result<Source, String> {
    n.find_buffer(name).ok_or_else(|| format!("there is no buffer `{name}`"))
}

/// Replaces reads of an intermediate by the expression that computes it, and drops its buffer.
pub fn inline(n: &mut Nest, name: &str) -> Result<(), String> {
    let b = buffer(n, name)?;
    if n.buffer(b).scope != Scope::Workspace {
        return Err(format!("`{name}` is not an intermediate"));
    }
    // The producer: a nest at top level, pure loops around one store at plain counters.
    let mut found = None;
    for (i, s) in n.body.iter().enumerate() {
        let mut at = s;
        while let Stmt::Loop(Loop { body, start: None, .. }) = at {
            match &body[..] {
                [only] => at = only,
                _ => break,
            }
        }
        if let Stmt::Store { buffer, index, value } = at
            && *buffer == b
        {
            found = Some((i, index.clone(), value.clone()));
        }
    }
    let Some((at, index, value)) = found else {
        return Err(format!("`{name}` is not made by one store at top level"));
    };
    let writes = accesses(&n.body).iter().filter(|a| a.buffer == b && a.write).count();
    if writes != 1 {
        return Err(format!("`{name}` is written in {writes} places"));
    }
    let vars: Vec<Option<Var>> = index.iter().map(Affine::as_var).collect();
    if index.iter().zip(&vars).any(|(a, v)| v.is_none() && a.as_constant() != Some(0)) {
        return Err(format!("`{name}` is not stored at plain counters"));
    }
    n.body.remove(at);
    let expand = |at: &[Affine]| {
        value.map_vars(|v| match vars.iter().position(|x| *x == Some(v)) {
            Some(d) => at[d].clone(),
            None => Affine::var(v),
        })
    };
    rewrite(&mut n.body, &mut |a| a.clone(), &mut |e| match e {
        Expr::Load { source, ref index } if source == b => expand(index),
        e => e,
    });
    drop_buffer(n, b);
    Ok(())
}

/// Removes the prefetch hints of a buffer that is removed, or moved to where no hint reaches it.
pub fn drop_hints(n: &mut Nest, b: Source) {
    fn without(stmts: &mut Vec<Stmt>, b: Source) {
        stmts.retain_mut(|s| match s {
            Stmt::Prefetch { buffer, .. } => *buffer != b,
            Stmt::Loop(Loop { body, .. }) | Stmt::If { body, .. } => {
                without(body, b);
                !body.is_empty()
            }
            _ => true,
        });
    }
    without(&mut n.body, b);
}

/// Removes a buffer that nothing uses any more and renumbers the others.
pub fn drop_buffer(n: &mut Nest, b: Source) {
    drop_hints(n, b);
    n.buffers.remove(b.0 as usize);
    let shift = |s: Source| Source(if s > b { s.0 - 1 } else { s.0 });
    for stmts in [&mut n.prepare, &mut n.body] {
        rewrite(stmts, &mut |a| a.clone(), &mut |e| match e {
            Expr::Load { source, index } => Expr::Load { source: shift(source), index },
            e => e,
        });
        crate::nest::visit_mut(stmts, &mut |s| match s {
            Stmt::Store { buffer, .. }
            | Stmt::Update { buffer, .. }
            | Stmt::Prefetch { buffer, .. }
            | Stmt::Local(buffer) => *buffer = shift(*buffer),
            _ => {}
        });
    }
}

pub fn join(n: &mut Nest, first: &str, second: &str) -> Result<(), String> {
    let (a, b) = (named(n, first)?, named(n, second)?);
    if a.extent != b.extent || a.start.is_some() || b.start.is_some() {
        return Err("the loops differ in extent, or one of them counts tiles".into());
    }
    if a.mode != b.mode {
        return Err("the loops run in different modes".into());
    }
    exchangeable(n, &a.body, &b.body, DependenceAxis::of(a), DependenceAxis::of(b))?;
    let (va, vb) = (a.var, b.var);
    let mut moved = b.body.clone();
    substitute(&mut moved, vb, &Affine::var(va));
    if !merge(&mut n.body, va, vb, &mut moved) && !merge(&mut n.prepare, va, vb, &mut moved) {
        return Err(format!("`{second}` does not follow `{first}` directly"));
    }
    Ok(())
}

/// Appends to the loop over `a` and removes the loop over `b` where one follows the other.
fn merge(stmts: &mut Vec<Stmt>, a: Var, b: Var, moved: &mut Vec<Stmt>) -> bool {
    for i in 0..stmts.len() {
        let follows = matches!(stmts.get(i + 1), Some(Stmt::Loop(l)) if l.var == b);
        if let Stmt::Loop(l) = &mut stmts[i] {
            if l.var == a {
                if !follows {
                    return false;
                }
                l.body.append(moved);
                stmts.remove(i + 1);
                return true;
            }
            if merge(&mut l.body, a, b, moved) {
                return true;
            }
        }
    }
    false
}

pub fn fission(n: &mut Nest, name: &str, names: &[String]) -> Result<(), String> {
    let l = named(n, name)?;
    if l.start.is_some() {
        return Err(format!("tiles of `{name}` overlap and must stay whole"));
    }
    if l.body.iter().any(|s| matches!(s, Stmt::Local(_))) {
        return Err(format!("`{name}` declares a local buffer"));
    }
    if names.len() != l.body.len() {
        return Err(format!(
            "`{name}` has {} statements, {} names are given",
            l.body.len(),
            names.len()
        ));
    }
    let axis = DependenceAxis::of(l);
    for i in 0..l.body.len() {
        for j in i + 1..l.body.len() {
            exchangeable(n, &l.body[i..=i], &l.body[j..=j], axis, axis)?;
        }
    }
    // A statement may come back to the same element, and the check above holds between statements.
    // But what one statement writes in different iterations must not overlap.
    for s in &l.body {
        independent(n, std::slice::from_ref(s), &[axis], true)?;
    }
    let var = l.var;
    let vars = names
        .iter()
        .map(|s| if s == name { Ok(var) } else { fresh(n, s) })
        .collect::<Result<Vec<_>, _>>()?;
    n.replace_loop(var, &mut |l| {
        let (extent, mode) = (l.extent, l.mode);
        l.body
            .into_iter()
            .zip(&vars)
            .map(|(s, &v)| {
                let mut body = vec![s];
                substitute(&mut body, var, &Affine::var(v));
                Stmt::Loop(Loop { var: v, extent, mode, start: None::<Start>, body })
            })
            .collect()
    });
    Ok(())
}
