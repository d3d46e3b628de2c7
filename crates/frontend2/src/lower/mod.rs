//! From nodes to tasks.
use crate::error::ImportError;
use crate::import::Import;
/// Reads.
pub fn import_onnx(_bytes: &[u8], _name: &str, _dims: &[(String, i64)]) -> Result<Import, ImportError> { Ok(Import::default()) }
