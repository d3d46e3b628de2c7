//! From C to a library: one compiler run for each kernel.

use super::Toolchain;
use super::toolchain::first_error;
use crate::artifact::{Build, BuildSite, Built, digest};
use squall_core::{KernelSource, MeasurerError};
use std::fs;
use std::sync::atomic::Ordering;

/// What a compiler says when the machine is at fault. Any source would be refused then.
const SYSTEM_FAULTS: [&str; 3] =
    ["No space left on device", "Read-only file system", "Disk quota exceeded"];

impl Toolchain {
    /// Compiles a kernel in C. An error means that no kernel would build.
    pub(crate) fn build(&self, kernel: &KernelSource, site: BuildSite) -> Build {
        let name = digest(kernel);
        let (source, library) =
            (site.folder.join(format!("{name}.c")), site.folder.join(format!("{name}.so")));
        fs::write(&source, &kernel.source).map_err(|e| MeasurerError::folder(&source, &e))?;
        let mut args: Vec<&str> = vec!["-fPIC", "-shared"];
        args.extend(self.optimisation(kernel));
        args.extend(self.flags().iter().map(String::as_str));
        if kernel.openmp {
            args.push("-fopenmp");
        }
        args.extend(kernel.flags.iter().map(String::as_str));
        let c = self.compile(site, &args, &source, &library)?;
        let _ = fs::remove_file(&source);
        if c.killed && site.cancel.load(Ordering::Relaxed) {
            return Ok(None);
        }
        if c.ok && library.is_file() {
            return Ok(Some((Built::Library(format!("{name}.so").into()), c.cpu)));
        }
        if let Some(fault) = SYSTEM_FAULTS.into_iter().find(|f| c.said.contains(f)) {
            return Err(MeasurerError::Folder { path: site.folder.into(), reason: fault.into() });
        }
        // A compiler that went away would refuse everything, so it has to build something now.
        let check = self.check(site.folder, site.cancel)?;
        Ok(Some((Built::Refused(first_error(&c.said)), c.cpu + check)))
    }
}
