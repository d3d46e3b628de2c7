//! One walk over the graph: element types and shapes of all values, and the values of those that
//! are the same at every call.

use super::model::{Call, Model};
use super::op::{OpEntry, Out, entry, is_same};
use super::read::{Fault, checked_shape};
use crate::error::{Place, Trouble, shown};
use crate::tensor::{Tensor, elements};
use std::sync::Arc;

/// What inference says of each node.
pub(crate) struct Inferred {
    /// Why a node is neither tuned nor folded, where inference found out.
    pub trouble: Vec<Option<String>>,
    /// Whether the node passes its first input on.
    pub same: Vec<bool>,
}

/// Folding computes this many elements in all, or a few times the file's size: weights that are
/// transposed fit, tensors that a file merely names the size of do not.
fn folding_budget(file: usize) -> u64 {
    (1 << 22).max(4 * file as u64)
}

/// Infers all values of `model`, read from a file of `file` bytes.
pub(crate) fn infer(model: &mut Model, file: usize) -> Result<Inferred, Fault> {
    let nodes = std::mem::take(&mut model.nodes);
    let mut out = Inferred { trouble: vec![None; nodes.len()], same: vec![false; nodes.len()] };
    let mut budget = folding_budget(file);
    for (i, node) in nodes.iter().enumerate() {
        let place = || Place::Node { name: node.name.clone(), op: node.op.clone() };
        let known = entry(node);
        let call = Call { node, values: &model.values };
        let outs = match known.map(|e| (e.infer)(&call)) {
            Some(Ok(outs)) => outs,
            Some(Err(Trouble::Wrong(m))) => return Err((place(), m)),
            Some(Err(Trouble::Unknown(m))) => {
                out.trouble[i] = Some(m);
                Vec::new()
            }
            None => {
                let of = if node.domain.is_empty() { String::new() } else { format!(" of domain `{}`", shown(&node.domain)) };
                out.trouble[i] = Some(format!("unknown operator `{}`{of}", shown(&node.op)));
                Vec::new()
            }
        };
        let same = known.is_some_and(|e| is_same(e, &call)) && out.trouble[i].is_none();
        out.same[i] = same && !call.has_output(1);
        let constant = out.trouble[i].is_none()
            && known.is_some_and(|e| e.eval.is_some() || same)
            && !node.inputs.is_empty()
            && node.inputs.iter().flatten().all(|&v| model.values[v].constant);
        let source = out.same[i].then(|| node.inputs.first().copied().flatten()).flatten().map(|v| model.values[v].clone());
        let mut outs = outs.into_iter();
        for id in &node.outputs {
            let known = outs.next();
            let Some(id) = *id else { continue };
            let value = &mut model.values[id];
            if let Some(o) = known {
                fill(value, o).map_err(|m| (place(), m))?;
            }
            if let Some((elem, shape)) = value.declared.take() {
                // The file's word, where our rules have none.
                value.elem = value.elem.or(Some(elem));
                value.shape = value.shape.take().or(Some(shape));
            }
            if let Some(s) = &source {
                value.constant = s.constant;
                value.data = s.data.clone();
            } else if constant {
                value.constant = true;
            }
        }
        if constant && source.is_none() {
            let Some(known) = known else { continue };
            if let Err(m) = fold(model, node, known, &mut budget) {
                out.trouble[i] = Some(m);
                for v in node.outputs.iter().flatten() {
                    model.values[*v].constant = false;
                }
            }
        }
    }
    model.nodes = nodes;
    Ok(out)
}

fn fill(value: &mut super::model::Value, o: Out) -> Result<(), String> {
    value.elem = o.elem;
    value.shape = o.shape.map(|s| checked_shape(&s)).transpose()?;
    if let Some(t) = o.data {
        value.constant = true;
        value.data = Some(Arc::new(t));
    } else if value.shape.is_none() {
        value.constant = false;
    }
    Ok(())
}

/// Computes a node whose inputs are the same at every call. Where their values lie in another
/// file, its outputs are constants without values.
fn fold(model: &mut Model, node: &super::model::Node, known: &OpEntry, budget: &mut u64) -> Result<(), String> {
    let (Some(eval), true) = (known.eval, node.outputs.iter().flatten().any(|&v| model.values[v].data.is_none())) else { return Ok(()) };
    let call = Call { node, values: &model.values };
    let inputs: Vec<Option<&Tensor>> = (0..node.inputs.len()).map(|i| call.input(i).and_then(|v| v.data.as_deref())).collect();
    if (0..node.inputs.len()).any(|i| call.input(i).is_some() && inputs[i].is_none()) {
        return Ok(());
    }
    let size: u64 = node.outputs.iter().flatten().map(|&v| model.values[v].shape.as_deref().and_then(elements).unwrap_or(0)).sum();
    if size > *budget {
        return Err("it is the same at every call, but too large to compute here".into());
    }
    *budget -= size;
    let results = eval(&call, &inputs).map_err(Trouble::message)?;
    for (id, t) in node.outputs.iter().zip(results) {
        let Some(id) = *id else { continue };
        let value = &mut model.values[id];
        if value.shape.as_ref() != Some(&t.shape) {
            return Err("its value does not have the shape that was inferred".into());
        }
        value.data = Some(Arc::new(t));
    }
    Ok(())
}
