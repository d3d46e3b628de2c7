//! Writes predicted parameters into a user database, the file of a user's from which MIOpen reads
//! tuned parameters. Input: rows (a convolution, a solver, its values). A text file is replaced as
//! a whole, an SQLite file changed in one transaction; rows of other problems and solvers stay as
//! they were. `api/predict.rs` calls it.

use crate::base::error::Error;
use squall_frontend::miopen::{Convolution, DatabaseError, Form, sqlite, text, unpack};
use std::io::{ErrorKind, Write};
use std::path::Path;

/// A row of the database: the predicted parameters of one solver for one problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The problem.
    pub convolution: Convolution,
    /// The solver that the values are for.
    pub solver: String,
    /// Its serialised values.
    pub values: String,
}

/// Writes rows into a user database, all or none. An existing file keeps its form; a new one is
/// SQLite where its name ends in `.db` or `.udb`, else text.
pub fn write(path: &Path, rows: &[Row]) -> Result<(), Error> {
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
    let is_new = old.is_empty();
    let (form, old) = unpack(&name, old)?;
    let ends = path.extension().is_some_and(|e| e == "db" || e == "udb");
    if form == Form::Sqlite || is_new && ends {
        let rows: Vec<_> = rows
            .iter()
            .map(|r| (r.convolution.clone(), r.solver.clone(), r.values.clone()))
            .collect();
        return Ok(sqlite::write(&target, &rows)?);
    }
    let Ok(old) = String::from_utf8(old) else {
        return refuse(
            "this is neither a text nor a SQLite database",
            "give a user database of MIOpen's, or a new file",
        );
    };
    text::recognise(&name, &old)?;
    let rows: Vec<_> =
        rows.iter().map(|r| (r.convolution.key(), r.solver.clone(), r.values.clone())).collect();
    let folder = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let replace = || -> std::io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(text::merge(&old, &rows).as_bytes())?;
        // An existing file keeps its permissions; a new one gets those of any new file.
        let mode = match permissions {
            Some(p) => p,
            None => std::os::unix::fs::PermissionsExt::from_mode(0o644),
        };
        file.as_file().set_permissions(mode)?;
        file.as_file().sync_all()?;
        file.persist(&target)?;
        Ok(())
    };
    replace().map_err(|source| Error::Write { path: path.into(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_core::forecast::serialised;
    use squall_frontend::miopen::read;

    const KEY: &str = "256-56-56-1x1-128-56-56-64-0x0-1x1-1x1-0-NCHW-FP16-F";

    fn row(values: &str) -> Row {
        Row {
            convolution: Convolution::parse(KEY).unwrap(),
            solver: "ConvAsm1x1U".into(),
            values: values.into(),
        }
    }

    #[test]
    fn what_is_written_is_read_again_and_what_was_there_stays() {
        let place = tempfile::tempdir().unwrap();
        for (file, old) in [
            ("gfx906_60.updb.txt", Some("# mine\n")),
            ("gfx906_60.new.txt", None),
            ("gfx906_60.udb", None),
        ] {
            let path = place.path().join(file);
            if let Some(old) = old {
                let other = KEY.replace("256-", "512-");
                std::fs::write(
                    &path,
                    format!("{other}=Other:7\n{old}{KEY}=Other:1,2;ConvAsm1x1U:4,8,8,16,1,2,1,1\n"),
                )
                .unwrap();
            }
            let before = read(&path, None).map_or(0, |d| d.examples.len());
            write(&path, &[row("1,8,2,16,1,2,1,1"), row("2,8,4,16,1,2,1,1")]).unwrap();
            let d = read(&path, None).unwrap();
            let of = |s: &str| {
                d.examples
                    .iter()
                    .filter(|e| e.problem.solver == s)
                    .map(|e| serialised(&e.values))
                    .collect::<Vec<_>>()
            };
            assert_eq!(of("ConvAsm1x1U"), ["2,8,4,16,1,2,1,1"], "{file}");
            assert_eq!(d.examples.len(), before.max(1), "{file}");
            assert_eq!(
                std::fs::read_dir(place.path())
                    .unwrap()
                    .filter(|f| f.as_ref().unwrap().file_name().to_string_lossy().contains(".tmp"))
                    .count(),
                0
            );
        }
        assert!(
            std::fs::read_to_string(place.path().join("gfx906_60.updb.txt"))
                .unwrap()
                .contains("# mine\n")
        );
    }

    #[test]
    fn what_cannot_be_written_stays_as_it_is() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("gfx906_60.updb.txt");
        for old in [&b"{\"json\": 1}\n"[..], b"\x1f\x8b\x08junk", b"\xff\xfe\x00"] {
            std::fs::write(&path, old).unwrap();
            assert!(write(&path, &[row("1")]).is_err());
            assert_eq!(std::fs::read(&path).unwrap(), old);
        }
        std::fs::write(&path, format!("{KEY}=Other:1\n")).unwrap();
        let mut p = std::fs::metadata(&path).unwrap().permissions();
        p.set_readonly(true);
        std::fs::set_permissions(&path, p).unwrap();
        let e = write(&path, &[row("1")]).unwrap_err().to_string();
        assert!(e.contains("read-only"), "{e}");
        assert!(write(&place.path().join("no/such/folder.txt"), &[row("1")]).is_err());
    }
}
