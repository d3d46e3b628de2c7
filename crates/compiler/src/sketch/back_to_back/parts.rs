//! Cutting two operators into parts along a shared axis, for `back_to_back.rs`: the workload (a
//! tensor expression) of one part of an operator, and where each tensor's part lies in the whole
//! tensor.
//!
//! Input: the workloads of two operators and the axis that both share; output: workloads with that
//! axis cut to the size of a part, and a [`Cut`] for each tensor, by which the loop over parts
//! offsets the accesses of both nests.

use super::Place;
use squall_core::Workload;
use squall_core::expr::{Affine, Expr, Source, Var};
use squall_core::workload::Stage;
use std::collections::HashMap;

/// How a tensor is cut into parts.
pub struct Cut {
    /// The dimension that is cut.
    dim: usize,
    /// The extent of that dimension in one part.
    extent: i64,
    /// The extents of the memory that a part lies in, as its operator's kernel knows them.
    memory: Vec<i64>,
    /// Whether `memory` has the extents of a larger box, which holds all parts.
    is_box: bool,
}

impl Cut {
    /// Grows `shape`, the shape of one part as an operator's kernel sees it, to that of all parts,
    /// and returns where a part lies in it. `None` where the kernel has merged the cut dimension
    /// with others.
    pub fn placed(&self, shape: &mut [i64], count: i64) -> Option<Place> {
        let before: i64 = self.memory[..self.dim].iter().product();
        let own = self.memory[self.dim];
        let outside = |d: usize| shape[..d].iter().product::<i64>();
        let is_own = |d: &usize| shape[*d] == own && outside(*d) == before;
        if let Some(dim) = (0..shape.len()).find(is_own) {
            if !self.is_box {
                shape[dim] *= count;
            }
            return Some(Place::Along { dim, step: self.extent });
        }
        // Whole parts lie one behind the other.
        let dim = shape.iter().position(|&e| e > 1).filter(|_| before == 1 && !self.is_box)?;
        let step = shape[dim];
        shape[dim] *= count;
        Some(Place::Along { dim, step })
    }
}

/// The workload with these dimensions cut to an extent. Tensors that lie in a larger box keep their
/// place in it.
pub fn sized(w: &Workload, dims: &[Option<usize>], extent: i64) -> Workload {
    let mut part = w.clone();
    for (input, dim) in part.inputs.iter_mut().zip(dims) {
        if let Some(d) = dim {
            input.shape[*d] = extent;
        }
    }
    for (stage, dim) in part.stages.iter_mut().zip(&dims[w.inputs.len()..]) {
        if let Some(d) = dim {
            stage.axes[*d].extent = extent;
        }
    }
    part
}

/// Where the parts of the inputs and of the result lie.
pub fn cuts(part: &Workload, dims: &[Option<usize>]) -> HashMap<String, Cut> {
    let output = part.output();
    let inputs = part.inputs.iter().map(|i| (&i.name, i.shape.clone()));
    let mut tensors: Vec<_> = inputs.zip(dims).collect();
    tensors.extend(dims.last().map(|dim| ((&output.name, output.shape()), dim)));
    let cut = |((name, shape), dim): ((&String, Vec<i64>), &Option<usize>)| {
        let (dim, is_box) = ((*dim)?, part.rooms.contains_key(name));
        let cut = Cut { dim, extent: shape[dim], memory: part.memory(name, &shape), is_box };
        Some((name.clone(), cut))
    };
    tensors.into_iter().filter_map(cut).collect()
}

/// Puts a dimension of what lies between last, in both operators.
pub fn put_last(halves: &mut [Workload; 2], dim: usize) -> Option<()> {
    let [first, second] = halves;
    let made = first.output().shape();
    let order: Vec<usize> = (0..made.len()).filter(|&d| d != dim).chain([dim]).collect();
    // The sums of the first operator have the same dimensions as its result.
    let alike = |w: &Workload, i: usize| w.stages[i].shape() == made;
    for i in (0..first.stages.len()).filter(|&i| alike(first, i)).collect::<Vec<_>>() {
        reorder(first, first.stage_source(i), &order);
    }
    reorder(second, Source(0), &order);
    // A padded copy has the order of the tensor that it pads.
    let Workload { stages, inputs, .. } = &*second;
    let is_padding = |s: &Stage| {
        s.reduction.is_none()
            && s.axes.len() == made.len()
            && s.body.loads().iter().any(|l| l.0 == Source(0))
            && s.body.loads().iter().all(|(source, index)| {
                let along = |(i, &d): (usize, &usize)| {
                    matches!(index[i].terms(), [] | [(_, 1)])
                        && index[i].terms().iter().all(|t| t.0.0 as usize == d)
                };
                *source != Source(0) || order.iter().enumerate().all(along)
            })
    };
    let count = stages.len().saturating_sub(1);
    let padding: Vec<usize> = (0..count).filter(|&i| is_padding(&stages[i])).collect();
    let first_stage = inputs.len();
    for i in padding {
        reorder(second, Source((first_stage + i) as u32), &order);
    }
    halves.iter().all(|w| w.check().is_ok() || !w.rooms.is_empty()).then_some(())
}

/// Puts the dimensions of an input or stage into another order, and changes all reads of it.
fn reorder(w: &mut Workload, source: Source, order: &[usize]) {
    let at = source.0 as usize;
    let inputs = w.inputs.len();
    match at.checked_sub(inputs) {
        None => w.inputs[at].shape = order.iter().map(|&d| w.inputs[at].shape[d]).collect(),
        Some(i) => {
            let s = &mut w.stages[i];
            s.axes = order.iter().map(|&d| s.axes[d].clone()).collect();
            let to = |v: Var| order.iter().position(|&d| d == v.0 as usize).unwrap_or(v.0 as usize);
            s.body = s.body.map_vars(|v| Affine::var(Var(to(v) as u32)));
        }
    }
    for s in &mut w.stages {
        s.body = s.body.rewrite(&mut Affine::clone, &mut |e| match e {
            Expr::Load { source: s, index } if s == source => {
                Expr::Load { source: s, index: order.iter().map(|&d| index[d].clone()).collect() }
            }
            e => e,
        });
    }
}
