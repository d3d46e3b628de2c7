//! Helpers for rewriting the two factors of a product, shared by the rules that change how factors
//! are stored: `pairs` (two bf16 as one element), `words` (16-bit integers for bytes), `floats`
//! (floats for bytes), `window` and `phases` (strided rows put in another order).
//!
//! They find the one multiply-accumulate stage of a workload (a tensor expression), count how often
//! its factors are read, and insert stages that make the rewritten copies of the factors ahead of
//! all other stages.

use squall_core::Workload;
use squall_core::expr::{Affine, Binary, Expr, Source, Var};
use squall_core::workload::{Reducer, Stage};

/// The position of the only stage that reduces, and its two factors, where it sums the results of
/// this operation on them.
pub(super) fn only_product(w: &Workload, of: Binary) -> Option<(usize, &Expr, &Expr)> {
    let mut mains = (0..w.stages.len()).filter(|&i| w.stages[i].reduction.is_some());
    let (Some(main), None) = (mains.next(), mains.next()) else { return None };
    let stage = &w.stages[main];
    let adds = stage.reduction.as_ref().is_some_and(|r| r.op == Reducer::Sum);
    match &stage.body {
        Expr::Binary(op, x, y) if *op == of && adds => Some((main, x, y)),
        _ => None,
    }
}

/// How many stages read a source (an input or an earlier stage).
pub(super) fn readers(w: &Workload, s: Source) -> usize {
    let reads = |x: &&Stage| x.body.loads().iter().any(|(source, _)| *source == s);
    w.stages.iter().filter(reads).count()
}

/// How often a product reads each element of a factor that it reads at `index`.
pub(super) fn uses(product: &Stage, index: &[Affine]) -> i64 {
    let axes = product.axes.iter().zip(0..);
    let other = axes.filter(|(_, v)| !index.iter().any(|i| i.uses(Var(*v))));
    other.map(|(a, _)| a.extent).product()
}

/// A placeholder for the `number`-th of the stages to insert, which [`put_ahead`] replaces by the
/// stage's final source.
pub(super) fn ahead(number: usize) -> Source {
    Source(u32::MAX - number as u32)
}

/// Inserts stages before all others and renumbers every source that the workload reads.
pub(super) fn put_ahead(w: &mut Workload, stages: Vec<Stage>) {
    let (inputs, more) = (w.inputs.len() as u32, stages.len() as u32);
    for s in &mut w.stages {
        s.body = s.body.map_sources(|s| match s.0 {
            // Placeholders from `ahead` count down from the largest number.
            n if n > u32::MAX / 2 => Source(inputs + (u32::MAX - n)),
            n if n >= inputs => Source(n + more),
            n => Source(n),
        });
    }
    w.stages.splice(0..0, stages);
}
