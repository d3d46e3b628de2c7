//! Elementwise kernels: one stage over as few axes as the operands' broadcasting allows.

use super::{Core, Epilogue, axis_name, read, substitute, varies};
use squall_core::expr::{Expr, Source};
use squall_core::workload::{Axis, Stage, Workload};
use squall_core::{DType, TensorKind};
use std::collections::HashSet;

/// The steps as a kernel of their own over the graph's `shape`; they have no value to follow.
pub(crate) fn elementwise(shape: &[i64], steps: &Epilogue) -> Result<Core, String> {
    let flags = steps.operands.iter().map(|o| varies(shape, shape, &o.shape)).collect::<Option<Vec<_>>>();
    let Some(flags) = flags else { return Err(format!("its operands do not broadcast to {shape:?}")) };
    if shape.iter().any(|&e| e < 1) {
        return Err("a dimension is empty".into());
    }
    // Neighbouring dimensions along which all operands vary alike are one axis.
    let mut axes: Vec<(i64, Vec<bool>)> = Vec::new();
    for (d, &extent) in shape.iter().enumerate().filter(|(_, e)| **e > 1) {
        let column: Vec<bool> = flags.iter().map(|f| f[d]).collect();
        match axes.last_mut() {
            Some(last) if last.1 == column => last.0 = last.0.saturating_mul(extent),
            _ => axes.push((extent, column)),
        }
    }
    if axes.is_empty() {
        axes.push((1, vec![false; flags.len()]));
    }
    let extents: Vec<i64> = axes.iter().map(|a| a.0).collect();
    let mut taken = HashSet::from(["Y".to_string()]);
    let (mut inputs, mut loads) = (Vec::new(), Vec::new());
    let mut first = true;
    for (i, o) in steps.operands.iter().enumerate() {
        let mut o = o.clone();
        if o.kind == TensorKind::Data && std::mem::take(&mut first) {
            o.name = "X";
        }
        let varies: Vec<bool> = axes.iter().map(|a| a.1[i]).collect();
        let (input, load) = read(&o, &extents, &varies, &mut taken, Source(inputs.len() as u32));
        inputs.push(input);
        loads.push(load);
    }
    let body = substitute(&steps.body, &|i| i.checked_sub(1).and_then(|o| loads.get(o).cloned()).unwrap_or(Expr::Const(f64::NAN)));
    let sizes: Vec<String> = extents.iter().map(i64::to_string).collect();
    let axes = extents.iter().enumerate().map(|(i, &e)| Axis::new(axis_name(i), e)).collect();
    let stage = Stage { name: "Y".into(), dtype: DType::F32, axes, reduction: None, body };
    let workload = Workload { kind: "elementwise".into(), inputs, stages: vec![stage] };
    if extents.iter().map(|&e| e as f64).product::<f64>() > 1e15 {
        return Err("the iteration space is too large".into());
    }
    let label = format!("elementwise_{}", sizes.join("x"));
    Ok(Core { workload, own: Epilogue::none(), label })
}
