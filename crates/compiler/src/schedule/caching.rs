//! Schedule primitives that keep an accumulation in registers: `cache_write(loop, buffer, local)`
//! accumulates into a local copy around a loop and stores it afterwards (as in TVM), and
//! `forward(buffer)` lets the local copy start from the constant that the buffer was filled with,
//! without the fill. Input: a loop nest and names; output: the rewritten nest, or the reason why
//! not. `primitive.rs` lists and applies all primitives.

use super::buffers::reindex_in;
use super::loops::named;
use super::structure::buffer;
use crate::nest::{Buffer, Loop, Mode, Nest, Scope, Stmt, accesses, visit, visit_mut};
use squall_core::expr::{Affine, Expr, Source, Var};

/// Accumulates into a local copy around the loop `at`: load before it, store after it.
pub fn cache_write(n: &mut Nest, at: &str, name: &str, local: &str) -> Result<(), String> {
    let b = buffer(n, name)?;
    let l = named(n, at)?;
    let var = l.var;
    let whole = vec![Stmt::Loop(l.clone())];
    let loops = plain_loops(&whole, b)
        .map_err(|what| what.unwrap_or_else(|| format!("`{name}` is set inside `{at}`")))?;
    let list: Vec<_> = accesses(&whole).into_iter().filter(|a| a.buffer == b).collect();
    let [only] = &list[..] else {
        return Err(format!("`{name}` is accumulated in {} places inside `{at}`", list.len()));
    };
    if !(only.write && only.read) {
        return Err(format!("`{name}` is not accumulated inside `{at}`"));
    }
    let index: Vec<Affine> = only.index.to_vec();
    // The local buffer has one dimension for each loop that moves through the buffer, in the order
    // of the loops.
    let dims: Vec<(Var, i64, Mode)> =
        loops.into_iter().filter(|(v, ..)| index.iter().any(|a| a.uses(*v))).collect();
    let Buffer { dtype, lenient, .. } = *n.buffer(b);
    let shape = dims.iter().map(|d| d.1).collect();
    if n.find_buffer(local).is_some() {
        return Err(format!("the name `{local}` is taken"));
    }
    let acc =
        n.new_buffer(Buffer { name: local.into(), dtype, shape, scope: Scope::Local, lenient });
    let copy = |n: &mut Nest, suffix: &str, load: bool| {
        let vars: Vec<Var> = dims
            .iter()
            .map(|d| n.new_var(&format!("{}_{suffix}", n.vars[d.0.0 as usize].clone())))
            .collect();
        let far: Vec<Affine> = index
            .iter()
            .map(|a| {
                dims.iter()
                    .zip(&vars)
                    .fold(a.clone(), |a, (d, &v)| a.substitute(d.0, &Affine::var(v)))
            })
            .collect();
        let near: Vec<Affine> = vars.iter().map(|&v| Affine::var(v)).collect();
        let mut body = vec![if load {
            Stmt::Store { buffer: acc, index: near, value: Expr::load(b, far) }
        } else {
            Stmt::Store { buffer: b, index: far, value: Expr::load(acc, near) }
        }];
        for (d, &v) in dims.iter().zip(&vars).rev() {
            body = vec![Stmt::Loop(Loop { var: v, extent: d.1, mode: d.2, start: None, body })];
        }
        body
    };
    let before = copy(n, "load", true);
    let after = copy(n, "store", false);
    let near: Vec<Affine> = dims.iter().map(|d| Affine::var(d.0)).collect();
    n.replace_loop(var, &mut |l| {
        let mut inside = vec![Stmt::Loop(l)];
        visit_mut(&mut inside, &mut |s| {
            if let Stmt::Update { buffer, index, .. } = s
                && *buffer == b
            {
                *buffer = acc;
                *index = near.clone();
            }
        });
        let mut out = vec![Stmt::Local(acc)];
        out.extend(before.iter().cloned());
        out.append(&mut inside);
        out.extend(after.iter().cloned());
        out
    });
    Ok(())
}

/// Variables, extents and modes of all loops. The error says which loop counts tiles; an empty
/// error says that a statement sets `b`.
fn plain_loops(stmts: &[Stmt], b: Source) -> Result<Vec<(Var, i64, Mode)>, Option<String>> {
    let mut loops = Vec::new();
    let mut bad = None;
    visit(stmts, &mut |s| match s {
        Stmt::Loop(x) => {
            loops.push((x.var, x.extent, x.mode));
            if x.start.is_some() {
                bad = Some(Some("a loop inside counts tiles".to_string()));
            }
        }
        Stmt::Store { buffer, .. } if *buffer == b => bad = Some(None),
        _ => {}
    });
    bad.map_or(Ok(loops), Err)
}

pub fn forward(n: &mut Nest, name: &str) -> Result<(), String> {
    let b = buffer(n, name)?;
    match forward_in(&mut n.body, b) {
        Some(r) => r,
        None => {
            Err(format!("`{name}` is not filled with a constant and then read once, in one block"))
        }
    }
}

/// The constant that a nest of pure loops fills `b` with, and nothing else.
fn fill(s: &Stmt, b: Source) -> Option<f64> {
    match s {
        Stmt::Loop(l) => match &l.body[..] {
            [only] => fill(only, b),
            _ => None,
        },
        Stmt::Store { buffer, value: Expr::Const(c), .. } if *buffer == b => Some(*c),
        _ => None,
    }
}

/// In some block: a fill of `b`, then one nest that reads it, then one that sets it again. The
/// two accesses must lie in the same loops of that block, so that each element is read once
/// before it is set.
fn forward_in(stmts: &mut Vec<Stmt>, b: Source) -> Option<Result<(), String>> {
    let touches = |s: &Stmt| accesses(std::slice::from_ref(s)).iter().any(|a| a.buffer == b);
    if let Some(i) = stmts.iter().position(|s| fill(s, b).is_some()) {
        let c = fill(&stmts[i], b)?;
        let later: Vec<usize> = (i + 1..stmts.len()).filter(|&j| touches(&stmts[j])).collect();
        let &j = later.first()?;
        // The first statement that accesses `b` may hold the load and the store together, inside
        // tile loops, or only the load.
        let list: Vec<(bool, bool)> = accesses(&stmts[j..=j])
            .iter()
            .filter(|a| a.buffer == b)
            .map(|a| (a.read, a.write))
            .collect();
        if list != [(true, false), (false, true)] {
            return Some(Err(
                "what follows the fill does not read it once and then set it once".into()
            ));
        }
        let mut tested = false;
        visit(&stmts[j..=j], &mut |s| {
            tested |= matches!(s, Stmt::If { body, .. } if body.iter().any(touches));
        });
        if tested {
            return Some(Err("what follows the fill sets it under a test".into()));
        }
        if covered(&stmts[i], b) != covered(&stmts[j], b) {
            return Some(Err("what follows the fill does not set all of it again".into()));
        }
        // Reductions around the read would read it again after it was set.
        let mut repeated = false;
        around(&stmts[j], b, &mut Vec::new(), &mut |loops, index| {
            repeated |= loops.iter().any(|v| !index.iter().any(|a: &Affine| a.uses(*v)));
        });
        if repeated {
            return Some(Err("it is read again after it was set".into()));
        }
        stmts.remove(i);
        reindex_in(&mut stmts[j - 1..j], b, &|i| i.to_vec());
        crate::nest::rewrite(&mut stmts[j - 1..j], &mut |a| a.clone(), &mut |e| match e {
            Expr::Load { source, .. } if source == b => Expr::Const(c),
            e => e,
        });
        return Some(Ok(()));
    }
    stmts.iter_mut().find_map(|s| match s {
        Stmt::Loop(Loop { body, .. }) | Stmt::If { body, .. } => forward_in(body, b),
        _ => None,
    })
}

/// For each dimension of `b`, which elements the store to it covers while the loops of the
/// statement run: a start that loops outside fix, and the range inside. `None` where the store
/// leaves gaps.
fn covered(s: &Stmt, b: Source) -> Option<Vec<(Affine, i64, i64)>> {
    let mut inner = std::collections::HashMap::new();
    let mut index = None;
    visit(std::slice::from_ref(s), &mut |s| match s {
        Stmt::Loop(l) => {
            inner.insert(l.var, l.extent - 1);
            if let Some(st) = l.start {
                inner.insert(st.var, st.cap);
            }
        }
        Stmt::Store { buffer, index: i, .. } if *buffer == b => index = Some(i.clone()),
        _ => {}
    });
    let one = |a: &Affine| {
        let (own, outer): (Vec<_>, Vec<_>) =
            a.terms().iter().copied().partition(|(v, _)| inner.contains_key(v));
        // A step that is larger than what smaller steps fill would leave a gap.
        let mut steps: Vec<(i64, i64)> = own.iter().map(|&(v, c)| (c, inner[&v])).collect();
        steps.sort_unstable();
        let mut filled = 1;
        for (c, max) in steps {
            if c < 1 || c > filled {
                return None;
            }
            filled += c * max;
        }
        let (lo, hi) = Affine::new(own, a.offset()).range(|v| inner[&v]);
        Some((Affine::new(outer, 0), lo, hi))
    };
    index?.iter().map(one).collect()
}

/// Calls `f` with the loops around each load of `b` and its index.
fn around(s: &Stmt, b: Source, loops: &mut Vec<Var>, f: &mut dyn FnMut(&[Var], &[Affine])) {
    match s {
        Stmt::Loop(l) => {
            let counted = l.extent > 1;
            if counted {
                loops.push(l.start.map_or(l.var, |s| s.var));
            }
            l.body.iter().for_each(|s| around(s, b, loops, f));
            if counted {
                loops.pop();
            }
        }
        Stmt::Store { value, .. } | Stmt::Update { value, .. } => {
            for (src, index) in value.loads() {
                if src == b {
                    f(loops, index);
                }
            }
        }
        _ => {}
    }
}
