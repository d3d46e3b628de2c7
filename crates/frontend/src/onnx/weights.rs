//! Reads the large weights of a model, from its file and from the files beside it. Tuning needs no
//! weights, so the reader of models keeps small ones only; a network that runs
//! (`squall/src/input/weights.rs`) needs all of them. Output: constants by the names of the
//! weights.

use super::external::{External, external};
use super::proto::{ModelProto, TensorProto};
use super::tensor::tensor_of;
use crate::error::{ImportError, shown};
use prost::Message;
use squall_core::graph::{Constant, MOST_CONSTANT_ELEMENTS, MOST_ELEMENTS, Weights, elements};

/// The bytes of a weight that lie beside a model's file. None where there is no such file or they
/// are not wanted, an error where it may not be read or is shorter.
pub type Beside<'a> = dyn FnMut(&External) -> Result<Option<Vec<u8>>, String> + 'a;

/// Reads the large weights of a model's file, and those beside it that `beside` has; `name` says in
/// errors which file it is. An outline of the file is enough ([`super::read_outline`]): weights
/// that the reader of models keeps are not asked for.
pub fn read_weights(
    bytes: &[u8],
    name: &str,
    beside: &mut Beside<'_>,
) -> Result<Weights, ImportError> {
    let not_onnx = |why: String| ImportError::NotOnnx { name: name.into(), why };
    let model = ModelProto::decode(bytes).map_err(|e| not_onnx(shown(&e.to_string())))?;
    let graph = model.graph.ok_or_else(|| not_onnx("it holds no graph".into()))?;
    let mut known = Weights::new();
    let mut keep = |name: String, t: &TensorProto| {
        let fault = |e: String| not_onnx(format!("tensor `{}`: {e}", shown(&name)));
        let outside = if t.data_location == 1 { fetch(t, beside).map_err(fault)? } else { None };
        let read = tensor_of(outside.as_ref().unwrap_or(t), MOST_ELEMENTS).map_err(fault)?;
        let kept_by_import =
            |c: &Constant| outside.is_none() && c.len() as i64 <= MOST_CONSTANT_ELEMENTS;
        if let Some(c) = read.constant.filter(|c| !kept_by_import(c)) {
            known.insert(name, c);
        }
        Ok(())
    };
    for t in graph.initializer {
        keep(t.name.clone(), &t)?;
    }
    for node in graph.node.into_iter().filter(|n| n.op_type == "Constant") {
        let value = node.attribute.iter().find(|a| a.name == "value").and_then(|a| a.t.as_ref());
        if let (Some(t), Some(output)) = (value, node.output.first()) {
            keep(output.clone(), t)?;
        }
    }
    Ok(known)
}

/// A tensor with its bytes from beside the file, where they are there.
fn fetch(t: &TensorProto, beside: &mut Beside<'_>) -> Result<Option<TensorProto>, String> {
    let Some(place) = external(t)? else { return Ok(None) };
    // An element has half a byte at least, so that a count that overflows lies in no file.
    let is_kept_by_import = elements(&t.dims).is_ok_and(|n| n <= MOST_CONSTANT_ELEMENTS);
    if place.is_own() && is_kept_by_import {
        return Ok(None);
    }
    let tensor = |raw_data| TensorProto {
        raw_data,
        data_location: 0,
        external_data: Vec::new(),
        ..t.clone()
    };
    Ok(beside(&place)?.map(tensor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_beside_the_file_are_read() {
        use super::super::proto::{GraphProto, StringStringEntryProto};
        let entry = |key: &str, value: &str| StringStringEntryProto {
            key: key.into(),
            value: value.into(),
        };
        let external_data = vec![entry("location", "w.data"), entry("offset", "8")];
        let w = TensorProto {
            name: "w".into(),
            dims: vec![2],
            data_type: 1,
            data_location: 1,
            external_data,
            ..Default::default()
        };
        let graph = GraphProto { initializer: vec![w], ..Default::default() };
        let bytes = ModelProto { graph: Some(graph), ..Default::default() }.encode_to_vec();
        let mut asked = Vec::new();
        let mut there = |e: &External| {
            asked.push((e.location.clone(), e.offset, e.length));
            Ok(Some([1f32, 2.0].iter().flat_map(|x| x.to_le_bytes()).collect()))
        };
        let read = read_weights(&bytes, "m", &mut there).unwrap();
        assert_eq!(read["w"], Constant::F32 { shape: vec![2], data: vec![1.0, 2.0] });
        assert_eq!(asked, [("w.data".to_string(), 8, 8)]);
        assert!(read_weights(&bytes, "m", &mut |_| Ok(None)).unwrap().is_empty());
        assert!(read_weights(&bytes[..bytes.len() - 3], "m", &mut |_| Ok(None)).is_err());
    }
}
