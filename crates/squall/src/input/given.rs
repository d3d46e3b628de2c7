//! Reads a model for the arrays that it will be run with. Input: the bytes of an ONNX file, values
//! for symbolic dimensions, and arrays; output: a [`Specialised`] model whose dimensions are bound
//! to the arrays' extents, and in which inputs whose values decide shapes (the target of a
//! `Reshape`, say) are constants. `input.rs` calls it for every model.

use crate::base::error::Error;
use crate::input::arrays::{NamedArray, tensor};
use squall_compiler::plain;
use squall_core::graph::{Model, NOT_KNOWN, OperatorCall, Tensor, ValueId, deciding_inputs};
use squall_frontend::onnx::{self, Extent, Signature};
use squall_graph::halves::{Halves, widened};

/// A model for given arrays.
pub struct Specialised {
    /// The model, of which values that decide shapes are constants.
    pub model: Model,
    /// The inputs that became constants, with their values.
    pub bound: Vec<NamedArray>,
    /// Where the file computes in floats of 16 bits, what the model was before it was widened.
    pub halves: Option<Halves>,
}

/// Reads a model for given arrays, or at extents of a range, for which no arrays are given. `text`
/// is what the user called it, `name` its short name.
pub fn read(
    bytes: &[u8],
    text: &str,
    name: &str,
    dims: &[(String, i64)],
    given: &[NamedArray],
    is_over_range: bool,
) -> Result<Specialised, Error> {
    let import = |source| Error::Import { place: text.into(), source };
    if given.is_empty() {
        let read = if is_over_range { onnx::read_over_range } else { onnx::read };
        let (model, halves) = widened(read(bytes, name, dims).map_err(import)?);
        return Ok(Specialised { model, bound: Vec::new(), halves });
    }
    let signature = onnx::signature(bytes, name).map_err(import)?;
    let dims = open_dims(&signature, text, dims, given)?;
    let mut bound: Vec<NamedArray> = Vec::new();
    bound.extend(given.iter().filter(|(n, _)| signature.initializers.contains(n)).cloned());
    loop {
        let tensors = bound.iter().map(|(n, a)| Ok((n.clone(), tensor(a)?)));
        let tensors: Vec<(String, Tensor)> =
            tensors.collect::<Result<_, String>>().map_err(|message| Error::Input {
                place: text.into(),
                message,
                hint: "give float32, float64, whole numbers or booleans".into(),
            })?;
        let read = onnx::read_bound(bytes, name, &dims, &tensors).map_err(import)?;
        let (model, halves) = widened(read);
        let deciding = deciding_inputs(&model);
        let names: Vec<&str> = deciding.iter().map(|id| model.values[*id].name.as_str()).collect();
        let before = bound.len();
        bound.extend(given.iter().filter(|(n, _)| names.contains(&n.as_str())).cloned());
        if bound.len() == before {
            let waited = wanted_by_operators(&model);
            bound.extend(given.iter().filter(|(n, _)| waited.contains(n)).cloned());
        }
        if bound.len() == before {
            return Ok(Specialised { model, bound, halves });
        }
    }
}

/// Inputs of the model that plain operators need to know ahead, as CumSum its axis: the further
/// operands of each such node, and its first where it has no other.
fn wanted_by_operators(model: &Model) -> Vec<String> {
    let root = |id: ValueId| model.values[id].alias.unwrap_or(id);
    let constant = |id: ValueId| {
        let own = |id: ValueId| model.values[id].constant.as_deref();
        own(id).or_else(|| own(root(id)))
    };
    let mut names = Vec::new();
    for node in model.nodes.iter().filter(|n| !n.folded && n.problem.is_none()) {
        let given = |id: &&ValueId| model.inputs.contains(&root(**id));
        let further: Vec<&ValueId> = node.inputs.iter().skip(1).flatten().filter(given).collect();
        let first: Vec<&ValueId> = node.inputs.iter().take(1).flatten().filter(given).collect();
        if further.is_empty() && first.is_empty() || !plain::has(&node.domain, &node.op) {
            continue;
        }
        let waits = OperatorCall::of_node(model, node, &constant, &|_| true)
            .is_ok_and(|call| plain::source(&call, "x").is_err_and(|e| e.what.contains(NOT_KNOWN)));
        if waits {
            let list = if further.is_empty() { first } else { further };
            names.extend(list.into_iter().map(|id| model.values[root(*id)].name.clone()));
        }
    }
    names
}

/// The extents of open dimensions: those that the user states, then those of the arrays.
fn open_dims(
    signature: &Signature,
    text: &str,
    dims: &[(String, i64)],
    given: &[NamedArray],
) -> Result<Vec<(String, i64)>, Error> {
    let mut all = dims.to_vec();
    for input in &signature.inputs {
        let Some((_, array)) = given.iter().find(|(n, _)| *n == input.name) else { continue };
        let Some(extents) = &input.extents else { continue };
        if !extents.iter().any(|e| matches!(e, Extent::Open(_))) {
            continue;
        }
        let fault = |message: String| Error::Input {
            place: text.into(),
            message: format!("input `{}`: {message}", input.name),
            hint: "give an array of the input's shape".into(),
        };
        if extents.len() != array.shape.len() {
            return Err(fault(format!(
                "the given array has shape {:?}, {} dimensions are expected",
                array.shape,
                extents.len()
            )));
        }
        for (extent, &n) in extents.iter().zip(&array.shape) {
            let Extent::Open(dim) = extent else { continue };
            match all.iter().rev().find(|(d, _)| d == dim) {
                Some((_, known)) if *known != n => {
                    return Err(fault(format!(
                        "the given array has shape {:?}, and dimension `{dim}` is {known}",
                        array.shape
                    )));
                }
                Some(_) => {}
                None => all.push((dim.clone(), n)),
            }
        }
    }
    Ok(all)
}
