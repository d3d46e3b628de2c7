//! The operators of ONNX that are known: one [`OpEntry`] each, in its family's file. A new
//! operator is an entry there; a new family is a file and a line in [`FAMILIES`].

mod activation;
mod arithmetic;
mod conv;
mod index;
mod logic;
mod matmul;
mod moves;
mod norm;
mod other;
mod pool;
mod reduce;
mod shape;

use super::model::{Call, Node};
use crate::build::{Core, Epilogue};
use crate::error::Outcome;
use crate::tensor::{Elem, Tensor};
use squall_core::expr::Expr;

/// What is known of an output before anything runs.
pub(crate) struct Out {
    pub elem: Option<Elem>,
    pub shape: Option<Vec<i64>>,
    /// Values that follow from shapes and attributes alone.
    pub data: Option<Tensor>,
}

impl Out {
    pub fn new(elem: Elem, shape: impl Into<Vec<i64>>) -> Out {
        Out { elem: Some(elem), shape: Some(shape.into()), data: None }
    }

    pub fn known(t: Tensor) -> Out {
        Out { elem: Some(t.elem), shape: Some(t.shape.clone()), data: Some(t) }
    }

    /// Type known, extents known at run time only.
    pub fn open(elem: Elem) -> Out {
        Out { elem: Some(elem), shape: None, data: None }
    }
}

/// A kernel that an operator becomes.
pub(crate) struct Kernel {
    pub core: Core,
    /// For each input of the core, then for each operand of its own steps: the node's input.
    pub feeds: Vec<usize>,
    /// Whether elementwise steps may follow in the same kernel.
    pub open: bool,
    /// Present if a scale per channel can be taken into the weights.
    pub scalable: Option<Scalable>,
}

/// A kernel whose weights can take a scale and a shift per channel.
#[derive(Clone, Copy)]
pub(crate) struct Scalable {
    /// The node's input that holds the weights.
    pub weight: usize,
    /// The weights' axis of output channels.
    pub axis: usize,
    /// The node's input that holds the bias.
    pub bias: Option<usize>,
    /// The result's axis of channels.
    pub channel: usize,
}

/// What becomes of an operator that is not folded away.
pub(crate) enum Lower {
    /// A kernel.
    Kernel(fn(&Call) -> Outcome<Kernel>),
    /// A step in an elementwise kernel: the result as an expression of the inputs.
    Pointwise(fn(&Call, &[Option<Expr>]) -> Outcome<Expr>),
    /// A scale and a shift per channel, taken into the producer's weights where possible.
    ScaleShift,
    /// The first input itself.
    Same,
    /// Not tuned, for this reason.
    Untuned(&'static str),
}

/// Computes outputs from inputs; their shapes are those that were inferred.
pub(crate) type Eval = fn(&Call, &[Option<&Tensor>]) -> Outcome<Vec<Tensor>>;

/// A known operator.
pub(crate) struct OpEntry {
    pub name: &'static str,
    /// Types and shapes of the outputs, or what is wrong with the node.
    pub infer: fn(&Call) -> Outcome<Vec<Out>>,
    /// Plain code, for folding constants and for what is not tuned.
    pub eval: Option<Eval>,
    pub lower: Lower,
}

/// All families.
const FAMILIES: &[&[OpEntry]] = &[
    activation::OPS,
    arithmetic::OPS,
    conv::OPS,
    index::OPS,
    logic::OPS,
    matmul::OPS,
    moves::OPS,
    norm::OPS,
    other::OPS,
    pool::OPS,
    reduce::OPS,
    shape::OPS,
];

/// The entry of a node's operator.
pub(crate) fn entry(node: &Node) -> Option<&'static OpEntry> {
    if !node.domain.is_empty() {
        return None;
    }
    FAMILIES.iter().copied().flatten().find(|e| e.name == node.op)
}

/// Whether the node passes its first input on.
pub(crate) fn is_same(entry: &OpEntry, call: &Call) -> bool {
    match entry.lower {
        Lower::Same => true,
        // A cast to the type that it has already.
        _ => entry.name == "Cast" && call.elem(0).is_ok_and(|e| call.int("to", 0).is_ok_and(|to| i64::from(e.0) == to)),
    }
}

/// The outputs are as input 0.
fn like_first(c: &Call) -> Outcome<Vec<Out>> {
    Ok(vec![Out::new(c.elem(0)?, c.shape(0)?)])
}

/// A kernel without operands of its own steps.
fn plain_kernel(core: Core, feeds: Vec<usize>, open: bool) -> Kernel {
    Kernel { core, feeds, open, scalable: None }
}

/// The kind of an input: weights are the same at every call.
fn kind_of(c: &Call, i: usize) -> squall_core::TensorKind {
    match c.input(i) {
        Some(v) if v.constant => squall_core::TensorKind::Weight,
        _ => squall_core::TensorKind::Data,
    }
}

/// Adds a node's input as an operand of a kernel's own steps.
fn own_operand(own: &mut Epilogue, c: &Call, i: usize, shape: Vec<i64>) -> Expr {
    let kind = kind_of(c, i);
    own.operand(if kind == squall_core::TensorKind::Weight { "B" } else { "R" }, kind, shape)
}

/// Axes where no node says otherwise.
fn all_axes(rank: usize) -> Vec<usize> {
    (0..rank).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operator_has_one_entry() {
        let mut names: Vec<&str> = FAMILIES.iter().copied().flatten().map(|e| e.name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|w| w[0] != w[1]));
        assert!(names.len() > 100, "{}", names.len());
    }
}
