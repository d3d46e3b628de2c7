//! Names the file in which a network's prepared (packed) weights are kept between runs. The name is
//! a digest of everything that the packed weights are made of: the plan, the program that packs
//! them, and the weights themselves (weights that stay in a file of their own count by its path,
//! size and times). The folder is `kept_weights.rs`; the network's program writes and maps the
//! file.

use super::{Network, program};
use crate::target::kept_weights::KeptWeights;
use squall_runtime::plan::{HostPlan, Role};
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

impl Network {
    /// Makes later single runs read prepared weights from the folder, or write them there. Nothing
    /// changes where the weights are few, on a GPU, or where the folder or a file cannot be read or
    /// written.
    pub(crate) fn keep_weights(&mut self, kept: &KeptWeights) {
        if self.gpu.is_none() {
            self.packed = self.packed_file(kept);
        }
    }

    fn packed_file(&self, kept: &KeptWeights) -> Option<PathBuf> {
        let text = self.plan_text().ok()?;
        let plan = HostPlan::parse(&text).ok()?;
        let prepared = plan.regions.iter().filter(|r| r.role == Role::Prepared);
        let bytes: u64 = prepared.map(|r| r.bytes).sum();
        if !kept.is_worth(bytes) {
            return None;
        }
        let name = made_of(&self.folder, &text, &plan).ok()?;
        kept.place(&name.to_hex(), bytes)
    }
}

/// The digest of everything that packed weights are made of: the plan, the program that packs them,
/// and the files that it reads. A file of weights that stays where it is counts by its metadata,
/// among them the time of its last change of status, which no program can set back. (A program that
/// writes through a memory map may leave that time unchanged until the page is written back;
/// decision 0088.)
fn made_of(folder: &Path, text: &str, plan: &HostPlan) -> io::Result<blake3::Hash> {
    let mut all = blake3::Hasher::new();
    let mut add = |bytes: &[u8]| {
        all.update(&(bytes.len() as u64).to_le_bytes());
        all.update(bytes);
    };
    add(text.as_bytes());
    add(&fs::read(folder.join(program::NAME))?);
    let read = plan.regions.iter().filter(|r| r.role == Role::Weight && r.bytes > 0);
    for (file, at, bytes) in read.filter_map(|r| r.file.as_ref().map(|(f, at)| (f, *at, r.bytes))) {
        let path = folder.join(file);
        if fs::symlink_metadata(&path)?.is_symlink() {
            let (real, about) = (path.canonicalize()?, fs::metadata(&path)?);
            add(real.as_os_str().as_encoded_bytes());
            let times = [about.mtime(), about.mtime_nsec(), about.ctime(), about.ctime_nsec()];
            let facts = [about.dev(), about.ino(), about.len()];
            facts.iter().for_each(|n| add(&n.to_le_bytes()));
            times.iter().for_each(|n| add(&n.to_le_bytes()));
            continue;
        }
        let mut open = File::open(&path)?;
        open.seek(SeekFrom::Start(at))?;
        let (mut part, mut left) = (blake3::Hasher::new(), bytes);
        let mut some = vec![0; bytes.min(1 << 20) as usize];
        while left > 0 {
            let next = &mut some[..left.min(1 << 20) as usize];
            open.read_exact(next)?;
            part.update(next);
            left -= next.len() as u64;
        }
        add(part.finalize().as_bytes());
    }
    Ok(all.finalize())
}
