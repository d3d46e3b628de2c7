//! Elementwise steps ahead of an operator: the values that a convolution or a product reads are
//! computed where it reads them, for example a batch normalisation and its ReLU, or the gate of a
//! channel. Input: the steps, and the operator's workload; output: one workload with a stage of the
//! steps in front, or the reason why it is not possible. `graph/src/candidate.rs` calls it.

use super::{Epilogue, checked, read, substitute};
use crate::expr::{Affine, Expr, Source, Var};
use crate::workload::{Axis, Stage, Workload};
use crate::{DType, TensorKind};
use std::collections::HashSet;

/// The name of the stage that computes the values that the operator reads.
const STAGE: &str = "N";

impl Epilogue {
    /// The workload whose first input is what these steps make of their operands, the first of
    /// which takes its place and has its shape. `shape` is what the graph sees of it. A stage that
    /// pads the input computes the steps where it reads; else they are a stage of their own. Not
    /// possible where the operator reads its first input in several places, or the steps read
    /// theirs in several.
    pub fn precede(&self, w: Workload, shape: &[i64]) -> Result<Workload, String> {
        let Workload { kind, inputs, mut stages, foreign, rooms } = w;
        let [first, ..] = &inputs[..] else { return Err("the operator reads nothing".into()) };
        let (own, extents) = (first.clone(), first.shape.clone());
        if own.kind != TensorKind::Data || foreign.is_some() || !self.is_small() {
            return Err("steps come ahead of data, and are few".into());
        }
        let count = |source: u32, e: &Expr| e.loads().iter().filter(|l| l.0.0 == source).count();
        let reads: usize = stages.iter().map(|s| count(0, &s.body)).sum();
        if reads != 1 || count(1, &self.body) != 1 {
            return Err("what comes before is computed once".into());
        }
        let mut taken: HashSet<String> = inputs[1..].iter().map(|i| i.name.clone()).collect();
        taken.extend(stages.iter().map(|s| s.name.clone()));
        taken.extend([STAGE.into(), own.name.clone()]);
        // The operands come first, the one that is computed with under the input's name.
        let (mut added, mut loads) = (Vec::new(), Vec::new());
        for (i, o) in self.operands.iter().enumerate() {
            let (mut input, load) = read(o, &extents, shape, &mut taken, Source(i as u32))?;
            if i == 0 {
                if input.shape != extents || input.kind != TensorKind::Data {
                    return Err("the first operand has another shape than the input".into());
                }
                input.name.clone_from(&own.name);
            }
            added.push(input);
            loads.push(load);
        }
        let body = substitute(&self.body, &|i| loads[i.saturating_sub(1)].clone());
        let more = added.len() as u32 - 1;
        let padded = pads(&stages);
        let new_stage = u32::from(!padded);
        let (old, total) = (inputs.len() as u32, (inputs.len() - 1 + added.len()) as u32);
        let mut up = |e: Expr| match e {
            Expr::Load { source: Source(0), index } if padded => {
                body.map_vars(|v| index[v.0 as usize].clone())
            }
            Expr::Load { source: Source(0), index } => Expr::Load { source: Source(total), index },
            Expr::Load { source, index } => {
                let by = more + if source.0 >= old { new_stage } else { 0 };
                Expr::Load { source: Source(source.0 + by), index }
            }
            e => e,
        };
        for s in &mut stages {
            s.body = s.body.rewrite(&mut Affine::clone, &mut up);
        }
        if !padded {
            let axes = axes(&extents, &stages);
            let stage = Stage {
                name: STAGE.into(),
                dtype: DType::F32,
                axes,
                reduction: None,
                body: body.clone(),
            };
            stages.insert(0, stage);
        }
        added.extend(inputs.into_iter().skip(1));
        checked(Workload { kind, inputs: added, stages, foreign, rooms })
    }
}

/// Whether the first stage copies the first input into a frame.
fn pads(stages: &[Stage]) -> bool {
    stages.first().is_some_and(|s| {
        let loads = s.body.loads();
        s.reduction.is_none()
            && matches!(s.body, Expr::Select { .. })
            && matches!(loads[..], [(Source(0), _)])
    })
}

/// Axes of these extents; where the operator reads along one of its own alone, with its name.
pub(super) fn axes(extents: &[i64], stages: &[Stage]) -> Vec<Axis> {
    let mut names: Vec<Option<String>> = vec![None; extents.len()];
    for s in stages {
        s.body.visit(&mut |e| {
            let Expr::Load { index, .. } = e else { return };
            if index.len() != extents.len() {
                return;
            }
            for (d, a) in index.iter().enumerate() {
                let named = a.as_var().and_then(|Var(v)| s.all_axes().nth(v as usize));
                let taken = named.is_some_and(|n| names.contains(&Some(n.name.clone())));
                if let Some(axis) = named.filter(|n| !taken && n.extent == extents[d]) {
                    names[d].get_or_insert(axis.name.clone());
                }
            }
        });
    }
    let fallback = |d: usize| format!("i{d}");
    let named = names.into_iter().zip(extents).enumerate();
    named.map(|(d, (n, &e))| Axis::new(n.unwrap_or_else(|| fallback(d)), e)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::{Conv, functions as f};

    /// max(x * s + t, 0), with a factor and an addend for each channel.
    fn normalised(shape: &[i64], channels: i64) -> Epilogue {
        let mut steps = Epilogue::none();
        let x = steps.operand("X", TensorKind::Data, shape.to_vec());
        let s = steps.operand("S", TensorKind::Weight, vec![channels, 1, 1]);
        let t = steps.operand("T", TensorKind::Weight, vec![channels, 1, 1]);
        steps.body = f::relu(f::add(f::mul(x, s), t));
        steps
    }

    fn conv(kernel: i64, pad: i64, groups: i64) -> Conv {
        Conv {
            n: 1,
            c: 4,
            h: 3,
            w: 5,
            k: 6,
            r: kernel,
            s: kernel,
            stride: [1, 1],
            pads: [pad; 4],
            dilation: [1, 1],
            groups,
        }
    }

    #[test]
    fn what_is_read_is_computed_first() {
        let shape = [1, 4, 3, 5];
        let numbers =
            |n: i64| (0..n).map(|i| ((i * 37 % 19) - 9) as f64 / 4.0).collect::<Vec<f64>>();
        for (kernel, pad, groups) in [(1, 0, 1), (3, 1, 1), (3, 0, 1), (1, 0, 2), (3, 1, 2)] {
            let plain = conv(kernel, pad, groups).workload().unwrap();
            let w = normalised(&shape, 4).precede(plain.clone(), &shape).unwrap();
            assert_eq!(Workload::parse(&w.to_string()).unwrap(), w);
            let names: Vec<&str> = w.inputs.iter().map(|i| i.name.as_str()).collect();
            assert_eq!(names, ["X", "S", "T", "W"]);
            // Padding is not normalised.
            assert_eq!(w.stages.len(), plain.stages.len() + usize::from(pad == 0));
            let (x, s, t) = (numbers(60), numbers(4), numbers(4));
            let weights = numbers(plain.inputs[1].shape.iter().product());
            let at = |i: usize| (x[i] * s[i / 15] + t[i / 15]).max(0.0);
            let before: Vec<f64> = (0..60).map(|i| f64::from(at(i) as f32)).collect();
            let want = plain.evaluate(&[before, weights.clone()]);
            let got = w.evaluate(&[x, s, t, weights]);
            for (a, b) in got.iter().zip(&want) {
                assert!((a - b).abs() < 1e-5, "{a} {b} of {w}");
            }
        }
    }

    #[test]
    fn what_would_be_computed_twice_is_refused() {
        let shape = [1, 4, 3, 5];
        let plain = conv(1, 0, 1).workload().unwrap();
        let mut twice = normalised(&shape, 4);
        let x = crate::operator::placeholder(1);
        twice.body = f::mul(x.clone(), x);
        assert!(twice.precede(plain, &shape).is_err());
    }
}
