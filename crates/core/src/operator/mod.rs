//! Builders of workloads (tensor expressions) in canonical form, one file for each kind of
//! operator: `Conv`, `MatMul`, `Pool`, `Softmax` and others. One computation has one text, so equal
//! kernels of two models, of another exporter and of an operator line are one task.
//!
//! A builder makes the workload of the operator alone; [`Epilogue::attach`] adds the elementwise
//! steps that follow it as one final stage (a bias, an activation), and `precede` adds those ahead
//! of it. `graph/src/candidate.rs` calls the builders for models, `frontend/src/ops` for operator
//! lines.

mod attention;
mod back_to_back;
mod bytes;
mod chain;
mod conv;
mod convolution;
mod elementwise;
mod few_bits;
mod format;
pub mod functions;
mod in_parts;
mod joined;
mod matmul;
mod normed;
mod pool;
mod prologue;
mod quantised;
mod range;
mod rotary;
mod rows;
mod separable;
mod window;
mod written_out;

pub use attention::attention;
pub use back_to_back::{between_operators, is_read_alone, operators, part_sizes, shared_axes};
pub use bytes::{BytePool, Gate, byte_sum, rounded_to_bytes, scaled_bytes};
pub use chain::{BACK_TO_BACK, CHAINS, SEPARABLE, chain};
pub use conv::Conv;
pub use convolution::{Channels, ConvAxis, Convolution, Direction};
pub use elementwise::elementwise;
pub use few_bits::{FewBits, FewBitsZero};
pub use format::{in_format, in_half, of_floats};
pub use in_parts::in_parts;
pub use matmul::MatMul;
pub use normed::{Normed, RowStep};
pub use pool::{Pool, PoolKind};
pub use quantised::{ByteRange, ByteResult, ByteSum, OFFSET_UNIT, sum_unit};
pub use range::{range_of, rounded_behind};
pub use rotary::Rotary;
pub use rows::{GroupNorm, LayerNorm, LpNorm, Reduce, ReduceOp, RmsNorm, Softmax};
pub use separable::{OverWindows, Place, PlaceProduct, Separable, SlidingWindow};

use crate::expr::{Affine, Expr, Source, Var};
use crate::workload::{Input, Stage, Workload};
use crate::{DType, TensorKind};
use std::collections::HashSet;

/// The most operations in a final stage; longer chains become tasks of their own.
const MOST_STEPS: u64 = 48;
/// The most tensors that a final stage reads beside the operator's value.
const MOST_OPERANDS: usize = 6;

/// A tensor that elementwise steps read beside the value they work on.
#[derive(Clone, Debug, PartialEq)]
pub struct Operand {
    /// Its name in the workload, with a number appended where the name is taken: `B` for a bias,
    /// `S` for a factor, `R` for data.
    pub name: &'static str,
    /// Whether it is data or a weight.
    pub kind: TensorKind,
    /// Its shape, which broadcasts to the output's as in NumPy.
    pub shape: Vec<i64>,
}

/// Elementwise steps after an operator.
#[derive(Clone, Debug, PartialEq)]
pub struct Epilogue {
    /// The tensors that are read beside the operator's value.
    pub operands: Vec<Operand>,
    /// The result at a point. Loads have no index: source 0 is the operator's value, source
    /// `i + 1` is operand `i`.
    pub body: Expr,
    /// Names of the steps, for names of tasks.
    pub tags: Vec<String>,
}

impl Epilogue {
    /// An epilogue without steps.
    pub fn none() -> Epilogue {
        Epilogue { operands: Vec::new(), body: placeholder(0), tags: Vec::new() }
    }

    /// Adds an operand and returns its placeholder in the body.
    pub fn operand(&mut self, name: &'static str, kind: TensorKind, shape: Vec<i64>) -> Expr {
        self.operands.push(Operand { name, kind, shape });
        placeholder(self.operands.len() as u32)
    }

    /// Whether there are no steps.
    pub fn is_none(&self) -> bool {
        self.body == placeholder(0)
    }

    /// Whether the steps are short enough for one stage.
    pub fn is_small(&self) -> bool {
        self.body.flop() <= MOST_STEPS && self.operands.len() <= MOST_OPERANDS
    }

    /// Whether the steps can follow the workload, whose result the graph sees as `shape`.
    pub fn fits(&self, w: &Workload, shape: &[i64]) -> bool {
        let axes = w.output().shape();
        let once = self.body.loads().iter().filter(|(s, _)| s.0 == 0).count() <= 1;
        // A final stage without a reduction is inlined into the steps, so they may read it only
        // once lest it is computed twice.
        (w.output().reduction.is_some() || once)
            && self.is_small()
            && self.operands.iter().all(|o| varies(&axes, shape, &o.shape).is_some())
    }

    /// The workload with the steps as its last stage. `shape` is the result's shape in the graph,
    /// which operands broadcast to; the workload may see other axes of the same elements.
    pub fn attach(&self, w: Workload, shape: &[i64]) -> Result<Workload, String> {
        if self.is_none() {
            return checked(w);
        }
        let Workload { kind, mut inputs, mut stages, foreign, rooms } = w;
        let (first, added) = (inputs.len() as u32, self.operands.len() as u32);
        let Some(mut last) = stages.pop() else { return Err("the operator has no stage".into()) };
        let extents = last.shape();
        let mut taken: HashSet<String> = inputs.iter().map(|i| i.name.clone()).collect();
        taken.extend(stages.iter().map(|s| s.name.clone()));
        let value_name = last.reduction.is_some().then(|| value_name(&kind));
        taken.extend(value_name.map(String::from));
        let mut loads = Vec::new();
        for o in &self.operands {
            let (input, load) = read(o, &extents, shape, &mut taken, Source(inputs.len() as u32))?;
            inputs.push(input);
            loads.push(load);
        }
        // Inputs are numbered before stages, so new inputs raise the numbers of the stages.
        let up = |s: Source| if s.0 >= first { Source(s.0 + added) } else { s };
        for s in stages.iter_mut().chain([&mut last]) {
            s.body = s.body.map_sources(up);
        }
        let value = match value_name {
            None => last.body.clone(),
            Some(name) => {
                let source = Source((inputs.len() + stages.len()) as u32);
                let index = (0..extents.len()).map(|i| Affine::var(Var(i as u32))).collect();
                stages.push(Stage { name: name.into(), ..last.clone() });
                Expr::Load { source, index }
            }
        };
        let body = substitute(&self.body, &|i| match i.checked_sub(1) {
            None => value.clone(),
            Some(o) => loads[o].clone(),
        });
        stages.push(Stage {
            name: "Y".into(),
            dtype: last.dtype,
            axes: last.axes,
            reduction: None,
            body,
        });
        checked(Workload { kind, inputs, stages, foreign, rooms })
    }
}

/// The name of the reduction's stage where a final stage follows it.
fn value_name(kind: &str) -> &'static str {
    match kind {
        "matmul" | "batch_matmul" => "T",
        "pool" | "reduce" => "S",
        _ => "C",
    }
}

/// The placeholder of the operator's value (0) or of an operand (from 1) in steps.
pub fn placeholder(i: u32) -> Expr {
    Expr::Load { source: Source(i), index: Vec::new() }
}

/// Replaces placeholders by the expressions that they stand for.
pub fn substitute(body: &Expr, by: &dyn Fn(usize) -> Expr) -> Expr {
    body.rewrite(&mut Affine::clone, &mut |e| match e {
        Expr::Load { source, index } if index.is_empty() => by(source.0 as usize),
        e => e,
    })
}

/// A name that is not taken yet, which is taken then.
fn fresh(wished: &str, taken: &mut HashSet<String>) -> String {
    let numbered = (2..).map(|i| format!("{wished}{i}"));
    let mut names = std::iter::once(wished.to_string()).chain(numbered);
    let name = names.find(|n| !taken.contains(n)).unwrap_or_default();
    taken.insert(name.clone());
    name
}

/// The workload if it is valid and its tensors are not too large for a machine.
fn checked(w: Workload) -> Result<Workload, String> {
    w.check().map_err(|e| e.to_string())?;
    match w.inputs.iter().find(|i| i.shape.iter().map(|&e| e as f64).product::<f64>() > 1e12) {
        Some(i) => Err(format!("input `{}` of shape {:?} is too large", i.name, i.shape)),
        None => Ok(w),
    }
}

/// Reads the text of a workload that a builder wrote.
fn written(text: &str) -> Result<Workload, String> {
    checked(Workload::parse(text).map_err(|e| e.to_string())?)
}

/// The operand as an input, and its load over axes of the given extents.
fn read(
    o: &Operand,
    axes: &[i64],
    shape: &[i64],
    taken: &mut HashSet<String>,
    source: Source,
) -> Result<(Input, Expr), String> {
    let varies = varies(axes, shape, &o.shape)
        .ok_or_else(|| format!("an operand {:?} does not fit the output {shape:?}", o.shape))?;
    let name = (1..)
        .map(|n| if n == 1 { o.name.into() } else { format!("{}{n}", o.name) })
        .find(|n| !taken.contains(n));
    let name = name.unwrap_or_else(|| o.name.into());
    taken.insert(name.clone());
    // Data that varies along all axes has the output's axes; of other operands, axes of extent 1
    // are left out.
    let full = o.kind == TensorKind::Data && axes.iter().zip(&varies).all(|(&e, &v)| v || e == 1);
    let kept: Vec<usize> =
        (0..axes.len()).filter(|&i| full || (varies[i] && axes[i] > 1)).collect();
    let (extents, index) = match kept.is_empty() {
        true => (vec![1], vec![Affine::constant(0)]),
        false => (
            kept.iter().map(|&i| axes[i]).collect(),
            kept.iter().map(|&i| Affine::var(Var(i as u32))).collect(),
        ),
    };
    Ok((
        Input { name, dtype: DType::F32, shape: extents, kind: o.kind },
        Expr::Load { source, index },
    ))
}

/// The axes of a stage along which an operand varies. The stage's axes and the graph's shape may
/// divide the same elements differently. `None` where it varies along part of an axis only, or does
/// not broadcast.
fn varies(axes: &[i64], shape: &[i64], operand: &[i64]) -> Option<Vec<bool>> {
    let mut operand = operand;
    while operand.len() > shape.len() {
        match operand.split_first() {
            Some((1, rest)) => operand = rest,
            _ => return None,
        }
    }
    if axes.iter().product::<i64>() != shape.iter().product::<i64>() {
        return None;
    }
    // Dimensions as ranges of strides, with whether the operand varies along them.
    let mut dims = Vec::new();
    let mut stride = 1;
    for (i, &extent) in shape.iter().enumerate().rev() {
        let own = (i + operand.len()).checked_sub(shape.len()).map_or(1, |j| operand[j]);
        if own != 1 && own != extent {
            return None;
        }
        if extent > 1 {
            dims.push((stride, stride * extent, own != 1));
        }
        stride *= extent;
    }
    let mut out = vec![false; axes.len()];
    let mut low = 1;
    for (i, &extent) in axes.iter().enumerate().rev() {
        let high = low * extent;
        let mut flags = dims.iter().filter(|d| d.0 < high && d.1 > low).map(|d| d.2);
        if let Some(first) = flags.next() {
            if flags.any(|f| f != first) {
                return None;
            }
            out[i] = first && extent > 1;
        }
        low = high;
    }
    Some(out)
}

#[cfg(test)]
mod tests;
