//! Splits one dimension of a workload's tensor into several, together with the axes that run along
//! it; the computation stays the same. Each new dimension can then lie apart in memory. Example:
//! `[56, 64]` cut at dimension 1 into 2 x 32 becomes `[56, 2, 32]`. `rewrite.rs` calls this when it
//! arranges tensors.

use squall_core::expr::{Affine, Expr, Source, Var};
use squall_core::workload::{Axis, Workload};

/// Splits a dimension of an input, or of the output, into `parts`, outermost first. `None` where
/// some access does not run along it with one axis.
pub fn split(w: &Workload, source: Source, dim: usize, parts: &[i64]) -> Option<Workload> {
    let mut w = w.clone();
    let mut open = vec![(source, dim)];
    if let Some(stage) = (source.0 as usize).checked_sub(w.inputs.len()) {
        open.clear();
        split_axis(&mut w, stage, dim, parts, &mut open)?;
    }
    // Each step splits one dimension of one tensor, which is not split again.
    while let Some((source, dim)) = open.pop() {
        let i = source.0 as usize;
        let whole: i64 = parts.iter().product();
        if i < w.inputs.len() {
            match w.inputs[i].shape.get(dim) {
                Some(&extent) if extent == whole => {}
                _ => return None,
            }
            w.inputs[i].shape.splice(dim..=dim, parts.iter().copied());
        }
        for stage in 0..w.stages.len() {
            readers(&mut w, stage, source, dim, parts, &mut open)?;
        }
    }
    w.check().ok()?;
    Some(w)
}

/// The affine index by which the new axes from `first` on count like the old axis.
fn counted(first: u32, parts: &[i64]) -> Affine {
    let mut stride: i64 = parts.iter().product();
    let terms = parts.iter().enumerate().map(|(i, part)| {
        stride /= part;
        (Var(first + i as u32), stride)
    });
    Affine::new(terms.collect::<Vec<_>>(), 0)
}

/// Splits an axis of a stage; where the axis is spatial, the stage's readers are added to `open`.
fn split_axis(
    w: &mut Workload,
    stage: usize,
    axis: usize,
    parts: &[i64],
    open: &mut Vec<(Source, usize)>,
) -> Option<()> {
    let source = w.stage_source(stage);
    let s = &mut w.stages[stage];
    let spatial = s.axes.len();
    let list = match axis.checked_sub(spatial) {
        None => &mut s.axes,
        Some(_) => &mut s.reduction.as_mut()?.axes,
    };
    let at = if axis < spatial { axis } else { axis - spatial };
    let old = list.get(at)?.clone();
    if old.extent != parts.iter().product::<i64>() {
        return None;
    }
    let named = |i: usize| Axis::new(format!("{}{i}", old.name), parts[i]);
    list.splice(at..=at, (0..parts.len()).map(named));
    let (first, more) = (axis as u32, parts.len() as u32 - 1);
    let sum = counted(first, parts);
    s.body = s.body.map_vars(|v| match v.0 {
        i if i < first => Affine::var(v),
        i if i == first => sum.clone(),
        i => Affine::var(Var(i + more)),
    });
    if axis < spatial {
        open.push((source, axis));
    }
    // Dimensions that are read along this axis alone are split with it, so that each access stays
    // plain.
    let mut along = Vec::new();
    s.body.visit(&mut |e| {
        if let Expr::Load { source, index } = e {
            along.extend(
                index.iter().enumerate().filter(|(_, a)| **a == sum).map(|(d, _)| (*source, d)),
            );
        }
    });
    for (read, dim) in along {
        let exact = w.shape_of(read).get(dim) == Some(&parts.iter().product());
        if !exact || open.contains(&(read, dim)) {
            continue;
        }
        match (read.0 as usize).checked_sub(w.inputs.len()) {
            None => open.push((read, dim)),
            // The stage that is read is cut along its axis, which puts itself on the list.
            Some(before) => split_axis(w, before, dim, parts, open)?,
        }
    }
    Some(())
}

/// Brings the loads of a tensor that was cut up to date in a stage.
fn readers(
    w: &mut Workload,
    stage: usize,
    source: Source,
    dim: usize,
    parts: &[i64],
    open: &mut Vec<(Source, usize)>,
) -> Option<()> {
    let rank = w.shape_of(source).len() + 1 - parts.len();
    let old = |index: &[Affine]| index.len() == rank;
    // Axes that still run along the whole dimension.
    loop {
        let mut whole = None;
        w.stages[stage].body.visit(&mut |e| {
            if let Expr::Load { source: s, index } = e
                && *s == source
                && old(index)
            {
                whole = whole.or(index[dim].as_var());
            }
        });
        match whole {
            Some(v) => split_axis(w, stage, v.0 as usize, parts, open)?,
            None => break,
        }
    }
    let mut wrong = false;
    let s = &mut w.stages[stage];
    s.body = s.body.rewrite(&mut Affine::clone, &mut |e| match e {
        Expr::Load { source: s, mut index } if s == source && old(&index) => {
            let first = index[dim].terms().iter().map(|(v, _)| v.0).min();
            match first.filter(|&f| index[dim] == counted(f, parts)) {
                Some(f) => {
                    let vars = (0..parts.len() as u32).map(|i| Affine::var(Var(f + i)));
                    index.splice(dim..=dim, vars);
                }
                None => wrong = true,
            }
            Expr::Load { source: s, index }
        }
        e => e,
    });
    (!wrong).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRODUCT: &str = "workload matmul
data A: f32[5, 12]
weight B: f32[12, 6]
weight C: f32[6]
data R: f32[5, 6]
stage T: f32[m: 5, n: 6] = sum(k: 12) A[m, k] * B[k, n]
stage Y: f32[m: 5, n: 6] = max(T[m, n] + C[n] + R[m, n], 0)
output Y
";

    #[test]
    fn cut_axes_compute_the_same_through_all_stages() {
        let w = Workload::parse(PRODUCT).unwrap();
        let inputs: Vec<Vec<f64>> = w
            .inputs
            .iter()
            .map(|i| (0..i.shape.iter().product()).map(|x| f64::from(x as u32 % 7) - 3.0).collect())
            .collect();
        let want = w.evaluate(&inputs);
        let cut = split(&w, Source(0), 1, &[3, 4]).unwrap();
        assert_eq!(cut.inputs[0].shape, [5, 3, 4]);
        assert_eq!(cut.inputs[1].shape, [3, 4, 6]);
        assert_eq!(cut.evaluate(&inputs), want);
        let output = w.stage_source(1);
        let cut = split(&cut, output, 1, &[2, 3]).unwrap();
        let text = cut.to_string();
        assert!(text.contains("Y: f32[m: 5, n0: 2, n1: 3]"), "{text}");
        assert!(text.contains("sum(k0: 3, k1: 4) A[m, k0, k1] * B[k0, k1, n0, n1]"), "{text}");
        assert_eq!(cut.evaluate(&inputs), want);
        assert_eq!(Workload::parse(&text).unwrap(), cut);
        // An input that only the last stage reads cuts all that run with it.
        let cut = split(&w, Source(3), 1, &[3, 2]).unwrap();
        assert_eq!(cut.evaluate(&inputs), want);
        assert_eq!(cut.inputs[1].shape, [12, 3, 2]);
    }

    #[test]
    fn what_is_read_in_windows_is_not_cut() {
        let w = Workload::parse(
            "workload pool
data X: f32[8]
stage Y: f32[p: 6] = max(r: 3) X[p + r]
output Y
",
        )
        .unwrap();
        assert_eq!(split(&w, Source(0), 0, &[2, 4]), None);
        // Its output may be cut all the same.
        let cut = split(&w, w.stage_source(0), 0, &[2, 3]).unwrap();
        let x: Vec<f64> = (0..8).map(|i| f64::from(i * 5 % 8)).collect();
        assert_eq!(cut.evaluate(std::slice::from_ref(&x)), w.evaluate(&[x]));
    }
}
