//! The copy that has an image's border: its innermost loop, and where that has data.

use super::{Pad, computes};
use crate::nest::{Nest, Scope, Stmt};
use squall_core::expr::{Expr, Names, Var};

/// The innermost loop of a padded copy: where it has data between its borders.
pub(super) struct Border {
    pub name: String,
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
        copy_chain(n, top, &mut chain, &mut |chain, conds| {
            let Some(&(v, extent)) = chain.last() else { return };
            let along =
                conds.iter().find(|c| c.index.coefficient(v) == 1 && c.index.terms().len() == 1);
            let low = along.map_or(0, |c| (c.low - c.index.offset()).clamp(0, extent));
            let high = along.map_or(extent, |c| (c.high - c.index.offset()).clamp(low, extent));
            found = (
                Some(Border { name: n.var(v).to_string(), low, high, extent }),
                Some(n.var(chain[0].0).to_string()),
            );
        });
    }
    found
}

type Visit<'a> = &'a mut dyn FnMut(&[(Var, i64)], &[squall_core::expr::Cond]);

fn copy_chain(n: &Nest, s: &Stmt, chain: &mut Vec<(Var, i64)>, f: Visit<'_>) {
    match s {
        Stmt::Loop(l) => {
            chain.push((l.var, l.extent));
            l.body.iter().for_each(|s| copy_chain(n, s, chain, f));
            chain.pop();
        }
        Stmt::Store { value: Expr::Select { conds, .. }, .. } => f(chain, conds),
        // What is computed ahead has no border.
        Stmt::Store { buffer, value, .. }
            if n.buffer(*buffer).scope != Scope::Output && computes(value) =>
        {
            f(chain, &[]);
        }
        _ => {}
    }
}
