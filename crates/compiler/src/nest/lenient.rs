//! Which maxima may lose a NaN without changing the kernel's result. The hardware's single max
//! instruction returns its second operand if one is NaN, so that keeping a NaN takes two or three
//! instructions. In a softmax the row's maximum may lose it, because the sum of the row's powers is
//! NaN anyway.
//!
//! Input: a workload (a tensor expression); output: one flag a stage, which `lower.rs` puts on the
//! stage's buffer (the word `lenient` in a loop nest's text) and the emitter reads.

use squall_core::expr::{Affine, Binary, Expr, Source, Unary};
use squall_core::workload::{Reducer, Stage, Workload};
use std::collections::BTreeMap;

/// For each stage whether its maxima or minima may lose a NaN. Those of a softmax may: where `x` is
/// NaN, so is `exp(x - most)` whatever `most` is, and so is the sum of the row and every value that
/// is divided by that sum or from which its logarithm is subtracted. Maxima of whole numbers may as
/// well.
pub(super) fn lenient(w: &Workload) -> Vec<bool> {
    (0..w.stages.len()).map(|i| of_whole_numbers(w, i) || shows_in_a_sum(w, i).is_some()).collect()
}

/// The dimensions of a stage that say which row an element belongs to.
type RowOf = Vec<usize>;

fn of_whole_numbers(w: &Workload, i: usize) -> bool {
    let Expr::Load { source, .. } = &w.stages[i].body else { return false };
    let dtype = match w.stage_of(*source) {
        Some(s) => s.dtype,
        None => w.inputs[source.0 as usize].dtype,
    };
    dtype.is_integer()
}

/// The number of the axis, if an index is one axis alone.
fn axis(a: &Affine) -> Option<usize> {
    a.as_var().map(|v| v.0 as usize)
}

/// Follows every value that depends on a row's largest element, stage `m`: it may reach the output
/// only through a stage that also reads the row's sum of powers.
fn shows_in_a_sum(w: &Workload, m: usize) -> Option<()> {
    let most = &w.stages[m];
    let largest = most.reduction.as_ref().is_some_and(|r| r.op == Reducer::Max);
    let Expr::Load { source: of, index } = &most.body else { return None };
    let extents: Vec<i64> = most.all_axes().map(|a| a.extent).collect();
    let places: Vec<usize> = index.iter().map(axis).collect::<Option<_>>()?;
    if !largest || !is_whole(w, *of, &places, &extents) {
        return None;
    }
    // The dimensions of the compared tensor, in the order of the row's axes.
    let rows: RowOf =
        (0..most.axes.len()).map(|v| places.iter().position(|p| *p == v)).collect::<Option<_>>()?;
    let mut touched: BTreeMap<Source, RowOf> = BTreeMap::new();
    let (mut powers, mut sum) = (None, None);
    touched.insert(w.stage_source(m), (0..most.axes.len()).collect());
    for (i, stage) in w.stages.iter().enumerate().skip(m + 1) {
        let own = w.stage_source(i);
        let reads: Vec<(Source, &[Affine])> = stage.body.loads();
        let touches: Vec<_> = reads.iter().filter(|l| touched.contains_key(&l.0)).collect();
        if touches.is_empty() {
            continue;
        }
        let row = |l: &(Source, &[Affine])| -> Vec<Affine> {
            touched[&l.0].iter().map(|d| l.1[*d].clone()).collect()
        };
        let of_sum = sum.and_then(|s| strict_load(&stage.body, s));
        if let Some(index) = of_sum
            && touches.iter().all(|l| row(l) == index)
        {
            continue;
        }
        let kept: RowOf = row(touches[0]).iter().map(axis).collect::<Option<_>>()?;
        let is_spatial = kept.iter().all(|a| *a < stage.axes.len());
        if !is_spatial || touches.iter().any(|l| row(l) != row(touches[0])) {
            return None;
        }
        let adds = stage.reduction.as_ref().is_some_and(|r| r.op == Reducer::Sum);
        let is_power = is_power(w, stage, *of, &rows, w.stage_source(m));
        let sums = adds && kept.len() == stage.axes.len() && kept.is_sorted();
        if is_power && stage.reduction.is_none() {
            powers = Some(own);
        }
        if sum.is_none() && sums && (is_power || is_sum_of(w, stage, powers)) {
            sum = Some(own);
            continue;
        }
        touched.insert(own, kept);
    }
    (!touched.contains_key(&w.stage_source(w.stages.len() - 1))).then_some(())
}

/// Whether an index uses each axis of these extents once and covers the whole source.
fn is_whole(w: &Workload, of: Source, places: &[usize], extents: &[i64]) -> bool {
    let mut sorted = places.to_vec();
    sorted.sort_unstable();
    let each = sorted.iter().copied().eq(0..extents.len());
    each && w.shape_of(of).iter().eq(places.iter().map(|p| &extents[*p]))
}

/// Whether a stage is `exp(of - most)` over all of `of`, with the largest of each element's row.
fn is_power(w: &Workload, stage: &Stage, of: Source, rows: &RowOf, most: Source) -> bool {
    let Expr::Unary(Unary::Exp, apart) = &stage.body else { return false };
    let Expr::Binary(Binary::Sub, x, y) = &**apart else { return false };
    let (Expr::Load { source: x, index }, Expr::Load { source: y, index: row }) = (&**x, &**y)
    else {
        return false;
    };
    let extents: Vec<i64> = stage.all_axes().map(|a| a.extent).collect();
    let places: Option<Vec<usize>> = index.iter().map(axis).collect();
    (*x, *y) == (of, most)
        && places.is_some_and(|p| is_whole(w, of, &p, &extents))
        && row.iter().eq(rows.iter().map(|d| &index[*d]))
}

/// Whether a stage adds up whole rows of the powers.
fn is_sum_of(w: &Workload, stage: &Stage, powers: Option<Source>) -> bool {
    let Expr::Load { source, index } = &stage.body else { return false };
    let extents: Vec<i64> = stage.all_axes().map(|a| a.extent).collect();
    let places: Option<Vec<usize>> = index.iter().map(axis).collect();
    Some(*source) == powers && places.is_some_and(|p| is_whole(w, *source, &p, &extents))
}

/// The index at which an expression reads a source where nothing chooses whether it does.
fn strict_load(e: &Expr, of: Source) -> Option<Vec<Affine>> {
    match e {
        Expr::Load { source, index } => (*source == of).then(|| index.clone()),
        Expr::Unary(_, a) | Expr::Cast(_, a) => strict_load(a, of),
        Expr::Binary(Binary::Pow, ..) => None,
        Expr::Binary(_, a, b) => strict_load(a, of).or_else(|| strict_load(b, of)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_core::TensorKind;
    use squall_core::operator::{MatMul, Softmax, attention};

    fn found(w: &Workload) -> Vec<&str> {
        let all = w.stages.iter().zip(lenient(w));
        all.filter(|s| s.1).map(|s| s.0.name.as_str()).collect()
    }

    #[test]
    fn maxima_of_a_softmax_may_lose_what_its_sum_shows() {
        for (after, log) in [(1, false), (1, true), (3, false), (3, true)] {
            let w = Softmax { before: 4, extent: 6, after, log }.workload().unwrap();
            assert_eq!(found(&w), ["M"], "{w}");
        }
        let product = |n, k| MatMul::plain(4, n, k, TensorKind::Data).workload().unwrap();
        let w = attention(product(5, 3), &product(6, 5));
        assert_eq!(found(&w.unwrap()), ["X"]);
    }

    #[test]
    fn others_may_not() {
        let parse = |stages: &str| {
            Workload::parse(&format!("workload w\ndata X: f32[4, 6]\n{stages}\noutput Y")).unwrap()
        };
        let largest = "stage M: f32[i: 4] = max(j: 6) X[i, j]\n";
        let sum = "stage S: f32[i: 4] = sum(j: 6) exp(X[i, j] - M[i])\n";
        let joined = format!("{largest}{sum}stage Y: f32[i: 4] = M[i] + log(S[i])");
        assert_eq!(found(&parse(&joined)), ["M"]);
        for rest in [
            "stage Y: f32[i: 4, j: 6] = exp(X[i, j] - M[i])",
            "stage Y: f32[i: 4] = max(M[i], 0)",
            // The sum is another row's, or of a part, or of other powers, or one may do without.
            &format!("{sum}stage Y: f32[i: 4] = M[i] + log(S[3 - i])"),
            "stage S: f32[i: 4] = sum(j: 5) exp(X[i, j] - M[i])\nstage Y: f32[i: 4] = M[i] + S[i]",
            "stage S: f32[i: 4] = sum(j: 6) exp(X[i, j])\nstage Y: f32[i: 4] = M[i] + S[i]",
            &format!("{sum}stage Y: f32[i: 4] = M[i] + select(0 <= i < 2, S[i], 1)"),
            &format!("{sum}stage Z: f32[i: 4] = S[i] + 1\nstage Y: f32[i: 4] = Z[i] * M[i]"),
        ] {
            let w = Workload::parse(&format!(
                "workload w\ndata X: f32[4, 6]\n{largest}{rest}\noutput Y"
            ));
            let Ok(w) = w else { panic!("{rest}: {w:?}") };
            assert!(found(&w).is_empty(), "{w}");
        }
    }
}
