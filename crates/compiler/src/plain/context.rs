//! The view of an operator call as a graph node with operands of known shapes, so that the
//! generators of plain kernels can ask the graph's shape inference (`core/src/graph/infer`) about
//! it. Input: an `OperatorCall`; output: a `Node`, a `Ctx`, or the inferred types and shapes of the
//! results.

use squall_core::graph::infer::{Ctx, NodeOperand, Output};
use squall_core::graph::{CallOperand, Node, OperatorCall};
use squall_core::operators;

/// A node with the operator, operands and attributes of a call.
pub(super) fn node_of(call: &OperatorCall) -> Node {
    Node {
        name: call.op.clone(),
        op: call.op.clone(),
        domain: call.domain.clone(),
        inputs: call.inputs.iter().enumerate().map(|(i, o)| o.as_ref().map(|_| i)).collect(),
        outputs: (0..call.outputs.len()).collect(),
        attributes: call.attributes.clone(),
        folded: false,
        problem: None,
    }
}

/// The operands of a call, for inference.
pub(super) fn operands(inputs: &[Option<CallOperand>]) -> Vec<Option<NodeOperand<'_>>> {
    fn one(o: &CallOperand) -> NodeOperand<'_> {
        let (dtype, constant) = (Some(o.dtype), o.constant.as_ref());
        NodeOperand { name: "operand", dtype, shape: Some(&o.shape), constant }
    }
    inputs.iter().map(|o| o.as_ref().map(one)).collect()
}

/// Calls a function with a call's attributes and operands.
pub(super) fn of_call<T>(call: &OperatorCall, f: impl FnOnce(&Ctx<'_>) -> T) -> T {
    let node = node_of(call);
    f(&Ctx { node: &node, opset: call.opset, inputs: operands(&call.inputs) })
}

/// Types and shapes of a node's results for these operands.
pub(super) fn inferred(
    n: &Node,
    opset: i64,
    inputs: &[Option<CallOperand>],
) -> Result<Vec<Output>, String> {
    operators::infer(&Ctx { node: n, opset, inputs: operands(inputs) })
}
