//! Weights that an ONNX file keeps in other files beside it (`external_data`). Input: the bytes of
//! a model; output: a list of these weights with file, offset and length; `with_weights_at`
//! rewrites the places and keeps every other byte. `thin.rs` and `weights.rs` read such weights.

use super::proto::{ModelProto, StringStringEntryProto, TensorProto};
use super::stored::Stored;
use crate::ImportError;
use prost::Message;
use prost::bytes::Buf;
use prost::encoding::{DecodeContext, WireType, decode_key, encode_key, encode_varint, skip_field};
use squall_core::DType;
use squall_core::graph::elements;

/// A weight whose bytes lie in another file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct External {
    /// The weight.
    pub name: String,
    /// The other file, as the model's names it: relative to its folder.
    pub location: String,
    /// Its first byte there.
    pub offset: u64,
    /// Its bytes.
    pub length: u64,
    /// The type of its elements, if that is known.
    pub dtype: Option<DType>,
}

/// The weights of a model that lie in other files, whether these are there or not. `name` is the
/// model's, for messages.
pub fn external_weights(bytes: &[u8], name: &str) -> Result<Vec<External>, ImportError> {
    let not_onnx = |why: String| ImportError::NotOnnx { name: name.into(), why };
    let model = ModelProto::decode(bytes).map_err(|e| not_onnx(e.to_string()))?;
    let graph = model.graph.ok_or_else(|| not_onnx("it holds no graph".into()))?;
    let all = graph.initializer.iter().filter(|t| t.data_location == 1);
    all.filter_map(|t| external(t).transpose()).collect::<Result<_, _>>().map_err(not_onnx)
}

/// A model's file in which the weights of these names lie elsewhere than it said; every other byte
/// of it stays, those of fields that we do not know among them.
pub fn with_weights_at(
    bytes: &[u8],
    places: &[External],
    name: &str,
) -> Result<Vec<u8>, ImportError> {
    const GRAPH: u32 = 7;
    const INITIALIZER: u32 = 5;
    let moved = |tensor: &[u8]| {
        let known = TensorProto::decode(tensor)?;
        let place = places.iter().find(|p| p.name == known.name);
        place.map(|p| with_place(tensor, p)).transpose()
    };
    with_field(bytes, GRAPH, &|graph| with_field(graph, INITIALIZER, &moved).map(Some))
        .map_err(|e| ImportError::NotOnnx { name: name.into(), why: e.to_string() })
}

/// A tensor whose data lies where `place` says.
fn with_place(tensor: &[u8], place: &External) -> Result<Vec<u8>, prost::DecodeError> {
    const EXTERNAL_DATA: u32 = 13;
    let mut out = without_field(tensor, EXTERNAL_DATA)?;
    let entries = [
        ("location", place.location.clone()),
        ("offset", place.offset.to_string()),
        ("length", place.length.to_string()),
    ];
    for (key, value) in entries {
        let entry = StringStringEntryProto { key: key.into(), value }.encode_to_vec();
        write_field(&mut out, EXTERNAL_DATA, &entry);
    }
    Ok(out)
}

/// Gives the new bytes of a field, or nothing where it stays.
type Rewrite<'a> = &'a dyn Fn(&[u8]) -> Result<Option<Vec<u8>>, prost::DecodeError>;

/// A message of which one repeated field of messages is rewritten.
fn with_field(message: &[u8], field: u32, to: Rewrite) -> Result<Vec<u8>, prost::DecodeError> {
    let mut out = Vec::with_capacity(message.len());
    let mut rest = message;
    while rest.has_remaining() {
        let start = rest;
        let (key, wire) = decode_key(&mut rest)?;
        if key == field && wire == WireType::LengthDelimited {
            let length = prost::decode_length_delimiter(&mut rest)?;
            let payload = rest.get(..length).unwrap_or(rest);
            rest = &rest[payload.len()..];
            if let Some(new) = to(payload)? {
                write_field(&mut out, field, &new);
                continue;
            }
        } else {
            skip_field(wire, key, &mut rest, DecodeContext::default())?;
        }
        out.extend_from_slice(&start[..start.len() - rest.len()]);
    }
    Ok(out)
}

fn without_field(message: &[u8], field: u32) -> Result<Vec<u8>, prost::DecodeError> {
    let mut out = Vec::with_capacity(message.len());
    let mut rest = message;
    while rest.has_remaining() {
        let start = rest;
        let (key, wire) = decode_key(&mut rest)?;
        skip_field(wire, key, &mut rest, DecodeContext::default())?;
        if key != field {
            out.extend_from_slice(&start[..start.len() - rest.len()]);
        }
    }
    Ok(out)
}

fn write_field(out: &mut Vec<u8>, field: u32, payload: &[u8]) {
    encode_key(field, WireType::LengthDelimited, out);
    encode_varint(payload.len() as u64, out);
    out.extend_from_slice(payload);
}

pub(super) fn external(t: &TensorProto) -> Result<Option<External>, String> {
    let entry = |key: &str| t.external_data.iter().find(|e| e.key == key).map(|e| e.value.as_str());
    let Some(location) = entry("location") else { return Ok(None) };
    let offset = entry("offset").map_or(Ok(0), str::parse);
    let offset = offset.map_err(|_| "an offset of external data is no number".to_string())?;
    let count = elements(&t.dims)? as u64;
    let stored = Stored::of(t.data_type);
    let length = stored.map_or(0, |s| s.bytes(count));
    let (name, location, dtype) = (t.name.clone(), location.into(), stored.map(|s| s.dtype));
    Ok(Some(External { name, location, offset, length, dtype }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onnx::proto::GraphProto;

    fn tensor(name: &str) -> TensorProto {
        let entry = StringStringEntryProto { key: "location".into(), value: "w.bin".into() };
        TensorProto {
            name: name.into(),
            dims: vec![2, 3],
            data_type: 1,
            data_location: 1,
            external_data: vec![entry],
            ..TensorProto::default()
        }
    }

    #[test]
    fn weights_move_and_every_other_byte_stays() {
        let graph = GraphProto {
            initializer: vec![tensor("a"), tensor("b"), tensor("c")],
            ..GraphProto::default()
        };
        let mut bytes = ModelProto { graph: Some(graph), ..ModelProto::default() }.encode_to_vec();
        // A field that our reader does not know: metadata of ONNX models.
        write_field(&mut bytes, 14, b"kept");
        let all = external_weights(&bytes, "m").unwrap();
        assert!(all.iter().all(|e| e.location == "w.bin" && e.offset == 0 && e.length == 24));
        let to = |name: &str, offset| External {
            name: name.into(),
            location: "x".into(),
            offset,
            length: 24,
            dtype: Some(DType::F32),
        };
        let moved = with_weights_at(&bytes, &[to("a", 64), to("c", 128)], "m").unwrap();
        let now = external_weights(&moved, "m").unwrap();
        assert_eq!(now, [to("a", 64), all[1].clone(), to("c", 128)]);
        assert!(moved.ends_with(b"kept"));
        assert_eq!(with_weights_at(&bytes, &[], "m").unwrap(), bytes);
        assert!(with_weights_at(&bytes[..bytes.len() - 2], &[to("a", 0)], "m").is_err());
    }
}
