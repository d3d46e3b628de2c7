//! Analysis of a workload that has two operators one behind the other, of which the second alone
//! reads the first's result ([`chain`](super::chain) builds it): the stage where the operators
//! meet, and the axes along which both can be computed part by part, while a near cache holds a
//! part of the first's result. `compiler/src/sketch/back_to_back.rs` makes kernels of it.

use crate::TensorKind;
use crate::expr::{Affine, Expr, Source, Var};
use crate::workload::{Input, Stage, Workload};

/// The least number of elements that a part has along the axis that is cut.
const LEAST_PART: i64 = 4;

/// The stage whose result the second operator reads: the last that is elementwise in the first
/// operator's sums and is the only stage of the first operator that later stages read. Where the
/// first operator has several reductions, as a norm of rows has, it is the first stage that
/// separates the stages before the last reduction from the rest.
pub fn between_operators(w: &Workload) -> Option<usize> {
    let reduces = |s: &Stage| s.reduction.is_some() && !s.body.loads().is_empty();
    let first = w.stages.iter().position(reduces)?;
    let alike = |s: &&Stage| {
        s.reduction.is_none()
            && s.shape() == w.stages[first].shape()
            && !matches!(s.body, Expr::Select { .. })
    };
    let behind = w.stages[first + 1..].iter().take_while(alike).count();
    let parts = |&e: &usize| is_read_alone(w, e) && shares_no_input(w, e);
    let of_one = (first..=first + behind).rev().find(parts);
    let mut all = (first..w.stages.len()).filter(|&i| reduces(&w.stages[i])).rev();
    let (last, before) = (all.next()?, all.next()?);
    of_one.or_else(|| (before..last).find(parts))
}

/// Whether no input is read both by stages up to one and by those behind it.
fn shares_no_input(w: &Workload, stage: usize) -> bool {
    let (ahead, behind) = w.stages.split_at(stage + 1);
    (0..w.inputs.len()).all(|i| !(read_input(ahead, i) && read_input(behind, i)))
}

/// Whether one of these stages reads an input.
fn read_input(stages: &[Stage], input: usize) -> bool {
    stages.iter().any(|s| s.body.loads().iter().any(|l| l.0.0 as usize == input))
}

/// Whether stages follow a stage, and of all up to it read that one alone.
pub fn is_read_alone(w: &Workload, stage: usize) -> bool {
    let ahead = |s: Source| (s.0 as usize).checked_sub(w.inputs.len()).is_some_and(|i| i < stage);
    let rest = &w.stages[stage + 1..];
    !rest.is_empty() && rest.iter().all(|s| s.body.loads().iter().all(|l| !ahead(l.0)))
}

/// Of each axis of the result along which it can be cut together with what lies between, the
/// dimension of each input and stage that is cut then: the last axis first.
pub fn shared_axes(w: &Workload, between: usize) -> Vec<Vec<Option<usize>>> {
    let made = w.stage_source(between).0 as usize;
    let axes = (0..w.output().axes.len()).rev().filter(|&a| w.output().axes[a].extent > 1);
    let all = axes.filter_map(|axis| cut_along(w, axis));
    let has_parts = |dims: &Vec<Option<usize>>| {
        dims[made].is_some_and(|d| !part_sizes(w.stages[between].axes[d].extent).is_empty())
    };
    all.filter(has_parts).collect()
}

/// The sizes of parts of an axis, ascending: it falls into several, none of which leaves a register
/// tile too little.
pub fn part_sizes(extent: i64) -> Vec<i64> {
    let pairs = (1..).take_while(|d| d * d <= extent).filter(|d| extent % d == 0);
    let mut sizes: Vec<i64> = pairs.flat_map(|d| [d, extent / d]).collect();
    sizes.retain(|size| (LEAST_PART..extent).contains(size));
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// The dimension of each input and stage that is cut with the result along an axis; none where a
/// part of the result reads more than a part of one of them.
fn cut_along(w: &Workload, axis: usize) -> Option<Vec<Option<usize>>> {
    let inputs = w.inputs.len();
    let mut dims: Vec<Option<Option<usize>>> = vec![None; inputs + w.stages.len()];
    *dims.last_mut()? = Some(Some(axis));
    for (i, s) in w.stages.iter().enumerate().rev() {
        let own = dims[inputs + i].flatten().map(|a| Var(a as u32));
        let uses = |a: &Affine| own.is_some_and(|v| a.uses(v));
        let mut fits = true;
        s.body.visit(&mut |e| match e {
            Expr::Load { source, index } => {
                let dim = index.iter().position(uses);
                let is_single = index.iter().filter(|a| uses(a)).count() <= 1;
                let is_plain = dim.is_none_or(|d| index[d].as_var() == own);
                fits &= is_single && is_plain;
                let whole = |d: usize| w.shape_of(*source).get(d).copied();
                let run = own.map(|v| s.axes[v.0 as usize].extent);
                fits &= dim.is_none_or(|d| whole(d) == run);
                fits &= *dims[source.0 as usize].get_or_insert(dim) == dim;
            }
            Expr::Select { conds, .. } => fits &= !conds.iter().any(|c| uses(&c.index)),
            _ => {}
        });
        if !fits {
            return None;
        }
    }
    Some(dims.into_iter().map(Option::flatten).collect())
}

/// Both operators, each as a workload: the second reads what lies between as its first input, and
/// no other stage of the first (see [`is_read_alone`]).
pub fn operators(w: &Workload, between: usize) -> [Workload; 2] {
    [true, false].map(|is_first| operator(w, between, is_first))
}

/// The first operator, to what lies between, or the second, which reads that as its first input.
fn operator(w: &Workload, between: usize, is_first: bool) -> Workload {
    let e = &w.stages[between];
    let stages = if is_first { &w.stages[..=between] } else { &w.stages[between + 1..] };
    let own: Vec<usize> = (0..w.inputs.len()).filter(|&i| read_input(stages, i)).collect();
    let mut inputs: Vec<Input> = own.iter().map(|&i| w.inputs[i].clone()).collect();
    let offset = usize::from(!is_first);
    if !is_first {
        let (name, kind) = (e.name.clone(), TensorKind::Data);
        inputs.insert(0, Input { name, kind, dtype: e.dtype, shape: e.shape() });
    }
    let (count, first) = (inputs.len(), if is_first { 0 } else { between + 1 });
    let to = |s: Source| {
        let at = match (s.0 as usize).checked_sub(w.inputs.len()) {
            Some(stage) if !is_first && stage == between => 0,
            Some(stage) => count + stage - first,
            None => offset + own.iter().position(|&i| i == s.0 as usize).unwrap_or(0),
        };
        Source(at as u32)
    };
    let stage = |s: &Stage| Stage { body: s.body.map_sources(to), ..s.clone() };
    let mut part = Workload {
        // Nothing but names is made of it.
        kind: if is_first { "first" } else { "second" }.into(),
        stages: stages.iter().map(stage).collect(),
        ..Workload::default()
    };
    let names = inputs.iter().map(|i| &i.name).chain(part.stages.last().map(|s| &s.name));
    let rooms = names.filter_map(|n| Some((n.clone(), w.rooms.get(n)?.clone())));
    part.rooms = rooms.collect();
    part.inputs = inputs;
    part
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::joined::examples::{conv, numbers};
    use crate::operator::{BACK_TO_BACK, LayerNorm, MatMul, Softmax, chain};

    /// Two operators that can be made in parts.
    fn in_parts(first: Workload, second: &Workload) -> Option<Workload> {
        let w = chain(BACK_TO_BACK, first, &[second]).ok()?;
        between_operators(&w).filter(|e| !shared_axes(&w, *e).is_empty()).map(|_| w)
    }

    #[test]
    fn it_is_both_kernels_one_after_the_other() {
        let rows = Softmax { before: 8, extent: 5, after: 1, log: false }.workload().unwrap();
        let product = |m, n, k| MatMul::plain(m, n, k, TensorKind::Weight).workload().unwrap();
        let bias = Some(TensorKind::Weight);
        let norm = LayerNorm { rows: 8, cols: 5, eps: 1e-5, gain: TensorKind::Weight, bias };
        let norm = norm.workload().unwrap();
        for (first, second) in [
            (conv(3, 8, 1, 1, 1), conv(8, 8, 3, 8, 1)),
            (conv(8, 8, 3, 8, 2), conv(8, 8, 3, 8, 1)),
            (product(8, 5, 4), product(8, 7, 5)),
            (product(8, 5, 4), rows.clone()),
            (norm, product(8, 7, 5)),
            (rows, product(8, 7, 5)),
        ] {
            let fits = first.output().shape() == second.inputs[0].shape;
            let Some(w) = in_parts(first.clone(), &second) else {
                assert!(!fits, "{first}{second}");
                continue;
            };
            assert!(fits);
            assert_eq!(Workload::parse(&w.to_string()).unwrap(), w);
            let (ours, theirs) = (numbers(&first, 0), numbers(&second, 1));
            let made = first.evaluate(&ours);
            let want = second.evaluate(&[vec![made], theirs.clone()].concat());
            assert_eq!(w.evaluate(&[ours, theirs].concat()), want, "{w}");
        }
    }

    #[test]
    fn what_reads_something_else_is_refused() {
        let product = |m, n, k| MatMul::plain(m, n, k, TensorKind::Weight).workload().unwrap();
        assert!(in_parts(product(8, 5, 4), &product(8, 7, 4)).is_none());
        // Two norms: the stages show a place inside the second, not between them.
        let gain = TensorKind::Weight;
        let norm = LayerNorm { rows: 8, cols: 5, eps: 1e-5, gain, bias: None }.workload().unwrap();
        assert!(chain(BACK_TO_BACK, norm.clone(), &[&norm]).is_err());
        let both = in_parts(product(8, 5, 4), &product(8, 7, 5)).unwrap();
        assert!(in_parts(both, &product(8, 3, 7)).is_none());
    }
}
