//! Collapsing axes: fuses loops that every access walks through with one common stride. A 1x1
//! convolution over 56 x 56 positions becomes a matrix product over 3136 rows.
//!
//! Input and output is a sketch's loop nest; the primitives that were applied (`reshape` of each
//! buffer, then `fuse` of the two loops) are added to the sketch's prefix. The rules of tiles, rows
//! and elementwise kernels call this before they choose tiles.

use super::attempt;
use crate::nest::{Loop, Nest, Stmt, accesses};
use crate::schedule::Primitive;
use squall_core::expr::{Names, Source, Var};

/// Fuses directly nested loops wherever reshaping their buffers allows it.
pub fn collapse(n: &mut Nest, prefix: &mut Vec<Primitive>) {
    loop {
        let mut pairs = Vec::new();
        find_pairs(&n.body, &mut pairs);
        let done = pairs.into_iter().find_map(|(outer, inner)| {
            let (o, i) = (n.var(outer).to_string(), n.var(inner).to_string());
            let mut list: Vec<Primitive> = reshapes(n, outer, inner)
                .into_iter()
                .map(|(b, d)| Primitive::Reshape { buffer: n.source(b).to_string(), dim: d })
                .collect();
            let name = joined_name(&o, &i);
            list.push(Primitive::Fuse { outer: o, inner: i, fused: name });
            attempt(n, prefix, list)
        });
        if done.is_none() {
            return;
        }
    }
}

/// `p_C` and `q_C` make `pq_C`.
fn joined_name(outer: &str, inner: &str) -> String {
    match outer.split_once('_') {
        Some((axis, stage)) => format!("{axis}{}_{stage}", inner.split('_').next().unwrap_or("")),
        None => format!("{outer}{inner}"),
    }
}

fn find_pairs(stmts: &[Stmt], out: &mut Vec<(Var, Var)>) {
    for s in stmts {
        if let Stmt::Loop(Loop { var, body, .. }) = s {
            if let [Stmt::Loop(inner)] = &body[..] {
                out.push((*var, inner.var));
            }
            find_pairs(body, out);
        }
    }
}

/// Buffers that hold the two loops' variables in neighbouring dimensions, and the first of them.
fn reshapes(n: &Nest, outer: Var, inner: Var) -> Vec<(Source, usize)> {
    let Some(l) = n.find_loop(outer) else { return Vec::new() };
    let mut out = Vec::new();
    for a in accesses(&l.body) {
        for d in 0..a.index.len().saturating_sub(1) {
            if a.index[d].uses(outer) && a.index[d + 1].uses(inner) && !out.contains(&(a.buffer, d))
            {
                out.push((a.buffer, d));
            }
        }
    }
    out
}
