//! Widening the bodies of regions and loops in a model of 16-bit floats: the nodes inside are
//! widened like the model around them (`halves.rs`). Input and output: a body, which is a model of
//! its own. Values keep their 16 bits where the file's own type is visible.

use super::Widener;
use crate::numbered::root as root_of;
use squall_core::DType;
use squall_core::graph::infer::region::{self, BODY};
use squall_core::graph::{Attribute, Model, Node, ValueId};

/// The bodies of a model's nodes, and the bodies of the nodes inside them.
pub(super) fn bodies(model: &Model) -> Vec<&Model> {
    let own = model.nodes.iter().filter_map(region::body);
    own.flat_map(|b| std::iter::once(b).chain(bodies(b))).collect()
}

impl Widener {
    /// Widens the body of a node that has one.
    pub(super) fn widen_body(&self, node: &mut Node) {
        let is_region = node.op == region::REGION;
        if let Some(made) = region::body(node).map(|b| widened(b, is_region)) {
            node.attributes.insert(BODY.into(), Attribute::Body(Box::new(made)));
        }
    }
}

/// A body with 32-bit floats in place of 16-bit ones. A region's results of growing memory (whose
/// extents only the run knows) leave it in the file's format.
fn widened(body: &Model, is_region: bool) -> Model {
    let half = |v: &ValueId| body.values[*v].dtype.filter(|d| d.is_half());
    let any = body.values.iter().any(|v| v.dtype.is_some_and(DType::is_half));
    if !any && bodies(body).is_empty() {
        return body.clone();
    }
    let mut w = Widener::new(body);
    for &v in &body.inputs {
        if half(&v).is_some() {
            w.values[v].dtype = Some(DType::F32);
        }
    }
    w.constants(body);
    for n in &body.nodes {
        w.node(n.clone());
    }
    let mut outputs = body.outputs.clone();
    for v in &mut outputs {
        let format =
            half(v).filter(|_| is_region && !region::is_exact(body.values[*v].shape.as_deref()));
        if let Some(format) = format {
            let narrow = w.value(*v, format, None);
            w.cast(*v, narrow);
            *v = narrow;
        }
    }
    // A conversion that changes nothing is replaced by its operand.
    let root = |v: ValueId| root_of(&w.values, v);
    let mut nodes = w.nodes.clone();
    nodes.retain(|n| !n.folded);
    for n in &mut nodes {
        n.inputs.iter_mut().flatten().for_each(|v| *v = root(*v));
    }
    outputs.iter_mut().for_each(|v| *v = root(*v));
    let mut values = w.values.clone();
    values.iter_mut().for_each(|v| v.alias = None);
    Model { nodes, values, outputs, ..body.clone() }
}
