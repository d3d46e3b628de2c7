//! Compiles ahead: while other work goes on, kernels that will be needed are compiled on spare
//! cores into the toolchain's object cache, where later requests find them. Exports and networks
//! use it (`squall/src/export`, `squall/src/network`).

use super::{Device, Toolchain};
use crate::artifact::BuildSite;
use crate::folder::TemporaryFolder;
use crate::process::pin;
use squall_core::KernelSource;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// The longest time for one source; a later request for its object compiles it again.
const PATIENCE: Duration = Duration::from_secs(60);

/// The cores on which sources are compiled ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ahead {
    /// The device's spare cores, for work that times kernels on the others; where it has none, all
    /// is compiled on its cores before the work begins.
    OnSpareCores,
    /// All cores, for work that times nothing.
    OnAllCores,
}

/// Does `work` while sources are compiled, in their order. Ends when `work` ends. Work that asks
/// the toolchain for an object that is being compiled waits for it; those that are not yet begun it
/// compiles itself.
/// A toolchain without a cache compiles nothing ahead.
pub fn while_compiling<T>(
    device: &Device,
    toolchain: &Toolchain,
    sources: &[KernelSource],
    ahead: Ahead,
    work: impl FnOnce() -> T,
) -> T {
    let folder = match TemporaryFolder::new("ahead") {
        Ok(folder) if toolchain.objects().is_kept() && !sources.is_empty() => folder,
        _ => return work(),
    };
    let (next, cancel) = (AtomicUsize::new(0), AtomicBool::new(false));
    let cores = match ahead {
        Ahead::OnSpareCores if !device.spare.is_empty() => device.spare.clone(),
        _ => device.building_cores(),
    };
    let builder = || {
        pin(&cores);
        while let Some(source) = sources.get(next.fetch_add(1, Ordering::Relaxed)) {
            if cancel.load(Ordering::Relaxed) {
                return;
            }
            make(toolchain, source, folder.path(), &cancel);
        }
    };
    let builders = cores.len().min(sources.len());
    std::thread::scope(|scope| {
        let _end = SetOnDrop(&cancel);
        let threads: Vec<_> = (0..builders).map(|_| scope.spawn(builder)).collect();
        if ahead == Ahead::OnSpareCores && device.spare.is_empty() {
            threads.into_iter().for_each(|t| {
                let _ = t.join();
            });
        }
        work()
    })
}

/// Does `work` while `ahead` runs on the device's spare cores, or on all where it has none. Ends
/// when both ended.
pub fn on_spare_cores<T>(
    device: &Device,
    ahead: impl FnOnce() + Send,
    work: impl FnOnce() -> T,
) -> T {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            if !device.spare.is_empty() {
                pin(&device.spare);
            }
            ahead();
        });
        work()
    })
}

/// Makes one object. Whether that succeeds shows when it is asked for.
fn make(toolchain: &Toolchain, source: &KernelSource, folder: &Path, cancel: &AtomicBool) {
    let to = folder.join(format!("{}.o", super::toolchain::unique("ahead")));
    let _ = toolchain.object_at(source, &to, BuildSite { folder, timeout: PATIENCE, cancel });
    let _ = std::fs::remove_file(&to);
}

/// Also by a panic: compilers must not run on.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
