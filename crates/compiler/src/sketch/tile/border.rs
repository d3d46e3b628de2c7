//! The copy that has an image's border: its innermost loop, and where that has data.

use super::{Pad, computes};
use crate::nest::{Nest, Scope, Stmt};
use squall_core::expr::{Binary, Cond, Expr, Names, Var};

/// The loop of a padded copy that has data between its borders: the innermost, or that around the
/// channels of pairs along a row.
pub(super) struct Border {
    pub name: String,
    /// Whether the loop is the innermost, whose steps are lanes.
    pub is_innermost: bool,
    pub low: i64,
    pub high: i64,
    pub extent: i64,
}

/// What a sketch's name says of its padding.
pub(super) fn pad_name(pad: Pad) -> &'static str {
    match pad {
        Pad::None => "",
        Pad::Copy => ",pad=copy",
        Pad::Guard => ",pad=guard",
        Pad::Near => ",pad=near",
    }
}

/// The innermost loop of the padded copy and where its inside begins and ends.
pub(super) fn copy_loops(n: &Nest, pad: Pad) -> (Option<Border>, Option<String>) {
    if !matches!(pad, Pad::Copy | Pad::Near) {
        return (None, None);
    }
    let mut found = (None, None);
    for top in &n.body {
        let mut chain = Vec::new();
        copy_chain(n, top, &mut chain, &mut |chain, conds, pairs| {
            // Inside of the loop over pairs along a row lies that over the channels.
            let at = chain.len().checked_sub(if pairs { 2 } else { 1 });
            let Some((v, extent)) = at.map(|i| chain[i]) else { return };
            let (low, high) = inside(conds, v, extent, pairs);
            let name = n.var(v).to_string();
            found = (
                Some(Border { name, is_innermost: !pairs, low, high, extent }),
                Some(n.var(chain[0].0).to_string()),
            );
        });
    }
    found
}

/// The steps of a loop for which all tests of it alone hold: from the first to behind the last.
/// Only pairs take two places a step.
fn inside(conds: &[Cond], v: Var, extent: i64, pairs: bool) -> (i64, i64) {
    let steps = if pairs { 1..=2 } else { 1..=1 };
    let alone = |c: &&Cond| steps.contains(&c.index.coefficient(v)) && c.index.terms().len() == 1;
    conds.iter().filter(alone).fold((0, extent), |(low, high), c| {
        let (step, offset) = (c.index.coefficient(v), c.index.offset());
        // The quotient rounded up.
        let from = |bound: i64| (bound - offset + step - 1).div_euclid(step);
        let low = from(c.low).clamp(low, extent);
        (low, from(c.high).min(high).max(low))
    })
}

/// Gets the loops around a copy, the tests of what it stores, and whether it stores pairs along a
/// row whose channels are innermost.
type Visit<'a> = &'a mut dyn FnMut(&[(Var, i64)], &[Cond], bool);

fn copy_chain(n: &Nest, s: &Stmt, chain: &mut Vec<(Var, i64)>, f: Visit<'_>) {
    match s {
        Stmt::Loop(l) => {
            chain.push((l.var, l.extent));
            l.body.iter().for_each(|s| copy_chain(n, s, chain, f));
            chain.pop();
        }
        Stmt::Store { value: Expr::Select { conds, .. }, .. } => f(chain, conds, false),
        Stmt::Store { value: Expr::Binary(Binary::Pair, low, high), .. }
            if let [Expr::Select { conds, .. }, Expr::Select { conds: more, .. }] =
                [&**low, &**high]
                && chain.len() > 1
                && chain.last().is_some_and(|(v, _)| !conds.iter().any(|c| c.index.uses(*v))) =>
        {
            f(chain, &[&conds[..], more].concat(), true);
        }
        // What is computed ahead has no border.
        Stmt::Store { buffer, value, .. }
            if n.buffer(*buffer).scope != Scope::Output && computes(value) =>
        {
            f(chain, &[], false);
        }
        _ => {}
    }
}
