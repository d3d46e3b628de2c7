//! Evaluates nodes whose operands are constants. Input: a node and the values that are known;
//! output: its results, and whether it is evaluated at all: rows that a model over a range of
//! extents takes from a table by an extent are other ones at each extent, and the node stays.

use super::{MOST_COPIED, Reader};
use squall_core::DType;
use squall_core::graph::{Constant, Node, ValueId};
use squall_core::graph::{fold, infer::Ctx};
use squall_core::operators;
use std::sync::Arc;

/// Tables of fewer elements than this are lists of extents themselves.
const LEAST_TABLE: usize = 65;

impl Reader<'_> {
    /// Gives a node's first operand its result's name: identities of absent weights are as absent;
    /// those of data fold away all the same.
    pub(super) fn pass_on(&mut self, node: &mut Node) {
        let (Some(Some(from)), Some(&to)) = (node.inputs.first().copied(), node.outputs.first())
        else {
            return;
        };
        let root = self.values[from].alias.unwrap_or(from);
        self.values[to].alias = Some(root);
        self.values[to].weight = self.values[root].weight;
        let known = self.values[root].constant.as_deref().filter(|c| c.len() <= MOST_COPIED);
        if let (Some(c), Some(shape)) = (known.cloned(), self.values[to].shape.clone()) {
            self.values[to].constant = Some(Arc::new(c.reshaped(shape)));
        }
        node.folded = true;
    }

    /// Whether a node takes elements of a table by numbers that are extents, in a model that is
    /// read for a range of them.
    pub(super) fn takes_by_extent(&self, node: &Node) -> bool {
        let by = |i: usize| node.inputs.get(i).copied().flatten();
        let place = match node.op.as_str() {
            "Gather" | "GatherND" | "GatherElements" | "Slice" => by(1),
            _ => None,
        };
        let table = by(0).and_then(|id| self.values[id].constant.as_deref());
        self.is_over_range
            && place.is_some_and(|id| self.of_extents.contains(&id))
            && table.is_some_and(|c| c.len() >= LEAST_TABLE)
    }

    /// Remembers results that follow from extents.
    pub(super) fn note_extents(&mut self, node: &Node) {
        let is_of_extents = matches!(node.op.as_str(), "Shape" | "Size")
            || node.inputs.iter().flatten().any(|id| self.of_extents.contains(id));
        if self.is_over_range && is_of_extents {
            self.of_extents.extend(&node.outputs);
        }
    }

    /// Whether a node in a branch that may not be taken could have operands that are illegal for
    /// it.
    pub(super) fn may_be_illegal(&self, node: &Node) -> bool {
        const DEMANDING: &[&str] =
            &["Div", "Gather", "GatherElements", "GatherND", "Mod", "ScatterElements", "ScatterND"];
        self.undecided > 0 && DEMANDING.contains(&node.op.as_str())
    }

    /// The results of a node, where its operator can be evaluated.
    pub(super) fn fold(&self, node: &Node) -> Option<Result<Vec<Constant>, String>> {
        if matches!(node.op.as_str(), "Shape" | "Size") {
            let ctx = Ctx::new(node, self.opset, &self.values);
            return Some(fold::of_shape(&ctx));
        }
        let known = |id: ValueId| self.values[id].constant.as_deref().cloned();
        let inputs: Vec<Option<Constant>> = node.inputs.iter().map(|i| i.and_then(known)).collect();
        let dtype = |id: &Option<ValueId>| id.and_then(|id| self.values[id].dtype);
        let dtypes: Vec<Option<DType>> = node.inputs.iter().map(dtype).collect();
        operators::evaluate_as(node, &inputs, &dtypes, self.opset)
    }
}
