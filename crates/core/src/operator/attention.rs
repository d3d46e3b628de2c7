//! Attention as one workload: `softmax(scores) x values`, two matrix products with a softmax along
//! the rows between them. Input: the workloads of the scores and of the second product; output: one
//! workload of all stages, or the reason why they do not fit. Each row is divided by its sum of
//! powers once, at the end. `graph/src/candidate.rs` builds it; `compiler/src/sketch/attention.rs`
//! (CPUs) and `compiler/src/sketch/gpu/attention` make kernels of it.

use super::{checked, fresh};
use crate::expr::{Affine, Binary, Expr, Source, Unary, Var};
use crate::workload::{Axis, Reducer, Reduction, Stage, Workload};
use crate::{DType, TensorKind};
use std::collections::HashSet;

/// The most tokens of which a tile of rows may hold the scores: two rows of scores and of powers
/// take a quarter of a megabyte then.
const MOST_TOKENS: i64 = 1 << 14;

/// A softmax has three stages: the largest of each row, powers, and their sum.
const SOFTMAX: usize = 3;

/// The workload of `softmax(scores) x values`: `scores` gives a matrix (or a batch of them), and
/// `values` is a product, with the steps that follow it, whose first factor is the softmax of that
/// along its last axis. Not possible where the product reads its first factor otherwise.
pub fn attention(scores: Workload, values: &Workload) -> Result<Workload, String> {
    let plain = |w: &Workload| w.foreign.is_none() && w.rooms.is_empty();
    let table = scores.output().clone();
    let (Some(rows), [product, after @ ..]) = (table.axes.len().checked_sub(1), &values.stages[..])
    else {
        return Err("the scores are no matrix".into());
    };
    if !plain(&scores) || !plain(values) || !reads_rows(&table, values, product) {
        return Err("the second product does not read the softmax row by row".into());
    }
    if !has_loops(&scores, product) {
        return Err("it has an axis of one, or too many tokens".into());
    }
    let (ours, theirs) = (scores.inputs.len(), values.inputs.len());
    let mut inputs = scores.inputs.clone();
    let mut taken: HashSet<String> = inputs.iter().map(|i| i.name.clone()).collect();
    taken.extend(scores.stages.iter().map(|s| s.name.clone()));
    taken.insert("Y".into());
    for i in &values.inputs[1..] {
        let wished = if i.kind == TensorKind::Data && i.name == "B" { "V" } else { &i.name };
        inputs.push(crate::workload::Input { name: fresh(wished, &mut taken), ..i.clone() });
    }
    let total = inputs.len();
    let stage = |i: usize| Source((total + i) as u32);
    let mut stages: Vec<Stage> = scores.stages;
    for s in &mut stages {
        s.body = s.body.rewrite(&mut Affine::clone, &mut |e| match e {
            Expr::Load { source, index } if source.0 as usize >= ours => {
                Expr::Load { source: stage(source.0 as usize - ours), index }
            }
            e => e,
        });
    }
    let last = stages.len() - 1;
    stages[last].name = fresh("S", &mut taken);
    let all: Vec<Affine> = (0..=rows).map(|v| Affine::var(Var(v as u32))).collect();
    let load = |i: usize, index: &[Affine]| Expr::load(stage(i), index.to_vec());
    let along = |op| Some(Reduction { op, axes: vec![table.axes[rows].clone()] });
    let row = table.axes[..rows].to_vec();
    let mut push = |name: &str, axes: &[Axis], reduction, body| {
        let name = if name == "Y" { name.into() } else { fresh(name, &mut taken) };
        stages.push(Stage { name, dtype: DType::F32, axes: axes.to_vec(), reduction, body });
    };
    push("X", &row, along(Reducer::Max), load(last, &all));
    let apart = Expr::binary(Binary::Sub, load(last, &all), load(last + 1, &all[..rows]));
    push("E", &table.axes, None, Expr::unary(Unary::Exp, apart));
    push("D", &row, along(Reducer::Sum), load(last + 2, &all));
    // The product, of powers in the place of the softmax.
    let first = last + 1 + SOFTMAX;
    let theirs_at = |source: Source| match (source.0 as usize).checked_sub(theirs) {
        Some(s) => stage(first + s),
        None => Source((ours + source.0 as usize - 1) as u32),
    };
    let body = product.body.map_sources(|s| match s {
        Source(0) => stage(last + 2),
        s => theirs_at(s),
    });
    let mut axes = row.clone();
    let known: HashSet<&str> = table.axes.iter().map(|a| a.name.as_str()).collect();
    let column = ["c", "d", "e", "column"].into_iter().find(|c| !known.contains(c));
    axes.push(Axis::new(column.unwrap_or("columns"), product.axes[rows].extent));
    push("O", &axes, along(Reducer::Sum), body);
    let divided = |index: &[Affine]| {
        Expr::binary(Binary::Div, load(first, index), load(last + SOFTMAX, &index[..rows]))
    };
    for s in after {
        let body = s.body.rewrite(&mut Affine::clone, &mut |e| match e {
            Expr::Load { source, index } if theirs_at_product(source, theirs) => divided(&index),
            Expr::Load { source, index } => Expr::Load { source: theirs_at(source), index },
            e => e,
        });
        push(&s.name, if s.axes.len() == axes.len() { &axes } else { &s.axes }, None, body);
    }
    if after.is_empty() {
        push("Y", &axes, None, divided(&all));
    }
    let kind = "attention".into();
    checked(Workload { kind, inputs, stages, ..Workload::default() })
}

/// Whether each axis has a loop, which one of a single place has not, and rows are of a length that
/// tiles hold.
fn has_loops(scores: &Workload, product: &Stage) -> bool {
    let sums = scores.stages.iter().flat_map(Stage::reduce_axes);
    let all = scores.output().axes.iter().chain(&product.axes).chain(sums);
    let tokens = scores.output().axes.last().map_or(0, |a| a.extent);
    all.map(|a| a.extent).all(|e| e > 1) && tokens <= MOST_TOKENS
}

/// Whether a source of the second product's workload is the product itself.
fn theirs_at_product(source: Source, inputs: usize) -> bool {
    source.0 as usize == inputs
}

/// Whether a product reads a table as its first factor, once, row by row, and what follows it is
/// elementwise.
fn reads_rows(table: &Stage, values: &Workload, product: &Stage) -> bool {
    let rows = table.axes.len() - 1;
    let Some(r) = &product.reduction else { return false };
    let spatial = product.axes.len();
    let index: Vec<Affine> =
        (0..rows).chain([spatial]).map(|v| Affine::var(Var(v as u32))).collect();
    let of_table = |s: &Stage| s.body.loads().iter().filter(|l| l.0 == Source(0)).count();
    let loads = product.body.loads();
    let extents = |axes: &[Axis]| axes.iter().map(|a| a.extent).collect::<Vec<_>>();
    values.inputs.first().is_some_and(|i| i.shape == table.shape() && i.kind == TensorKind::Data)
        && matches!(&product.body, Expr::Binary(Binary::Mul, ..))
        && loads.len() == 2
        && loads.iter().any(|(s, i)| *s == Source(0) && **i == index[..])
        && values.stages.iter().map(of_table).sum::<usize>() == 1
        && r.op == Reducer::Sum
        && extents(&r.axes) == [table.axes[rows].extent]
        && spatial == rows + 1
        && extents(&product.axes[..rows]) == extents(&table.axes[..rows])
        && values.stages[1..].iter().all(|s| s.reduction.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::{MatMul, Softmax};

    fn product(batch: &[(i64, bool, bool)], m: i64, n: i64, k: i64) -> Workload {
        let plain = MatMul::plain(m, n, k, TensorKind::Data);
        MatMul { batch: batch.to_vec(), ..plain }.workload().unwrap()
    }

    #[test]
    fn it_is_the_three_kernels_in_a_chain() {
        for batch in [vec![], vec![(2, true, true)]] {
            let b = if batch.is_empty() { 1 } else { 2 };
            let (scores, values) = (product(&batch, 3, 5, 4), product(&batch, 3, 6, 5));
            let w = attention(scores.clone(), &values).unwrap();
            assert_eq!(Workload::parse(&w.to_string()).unwrap(), w);
            let numbers = |n: i64, by: i64| {
                (0..n).map(|i| ((i * by % 23) - 11) as f64 / 7.0).collect::<Vec<f64>>()
            };
            let (q, k, v) = (numbers(b * 12, 5), numbers(b * 20, 7), numbers(b * 30, 11));
            let table = scores.evaluate(&[q.clone(), k.clone()]);
            let softmax = Softmax { before: b * 3, extent: 5, after: 1, log: false };
            let weights = softmax.workload().unwrap().evaluate(&[table]);
            let want = values.evaluate(&[weights, v.clone()]);
            let got = w.evaluate(&[q, k, v]);
            assert_eq!(got.len(), want.len());
            for (a, b) in got.iter().zip(&want) {
                assert!((a - b).abs() < 1e-5, "{a} {b} of {w}");
            }
        }
    }

    #[test]
    fn another_second_product_is_refused() {
        // Of another number of rows, and one that reads the softmax transposed.
        assert!(attention(product(&[], 3, 5, 4), &product(&[], 4, 6, 5)).is_err());
        let turned = MatMul { a_transposed: true, ..MatMul::plain(3, 6, 3, TensorKind::Data) };
        assert!(attention(product(&[], 3, 3, 4), &turned.workload().unwrap()).is_err());
    }
}
