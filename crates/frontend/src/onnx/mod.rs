//! ONNX models: read, inferred, fused, and lowered to tasks.

mod fuse;
mod infer;
mod lower;
pub(crate) mod model;
pub(crate) mod op;
mod pointwise;
mod proto;
mod read;

use crate::error::ImportError;
use crate::import::Import;

/// Imports a model. `name` is the file's, for messages; `dims` gives symbolic dimensions of the
/// inputs their extents. A dimension without a name is called `INPUT:INDEX`.
pub fn import_onnx(bytes: &[u8], name: &str, dims: &[(String, i64)]) -> Result<Import, ImportError> {
    import(bytes, dims).map_err(|fault| ImportError::from((fault, name)))
}

fn import(bytes: &[u8], dims: &[(String, i64)]) -> Result<Import, read::Fault> {
    let mut model = read::read(bytes, dims)?;
    let inferred = infer::infer(&mut model, bytes.len())?;
    lower::lower(model, inferred)
}

#[cfg(test)]
mod tests;
