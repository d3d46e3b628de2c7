//! Waiting for the locks that other processes hold on a store: how long ([`Patience`]), which
//! processes hold them (as Linux lists them in `/proc/locks`), and who can end the wait. SQLite
//! calls `Wait::again` while a file is locked.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The rules by which a locked store is waited for.
#[derive(Clone)]
pub struct Patience {
    /// After this time the operation fails.
    pub limit: Duration,
    /// After this time `say` learns who is waited for.
    pub silent: Duration,
    /// Hears once of each wait that is longer than `silent`.
    pub say: Arc<dyn Fn(&str) + Send + Sync>,
    /// Asked many times a second: whether the wait should end.
    pub stop: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl Default for Patience {
    /// A minute in silence.
    fn default() -> Patience {
        Patience {
            limit: Duration::from_secs(60),
            silent: Duration::from_secs(3),
            say: Arc::new(|_| ()),
            stop: Arc::new(|| false),
        }
    }
}

static PATIENCE: OnceLock<Patience> = OnceLock::new();

/// Says how this process waits for locked stores that it opens from now on. Only the first call
/// counts; false for every later one.
pub fn set_patience(patience: Patience) -> bool {
    PATIENCE.set(patience).is_ok()
}

/// The waits of one connection.
pub(crate) struct Wait {
    path: PathBuf,
    patience: Patience,
    /// Whether the last wait was ended by `stop`.
    stopped: Arc<AtomicBool>,
    began: Instant,
    has_said: bool,
}

impl Wait {
    /// Waits for the store at `path`, at most to the limit where there is one; `stopped` is set
    /// where a wait is ended from outside.
    pub fn new(path: &Path, limit: Option<Duration>, stopped: Arc<AtomicBool>) -> Wait {
        let mut patience = PATIENCE.get().cloned().unwrap_or_default();
        patience.limit = limit.unwrap_or(patience.limit);
        Wait { path: path.into(), patience, stopped, began: Instant::now(), has_said: false }
    }

    /// Waits a moment; false where the wait is over. `tries` counts from 0 in each wait.
    pub fn again(&mut self, tries: i32) -> bool {
        if tries == 0 {
            self.began = Instant::now();
            self.has_said = false;
            self.stopped.store(false, Ordering::Relaxed);
        }
        if (self.patience.stop)() {
            self.stopped.store(true, Ordering::Relaxed);
            return false;
        }
        let waited = self.began.elapsed();
        if waited >= self.patience.limit {
            return false;
        }
        if waited >= self.patience.silent && !self.has_said {
            self.has_said = true;
            let left = self.patience.limit.saturating_sub(waited).as_secs();
            (self.patience.say)(&format!(
                "waiting for the store `{}`, which {} holds locked; at most {left} s more",
                self.path.display(),
                named(&holders(&self.path)),
            ));
        }
        std::thread::sleep(Duration::from_millis(if tries < 20 { 1 } else { 20 }));
        true
    }
}

/// Processes in words.
pub(crate) fn named(holders: &[String]) -> String {
    match holders {
        [] => "another program".into(),
        some => some.join(" and "),
    }
}

/// The processes that hold locks of a store, as the system lists them: number and name. None where
/// it lists none.
pub(crate) fn holders(path: &Path) -> Vec<String> {
    let files = ["", "-wal", "-shm"].map(|ending| {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        inode(Path::new(&name))
    });
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    let own = std::process::id();
    let mut found: Vec<String> = Vec::new();
    for line in locks.lines().filter(|l| !l.contains("->")) {
        // `1: POSIX  ADVISORY  WRITE 1234 08:01:5678 0 EOF`
        let words: Vec<&str> = line.split_whitespace().collect();
        let (Some(pid), Some(place)) = (words.get(4), words.get(5)) else { continue };
        let locked = place.rsplit(':').next().and_then(|i| i.parse::<u64>().ok());
        let (Some(locked), Ok(pid)) = (locked, pid.parse::<u32>()) else { continue };
        if pid == own || !files.contains(&Some(locked)) {
            continue;
        }
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let text = format!("process {pid} ({})", if name.is_empty() { "?" } else { name.trim() });
        if !found.contains(&text) {
            found.push(text);
        }
    }
    found
}

/// The number of a file within its file system.
fn inode(path: &Path) -> Option<u64> {
    identity(path).map(|i| i.1)
}

/// The file system and the number of a file, by which a path is seen to name another file now.
pub(crate) fn identity(path: &Path) -> Option<(u64, u64)> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(path).ok().map(|m| (m.dev(), m.ino()))
    }
    #[cfg(not(unix))]
    {
        let _ = path;
        None
    }
}
