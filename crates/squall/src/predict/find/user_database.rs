//! Writes a chooser's answers into a user find database, the file of a user's that MIOpen reads
//! before its own. Input: lines (a problem with its solvers); the file is read, merged and replaced
//! as a whole, and every line that it had stays. `api/choose.rs` calls it.

use crate::base::error::Error;
use squall_frontend::miopen::find::{UserLine, merge, recognise};
use squall_frontend::miopen::{DatabaseError, Form, unpack};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Adds lines, all or none, and returns how many were added. A problem that the file has keeps its
/// line, because the line's times were measured.
pub fn write(path: &Path, lines: &[UserLine]) -> Result<usize, Error> {
    let name = path.display().to_string();
    let refuse = |what: &str, remedy: &str| {
        Err(DatabaseError { name: name.clone(), what: what.into(), remedy: remedy.into() }.into())
    };
    // Links are followed, so that the file that they point to is replaced and they stay.
    let target = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let old = match crate::base::files::read(&target) {
        Ok(bytes) => bytes,
        Err(Error::Read { source, .. }) if source.kind() == ErrorKind::NotFound => Vec::new(),
        Err(e) => return Err(e),
    };
    let permissions = std::fs::metadata(&target).ok().map(|m| m.permissions());
    if permissions.as_ref().is_some_and(std::fs::Permissions::readonly) {
        return refuse("this database is read-only", "give another file, or make it writable");
    }
    if old.starts_with(&[0x1f, 0x8b]) || old.starts_with(b"BZh") {
        return refuse(
            "MIOpen reads no packed user database",
            "unpack it first, or give another file",
        );
    }
    let (form, old) = unpack(&name, old)?;
    let old = match (form, String::from_utf8(old)) {
        (Form::Text, Ok(text)) => text,
        _ => {
            return refuse(
                "this is no text of a find database",
                "give a user find database of MIOpen's (.ufdb.txt), or a new file",
            );
        }
    };
    recognise(&name, &old)?;
    let (text, added) = merge(&old, lines);
    if added == 0 && !old.is_empty() {
        return Ok(0);
    }
    let folder = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let replace = || -> std::io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(text.as_bytes())?;
        // An existing file keeps its permissions; a new one gets those of any new file.
        let mode = permissions.unwrap_or(std::fs::Permissions::from_mode(0o644));
        file.as_file().set_permissions(mode)?;
        file.as_file().sync_all()?;
        file.persist(&target)?;
        Ok(())
    };
    replace().map_err(|source| Error::Write { path: path.into(), source })?;
    Ok(added)
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_core::find::FindSolver;

    const KEY: &str = "256-56-56-1x1-128-56-56-64-0x0-1x1-1x1-0-NCHW-FP16-F";

    fn line() -> UserLine {
        let solver = FindSolver { name: "A".into(), algorithm: "FwdAlgoDirect".into() };
        UserLine { key: KEY.into(), solvers: vec![(solver, 0.5, 0)] }
    }

    #[test]
    fn what_was_there_stays_and_what_is_no_database_is_not_touched() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("gfx942130.HIP.ufdb.txt");
        assert_eq!(write(&path, &[line()]).unwrap(), 1);
        assert_eq!(write(&path, &[line()]).unwrap(), 0);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, format!("{KEY}=A:0.5,0,miopenConvolutionFwdAlgoDirect\n"));
        for old in [&b"{\"json\": 1}\n"[..], b"\x1f\x8b\x08junk", b"\xff\xfe\x00"] {
            std::fs::write(&path, old).unwrap();
            assert!(write(&path, &[line()]).is_err());
            assert_eq!(std::fs::read(&path).unwrap(), old);
        }
        assert!(write(&place.path().join("no/such/folder.txt"), &[line()]).is_err());
    }
}
