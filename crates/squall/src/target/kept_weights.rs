//! A folder in the user's cache for prepared weights of networks, so that the next run of a network
//! need not pack them again. The network's program writes, checks and maps the files
//! (`runtime/host/packed.h`); this file decides whether a network's weights are worth one, names
//! its path, and removes the least recently used files to make room.

use rustix::io::Errno;
use rustix::process::{Pid, geteuid, test_kill_process};
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// Weights of fewer bytes are not kept: packing them takes no longer than finding their file.
const LEAST: u64 = 64 << 20;
/// The most bytes of all files together; they also take at most half of the disk's free space,
/// counted as if they were absent.
const LIMIT: u64 = 32 << 30;
/// The prefix of the names of unfinished files.
const UNFINISHED: &str = "new-";
/// An unfinished file of this age belongs to a process that died.
const ABANDONED: Duration = Duration::from_secs(3600);

/// The folder of prepared weights.
#[derive(Clone, Debug)]
pub struct KeptWeights {
    folder: PathBuf,
    least: u64,
    limit: u64,
}

impl KeptWeights {
    /// Weights kept in `folder`, which need not exist yet. Networks with fewer than `least` bytes
    /// of prepared weights keep none (64 MiB if `None`).
    pub fn new(folder: PathBuf, least: Option<u64>) -> KeptWeights {
        KeptWeights { folder, least: least.unwrap_or(LEAST), limit: LIMIT }
    }

    /// Whether weights of this size are worth a file.
    pub fn is_worth(&self, bytes: u64) -> bool {
        bytes > 0 && bytes >= self.least
    }

    /// Where the file of a name lies, or will lie, once there is room for `bytes`; none where there
    /// is not, and where others than this user may write to the folder.
    pub fn place(&self, name: &str, bytes: u64) -> Option<PathBuf> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder).ok()?;
        let about = fs::symlink_metadata(&self.folder).ok()?;
        if !about.is_dir() || about.uid() != geteuid().as_raw() || about.mode() & 0o022 != 0 {
            return None;
        }
        let path = self.folder.join(name);
        (path.is_file() || self.make_room(bytes)).then_some(path)
    }

    /// Removes what processes that died left unfinished and, to make room for `bytes`, what was not
    /// used for longest; whether there is room then.
    fn make_room(&self, bytes: u64) -> bool {
        let now = SystemTime::now();
        let mut all: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let Ok(about) = entry.metadata() else { continue };
            // The program notes each use as the time of access.
            let used = about.accessed().unwrap_or(SystemTime::UNIX_EPOCH);
            let written = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            if let Some(rest) = entry.file_name().to_string_lossy().strip_prefix(UNFINISHED) {
                let is_old = now.duration_since(written).is_ok_and(|age| age > ABANDONED);
                if is_old || !is_alive(rest) {
                    let _ = fs::remove_file(entry.path());
                }
            } else if about.is_file() {
                all.push((used, about.len(), entry.path()));
            }
        }
        let Ok(disk) = rustix::fs::statvfs(&self.folder) else { return false };
        let mut kept: u64 = all.iter().map(|f| f.1).sum();
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let limit = self.limit.min(free.saturating_add(kept) / 2);
        if bytes > limit {
            return false;
        }
        all.sort();
        for (_, size, path) in all {
            if kept + bytes <= limit {
                break;
            }
            if fs::remove_file(path).is_ok() {
                kept -= size;
            }
        }
        kept + bytes <= limit
    }
}

/// Whether the process that an unfinished file is of still runs. One of another container may be
/// taken for dead: it goes on without its file.
fn is_alive(rest: &str) -> bool {
    let number = rest.split('-').next().and_then(|n| n.parse().ok());
    let known = number.and_then(Pid::from_raw).map(test_kill_process);
    known.is_some_and(|found| found != Err(Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::path::Path;

    /// A file of `bytes` that was used `ago` seconds ago.
    fn file(folder: &Path, name: &str, bytes: u64, ago: u64) {
        let file = File::create(folder.join(name)).unwrap();
        file.set_len(bytes).unwrap();
        let then = SystemTime::now() - Duration::from_secs(ago);
        let times = fs::FileTimes::new().set_accessed(then).set_modified(then);
        file.set_times(times).unwrap();
    }

    #[test]
    fn what_was_not_used_for_longest_makes_room() {
        let folder = tempfile::tempdir().unwrap();
        let kept = KeptWeights { folder: folder.path().join("w"), least: 0, limit: 1000 };
        assert!(kept.place("a", 1001).is_none());
        assert!(kept.place("a", 400).is_some());
        for (name, bytes, ago) in [("a", 400, 10), ("b", 300, 20), ("c", 300, 5)] {
            file(&kept.folder, name, bytes, ago);
        }
        file(&kept.folder, "new-7-d", 900, 2 * 3600);
        let ours = format!("new-{}-e", std::process::id());
        file(&kept.folder, &ours, 900, 60);
        // No process has this number.
        file(&kept.folder, "new-2147483646-e", 900, 60);
        // What is there needs no room.
        assert!(kept.place("b", 300).is_some());
        assert!(kept.place("f", 500).is_some());
        let mut left: Vec<_> = fs::read_dir(&kept.folder)
            .unwrap()
            .map(|f| f.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, ["c".to_string(), ours]);
    }

    #[test]
    fn folders_of_others_are_not_used() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let kept = KeptWeights { folder: folder.path().join("w"), least: 0, limit: 1000 };
        assert!(kept.place("a", 1).is_some());
        fs::set_permissions(&kept.folder, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(kept.place("a", 1).is_none());
    }
}
