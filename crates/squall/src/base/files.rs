//! Safe reading and writing of files that users name. Only regular files are read, because a pipe
//! would block for ever and a device has no end; sizes are limited. A file is written whole or not
//! at all: to a new name beside it, which is then renamed. All code of the crate that touches a
//! user's path goes through this file (invariant 13 of ARCHITECTURE.md).

use crate::base::error::Error;
use rustix::fs::OFlags;
use squall_frontend::onnx::{self, read_thin};
use std::fs::{File, OpenOptions};
use std::io::{BufReader, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The largest file that is read whole, in bytes: protocol buffers, and so models, end there.
const MOST: u64 = 2 << 30;

/// Squall's cache folder, whose contents may be removed at any time: `squall` in `$XDG_CACHE_HOME`,
/// or else in `~/.cache`. It need not exist yet; none where the environment names neither.
pub fn user_cache() -> Option<PathBuf> {
    // A relative path counts as none: so says the specification of the variable.
    let named = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let folder = named("XDG_CACHE_HOME").or_else(|| Some(named("HOME")?.join(".cache")))?;
    Some(folder.join("squall"))
}

/// Opens a regular file for reading.
///
/// # Errors
/// Where it cannot be read, and where it is a pipe, a device or a folder.
pub fn open(path: &Path) -> Result<File, Error> {
    let fail = |source| Error::Read { path: path.into(), source };
    let special = |m: &std::fs::Metadata| {
        let kind = if m.is_dir() { "a folder" } else { "a pipe, a socket or a device" };
        Error::Input {
            place: path.display().to_string(),
            message: format!("it is {kind}, and only files are read"),
            hint: "save what it gives to a file and name that".into(),
        }
    };
    let before = std::fs::metadata(path).map_err(fail)?;
    if !before.is_file() {
        return Err(special(&before));
    }
    // Should a pipe have taken its place since, opening it must not wait for its other end.
    let flags = OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(fail)?;
    let now = file.metadata().map_err(fail)?;
    if now.is_file() { Ok(file) } else { Err(special(&now)) }
}

/// Reads a regular file of at most 2 GiB.
///
/// # Errors
/// As [`open`], and where the file is larger.
pub fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let fail = |source| Error::Read { path: path.into(), source };
    let file = open(path)?;
    let length = file.metadata().map_err(fail)?.len();
    if length > MOST {
        return Err(Error::Input {
            place: path.display().to_string(),
            message: format!("it has {length} bytes; at most {MOST} are read"),
            hint: "check that it is the file that you mean".into(),
        });
    }
    let mut bytes = Vec::with_capacity(length as usize);
    // A file that grows meanwhile is read up to the same limit.
    file.take(MOST).read_to_end(&mut bytes).map_err(fail)?;
    Ok(bytes)
}

/// Reads a model's file, whose large weights stay where they are: of those
/// [`squall_frontend::onnx::External::is_own`] holds.
///
/// # Errors
/// As [`read`].
pub fn read_model(path: &Path) -> Result<Vec<u8>, Error> {
    read_parts(path, read_thin)
}

/// Reads a model's file, but only the smallest of its weights: the others stay where they are.
///
/// # Errors
/// As [`read`].
pub fn read_outline(path: &Path) -> Result<Vec<u8>, Error> {
    read_parts(path, onnx::read_outline)
}

/// Reads the parts of a file that `parts` takes, and the whole file where it takes none.
fn read_parts(
    path: &Path,
    parts: impl FnOnce(&mut BufReader<File>, u64) -> std::io::Result<Option<Vec<u8>>>,
) -> Result<Vec<u8>, Error> {
    let fail = |source| Error::Read { path: path.into(), source };
    let file = open(path)?;
    let length = file.metadata().map_err(fail)?.len();
    if length <= MOST
        && let Some(bytes) = parts(&mut BufReader::new(file), length).map_err(fail)?
    {
        return Ok(bytes);
    }
    read(path)
}

/// Reads a regular file of text.
///
/// # Errors
/// As [`read`], and where it is no text.
pub fn read_text(path: &Path) -> Result<String, Error> {
    String::from_utf8(read(path)?).map_err(|e| Error::Input {
        place: path.display().to_string(),
        message: format!("it is not text: byte {} is not UTF-8", e.utf8_error().valid_up_to()),
        hint: "check that it is the file that you mean".into(),
    })
}

/// Writes a file; one that was there is replaced only once the new one is whole. Devices and pipes
/// are written to as they are.
pub fn put(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let fail = |source| Error::Write { path: path.into(), source };
    if path.exists() && !path.is_file() {
        return std::fs::write(path, bytes).map_err(fail);
    }
    put_in_folder(path, bytes)
}

/// Writes a file of a folder that Squall makes. Whatever had its name is replaced, and nothing is
/// followed: a link with the name of a file of ours cannot lead the writing elsewhere.
pub fn put_in_folder(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    put_in_folder_by(path, &mut |to| to.write_all(bytes))
}

/// A function that writes a file's contents.
pub type Writes<'a> = dyn FnMut(&mut dyn Write) -> std::io::Result<()> + 'a;

/// The same of a file that is written piece by piece.
pub fn put_in_folder_by(path: &Path, writes: &mut Writes<'_>) -> Result<(), Error> {
    let fail = |source| Error::Write { path: path.into(), source };
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut part = tempfile::NamedTempFile::new_in(folder).map_err(fail)?;
    writes(part.as_file_mut()).map_err(fail)?;
    // A temporary file is for its owner alone; this one is as others are.
    part.as_file().set_permissions(std::fs::Permissions::from_mode(0o644)).map_err(fail)?;
    part.persist(path).map_err(|e| fail(e.error))?;
    Ok(())
}

/// Makes a folder inside one that Squall writes, and refuses a link in its place.
pub fn make_folder(path: &Path) -> Result<(), Error> {
    let fail = |source| Error::Write { path: path.into(), source };
    match std::fs::symlink_metadata(path) {
        Ok(m) if m.is_dir() => Ok(()),
        Ok(_) => Err(Error::Input {
            place: path.display().to_string(),
            message: "a folder is written there, and what is there is none or a link".into(),
            hint: "remove it, or name another folder".into(),
        }),
        Err(_) => std::fs::create_dir_all(path).map_err(fail),
    }
}

/// Removes a link that has the name of a file which a compiler is about to write.
pub fn unlink(path: &Path) {
    if std::fs::symlink_metadata(path).is_ok_and(|m| m.is_symlink()) {
        // Where it cannot be removed, writing fails and says so.
        let _ = std::fs::remove_file(path);
    }
}

/// Whether a file holds JSON, packed by gzip or not, as far as its name and its first bytes say.
pub fn holds_json(path: &Path) -> bool {
    let name = path.to_string_lossy();
    if name.ends_with(".json") || name.ends_with(".json.gz") {
        return true;
    }
    let mut head = Vec::new();
    // What cannot be read is for its reader to complain of.
    let _ = open(path).map(|f| f.take(1 << 16).read_to_end(&mut head));
    squall_frontend::recording::begins_json(&head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipes_devices_and_folders_are_not_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let pipe = folder.path().join("model.onnx");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .expect("a pipe");
        let (done, end) = std::sync::mpsc::channel();
        let all = [pipe, "/dev/zero".into(), folder.path().to_path_buf()];
        // Opening a pipe waits for its other end, so another thread tries it.
        std::thread::spawn(move || {
            for path in &all {
                let said = read(path).map_or_else(|e| e.to_string(), |_| "read".into());
                let _ = done.send((said, holds_json(path)));
            }
        });
        for _ in 0..3 {
            let (said, json) = end
                .recv_timeout(std::time::Duration::from_secs(20))
                .expect("it waits for what is no file");
            assert!(said.contains("only files are read") && !json, "{said}");
        }
        let sparse = folder.path().join("sparse.ops");
        File::create(&sparse).and_then(|f| f.set_len(MOST + 1)).expect("a sparse file");
        let e = read(&sparse).expect_err("it is too large");
        assert!(e.to_string().contains("at most"), "{e}");
    }

    #[test]
    fn links_lead_no_writing_elsewhere() {
        let (folder, other) =
            (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let outside = other.path().join("precious");
        std::fs::write(&outside, "mine").expect("written");
        let link = folder.path().join("driver.c");
        std::os::unix::fs::symlink(&outside, &link).expect("a link");
        put_in_folder(&link, b"ours").expect("written");
        assert_eq!(std::fs::read(&outside).expect("it is there"), b"mine");
        assert_eq!(std::fs::read(&link).expect("it is there"), b"ours");
        let runtime = folder.path().join("runtime");
        std::os::unix::fs::symlink(other.path(), &runtime).expect("a link");
        assert!(make_folder(&runtime).is_err());
        assert!(make_folder(&folder.path().join("new")).is_ok());
    }
}
