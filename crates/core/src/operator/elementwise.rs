//! Elementwise kernels: any expression of tensors that broadcast to one shape, such as `x * s + t`.
//! Input: the steps as one expression over operands, and the output's shape; output: a workload
//! whose axes are merged where all operands traverse them alike, so that equal computations over
//! `[2, 3, 4]` and `[24]` are one task.

use super::{Epilogue, checked, substitute, varies};
use crate::expr::{Affine, Expr, Source, Var};
use crate::workload::{Axis, Input, Stage};
use crate::{DType, TensorKind, Workload};

/// The workload of steps that read operands only, over the output's shape. Axes that all operands
/// traverse alike are merged into one.
pub fn elementwise(steps: &Epilogue, shape: &[i64]) -> Result<Workload, String> {
    if shape.iter().any(|e| !(1..=1 << 40).contains(e)) {
        return Err(format!("shape {shape:?} has an empty or unknown dimension"));
    }
    let operands: Option<Vec<Vec<bool>>> =
        steps.operands.iter().map(|o| varies(shape, shape, &o.shape)).collect();
    let operands = operands.ok_or("an operand does not broadcast to the output")?;
    let mut axes: Vec<(i64, Vec<bool>)> = Vec::new();
    for (i, &extent) in shape.iter().enumerate().filter(|(_, e)| **e != 1) {
        let seen: Vec<bool> = operands.iter().map(|o| o[i]).collect();
        match axes.last_mut() {
            Some(last) if last.1 == seen => {
                last.0 = last.0.checked_mul(extent).ok_or("the output is too large")?
            }
            _ => axes.push((extent, seen)),
        }
    }
    if axes.is_empty() {
        axes.push((1, vec![true; operands.len()]));
    }
    const NAMES: [&str; 6] = ["i", "j", "k", "l", "m", "n"];
    if axes.len() > NAMES.len() {
        return Err(format!("operands broadcast in a pattern of {} axes", axes.len()));
    }
    let mut inputs: Vec<Input> = Vec::new();
    let mut loads = Vec::new();
    for (o, operand) in steps.operands.iter().enumerate() {
        let kept: Vec<usize> = (0..axes.len()).filter(|&i| axes[i].1[o]).collect();
        let (extents, index) = match kept.is_empty() {
            true => (vec![1], vec![Affine::constant(0)]),
            false => (
                kept.iter().map(|&i| axes[i].0).collect(),
                kept.iter().map(|&i| Affine::var(Var(i as u32))).collect(),
            ),
        };
        // The first data operand that varies along all axes is `X`; the others keep their names.
        let subject = operand.kind == TensorKind::Data
            && kept.len() == axes.len()
            && !inputs.iter().any(|i| i.name == "X");
        let base = if subject { "X" } else { operand.name };
        let free = (1..).map(|n| if n == 1 { base.to_string() } else { format!("{base}{n}") });
        let name =
            free.into_iter().find(|n| inputs.iter().all(|i| i.name != *n)).unwrap_or_default();
        loads.push(Expr::Load { source: Source(o as u32), index });
        inputs.push(Input { name, dtype: DType::F32, shape: extents, kind: operand.kind });
    }
    let body = substitute(&steps.body, &|i| loads[i.saturating_sub(1)].clone());
    let axes = axes.iter().zip(NAMES).map(|((extent, _), name)| Axis::new(name, *extent)).collect();
    let stage = Stage { name: "Y".into(), dtype: DType::F32, axes, reduction: None, body };
    let (kind, stages) = ("elementwise".into(), vec![stage]);
    checked(Workload { kind, inputs, stages, ..Workload::default() })
}
