//! Canonical workloads: one text for one computation, so that equal kernels of a model, of
//! another exporter and of an operator line are one task.
//!
//! An operator builds its [`Core`]; [`Core::finish`] adds the elementwise steps that follow it as
//! one final stage.

mod conv;
mod elementwise;
pub(crate) mod functions;
mod matmul;
mod pool;
mod rows;

pub(crate) use conv::{Conv, Window};
pub(crate) use elementwise::elementwise;
pub(crate) use matmul::MatMul;
pub(crate) use pool::{Pool, PoolKind};
pub(crate) use rows::{ReduceOp, layernorm, reduce, softmax};

use squall_core::expr::{Affine, Expr, Source, Var};
use squall_core::workload::{Input, Stage, Workload};
use squall_core::{DType, TensorKind};
use std::collections::HashSet;

/// Longer chains of steps, and steps that read more tensors, become kernels of their own.
pub(crate) const MOST_STEPS: u64 = 48;
pub(crate) const MOST_OPERANDS: usize = 6;

/// A tensor that elementwise steps read beside the value they work on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Operand {
    /// The name wanted for it: `B` a bias, `S` a scale, `T` a shift, `R` data.
    pub name: &'static str,
    pub kind: TensorKind,
    /// Broadcasts to the result, as in NumPy.
    pub shape: Vec<i64>,
}

/// Elementwise steps after an operator.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Epilogue {
    pub operands: Vec<Operand>,
    /// The result at a point. Loads without an index are placeholders: source 0 the operator's
    /// value, source `i + 1` operand `i`. Loads with one read the operator's own stages.
    pub body: Expr,
    /// What the steps are called, for names of tasks.
    pub tags: Vec<String>,
}

/// What stands for the value (0) or an operand (from 1) in steps.
pub(crate) fn placeholder(i: usize) -> Expr {
    Expr::Load { source: Source(i as u32), index: Vec::new() }
}

impl Epilogue {
    pub fn none() -> Epilogue {
        Epilogue { operands: Vec::new(), body: placeholder(0), tags: Vec::new() }
    }

    /// Adds an operand and gives what stands for it in the body.
    pub fn operand(&mut self, name: &'static str, kind: TensorKind, shape: Vec<i64>) -> Expr {
        self.operands.push(Operand { name, kind, shape });
        placeholder(self.operands.len())
    }

    /// Replaces the body by `f` of it.
    pub fn then(&mut self, tag: &str, f: impl FnOnce(Expr) -> Expr) {
        self.body = f(std::mem::replace(&mut self.body, Expr::Const(0.0)));
        if !tag.is_empty() {
            self.tags.push(tag.into());
        }
    }
}

/// An operator without what follows it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Core {
    /// The last stage is the value that steps work on.
    pub workload: Workload,
    /// Steps that are part of the operator: a bias, the division of a mean.
    pub own: Epilogue,
    /// Kind and sizes, for names of tasks.
    pub label: String,
}

impl Core {
    /// Reads the text of a workload. `spaces` are the extents of its stages' iteration spaces,
    /// checked first: sizes come from files.
    fn written(text: &str, spaces: &[&[i64]], label: String) -> Result<Core, String> {
        for s in spaces {
            if s.iter().any(|&e| e < 1) {
                return Err("a dimension is empty".into());
            }
            if s.iter().map(|&e| e as f64).product::<f64>() > 1e15 {
                return Err("the iteration space is too large".into());
            }
        }
        let workload = Workload::parse(text).map_err(|e| e.to_string())?;
        Ok(Core { workload, own: Epilogue::none(), label })
    }

    /// Extents of the value's axes.
    pub fn axes(&self) -> Vec<i64> {
        self.workload.output().shape()
    }

    /// The workload with its own steps, then others. `shape` is the result's shape in the graph,
    /// which operands broadcast to; the workload may see other axes of the same elements.
    pub fn finish(self, steps: Option<Epilogue>, shape: &[i64]) -> Result<Workload, String> {
        let mut all = self.own;
        if let Some(steps) = steps {
            let (before, body) = (all.operands.len(), all.body);
            all.operands.extend(steps.operands);
            all.body = substitute(&steps.body, &|i| if i == 0 { body.clone() } else { placeholder(before + i) });
        }
        let Workload { kind, mut inputs, mut stages } = self.workload;
        let Some(last) = stages.last_mut() else { return Err("the operator has no stage".into()) };
        if all.body == placeholder(0) {
            last.name = "Y".into();
            return checked(Workload { kind, inputs, stages });
        }
        let last = last.clone();
        let (first, added) = (inputs.len() as u32, all.operands.len() as u32);
        let mut taken: HashSet<String> = inputs.iter().map(|i| i.name.clone()).chain(stages.iter().map(|s| s.name.clone())).collect();
        taken.insert("Y".into());
        let mut loads = Vec::new();
        for o in &all.operands {
            let varies = varies(&last.shape(), shape, &o.shape)
                .ok_or_else(|| format!("an operand of shape {:?} does not fit the result's shape {shape:?}", o.shape))?;
            let (input, load) = read(o, &last.shape(), &varies, &mut taken, Source(inputs.len() as u32));
            inputs.push(input);
            loads.push(load);
        }
        // Inputs are numbered before stages: the new ones push the stages up.
        let shift = |e: &Expr| {
            e.rewrite(&mut Affine::clone, &mut |e| match e {
                Expr::Load { source, index } if source.0 >= first && !index.is_empty() => Expr::Load { source: Source(source.0 + added), index },
                e => e,
            })
        };
        for s in &mut stages {
            s.body = shift(&s.body);
        }
        let own = Source((inputs.len() + stages.len() - 1) as u32);
        let value = Expr::Load { source: own, index: (0..last.axes.len()).map(|i| Affine::var(Var(i as u32))).collect() };
        let body = substitute(&shift(&all.body), &|i| match i.checked_sub(1) {
            None => value.clone(),
            Some(o) => loads.get(o).cloned().unwrap_or(Expr::Const(f64::NAN)),
        });
        stages.push(Stage { name: "Y".into(), dtype: last.dtype, axes: last.axes, reduction: None, body });
        checked(Workload { kind, inputs, stages })
    }
}

/// Replaces placeholders by what they stand for.
pub(crate) fn substitute(body: &Expr, by: &dyn Fn(usize) -> Expr) -> Expr {
    match body {
        Expr::Load { source, index } if index.is_empty() => by(source.0 as usize),
        Expr::Unary(op, a) => Expr::unary(*op, substitute(a, by)),
        Expr::Binary(op, a, b) => Expr::binary(*op, substitute(a, by), substitute(b, by)),
        e => e.clone(),
    }
}

fn checked(w: Workload) -> Result<Workload, String> {
    w.check().map_err(|e| e.to_string())?;
    Ok(w)
}

/// The operand as an input, and its load over axes of the given extents.
fn read(o: &Operand, axes: &[i64], varies: &[bool], taken: &mut HashSet<String>, source: Source) -> (Input, Expr) {
    // A product's second factor is `B` already: its bias is spelled out.
    let other = (o.name == "B").then(|| "bias".to_string());
    let names = std::iter::once(o.name.to_string()).chain(other).chain((2..).map(|n| format!("{}{n}", o.name)));
    let name = names.into_iter().find(|n| !taken.contains(n)).unwrap_or_default();
    taken.insert(name.clone());
    // Data that varies along all axes is seen exactly as the result; else axes drop out.
    let full = o.kind == TensorKind::Data && axes.iter().zip(varies).all(|(&e, &v)| v || e == 1);
    let kept: Vec<usize> = (0..axes.len()).filter(|&i| full || (varies[i] && axes[i] > 1)).collect();
    let (extents, index) = match kept.is_empty() {
        true => (vec![1], vec![Affine::constant(0)]),
        false => (kept.iter().map(|&i| axes[i]).collect(), kept.iter().map(|&i| Affine::var(Var(i as u32))).collect()),
    };
    (Input { name, dtype: DType::F32, shape: extents, kind: o.kind }, Expr::Load { source, index })
}

/// Which of a stage's axes an operand varies along, where the stage's axes and the graph's shape
/// cut the same elements differently. `None` where it varies along part of an axis only, or does
/// not broadcast.
pub(crate) fn varies(axes: &[i64], shape: &[i64], operand: &[i64]) -> Option<Vec<bool>> {
    let extra = operand.len().saturating_sub(shape.len());
    if operand[..extra].iter().any(|&e| e != 1) || axes.iter().product::<i64>() != shape.iter().product::<i64>() {
        return None;
    }
    let operand = &operand[extra..];
    // The graph's dimensions as ranges of strides, with whether the operand varies along them.
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

/// `a=1` names of axes by position: `i`, `j`, .. and numbered after the alphabet's end.
fn axis_name(i: usize) -> String {
    const NAMES: [&str; 8] = ["i", "j", "k", "l", "m", "n", "o", "p"];
    NAMES.get(i).map_or_else(|| format!("i{i}"), |n| (*n).into())
}

#[cfg(test)]
mod tests;
