//! The cache of compiled files that all processes of Squall share (in the user's cache folder).
//! Input: a key, the digest of everything that a file is made from (source, compiler, flags);
//! output: the object or program, or none. Files are never trusted: each begins with a digest of
//! its key and content, and a file that does not agree is removed and made again. A fleet's
//! builders can be asked for objects, too ([`ObjectSource`]).

use crate::folder::TemporaryFolder;
use rustix::process::geteuid;
use std::collections::HashSet;
use std::fmt;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// The beginning of a file; the number changes with the format.
const MAGIC: &[u8; 16] = b"squall object 1\n";
/// Bytes before the content: the magic and a digest.
const HEAD: usize = MAGIC.len() + blake3::OUT_LEN;
/// The default limit in bytes of all files together.
const LIMIT: u64 = 512 << 20;
/// The number of new files after which the sizes of all are summed up and the limit is enforced.
const BETWEEN: u64 = 128;
/// The age from which on the time of a used file is renewed.
const YOUNG: Duration = Duration::from_secs(3600);
/// An unfinished file of this age belongs to a process that died.
const ABANDONED: Duration = Duration::from_secs(3600);
/// The prefix of the names of unfinished files.
const UNFINISHED: &str = "new-";

/// Files that were compiled before, or a cache that keeps nothing (the default). Clones are the
/// same cache.
#[derive(Clone, Debug, Default)]
pub struct ObjectCache {
    folder: Option<Arc<Folder>>,
}

/// Other machines that make objects, which a cache asks before it has one made.
pub trait ObjectSource: Send + Sync {
    /// The object of a key, which is the same on all machines; waits while another machine makes
    /// it. None where none does: then it is made here. What it gives is run, so it is to be
    /// trusted.
    fn object(&self, key: &str, cancel: &AtomicBool) -> Option<Vec<u8>>;
}

/// Which file is wanted, and where.
#[derive(Clone, Copy)]
pub struct Wanted<'a> {
    /// The digest of what it is made from, of hexadecimal digits.
    pub key: &'a str,
    /// Where it shall lie.
    pub to: &'a Path,
    /// Whether it is a program.
    pub executable: bool,
    /// Ends waiting for another thread that makes the same file.
    pub cancel: &'a AtomicBool,
}

struct Folder {
    path: PathBuf,
    /// Removes a folder that lasts no longer than the cache.
    _temporary: Option<TemporaryFolder>,
    limit: u64,
    /// The keys of files that threads of this process are making.
    making: Mutex<HashSet<String>>,
    made: Condvar,
    kept: AtomicU64,
    source: Mutex<Option<Arc<dyn ObjectSource>>>,
}

impl fmt::Debug for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Folder").field("path", &self.path).finish_non_exhaustive()
    }
}

impl ObjectCache {
    /// The cache in a folder, which is made where it is absent.
    ///
    /// # Errors
    /// Where it cannot be made, or where others than this user may write to it.
    pub fn open(path: &Path) -> io::Result<ObjectCache> {
        ObjectCache::with_limit(path, LIMIT)
    }

    /// The same with a limit in bytes, beyond which the least recently used files are removed.
    ///
    /// # Errors
    /// As of [`ObjectCache::open`].
    pub fn with_limit(path: &Path, limit: u64) -> io::Result<ObjectCache> {
        ObjectCache::of(path, limit, None)
    }

    /// A cache that lasts no longer than its last clone.
    ///
    /// # Errors
    /// Where no temporary folder can be made.
    pub fn temporary() -> io::Result<ObjectCache> {
        let folder = TemporaryFolder::new("objects").map_err(io::Error::other)?;
        let path = folder.path().to_path_buf();
        ObjectCache::of(&path, LIMIT, Some(folder))
    }

    fn of(path: &Path, limit: u64, _temporary: Option<TemporaryFolder>) -> io::Result<ObjectCache> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let about = fs::metadata(path)?;
        if about.uid() != geteuid().as_raw() || about.mode() & 0o022 != 0 {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "others may write to it, and what lies there is run",
            ));
        }
        let (making, made, kept, source) = Default::default();
        let folder = Folder { path: path.into(), _temporary, limit, making, made, kept, source };
        folder.trim();
        Ok(ObjectCache { folder: Some(Arc::new(folder)) })
    }

    /// Whether it keeps files.
    pub fn is_kept(&self) -> bool {
        self.folder.is_some()
    }

    /// From now on asks other machines for objects of trials; or none any more.
    pub fn ask_others(&self, source: Option<Arc<dyn ObjectSource>>) {
        if let Some(folder) = &self.folder {
            *folder.source.lock().unwrap_or_else(PoisonError::into_inner) = source;
        }
    }

    /// Whether it asks other machines.
    pub(crate) fn asks_others(&self) -> bool {
        self.folder.as_ref().is_some_and(|f| f.source().is_some())
    }

    /// The object that another machine made, which is not kept: what a stranger brought is for one
    /// trial. `key` is that of [`ObjectSource`].
    pub(crate) fn of_others(&self, key: &str, cancel: &AtomicBool) -> Option<Vec<u8>> {
        self.folder.as_ref()?.source()?.object(key, cancel)
    }

    /// Whether a file of this key is kept.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.folder.as_ref().is_some_and(|f| f.path.join(key).is_file())
    }

    /// Puts the file where it is wanted: the kept one, or else what `make` writes there, which is
    /// kept then if it says that it made the file. Gives what `make` gave; `None` where the file
    /// was kept. Of threads that want the same file one makes it, and the others wait.
    ///
    /// # Errors
    /// Those of `make`. A cache that cannot be read or written is as good as none.
    pub fn obtain<T, E>(
        &self,
        wanted: Wanted<'_>,
        make: impl FnOnce() -> Result<(T, bool), E>,
    ) -> Result<Option<T>, E> {
        let Some(folder) = &self.folder else { return make().map(|(said, _)| Some(said)) };
        let _turn = folder.turn(wanted);
        if folder.fetch(wanted).is_some() {
            return Ok(None);
        }
        let (said, is_made) = make()?;
        if is_made {
            folder.keep(wanted);
        }
        Ok(Some(said))
    }
}

/// The right to make a file.
struct Turn<'a> {
    folder: &'a Folder,
    key: &'a str,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.folder.making.lock().unwrap_or_else(PoisonError::into_inner).remove(self.key);
        self.folder.made.notify_all();
    }
}

impl Folder {
    /// Waits until no other thread makes the file; `None` where the wait was cancelled.
    fn turn<'a>(&'a self, wanted: Wanted<'a>) -> Option<Turn<'a>> {
        let mut making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        while making.contains(wanted.key) {
            if wanted.cancel.load(Ordering::Relaxed) {
                return None;
            }
            let pause = Duration::from_millis(20);
            making =
                self.made.wait_timeout(making, pause).unwrap_or_else(PoisonError::into_inner).0;
        }
        making.insert(wanted.key.to_string());
        Some(Turn { folder: self, key: wanted.key })
    }

    fn source(&self) -> Option<Arc<dyn ObjectSource>> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Writes the kept file to where it is wanted, if there is one and it is whole.
    fn fetch(&self, wanted: Wanted<'_>) -> Option<()> {
        let path = self.path.join(wanted.key);
        let mut file = fs::File::open(&path).ok()?;
        let about = file.metadata().ok()?;
        let mut bytes = Vec::new();
        // A hostile file may be of any size.
        let is_read = about.len() <= self.limit && file.read_to_end(&mut bytes).is_ok();
        let content = is_read.then(|| content(wanted.key, &bytes)).flatten();
        let Some(content) = content else {
            let _ = fs::remove_file(&path);
            return None;
        };
        let now = SystemTime::now();
        let age = about.modified().ok().and_then(|at| now.duration_since(at).ok());
        if age.is_none_or(|age| age > YOUNG) {
            let _ = file.set_modified(now);
        }
        write_new(wanted, content)
    }

    /// Keeps the file that was made. No failure here is worth an error: it is made again then.
    fn keep(&self, wanted: Wanted<'_>) {
        let Ok(content) = fs::read(wanted.to) else { return };
        if content.len() as u64 > self.limit / 4 {
            return;
        }
        let n = self.kept.fetch_add(1, Ordering::Relaxed);
        let new = self.path.join(format!("{UNFINISHED}{}-{n}", std::process::id()));
        let write = || -> io::Result<()> {
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&new)?;
            file.write_all(MAGIC)?;
            file.write_all(seal(wanted.key, &content).as_bytes())?;
            file.write_all(&content)?;
            drop(file);
            fs::rename(&new, self.path.join(wanted.key))
        };
        if write().is_err() {
            let _ = fs::remove_file(&new);
            // A full disk: what is old makes room.
            self.trim();
        } else if n % BETWEEN == BETWEEN - 1 {
            self.trim();
        }
    }

    /// Removes what was not used for longest, once all files together exceed the limit, and what
    /// processes that died left unfinished.
    fn trim(&self) {
        let now = SystemTime::now();
        let mut all: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            let Ok(about) = entry.metadata() else { continue };
            let at = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let is_old = now.duration_since(at).is_ok_and(|age| age > ABANDONED);
            if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
                if is_old {
                    let _ = fs::remove_file(entry.path());
                }
            } else if about.is_file() {
                all.push((at, about.len(), entry.path()));
            }
        }
        let mut bytes: u64 = all.iter().map(|f| f.1).sum();
        if bytes <= self.limit {
            return;
        }
        all.sort();
        for (_, size, path) in all {
            if bytes <= self.limit / 4 * 3 {
                break;
            }
            if fs::remove_file(path).is_ok() {
                bytes -= size;
            }
        }
    }
}

/// Writes a file to where it is wanted; none where it cannot be written.
fn write_new(wanted: Wanted<'_>, content: &[u8]) -> Option<()> {
    let mode = if wanted.executable { 0o755 } else { 0o644 };
    // What lies there may be the text of a program that runs.
    let _ = fs::remove_file(wanted.to);
    let mut to = OpenOptions::new().write(true).create_new(true).mode(mode).open(wanted.to).ok()?;
    if to.write_all(content).is_err() {
        drop(to);
        let _ = fs::remove_file(wanted.to);
        return None;
    }
    Some(())
}

/// The head before a file's content, which ties the content to its key.
fn seal(key: &str, content: &[u8]) -> blake3::Hash {
    blake3::Hasher::new().update(key.as_bytes()).update(b"\0").update(content).finalize()
}

/// The content of a file, if it is whole and belongs to the key.
fn content<'b>(key: &str, bytes: &'b [u8]) -> Option<&'b [u8]> {
    let (head, content) = bytes.split_at_checked(HEAD)?;
    let digest: [u8; blake3::OUT_LEN] = head.strip_prefix(MAGIC)?.try_into().ok()?;
    (seal(key, content) == blake3::Hash::from_bytes(digest)).then_some(content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::os::unix::fs::PermissionsExt;

    static NEVER: AtomicBool = AtomicBool::new(false);

    /// Wants a file, which is made of the text where it is not kept; whether it was made.
    fn want(cache: &ObjectCache, key: &str, to: &Path, text: &str) -> bool {
        let wanted = Wanted { key, to, executable: false, cancel: &NEVER };
        let made = cache.obtain(wanted, || {
            fs::write(to, text).unwrap();
            Ok::<_, Infallible>(((), true))
        });
        made.unwrap().is_some()
    }

    #[test]
    fn what_was_made_is_kept_and_a_damaged_or_exchanged_file_is_not_used() {
        let (folder, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (folder, to) = (folder.path().join("in/objects"), out.path().join("x.o"));
        let cache = ObjectCache::open(&folder).unwrap();
        assert!(want(&cache, "a", &to, "first"));
        assert!(want(&cache, "b", &to, "second"));
        // Another process finds them.
        let cache = ObjectCache::open(&folder).unwrap();
        assert!(!want(&cache, "a", &to, "never"));
        assert_eq!(fs::read_to_string(&to).unwrap(), "first");
        let whole = fs::read(folder.join("a")).unwrap();
        for damage in 0..whole.len() + 2 {
            let mut bytes = whole.clone();
            match damage.checked_sub(whole.len()) {
                Some(0) => bytes.push(0),
                Some(_) => bytes.clear(),
                None => bytes[damage] ^= 4,
            }
            fs::write(folder.join("a"), bytes).unwrap();
            assert!(want(&cache, "a", &to, "first"), "byte {damage}");
        }
        fs::copy(folder.join("b"), folder.join("a")).unwrap();
        assert!(want(&cache, "a", &to, "first"));
        assert_eq!(fs::read_to_string(&to).unwrap(), "first");
    }

    #[test]
    fn the_least_used_are_removed_and_nothing_of_a_dead_process_stays() {
        let (folder, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let to = out.path().join("x.o");
        let text = "x".repeat(1000);
        let cache = ObjectCache::with_limit(folder.path(), 20_000).unwrap();
        let hours = |n: u64| SystemTime::now() - Duration::from_secs(3600 * n);
        for i in 0..20 {
            assert!(want(&cache, &i.to_string(), &to, &text));
            let file = fs::File::open(folder.path().join(i.to_string())).unwrap();
            file.set_modified(hours(40 - i)).unwrap();
        }
        let left = folder.path().join("new-1-0");
        fs::write(&left, "cut").unwrap();
        fs::File::open(&left).unwrap().set_modified(hours(2)).unwrap();
        // The oldest is used, so that it is not the oldest any more.
        assert!(!want(&cache, "0", &to, &text));
        let cache = ObjectCache::with_limit(folder.path(), 20_000).unwrap();
        assert!(!left.exists());
        let bytes = |entry: io::Result<fs::DirEntry>| entry.unwrap().metadata().unwrap().len();
        let all: u64 = fs::read_dir(folder.path()).unwrap().map(bytes).sum();
        assert!(all <= 15_000, "{all}");
        assert!(!want(&cache, "0", &to, &text) && !want(&cache, "19", &to, &text));
        assert!(want(&cache, "1", &to, &text));
    }

    #[test]
    fn a_folder_of_others_is_refused_and_one_that_cannot_be_written_does_no_harm() {
        let (folder, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let to = out.path().join("x.o");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(ObjectCache::open(folder.path()).is_err());
        assert!(ObjectCache::open(Path::new("/dev/null/x")).is_err());
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let cache = ObjectCache::open(folder.path()).unwrap();
        fs::remove_dir(folder.path()).unwrap();
        assert!(want(&cache, "a", &to, "text") && want(&cache, "a", &to, "text"));
        let none = ObjectCache::default();
        assert!(!none.is_kept() && want(&none, "a", &to, "text"));
    }

    #[test]
    fn of_several_threads_one_makes_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let cache = ObjectCache::open(folder.path()).unwrap();
        let count = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for i in 0..4 {
                let (cache, count, folder) = (cache.clone(), &count, folder.path());
                scope.spawn(move || {
                    let to = folder.join(format!("out{i}"));
                    let wanted = Wanted { key: "k", to: &to, executable: true, cancel: &NEVER };
                    let made = cache.obtain(wanted, || {
                        count.fetch_add(1, Ordering::Relaxed);
                        std::thread::sleep(Duration::from_millis(50));
                        fs::write(&to, "program").unwrap();
                        Ok::<_, Infallible>(((), true))
                    });
                    made.unwrap();
                    assert_eq!(fs::read_to_string(&to).unwrap(), "program");
                });
            }
        });
        assert_eq!(count.into_inner(), 1);
    }
}
