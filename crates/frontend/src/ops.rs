//! stub
use crate::{Import, ImportError};
/// stub
pub fn import_ops(_text: &str, _name: &str) -> Result<Import, ImportError> { Ok(Import::default()) }
