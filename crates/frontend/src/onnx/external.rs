//! Where a model's file says that weights lie beside it.

use super::proto::{ModelProto, TensorProto};
use crate::ImportError;
use prost::Message;
use squall_core::graph::elements;
use squall_core::graph::infer::onnx_type;

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

fn external(t: &TensorProto) -> Result<Option<External>, String> {
    let entry = |key: &str| t.external_data.iter().find(|e| e.key == key).map(|e| e.value.as_str());
    let Some(location) = entry("location") else { return Ok(None) };
    let offset = entry("offset").map_or(Ok(0), str::parse);
    let offset = offset.map_err(|_| "an offset of external data is no number".to_string())?;
    let size = onnx_type(i64::from(t.data_type)).map_or(0, |d| d.bytes());
    let length = (elements(&t.dims)? as u64)
        .checked_mul(size)
        .ok_or_else(|| "external data is larger than any file".to_string())?;
    Ok(Some(External { name: t.name.clone(), location: location.into(), offset, length }))
}
