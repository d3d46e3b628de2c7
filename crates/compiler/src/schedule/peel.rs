//! The primitive `peel(loop, at, rest)` cuts a loop's range in two: the iterations below `at` and
//! the rest become two loops. Conditions that are then always true or always false are simplified
//! away, so that the border of a padded tensor gets code of its own and the inside needs no tests.
//! `primitive.rs` lists and applies all primitives.

use super::loops::{fresh, named};
use crate::nest::{Loop, Nest, Stmt, largest_values, rewrite, substitute, visit_mut};
use squall_core::expr::{Affine, Cond, Expr, Var};

/// Cuts a loop's range at `at`; the second loop is named `rest`.
pub fn peel(n: &mut Nest, name: &str, at: i64, rest: &str) -> Result<(), String> {
    let l = named(n, name)?;
    if l.start.is_some() {
        return Err(format!("`{name}` counts tiles"));
    }
    if at < 1 || at >= l.extent {
        return Err(format!("{at} is not inside the range of `{name}`, 0 to {}", l.extent));
    }
    let (var, extent) = (l.var, l.extent);
    let mut bound_inside = Vec::new();
    crate::nest::visit(&l.body, &mut |s| match s {
        Stmt::Loop(x) => {
            bound_inside.push(x.var);
            bound_inside.extend(x.start.map(|s| s.var));
        }
        Stmt::Local(_) => bound_inside.push(var),
        _ => {}
    });
    if bound_inside.contains(&var) {
        return Err(format!("`{name}` declares a local buffer"));
    }
    let v = fresh(n, rest)?;
    let twins: Vec<(Var, Var)> = bound_inside
        .iter()
        .map(|&o| (o, n.new_var(&format!("{}_{rest}", n.vars[o.0 as usize].clone()))))
        .collect();
    n.replace_loop(var, &mut |l| {
        let mut second = l.body.clone();
        substitute(&mut second, var, &Affine::new([(v, 1)], at));
        for &(old, new) in &twins {
            rename(&mut second, old, new);
        }
        vec![
            Stmt::Loop(Loop { extent: at, body: l.body, ..l }),
            Stmt::Loop(Loop {
                var: v,
                extent: extent - at,
                body: second,
                mode: l.mode,
                start: None,
            }),
        ]
    });
    simplify(n);
    Ok(())
}

/// Renames a variable, its binding included.
fn rename(stmts: &mut [Stmt], old: Var, new: Var) {
    substitute(stmts, old, &Affine::var(new));
    visit_mut(stmts, &mut |s| {
        if let Stmt::Loop(l) = s {
            if l.var == old {
                l.var = new;
            }
            if let Some(st) = &mut l.start
                && st.var == old
            {
                st.var = new;
            }
        }
    });
}

/// Removes conditions that always hold in their loops' ranges, and branches never taken.
pub fn simplify(n: &mut Nest) {
    let mut bounds = largest_values(&n.prepare);
    bounds.extend(largest_values(&n.body));
    let decide = |c: &Cond| {
        let (lo, hi) = c.index.range(|v| bounds[&v]);
        if lo >= c.low && hi < c.high {
            Some(true)
        } else if hi < c.low || lo >= c.high {
            Some(false)
        } else {
            None
        }
    };
    let mut leaf = |e: Expr| match e {
        Expr::Select { conds, then, other } => {
            if conds.iter().any(|c| decide(c) == Some(false)) {
                return *other;
            }
            let open: Vec<Cond> = conds.into_iter().filter(|c| decide(c).is_none()).collect();
            if open.is_empty() { *then } else { Expr::Select { conds: open, then, other } }
        }
        e => e,
    };
    for stmts in [&mut n.prepare, &mut n.body] {
        rewrite(stmts, &mut |a| a.clone(), &mut leaf);
    }
}
