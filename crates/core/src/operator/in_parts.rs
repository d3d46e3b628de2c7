//! An operator that reads the parts of a concatenation instead of its result, so that the
//! concatenation need not be computed. Input: the operator's workload, a dimension of its first
//! input and the extents of the parts; output: a workload with one input for each part and a stage
//! that selects the part of each element. `compiler/src/sketch/tile/parts.rs` splits the loop
//! between the parts.

use super::{checked, fresh};
use crate::expr::{Affine, Cond, Expr, Source, Var};
use crate::workload::{Input, Stage, Workload};
use crate::{DType, TensorKind};
use std::collections::HashSet;

/// The name of the stage that selects the part in which an element is.
const STAGE: &str = "N";

/// The workload whose first input is the concatenation of parts of these extents along a dimension.
/// Not possible where the parts are not the whole, or where the operator reads it in several
/// places.
pub fn in_parts(w: Workload, dim: usize, parts: &[i64]) -> Result<Workload, String> {
    let Some(whole) = w.inputs.first().cloned() else { return Err("it reads nothing".into()) };
    let is_first = |e: &Expr| e.loads().iter().filter(|l| l.0 == Source(0)).count();
    let reads: usize = w.stages.iter().map(|s| is_first(&s.body)).sum();
    let sum = parts.iter().try_fold(0i64, |sum, p| sum.checked_add(*p).filter(|_| *p > 0));
    let is_whole = whole.shape.get(dim).is_some_and(|&e| sum == Some(e)) && parts.len() > 1;
    if !is_whole || reads != 1 || whole.kind != TensorKind::Data || whole.dtype != DType::F32 {
        return Err("it does not read parts of that size, or not in one place".into());
    }
    let names = w.inputs.iter().map(|i| &i.name).chain(w.stages.iter().map(|s| &s.name));
    let mut taken: HashSet<String> = names.cloned().collect();
    taken.insert(STAGE.into());
    let part = |(i, &extent): (usize, &i64)| {
        let name = match i {
            0 => whole.name.clone(),
            _ => fresh(&whole.name, &mut taken),
        };
        let mut shape = whole.shape.clone();
        shape[dim] = extent;
        Input { name, shape, ..whole.clone() }
    };
    let mut inputs: Vec<Input> = parts.iter().enumerate().map(part).collect();
    inputs.extend(w.inputs.iter().skip(1).cloned());
    let own: Vec<Affine> = (0..whole.shape.len()).map(|d| Affine::var(Var(d as u32))).collect();
    let axes = super::prologue::axes(&whole.shape, &w.stages);
    let made = Source(inputs.len() as u32);
    let more = parts.len() as u32 - 1;
    let old = w.inputs.len() as u32;
    // Sources of inputs move behind the parts, those of stages behind the new stage, too.
    let up = |s: Source| match s {
        Source(0) => made,
        Source(i) if i < old => Source(i + more),
        Source(i) => Source(i + more + 1),
    };
    let mut stages = vec![Stage {
        name: STAGE.into(),
        dtype: DType::F32,
        axes,
        reduction: None,
        body: chosen(dim, parts, &own),
    }];
    stages.extend(w.stages.iter().map(|s| Stage { body: s.body.map_sources(up), ..s.clone() }));
    checked(Workload { inputs, stages, ..w })
}

/// The element at a place, of the part that it is in.
fn chosen(dim: usize, parts: &[i64], at: &[Affine]) -> Expr {
    let mut ends: Vec<i64> = parts.to_vec();
    (1..ends.len()).for_each(|i| ends[i] += ends[i - 1]);
    parts.iter().zip(ends).enumerate().rev().fold(Expr::Const(0.0), |other, (i, (extent, end))| {
        let mut index = at.to_vec();
        index[dim] = at[dim].plus(extent - end);
        let conds = vec![Cond { index: index[dim].clone(), low: 0, high: *extent }];
        let then = Expr::load(Source(i as u32), index);
        Expr::Select { conds, then: Box::new(then), other: Box::new(other) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::joined::examples::{conv, numbers};

    #[test]
    fn it_is_the_operator_of_the_whole() {
        for (r, stride) in [(1, 1), (3, 2)] {
            let whole = conv(7, 4, r, 1, stride);
            let parts = [3, 1, 2, 1];
            let w = in_parts(whole.clone(), 1, &parts).unwrap();
            assert_eq!(Workload::parse(&w.to_string()).unwrap(), w);
            let mut all = numbers(&whole, 0);
            // A stage rounds what it hands on.
            all[0].iter_mut().for_each(|x| *x = f64::from(*x as f32));
            let places = all[0].len() / 14;
            let mut first = 0;
            let mut inputs: Vec<Vec<f64>> = Vec::new();
            for p in parts {
                let of = |n: usize| {
                    let at = (7 * n + first) * places;
                    all[0][at..at + p as usize * places].to_vec()
                };
                inputs.push([of(0), of(1)].concat());
                first += p as usize;
            }
            inputs.extend(all[1..].iter().cloned());
            assert_eq!(w.evaluate(&inputs), whole.evaluate(&all), "{w}");
        }
    }

    #[test]
    fn parts_are_all_of_what_is_read() {
        for parts in [&[3, 3][..], &[7], &[8, -1], &[3, 5]] {
            assert!(in_parts(conv(7, 4, 1, 1, 1), 1, parts).is_err());
        }
        assert!(in_parts(conv(7, 4, 1, 1, 1), 5, &[3, 4]).is_err());
    }
}
