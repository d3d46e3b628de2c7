//! When iterations and statements may change places: the one test behind reorder, fission, join
//! and parallel.

use crate::nest::{Access, Loop, Nest, Stmt, accesses, largest_values, visit};
use squall_core::expr::{Affine, Source, Var};
use std::collections::BTreeMap;

/// A variable that enumerates iterations: the loop's counter and, where it has one, its tile
/// start.
#[derive(Clone, Copy)]
pub struct DependenceAxis {
    pub var: Var,
    pub extent: i64,
    pub start: Option<Var>,
}

impl DependenceAxis {
    pub fn of(l: &Loop) -> DependenceAxis {
        DependenceAxis { var: l.var, extent: l.extent, start: l.start.map(|s| s.var) }
    }

    fn uses(&self, a: &Affine) -> bool {
        a.uses(self.var) || self.start.is_some_and(|s| a.uses(s))
    }
}

/// Buffers declared inside the statements: each iteration has its own.
fn declared(stmts: &[Stmt]) -> Vec<Source> {
    let mut out = Vec::new();
    visit(stmts, &mut |s| {
        if let Stmt::Local(b) = s {
            out.push(*b);
        }
    });
    out
}

/// Accesses of the statements, grouped by buffer, without what they declare themselves.
pub fn by_buffer(stmts: &[Stmt]) -> BTreeMap<Source, Vec<Access<'_>>> {
    let own = declared(stmts);
    let mut map: BTreeMap<Source, Vec<Access<'_>>> = BTreeMap::new();
    for a in accesses(stmts) {
        if !own.contains(&a.buffer) {
            map.entry(a.buffer).or_default().push(a);
        }
    }
    map
}

/// Checks that iterations of `axes` over `body` touch disjoint elements of everything they
/// write, so that they may run in any order or be distributed over statements. With `sums`, a
/// buffer that is only updated, with one operation, may be shared: order does not matter to it.
pub fn independent(
    n: &Nest,
    body: &[Stmt],
    axes: &[DependenceAxis],
    sums: bool,
) -> Result<(), String> {
    let updates_only = |b: Source| {
        let mut ops = Vec::new();
        let mut only = true;
        visit(body, &mut |s| match s {
            Stmt::Update { op, buffer, .. } if *buffer == b && !ops.contains(op) => ops.push(*op),
            Stmt::Store { buffer, .. } if *buffer == b => only = false,
            _ => {}
        });
        only && ops.len() == 1
    };
    for (b, list) in by_buffer(body) {
        if !list.iter().any(|a| a.write) {
            continue;
        }
        let loaded = list.iter().any(|a| !a.write);
        if sums && !loaded && updates_only(b) {
            continue;
        }
        let name = &n.buffer(b).name;
        for axis in axes.iter().filter(|a| a.extent > 1) {
            if list.iter().any(|a| !a.index.iter().any(|i| axis.uses(i))) {
                return Err(format!(
                    "every iteration of `{}` touches the same elements of `{name}`",
                    n.vars[axis.var.0 as usize]
                ));
            }
        }
        let same = |x: &Affine, y: &Affine| {
            axes.iter().all(|v| {
                x.coefficient(v.var) == y.coefficient(v.var)
                    && v.start.is_none_or(|s| x.coefficient(s) == y.coefficient(s))
            })
        };
        for a in &list[1..] {
            if !a.index.iter().zip(list[0].index).all(|(x, y)| same(x, y)) {
                return Err(format!("iterations exchange elements of `{name}`"));
            }
        }
        // The rest of each index must not reach from one iteration's elements into another's. So
        // counters within one dimension must be like digits of a number, and all other terms of
        // that dimension together must stay below the smallest digit.
        for d in 0..list[0].index.len() {
            let mut digits: Vec<(i64, i64)> = axes
                .iter()
                .map(|v| (list[0].index[d].coefficient(v.var).abs(), v.extent))
                .filter(|c| c.0 > 0)
                .collect();
            digits.sort_unstable();
            if digits.windows(2).any(|w| w[1].0 < w[0].0 * w[0].1) {
                return Err(format!("iterations overlap in `{name}`"));
            }
        }
    }
    Ok(())
}

/// Like [`independent`], for two groups of statements that shall run one after the other for all
/// iterations, or interleaved: an element that one group writes may be touched by the other only
/// in the same iteration.
pub fn exchangeable(
    n: &Nest,
    first: &[Stmt],
    second: &[Stmt],
    a: DependenceAxis,
    b: DependenceAxis,
) -> Result<(), String> {
    let mut inner = largest_values(first);
    inner.extend(largest_values(second));
    let (x, y) = (by_buffer(first), by_buffer(second));
    for (buffer, xs) in &x {
        let Some(ys) = y.get(buffer) else { continue };
        if !xs.iter().chain(ys).any(|a| a.write) {
            continue;
        }
        let name = &n.buffer(*buffer).name;
        // Iterations touch different elements if their indices differ in some dimension.
        let apart = (0..n.buffer(*buffer).shape.len()).any(|d| {
            let c = xs[0].index[d].coefficient(a.var);
            let (mut low, mut high) = (i64::MAX, i64::MIN);
            let mut outer: Option<Affine> = None;
            for (list, axis) in [(xs, a), (ys, b)] {
                for acc in list {
                    let i = &acc.index[d];
                    if i.coefficient(axis.var) != c {
                        return false;
                    }
                    // Terms that are larger digits of the same number do not make iterations meet.
                    let digit = c.abs() * axis.extent;
                    let near = |v: Var, k: i64| {
                        inner.contains_key(&v) && v != axis.var && k % digit.max(1) != 0
                    };
                    let own = Affine::new(
                        i.terms().iter().copied().filter(|&(v, k)| near(v, k)),
                        i.offset(),
                    );
                    let (lo, hi) = own.range(|v| inner[&v]);
                    (low, high) = (low.min(lo), high.max(hi));
                    let rest = Affine::new(
                        i.terms()
                            .iter()
                            .copied()
                            .filter(|&(v, _)| !inner.contains_key(&v) && v != axis.var),
                        0,
                    );
                    if outer.get_or_insert_with(|| rest.clone()) != &rest {
                        return false;
                    }
                }
            }
            c != 0 && high - low < c.abs()
        });
        if !apart && a.extent > 1 {
            return Err(format!("an iteration needs elements of `{name}` that another makes"));
        }
    }
    Ok(())
}
