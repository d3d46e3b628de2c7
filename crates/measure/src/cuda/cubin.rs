//! Compiles many CUDA kernels into one folder of cubins (compiled GPU code), in parallel and
//! through the object cache. Networks on GPUs use it (`squall/src/inference/network/device.rs`):
//! their program loads the cubins and runs them in order.

use super::{Gpu, Nvrtc};
use crate::artifact::{BuildSite, Built, digest};
use crate::cpu::{Runner, Toolchain};
use crate::folder::TemporaryFolder;
use crate::objects::Wanted;
use squall_core::{KernelSource, MeasurerError};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The longest time that NVRTC may take for one kernel.
const PATIENCE: Duration = Duration::from_secs(120);
/// Nothing cancels these builds.
static NEVER: AtomicBool = AtomicBool::new(false);

/// Puts the cubin of each kernel into a folder, as [`file`] names it: the one that the toolchain's
/// cache keeps, or a newly compiled one. At most `jobs` are compiled at a time.
///
/// # Errors
/// Where NVRTC does not start, refuses a source or the folder cannot be written.
pub fn cubins(
    gpu: &Gpu,
    toolchain: &Toolchain,
    kernels: &[&KernelSource],
    folder: &Path,
    jobs: usize,
) -> Result<(), MeasurerError> {
    let site = TemporaryFolder::new("cubins")?;
    Runner::build(site.path(), toolchain, true)?;
    let nvrtc = Nvrtc::new(gpu.architecture());
    let next = AtomicUsize::new(0);
    let failed: Mutex<Option<MeasurerError>> = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, kernels.len().max(1)) {
            scope.spawn(|| {
                while let Some(k) = kernels.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(e) = cubin(gpu, toolchain, &nvrtc, k, site.path(), folder) {
                        next.store(kernels.len(), Ordering::Relaxed);
                        let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                        failed.get_or_insert(e);
                    }
                }
            });
        }
    });
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(e) => Err(e),
        None => Ok(()),
    }
}

/// The name of a kernel's cubin: kernels that are made alike share it.
pub fn file(kernel: &KernelSource) -> String {
    format!("{}.cubin", digest(kernel))
}

fn cubin(
    gpu: &Gpu,
    toolchain: &Toolchain,
    nvrtc: &Nvrtc,
    kernel: &KernelSource,
    site: &Path,
    folder: &Path,
) -> Result<(), MeasurerError> {
    let to = folder.join(file(kernel));
    let key = blake3::hash(
        format!("cubin {} {} {}", gpu.name, gpu.toolchain(), digest(kernel)).as_bytes(),
    );
    let key = key.to_hex();
    let wanted = Wanted { key: &key, to: &to, executable: false, cancel: &NEVER };
    let refuse = |why: &str| {
        MeasurerError::Runner(format!("NVRTC cannot compile `{}`: {why}", kernel.symbol))
    };
    let made = toolchain.objects().obtain(wanted, || {
        let site = BuildSite { folder: site, timeout: PATIENCE, cancel: &NEVER };
        match nvrtc.build(kernel, site)? {
            Some((Built::Library(name), _)) => {
                let from = site.folder.join(&*name);
                fs::copy(&from, &to).map_err(|e| MeasurerError::folder(&to, &e))?;
                Ok((None, true))
            }
            Some((Built::Refused(why), _)) => Ok((Some(why), false)),
            None => Ok((Some("it was cancelled".into()), false)),
        }
    })?;
    match made.flatten() {
        Some(why) => Err(refuse(&why)),
        None => Ok(()),
    }
}
