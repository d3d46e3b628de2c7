//! Schedule primitives that change a buffer's layout: `reshape(b, dim)` merges a dimension with the
//! next, `relayout(b, [1, 0])` permutes dimensions, `contract(b, loop)` shrinks a buffer to the
//! part that one iteration of a loop uses. Input: a loop nest and names; output: the nest with
//! every access rewritten, or the reason why not. `primitive.rs` lists and applies all primitives.

use super::loops::named;
use super::structure::buffer;
use crate::nest::{Nest, Scope, Stmt, accesses, largest_values, rewrite, visit_mut};
use squall_core::expr::{Affine, Expr, Source};

/// Passes every index of a buffer through `f`.
pub fn reindex(n: &mut Nest, b: Source, f: &dyn Fn(&[Affine]) -> Vec<Affine>) {
    for stmts in [&mut n.prepare, &mut n.body] {
        reindex_in(stmts, b, f);
    }
}

/// Passes every index of a buffer in the statements through `f`.
pub fn reindex_in(stmts: &mut [Stmt], b: Source, f: &dyn Fn(&[Affine]) -> Vec<Affine>) {
    visit_mut(stmts, &mut |s| {
        if let Stmt::Store { buffer, index, .. } | Stmt::Update { buffer, index, .. } = s
            && *buffer == b
        {
            *index = f(index);
        }
    });
    rewrite(stmts, &mut |a| a.clone(), &mut |e| match e {
        Expr::Load { source, ref index } if source == b => Expr::Load { source, index: f(index) },
        e => e,
    });
}

/// Merges dimension `dim` of a buffer with the next one: `b[i, j]` becomes `b[i * extent + j]`.
pub fn reshape(n: &mut Nest, name: &str, dim: usize) -> Result<(), String> {
    let b = buffer(n, name)?;
    let shape = &mut n.buffers[b.0 as usize].shape;
    if dim + 1 >= shape.len() {
        return Err(format!("`{name}` has no dimension after {dim}"));
    }
    let inner = shape.remove(dim + 1);
    shape[dim] *= inner;
    reindex(n, b, &|index| {
        let mut index = index.to_vec();
        let last = index.remove(dim + 1);
        index[dim] = index[dim].scale(inner).add(&last);
        index
    });
    Ok(())
}

/// Permutes the dimensions of a buffer that is not the caller's.
pub fn relayout(n: &mut Nest, name: &str, permutation: &[usize]) -> Result<(), String> {
    let b = buffer(n, name)?;
    let buf = &n.buffers[b.0 as usize];
    if !matches!(buf.scope, Scope::Workspace | Scope::Local | Scope::Prepared) {
        return Err(format!("the layout of `{name}` is the caller's"));
    }
    let mut sorted = permutation.to_vec();
    sorted.sort_unstable();
    if sorted != (0..buf.shape.len()).collect::<Vec<_>>() {
        return Err(format!(
            "{permutation:?} is not a permutation of {} dimensions",
            buf.shape.len()
        ));
    }
    let shape = permutation.iter().map(|&d| buf.shape[d]).collect();
    n.buffers[b.0 as usize].shape = shape;
    reindex(n, b, &|index| permutation.iter().map(|&d| index[d].clone()).collect());
    Ok(())
}

pub fn contract(n: &mut Nest, name: &str, at: &str) -> Result<(), String> {
    let b = buffer(n, name)?;
    let l = named(n, at)?;
    if n.buffer(b).scope != Scope::Workspace {
        return Err(format!("`{name}` is not an intermediate in memory"));
    }
    let inside = accesses(&l.body).iter().filter(|a| a.buffer == b).count();
    if inside == 0 || inside != accesses(&n.body).iter().filter(|a| a.buffer == b).count() {
        return Err(format!("`{name}` is used outside `{at}`"));
    }
    // Variables bound inside, with their largest values.
    let inner = largest_values(&l.body);
    let outer_part = |a: &Affine| {
        Affine::new(a.terms().iter().copied().filter(|(v, _)| !inner.contains_key(v)), 0)
    };
    let inner_range = |a: &Affine| {
        let own = Affine::new(
            a.terms().iter().copied().filter(|(v, _)| inner.contains_key(v)),
            a.offset(),
        );
        own.range(|v| inner[&v])
    };
    let list: Vec<_> = accesses(&l.body).into_iter().filter(|a| a.buffer == b).collect();
    let first = &list[0];
    if !first.write || first.read {
        return Err(format!("`{name}` is read in an iteration of `{at}` before it is set"));
    }
    let dims = n.buffer(b).shape.len();
    let mut low = vec![i64::MAX; dims];
    let mut high = vec![i64::MIN; dims];
    for a in &list {
        for d in 0..dims {
            if outer_part(&a.index[d]) != outer_part(&first.index[d]) {
                return Err(format!(
                    "iterations of `{at}` use different parts of `{name}` in different places"
                ));
            }
            let (lo, hi) = inner_range(&a.index[d]);
            low[d] = low[d].min(lo);
            high[d] = high[d].max(hi);
        }
    }
    for d in 0..dims {
        if inner_range(&first.index[d]) != (low[d], high[d]) {
            return Err(format!(
                "an iteration of `{at}` reads elements of `{name}` that it did not set"
            ));
        }
    }
    let outer: Vec<Affine> = first.index.iter().map(outer_part).collect();
    let var = l.var;
    let shift = low.clone();
    n.buffers[b.0 as usize].shape = low.iter().zip(&high).map(|(l, h)| h - l + 1).collect();
    n.buffers[b.0 as usize].scope = Scope::Local;
    super::structure::drop_hints(n, b);
    reindex(n, b, &|index| {
        index
            .iter()
            .zip(&outer)
            .zip(&shift)
            .map(|((a, o), &s)| a.add(&o.scale(-1)).plus(-s))
            .collect()
    });
    n.replace_loop(var, &mut |mut l| {
        l.body.insert(0, Stmt::Local(b));
        vec![Stmt::Loop(l)]
    });
    Ok(())
}
