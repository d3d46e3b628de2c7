//! The dependence test: whether iterations of loops, or two statements, may be exchanged without
//! changing the result. It is the one test behind the primitives `reorder`, `fission`, `join` and
//! `parallel`. Input: statements and the loops around them; the test compares the affine indices of
//! all accesses to a buffer of which one is a write.

use crate::nest::{
    Access, Loop, Mode, Nest, Start, Stmt, accesses, largest_values, shared_chain, visit,
};
use squall_core::expr::{Affine, Source, Var};
use std::collections::{BTreeMap, HashMap};

/// A variable that enumerates iterations: the loop's counter and, where it has one, its tile
/// start.
#[derive(Clone, Copy)]
pub struct DependenceAxis {
    pub var: Var,
    pub extent: i64,
    pub start: Option<Start>,
}

impl DependenceAxis {
    pub fn of(l: &Loop) -> DependenceAxis {
        DependenceAxis { var: l.var, extent: l.extent, start: l.start }
    }

    fn uses(&self, a: &Affine) -> bool {
        a.uses(self.var) || self.start.is_some_and(|s| a.uses(s.var))
    }

    /// How far an iteration moves an index. With a tile's start in the index this is the distance
    /// of two tiles; the last tile may be nearer, because it was moved back.
    fn stride(&self, a: &Affine) -> i64 {
        let start = self.start.map_or(0, |s| a.coefficient(s.var).abs() * s.step);
        a.coefficient(self.var).abs() + start
    }

    /// Whether an iteration moves both affine forms alike.
    fn moves_alike(&self, x: &Affine, y: &Affine) -> bool {
        x.coefficient(self.var) == y.coefficient(self.var)
            && self.start.is_none_or(|s| x.coefficient(s.var) == y.coefficient(s.var))
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

/// The accesses of the statements, grouped by buffer, without those of buffers that the statements
/// declare.
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
/// write, so that they may run in any order or be distributed over statements. A last tile that was
/// moved back counts as one iteration with the tile before it ([`crate::nest::Mode::Parallel`]).
/// With `sums`, a buffer that is only updated, with one operation, may be shared: order does not
/// matter to it.
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
    let inner = largest_values(body);
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
        for a in &list[1..] {
            let same = |(x, y): (&Affine, &Affine)| axes.iter().all(|v| v.moves_alike(x, y));
            if !a.index.iter().zip(list[0].index).all(same) {
                return Err(format!("iterations exchange elements of `{name}`"));
            }
        }
        // Counters within one dimension must be like digits of a number.
        for first in list[0].index {
            let mut digits: Vec<(i64, i64)> =
                axes.iter().map(|v| (v.stride(first), v.extent)).filter(|c| c.0 > 0).collect();
            digits.sort_unstable();
            if digits.windows(2).any(|w| w[1].0 < w[0].0 * w[0].1) {
                return Err(format!("iterations overlap in `{name}`"));
            }
        }
        // The rest of an index must not reach from one iteration's elements into another's, in one
        // dimension at least: all other terms together stay below the digit.
        let widths: Vec<Option<i64>> =
            (0..list[0].index.len()).map(|d| width(&list, d, axes, &inner)).collect();
        let apart = |axis: &&DependenceAxis| {
            list[0].index.iter().zip(&widths).any(|(first, width)| {
                let stride = axis.stride(first);
                let smaller: i64 = axes
                    .iter()
                    .map(|v| (v.stride(first), v.extent))
                    .filter(|v| v.0 < stride)
                    .map(|v| v.0 * (v.1 - 1))
                    .sum();
                stride > 0 && width.is_some_and(|w| w + smaller < stride)
            })
        };
        if let Some(axis) = axes.iter().filter(|a| a.extent > 1).find(|axis| !apart(axis)) {
            return Err(format!(
                "iterations of `{}` reach into each other's elements of `{name}`",
                n.vars[axis.var.0 as usize]
            ));
        }
    }
    Ok(())
}

/// Checks the loops that threads share: what one share writes, no other may touch.
pub fn shared_loops_are_independent(n: &Nest) -> Result<(), String> {
    let mut tops = Vec::new();
    outermost_shared(&n.prepare, &mut tops);
    outermost_shared(&n.body, &mut tops);
    tops.into_iter().try_for_each(|top| {
        let chain = shared_chain(top);
        let axes: Vec<DependenceAxis> = chain.iter().map(|l| DependenceAxis::of(l)).collect();
        independent(n, &chain[chain.len() - 1].body, &axes, false)
    })
}

fn outermost_shared<'n>(stmts: &'n [Stmt], found: &mut Vec<&'n Loop>) {
    for s in stmts {
        match s {
            Stmt::Loop(l) if l.mode == Mode::Parallel => found.push(l),
            Stmt::Loop(Loop { body, .. }) | Stmt::If { body, .. } => outermost_shared(body, found),
            _ => {}
        }
    }
}

/// The distance of the least element from the largest that one iteration's accesses touch in a
/// dimension; none where they differ in variables of loops around.
fn width(
    list: &[Access<'_>],
    d: usize,
    axes: &[DependenceAxis],
    inner: &HashMap<Var, i64>,
) -> Option<i64> {
    let is_axis = |v: Var| axes.iter().any(|a| a.var == v || a.start.is_some_and(|s| s.var == v));
    let part = |a: &Affine, is_inside: bool| {
        let kept = |v: &Var| !is_axis(*v) && inner.contains_key(v) == is_inside;
        let terms = a.terms().iter().copied().filter(|(v, _)| kept(v));
        Affine::new(terms, if is_inside { a.offset() } else { 0 })
    };
    let outer = part(&list[0].index[d], false);
    let (mut low, mut high) = (i64::MAX, i64::MIN);
    for a in list {
        if part(&a.index[d], false) != outer {
            return None;
        }
        let (least, most) = part(&a.index[d], true).range(|v| inner[&v]);
        (low, high) = (low.min(least), high.max(most));
    }
    Some(high - low)
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
