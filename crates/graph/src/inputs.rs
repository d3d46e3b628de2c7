//! Random values for model inputs that the user does not give: the same in every run, and legal for
//! the operators that read them (an index stays below the extent that it indexes). Input: an
//! assignment (the kernels that cover a model, and its layouts) and the number of an input; output:
//! a constant. `squall/src/inference/network` runs and times networks with them.

use crate::assignment::Assignment;
use crate::candidate::root;
use crate::weights::{random_input, random_integers};
use squall_core::DType;
use squall_core::graph::{Constant, Model, ValueId, infer::axis_of};
use std::collections::HashSet;

/// Operators whose results are numbers of their first operand, at one place or several.
const HANDS_ON: &[&str] = &[
    "Cast",
    "Identity",
    "Reshape",
    "Flatten",
    "Squeeze",
    "Unsqueeze",
    "Expand",
    "Transpose",
    "Slice",
    "Tile",
    "Concat",
    "Split",
];

impl Assignment {
    /// Numbers for an input where the user gives none. Floats lie between -1 and 1; whole numbers
    /// are 0 or 1, and below the extent that they index where they are indices.
    pub fn random_constant(&self, index: usize) -> Constant {
        let model = self.model();
        let shape = self.inputs.get(index).map_or(Vec::new(), |(_, shape)| shape.clone());
        let count = shape.iter().product::<i64>().max(0) as usize;
        let id = model.inputs.get(index).copied();
        match id.and_then(|id| model.values[id].dtype) {
            Some(DType::Bool) => {
                let data = random_integers(count, 2).into_iter().map(|n| n == 1).collect();
                Constant::Bool { shape, data }
            }
            Some(d) if d.is_integer() => {
                let below = id.and_then(|id| indexed(model, id)).unwrap_or(2);
                Constant::I64 { shape, data: random_integers(count, below.max(1)) }
            }
            d => Constant::F32 { shape, data: random_input(count) }.kept_as(d),
        }
    }
}

/// The least extent that the numbers of a value index; `None` where they are no indices.
pub fn indexed(model: &Model, id: ValueId) -> Option<i64> {
    let mut seen: HashSet<ValueId> = HashSet::from([root(model, id)]);
    let mut least: Option<i64> = None;
    // Nodes stand in an order of execution.
    for node in &model.nodes {
        let reads = |i: usize| {
            node.inputs.get(i).copied().flatten().is_some_and(|v| seen.contains(&root(model, v)))
        };
        let data = node.inputs.first().copied().flatten();
        let data = data.and_then(|v| model.values[v].shape.as_deref()).unwrap_or(&[]);
        let attribute = |name: &str| match node.attributes.get(name) {
            Some(squall_core::graph::Attribute::Int(i)) => *i,
            _ => 0,
        };
        let along_axis = || axis_of(attribute("axis"), data.len()).ok().map(|a| data[a]);
        let bound = match node.op.as_str() {
            "Gather" | "GatherElements" | "ScatterElements" | "Scatter" if reads(1) => along_axis(),
            "GatherND" if reads(1) => {
                data.iter().skip(attribute("batch_dims").max(0) as usize).min().copied()
            }
            "ScatterND" if reads(1) => data.iter().min().copied(),
            _ => None,
        };
        least = match (least, bound) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        if HANDS_ON.contains(&node.op.as_str()) && (0..node.inputs.len()).any(reads) {
            seen.extend(node.outputs.iter().map(|o| root(model, *o)));
        }
    }
    least
}
