//! Files that are whole or not there, and what they hold.

use crate::error::Error;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Writes a file; one that was there is replaced only once the new one is whole. Devices and pipes
/// are written to as they are.
pub fn put(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let fail = |source| Error::Write { path: path.into(), source };
    if path.exists() && !path.is_file() {
        return std::fs::write(path, bytes).map_err(fail);
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut part = tempfile::NamedTempFile::new_in(folder).map_err(fail)?;
    part.write_all(bytes).map_err(fail)?;
    // A temporary file is for its owner alone; this one is as others are.
    part.as_file().set_permissions(std::fs::Permissions::from_mode(0o644)).map_err(fail)?;
    part.persist(path).map_err(|e| fail(e.error))?;
    Ok(())
}

/// Whether a file holds JSON, packed by gzip or not, as far as its name and its first bytes say.
pub fn holds_json(path: &Path) -> bool {
    let name = path.to_string_lossy();
    if name.ends_with(".json") || name.ends_with(".json.gz") {
        return true;
    }
    let mut head = Vec::new();
    // What cannot be read is for its reader to complain of.
    let _ = std::fs::File::open(path).and_then(|f| f.take(1 << 16).read_to_end(&mut head));
    squall_frontend::recording::begins_json(&head)
}
