//! Artifacts: the files that kernels compile to (shared libraries, cubins) in a measurer's folder,
//! named by a digest of the source, and the in-memory cache that knows them, so that a kernel that
//! returns (the incumbent of a rematch, say) is not compiled again. The cache on disk, shared by
//! processes, is `objects.rs`.

use squall_core::{KernelSource, MeasurerError};
use std::collections::{HashMap, VecDeque};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The most artifacts that the cache keeps.
const CAPACITY: usize = 512;

/// The result of compiling a source.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Built {
    /// The library's file name in the measurer's folder.
    Library(Arc<str>),
    /// The compiler refuses the source, and why.
    Refused(String),
}

/// An artifact and the CPU seconds that it took; `None` if the build was cancelled. An error means
/// that no kernel would build.
pub(crate) type Build = Result<Option<(Built, f64)>, MeasurerError>;

/// Where a build writes, and when it ends early.
#[derive(Clone, Copy)]
pub(crate) struct BuildSite<'a> {
    /// The measurer's folder.
    pub folder: &'a Path,
    /// How long a compiler run may take.
    pub timeout: Duration,
    /// Ends the compiler once it is set.
    pub cancel: &'a AtomicBool,
}

/// The identity of what a source compiles to, within one measurer.
pub(crate) fn digest(k: &KernelSource) -> String {
    let mut h = blake3::Hasher::new();
    h.update(k.language.extension().as_bytes());
    h.update(&[u8::from(k.openmp), u8::from(k.full_optimisation)]).update(k.source.as_bytes());
    for flag in &k.flags {
        h.update(b"\0").update(flag.as_bytes());
    }
    // The launches are written beside the artifact.
    for l in &k.launches {
        h.update(format!("\0{l:?}").as_bytes());
    }
    h.finalize().to_hex()[..24].to_string()
}

/// The artifacts that a measurer has built, by [`digest`].
#[derive(Default)]
pub(crate) struct ArtifactCache {
    known: HashMap<String, Built>,
    order: VecDeque<String>,
}

impl ArtifactCache {
    pub fn get(&self, digest: &str) -> Option<&Built> {
        self.known.get(digest)
    }

    pub fn put(&mut self, digest: String, built: Built) {
        if self.known.insert(digest.clone(), built).is_none() {
            self.order.push_back(digest);
        }
    }

    /// Removes the oldest artifacts beyond the capacity. No artifact may be waiting to be run.
    pub fn trim(&mut self, folder: &Path) {
        while self.order.len() > CAPACITY {
            if let Some(Built::Library(file)) =
                self.order.pop_front().and_then(|d| self.known.remove(&d))
            {
                let _ = fs::remove_file(folder.join(&*file));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_artifacts_are_removed_with_their_files() {
        let folder = tempfile::tempdir().unwrap();
        let mut cache = ArtifactCache::default();
        for i in 0..CAPACITY + 2 {
            let file = format!("{i}.so");
            fs::write(folder.path().join(&file), "").unwrap();
            cache.put(i.to_string(), Built::Library(file.into()));
        }
        // Putting one again makes it no younger.
        cache.put("0".into(), Built::Library("0.so".into()));
        cache.trim(folder.path());
        assert!(cache.get("0").is_none() && cache.get("1").is_none() && cache.get("2").is_some());
        assert!(!folder.path().join("1.so").exists() && folder.path().join("2.so").exists());
        assert_eq!(cache.order.len(), CAPACITY);
    }
}
