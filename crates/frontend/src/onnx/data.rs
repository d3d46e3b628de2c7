//! Reads the data that a user brings along with a model: tensors in files of ONNX's own form
//! (`input_0.pb`), and the model's signature, the names, types and extents of its inputs and
//! outputs. `squall/src/input/given.rs` and the verbs `run` and `check` use them.

use super::proto::{ModelProto, TensorProto};
use super::stored::Stored;
use super::tensor::tensor_of;
use crate::error::{ImportError, shown};
use crate::npy::Array;
use prost::Message;
use squall_core::DType;
use squall_core::graph::{MOST_ELEMENTS, type_name};
use std::collections::HashSet;

/// An extent of an input as a model states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extent {
    /// A number.
    Fixed(i64),
    /// Left open, under a name: the model's own, or the input's with the place of the dimension.
    Open(String),
}

/// An input that a model takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredInput {
    /// Its name.
    pub name: String,
    /// Whether it is a tensor of a type of numbers, and which.
    pub dtype: Option<DType>,
    /// Its extents, where the model states how many there are.
    pub extents: Option<Vec<Extent>>,
}

/// The inputs and outputs of a model, in the order of its graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signature {
    /// Inputs that have no value in the file.
    pub inputs: Vec<DeclaredInput>,
    /// Values of the file that a caller may replace.
    pub initializers: Vec<String>,
    /// The names of the outputs.
    pub outputs: Vec<String>,
}

/// Reads what a model takes and gives.
pub fn signature(bytes: &[u8], name: &str) -> Result<Signature, ImportError> {
    let not_onnx = |why: String| ImportError::NotOnnx { name: name.into(), why };
    let model = ModelProto::decode(bytes).map_err(|e| not_onnx(shown(&e.to_string())))?;
    let graph = model.graph.ok_or_else(|| not_onnx("it holds no graph".into()))?;
    let given: HashSet<&str> = graph.initializer.iter().map(|t| t.name.as_str()).collect();
    let mut inputs = Vec::new();
    for input in graph.input.iter().filter(|i| !given.contains(i.name.as_str())) {
        let tensor = input.r#type.as_ref().and_then(|t| t.tensor_type.as_ref());
        let extents = tensor.and_then(|t| t.shape.as_ref()).map(|s| {
            let extent = |(i, d): (usize, &super::proto::DimensionProto)| match d.dim_value {
                Some(n) => Extent::Fixed(n),
                None => Extent::Open(
                    d.dim_param
                        .clone()
                        .filter(|p| !p.is_empty())
                        .unwrap_or_else(|| format!("{}.{i}", input.name)),
                ),
            };
            s.dim.iter().enumerate().map(extent).collect()
        });
        let dtype = tensor.and_then(|t| Stored::dtype(t.elem_type));
        inputs.push(DeclaredInput { name: input.name.clone(), dtype, extents });
    }
    Ok(Signature {
        inputs,
        initializers: graph.initializer.iter().map(|t| t.name.clone()).collect(),
        outputs: graph.output.iter().map(|o| o.name.clone()).collect(),
    })
}

/// Reads a tensor of a file in ONNX's own form (`input_0.pb`): its name, which may be empty, and
/// its elements.
pub fn read_tensor(bytes: &[u8]) -> Result<(String, Array), String> {
    let t = TensorProto::decode(bytes)
        .map_err(|e| format!("it is no tensor of ONNX: {}", shown(&e.to_string())))?;
    let stored = Stored::of(t.data_type).ok_or_else(|| {
        format!("it is no tensor of numbers (its type has the number {})", t.data_type)
    })?;
    let dtype = stored.dtype;
    let read = tensor_of(&t, MOST_ELEMENTS)?;
    let empty = read.shape.contains(&0);
    let bytes = match &read.constant {
        _ if empty => Some(Vec::new()),
        None => return Err("its elements are not in the file".into()),
        Some(_) if !t.raw_data.is_empty() && !stored.is_packed() => {
            let mut bytes = t.raw_data;
            if cfg!(target_endian = "big") {
                bytes.chunks_mut(dtype.bytes() as usize).for_each(<[u8]>::reverse);
            }
            Some(bytes)
        }
        Some(_) if dtype == DType::F64 => {
            Some(t.double_data.iter().flat_map(|x| x.to_ne_bytes()).collect())
        }
        Some(_) if dtype.is_half() => {
            Some(t.int32_data.iter().flat_map(|x| (*x as u16).to_ne_bytes()).collect())
        }
        Some(c) => c.bytes(dtype),
    };
    let bytes = bytes.ok_or_else(|| format!("it is of {}", type_name(Some(dtype))))?;
    Ok((t.name, Array { dtype, shape: read.shape, bytes }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(t: TensorProto) -> Vec<u8> {
        t.encode_to_vec()
    }

    #[test]
    fn tensors_of_all_types_keep_their_bytes() {
        let raw = TensorProto {
            name: "x".into(),
            data_type: 7,
            dims: vec![2],
            raw_data: [1i64, -1].iter().flat_map(|x| x.to_le_bytes()).collect(),
            ..Default::default()
        };
        let (name, x) = read_tensor(&encoded(raw)).unwrap();
        assert_eq!((name.as_str(), x.dtype, &x.shape[..]), ("x", DType::I64, &[2][..]));
        assert_eq!((x.number(0), x.number(1)), (Some(1.0), Some(-1.0)));
        let typed = TensorProto {
            data_type: 9,
            dims: vec![1, 2],
            int32_data: vec![1, 0],
            ..Default::default()
        };
        assert_eq!(read_tensor(&encoded(typed)).unwrap().1.bytes, [1, 0]);
        let doubles = TensorProto {
            data_type: 11,
            dims: vec![],
            double_data: vec![0.1],
            ..Default::default()
        };
        assert_eq!(read_tensor(&encoded(doubles)).unwrap().1.number(0), Some(0.1));
        let empty = TensorProto { data_type: 1, dims: vec![0, 3], ..Default::default() };
        assert_eq!(read_tensor(&encoded(empty)).unwrap().1.shape, [0, 3]);
    }

    #[test]
    fn what_is_no_tensor_is_refused() {
        assert!(read_tensor(b"\x0a\xff").unwrap_err().contains("no tensor"));
        let text = TensorProto { data_type: 8, dims: vec![1], ..Default::default() };
        assert!(read_tensor(&encoded(text)).unwrap_err().contains("numbers"));
        let cut = TensorProto { data_type: 1, dims: vec![1], ..Default::default() };
        assert!(read_tensor(&encoded(cut)).unwrap_err().contains("not in the file"));
    }
}
