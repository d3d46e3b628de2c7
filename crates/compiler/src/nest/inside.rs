//! Conditions for code without padding tests: given statements that test whether elements lie
//! inside an image (`Expr::Select`), `inside` returns the conditions on the outer loop variables
//! under which all of those tests hold, and `share` the part of the iterations for which that is
//! so. The primitive `version` (`schedule/version.rs`) and the emitter (`emit/versions.rs`) write a
//! loop's body twice by them.

use super::{Loop, Stmt, largest_values, visit};
use squall_core::expr::{Affine, Cond, Expr};

/// The most combinations of counters that `share` looks at one by one.
const MOST_COMBINED: i64 = 4096;

/// Conditions on the variables around the statements under which all tests of values in them hold,
/// at all iterations of their own loops; `None` where they never all hold, or where that is not
/// known.
pub fn inside(stmts: &[Stmt]) -> Option<Vec<Cond>> {
    let bounds = largest_values(stmts);
    let (mut tests, mut binds): (Vec<Cond>, bool) = (Vec::new(), false);
    let mut note = |e: &Expr| {
        if let Expr::Select { conds, .. } = e {
            tests.extend(conds.iter().cloned());
        }
    };
    visit(stmts, &mut |s| match s {
        Stmt::Store { value, .. } | Stmt::Update { value, .. } => value.visit(&mut note),
        Stmt::Let { .. } => binds = true,
        _ => {}
    });
    let mut all: Vec<Cond> = Vec::new();
    for Cond { index, low, high } in tests {
        let mut outer = Affine::constant(0);
        let of_outer = index.terms().iter().filter(|t| !bounds.contains_key(&t.0));
        of_outer.for_each(|&(v, by)| outer.add_term(v, by));
        let mut inner = index.clone();
        outer.terms().iter().for_each(|&(v, by)| inner.add_term(v, -by));
        let (least, most) = inner.range(|v| bounds[&v]);
        let (low, high) = (low.saturating_sub(least), high.saturating_sub(most));
        match all.iter_mut().find(|o| o.index == outer) {
            Some(o) => (o.low, o.high) = (o.low.max(low), o.high.min(high)),
            None => all.push(Cond { index: outer, low, high }),
        }
    }
    let is_never = |c: &Cond| c.low >= c.high || decided(c) == Some(false);
    if binds || all.iter().any(is_never) {
        return None;
    }
    all.retain(|c| decided(c).is_none());
    Some(all)
}

/// Whether a condition holds, if it depends on no variable.
pub fn decided(c: &Cond) -> Option<bool> {
    c.index.terms().is_empty().then(|| (c.low..c.high).contains(&c.index.offset()))
}

/// The part of the loops' iterations for which all conditions hold; 1 where there are too many
/// combinations to look at.
pub fn share(conds: &[Cond], loops: &[&Loop]) -> f64 {
    let deciding: Vec<&Loop> =
        loops.iter().copied().filter(|l| conds.iter().any(|c| l.moves(&c.index))).collect();
    let all: i64 = deciding.iter().map(|l| l.extent).fold(1, i64::saturating_mul);
    if !(1..=MOST_COMBINED).contains(&all) {
        return 1.0;
    }
    let holds = |mut step: i64| {
        let mut conds = conds.to_vec();
        for l in &deciding {
            let at = step % l.extent;
            step /= l.extent;
            for c in &mut conds {
                c.index = c.index.substitute(l.var, &Affine::constant(at));
                if let Some(s) = l.start {
                    let start = Affine::constant((s.step * at).min(s.cap));
                    c.index = c.index.substitute(s.var, &start);
                }
            }
        }
        conds.iter().all(|c| (c.low..c.high).contains(&c.index.offset()))
    };
    (0..all).filter(|&step| holds(step)).count() as f64 / all as f64
}
