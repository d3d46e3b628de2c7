//! Temporary folders of measurers and builds. A folder is private to its user, is held by a lock
//! file of its living process, and is removed when it is dropped; folders of processes that were
//! killed are removed by the next process that opens one.

use rustix::fs::{FileType, FlockOperation, Mode, OFlags, flock, fstat, open, openat};
use squall_core::MeasurerError;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

/// The prefix of the folders' names, the same in all versions of Squall.
const PREFIX: &str = "squall-";
const LOCK: &str = "lock";
/// The lock file's name while it is being made.
const EARLY: &str = "lock.new";
/// The prefix to which a folder of a dead process is renamed before its removal.
const DEAD: &str = "squall-dead-";
/// A folder without a lock that is older than this was left by a process that died in its first
/// moments.
const YOUNG: Duration = Duration::from_secs(3600);

/// A folder under the system's temporary folder that belongs to one living process, which holds a
/// lock in it.
#[derive(Debug)]
pub struct TemporaryFolder {
    dir: TempDir,
    _lock: File,
}

impl TemporaryFolder {
    /// A new folder `squall-PURPOSE-..` among the system's temporary ones.
    pub fn new(purpose: &str) -> Result<TemporaryFolder, MeasurerError> {
        TemporaryFolder::open_in(&std::env::temp_dir(), purpose)
    }

    /// A new folder in `parent`; those of dead processes of the same user there are removed.
    pub fn open_in(parent: &Path, purpose: &str) -> Result<TemporaryFolder, MeasurerError> {
        sweep(parent);
        let dir = tempfile::Builder::new()
            .prefix(&format!("{PREFIX}{purpose}-"))
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(parent)
            .map_err(|e| MeasurerError::folder(parent, &e))?;
        let early = dir.path().join(EARLY);
        let lock = File::create(&early).map_err(|e| MeasurerError::folder(&early, &e))?;
        // It is locked before it has its name. So a lock of that name that is free belongs to a
        // process that is dead.
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|e| MeasurerError::folder(&early, &std::io::Error::from(e)))?;
        fs::rename(&early, dir.path().join(LOCK)).map_err(|e| MeasurerError::folder(&early, &e))?;
        Ok(TemporaryFolder { dir, _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// Removes the folders of processes that were killed. Nothing here is worth an error.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let Some(own) = name.strip_prefix(PREFIX) else { continue };
        let known = name.strip_prefix(DEAD);
        if is_abandoned(&path, known.is_some()) {
            remove(&path, &path.with_file_name(format!("{DEAD}{}", known.unwrap_or(own))));
        }
    }
}

/// Removes a dead process's folder, which gets the name `dead` first, if it does not have it. A
/// compiler that outlived its process may still write there, so that the folder is not empty when
/// it is to go, and then its lock is gone already. By that name the next sweep needs no lock, and
/// writers by the old path do not find the folder.
fn remove(path: &Path, dead: &Path) {
    let is_renamed = fs::rename(path, dead).is_ok();
    let _ = fs::remove_dir_all(if is_renamed { dead } else { path });
}

/// Whether a folder is one of this user's whose process is dead, as its name says already or a free
/// lock tells. Others may have put anything there, so links are not followed and pipes not waited
/// for.
fn is_abandoned(path: &Path, is_dead_by_name: bool) -> bool {
    let folder = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(folder) = open(path, folder | OFlags::RDONLY, Mode::empty()) else { return false };
    let ours = rustix::process::geteuid().as_raw();
    let Some(stat) = fstat(&folder).ok().filter(|s| s.st_uid == ours) else { return false };
    if is_dead_by_name {
        // Ours are their owner's alone.
        return stat.st_mode & 0o777 == 0o700;
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match openat(&folder, LOCK, flags, Mode::empty()) {
        Ok(lock) => {
            let is_file =
                |s: rustix::fs::Stat| FileType::from_raw_mode(s.st_mode) == FileType::RegularFile;
            fstat(&lock).is_ok_and(is_file)
                && flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
        }
        Err(rustix::io::Errno::NOENT) => is_old_and_empty(path),
        Err(_) => false,
    }
}

/// Whether a folder without a lock holds nothing but an unfinished one, and has so for a while.
fn is_old_and_empty(path: &Path) -> bool {
    let age = fs::symlink_metadata(path).map(|m| m.mtime()).map_or(0, |made| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(0, |n| (n.as_secs() as i64).saturating_sub(made))
    });
    let is_empty = fs::read_dir(path).is_ok_and(|mut all| {
        all.all(|e| e.is_ok_and(|e| e.file_name().to_string_lossy() == EARLY))
    });
    is_empty && age > YOUNG.as_secs() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(parent: &Path) -> TemporaryFolder {
        TemporaryFolder::open_in(parent, "measure").unwrap()
    }

    #[test]
    fn swept_when_the_owner_is_dead_only() {
        let parent = tempfile::tempdir().unwrap();
        let alive = open(parent.path());
        let dead = parent.path().join("squall-lab-dead");
        fs::create_dir(&dead).unwrap();
        fs::write(dead.join(LOCK), "").unwrap();
        let young = parent.path().join("squall-probe-young");
        fs::create_dir(&young).unwrap();
        let old = parent.path().join("squall-probe-old");
        fs::create_dir(&old).unwrap();
        File::create(old.join(EARLY)).unwrap();
        let ago = std::time::SystemTime::now() - 2 * YOUNG;
        File::open(&old).unwrap().set_modified(ago).unwrap();
        let second = open(parent.path());
        assert!(alive.path().exists() && second.path().exists() && young.exists());
        assert!(!dead.exists() && !old.exists());
        let path = second.path().to_path_buf();
        drop(second);
        assert!(!path.exists());
    }

    /// A dead process's folder is swept while a compiler writes into it by a handle, as a process
    /// does whose working directory it is; then once more.
    fn swept_while_written() {
        let parent = tempfile::tempdir().unwrap();
        let dead = parent.path().join("squall-probe-x");
        fs::create_dir(&dead).unwrap();
        fs::set_permissions(&dead, Permissions::from_mode(0o700)).unwrap();
        fs::write(dead.join(LOCK), "").unwrap();
        let handle = File::open(&dead).unwrap();
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let is_writing = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut n = 0;
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
                    let _ = openat(&handle, format!("cc{n}.s"), flags, Mode::RWXU);
                    n += 1;
                    if n == 100 {
                        is_writing.wait();
                    }
                }
            });
            is_writing.wait();
            for _ in 0..20 {
                sweep(parent.path());
            }
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        sweep(parent.path());
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_compiler_that_still_writes_leaves_nothing_for_ever() {
        for _ in 0..20 {
            swept_while_written();
        }
    }

    #[test]
    fn what_others_put_there_is_neither_followed_nor_waited_for() {
        let parent = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        fs::write(elsewhere.path().join(LOCK), "").unwrap();
        let link = parent.path().join("squall-measure-link");
        std::os::unix::fs::symlink(elsewhere.path(), &link).unwrap();
        let trap = parent.path().join("squall-lab-x");
        fs::create_dir(&trap).unwrap();
        let pipe = trap.join(LOCK);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
        let (done, end) = std::sync::mpsc::channel();
        let place = parent.path().to_path_buf();
        std::thread::spawn(move || done.send(open(&place).path().exists()));
        let made = end.recv_timeout(Duration::from_secs(20));
        assert_eq!(made, Ok(true), "it waits for the other end of a pipe");
        assert!(elsewhere.path().join(LOCK).exists() && trap.exists());
    }

    #[test]
    fn it_is_the_owners_alone() {
        let parent = tempfile::tempdir().unwrap();
        let mode = fs::metadata(open(parent.path()).path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn a_parent_that_is_no_folder_is_named() {
        let made = TemporaryFolder::open_in(Path::new("/nonexistent/place"), "measure");
        let error = made.err().unwrap().to_string();
        assert!(error.contains("/nonexistent/place") && error.contains("TMPDIR"), "{error}");
    }
}
