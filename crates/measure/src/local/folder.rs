//! A measurer's temporary folder. It is removed with the measurer; that of a measurer that was
//! killed is removed by the next one.

use rustix::fs::{FlockOperation, flock};
use squall_core::MeasurerError;
use std::fs::{self, File};
use std::path::Path;
use tempfile::TempDir;

const PREFIX: &str = "squall-measure-";
/// What the folders of earlier builds are called.
const FORMER_PREFIX: &str = "squall-lab-";
const LOCK: &str = "lock";

/// A folder that belongs to one living process, which holds a lock in it.
pub(crate) struct Folder {
    dir: TempDir,
    _lock: File,
}

impl Folder {
    /// A new folder in `parent`; those of dead processes there are removed.
    pub fn open(parent: &Path) -> Result<Folder, MeasurerError> {
        sweep(parent);
        let dir = tempfile::Builder::new()
            .prefix(PREFIX)
            .tempdir_in(parent)
            .map_err(|e| MeasurerError::folder(parent, &e))?;
        let early = dir.path().join("lock.new");
        let lock = File::create(&early).map_err(|e| MeasurerError::folder(&early, &e))?;
        // It is locked before it has its name. So a lock of that name that is free belongs to a
        // process that is dead.
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|e| MeasurerError::folder(&early, &std::io::Error::from(e)))?;
        fs::rename(&early, dir.path().join(LOCK)).map_err(|e| MeasurerError::folder(&early, &e))?;
        Ok(Folder { dir, _lock: lock })
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// Removes the folders of measurers that were killed. Nothing here is worth an error.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !name.starts_with(PREFIX) && !name.starts_with(FORMER_PREFIX) {
            continue;
        }
        if let Ok(lock) = File::open(entry.path().join(LOCK))
            && flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swept_when_the_owner_is_dead_only() {
        let parent = tempfile::tempdir().unwrap();
        let alive = Folder::open(parent.path()).unwrap();
        let dead = parent.path().join("squall-measure-dead");
        fs::create_dir(&dead).unwrap();
        fs::write(dead.join(LOCK), "").unwrap();
        let young = parent.path().join("squall-measure-young");
        fs::create_dir(&young).unwrap();
        let second = Folder::open(parent.path()).unwrap();
        assert!(alive.path().exists() && second.path().exists() && young.exists());
        assert!(!dead.exists());
        let path = second.path().to_path_buf();
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn a_parent_that_is_no_folder_is_named() {
        let error = Folder::open(Path::new("/nonexistent/place")).err().unwrap().to_string();
        assert!(error.contains("/nonexistent/place") && error.contains("TMPDIR"), "{error}");
    }
}
