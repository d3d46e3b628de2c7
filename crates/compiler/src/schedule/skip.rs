//! The primitive `skip(buffer)`: leaves out the steps of a sum whose prepared factor is 0 by the
//! test that it was made with. A strided backward convolution to the data has such steps, because
//! its phases differ in how many taps of the filter they read (`core/src/operator/convolution.rs`).
//! Input: a loop nest in which `buffer` is prepared under one test; output: the nest with that test
//! around the sum's statement, or the reason why not. `primitive.rs` lists and applies all
//! primitives.

use super::pack::path_to;
use super::structure::buffer;
use crate::nest::{Loop, Nest, Scope, Stmt, accesses, visit};
use squall_core::expr::{Affine, Binary, Cond, Expr, Source, Var};
use squall_core::workload::Reducer;

/// Puts the test around the largest statement that only adds products with `name` and within which
/// the test does not change. Nothing but a product by 0 is left out.
pub fn skip(n: &mut Nest, name: &str) -> Result<(), String> {
    let sum = sum(n, name)?;
    wrap(&mut n.body, &sum, 0);
    Ok(())
}

/// Whether [`skip`] finds steps to leave out.
pub fn has_zeros(n: &Nest, name: &str) -> bool {
    sum(n, name).is_ok()
}

fn sum(n: &Nest, name: &str) -> Result<Sum, String> {
    let b = buffer(n, name)?;
    if n.buffer(b).scope != Scope::Prepared {
        return Err(format!("`{name}` is not made ahead of the call"));
    }
    let (made_at, conds) = zeros(&n.prepare, b)
        .ok_or_else(|| format!("`{name}` is not made by one test that gives 0 elsewhere"))?;
    let (target, index) = product(&n.body, b)
        .ok_or_else(|| format!("`{name}` is no factor of a sum's only statement"))?;
    let mut path = Vec::new();
    path_to(&n.body, b, &mut path);
    // Index i of the factor where the sum reads it corresponds to the variable of the i-th loop
    // that makes it.
    let at_sum = |c: &Cond| {
        let mut to = c.index.clone();
        for (v, a) in made_at.iter().zip(&index) {
            to = v.map_or(to.clone(), |v| to.substitute(v, a));
        }
        Cond { index: to, ..c.clone() }
    };
    let extent = |v: Var| {
        let of = |l: &&Loop| l.var == v || l.start.is_some_and(|s| s.var == v);
        path.iter().find(of).map_or(0, |l| match l.start {
            Some(s) if s.var == v => s.cap,
            _ => l.extent - 1,
        })
    };
    let always = |c: &Cond| {
        let (low, high) = c.index.range(extent);
        low >= c.low && high < c.high
    };
    let conds: Vec<Cond> = conds.iter().map(at_sum).filter(|c| !always(c)).collect();
    if conds.is_empty() {
        return Err(format!("`{name}` is never 0 by its test"));
    }
    let moves = |l: &Loop| conds.iter().any(|c| l.moves(&c.index));
    let depth = path.iter().rposition(moves).map_or(0, |i| i + 1);
    Ok(Sum { factor: b, target, conds, depth })
}

/// The variables of a store's loops, and the conditions under which the value stored to `b` is not
/// 0.
fn zeros(prepare: &[Stmt], b: Source) -> Option<(Vec<Option<Var>>, Vec<Cond>)> {
    let mut found = Vec::new();
    visit(prepare, &mut |s| {
        if let Stmt::Store { buffer, index, value } = s
            && *buffer == b
        {
            found.push((index.clone(), value.clone()));
        }
    });
    let [(index, Expr::Select { conds, other, .. })] = &found[..] else { return None };
    let is_zero = matches!(**other, Expr::Const(z) if z == 0.0);
    // A dimension of one element has no loop.
    let var = |a: &Affine| match (a.terms(), a.offset()) {
        (&[(v, 1)], 0) => Some(Some(v)),
        (&[], 0) => Some(None),
        _ => None,
    };
    let vars = index.iter().map(var).collect::<Option<Vec<_>>>()?;
    is_zero.then(|| (vars, conds.clone()))
}

/// The buffer that the only product with `b` is added to, and the product's index of `b`; none
/// where `b` is read elsewhere, too, or under a test.
fn product(stmts: &[Stmt], b: Source) -> Option<(Source, Vec<Affine>)> {
    let reads = |s: &[Stmt]| accesses(s).iter().filter(|a| a.buffer == b).count();
    let (mut found, mut tested) = (None, false);
    visit(stmts, &mut |s| match s {
        Stmt::If { body, .. } => tested |= reads(body) > 0,
        Stmt::Update {
            op: Reducer::Sum, buffer, value: Expr::Binary(Binary::Mul, x, y), ..
        } => {
            let factor = [x, y].into_iter().find_map(|e| match &**e {
                Expr::Load { source, index } if *source == b => Some(index.clone()),
                _ => None,
            });
            found = found.take().or(factor.map(|index| (*buffer, index)));
        }
        _ => {}
    });
    found.filter(|_| !tested && reads(stmts) == 1)
}

/// A sum, the conditions under which its steps are not 0, and how many loops decide these.
struct Sum {
    factor: Source,
    target: Source,
    conds: Vec<Cond>,
    depth: usize,
}

/// Puts the test around the outermost statement inside of `depth` loops that does nothing but add
/// to the sum.
fn wrap(stmts: &mut [Stmt], sum: &Sum, depth: usize) {
    for s in stmts {
        let all = accesses(std::slice::from_ref(s));
        if !all.iter().any(|a| a.buffer == sum.factor) {
            continue;
        }
        let adds = all.iter().all(|a| !a.write || a.buffer == sum.target && a.read);
        if depth >= sum.depth && adds {
            let body = vec![std::mem::replace(s, Stmt::Local(sum.target))];
            *s = Stmt::If { conds: sum.conds.clone(), body };
        } else if let Stmt::Loop(l) = s {
            wrap(&mut l.body, sum, depth + 1);
        }
        return;
    }
}
