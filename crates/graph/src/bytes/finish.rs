//! The end of the rewriting of quantised models to kernels of bytes (`mod.rs`): nodes whose results
//! nothing reads are removed, and a product or convolution whose bytes only a `SumBytes` reads
//! takes that sum in. Input: all values and nodes of the rewriting; output: the finished model.

use crate::numbered::{needed, numbered, root};
use squall_core::graph::infer::nbits::DOMAIN;
use squall_core::graph::{Constant, Model, Node, Value, ValueId};
use std::collections::HashMap;
use std::sync::Arc;

/// The model of these nodes, without the nodes that nothing needs.
pub(super) fn finished(old: &Model, mut values: Vec<Value>, nodes: Vec<Node>) -> Model {
    let mut nodes = needed(&values, &old.outputs, nodes);
    take_sums_in(&mut values, &old.outputs, &mut nodes);
    numbered(old, values, nodes)
}

/// Whether a node is this operator of bytes.
fn is(n: &Node, op: &str) -> bool {
    n.domain == DOMAIN && n.op == op
}

/// Merges a sum into the convolution or product whose bytes it alone reads. The merged node stands
/// where the sum stood, because the sum's other operands may be computed later than the product.
fn take_sums_in(values: &mut Vec<Value>, outputs: &[ValueId], nodes: &mut Vec<Node>) {
    let mut reads: HashMap<ValueId, usize> = HashMap::new();
    let read = nodes.iter().flat_map(|n| n.inputs.iter().flatten()).chain(outputs);
    for &v in read {
        *reads.entry(root(values, v)).or_default() += 1;
    }
    let mut makers: HashMap<ValueId, usize> = HashMap::new();
    let mut gone = vec![false; nodes.len()];
    for i in 0..nodes.len() {
        let n = &nodes[i];
        if is(n, "ConvBytes") || is(n, "MatMulBytes") {
            makers.insert(n.outputs[0], i);
        }
        if !is(n, "SumBytes") {
            continue;
        }
        // Where a sum reads two products, it is merged into the later one.
        let own = n.inputs.len() - 1;
        let alone = (0..own).filter_map(|j| {
            let v = n.inputs[j]?;
            let maker = makers.get(&v).copied().filter(|_| reads.get(&v) == Some(&1))?;
            (nodes[maker].inputs.len() == 4).then_some((maker, j))
        });
        let Some((maker, j)) = alone.max() else { continue };
        let Some(made) = merged(values, &nodes[maker], n, j) else { continue };
        nodes[i] = made;
        gone[maker] = true;
    }
    let mut gone = gone.into_iter();
    nodes.retain(|_| gone.next() != Some(true));
}

/// A product with the sum that its bytes go into as operand `j`.
fn merged(values: &mut Vec<Value>, product: &Node, sum: &Node, j: usize) -> Option<Node> {
    let mut made = product.clone();
    let parameters = sum.inputs.last().copied().flatten()?;
    let parameters = match j {
        0 => parameters,
        // The product's own factor comes first.
        _ => {
            let v = values[parameters].clone();
            let Some(Constant::F32 { data, shape }) = v.constant.as_deref() else { return None };
            let &[a, b, offset] = &data[..] else { return None };
            let constant = Constant::F32 { data: vec![b, a, offset], shape: shape.clone() };
            let name = format!("squall/bytes/{}", values.len());
            values.push(Value { name, constant: Some(Arc::new(constant)), ..v });
            values.len() - 1
        }
    };
    if sum.inputs.len() == 3 {
        made.inputs.push(sum.inputs[1 - j]);
    }
    made.inputs.push(Some(parameters));
    made.outputs.clone_from(&sum.outputs);
    for (from, to) in [("low", "sum_low"), ("high", "sum_high")] {
        made.attributes.extend(sum.attributes.get(from).map(|a| (to.to_string(), a.clone())));
    }
    Some(made)
}
