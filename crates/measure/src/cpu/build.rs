//! Builds a measured kernel: from a C source to a shared library in the measurer's folder, by one
//! compiler run or from the object cache. A source that the compiler refuses is an outcome of the
//! trial; a compiler that cannot run is an error.

use super::Toolchain;
use super::object::{Object, SYSTEM_FAULTS};
use super::toolchain::{Compiled, first_error};
use super::written;
use crate::artifact::{Build, BuildSite, Built, digest};
use squall_core::{KernelSource, MeasurerError};
use std::fs;
use std::sync::atomic::Ordering;

impl Toolchain {
    /// Compiles a kernel in C. An error means that no kernel would build.
    pub(crate) fn build(&self, kernel: &KernelSource, site: BuildSite) -> Build {
        match self.build_unless_stopped(kernel, site) {
            Err(MeasurerError::Stopped) => Ok(None),
            done => done,
        }
    }

    fn build_unless_stopped(&self, kernel: &KernelSource, site: BuildSite) -> Build {
        let name = digest(kernel);
        let library = site.folder.join(format!("{name}.so"));
        if self.objects().is_kept() {
            return match self.build_of_others(kernel, &name, site)? {
                Some(built) => Ok(Some((built, 0.0))),
                None => self.build_of_object(kernel, &name, site),
            };
        }
        let source = site.folder.join(format!("{name}.c"));
        fs::write(&source, &kernel.source).map_err(|e| MeasurerError::folder(&source, &e))?;
        let mut args = self.object_arguments(kernel);
        args[0] = "-shared".into();
        let c = self.compile(site, &strs(&args), &source, &library)?;
        let _ = fs::remove_file(&source);
        self.judge(c, &name, 0.0, site)
    }

    /// The library of an object that another machine made; none where no other has it, or where it
    /// is no object of this machine's that links by itself. What is wrong with it is no failure of
    /// the kernel's.
    fn build_of_others(
        &self,
        kernel: &KernelSource,
        name: &str,
        site: BuildSite,
    ) -> Result<Option<Built>, MeasurerError> {
        let is_known = || self.object_key(kernel).is_none_or(|key| self.objects().has(&key));
        if !self.objects().asks_others() || is_known() {
            return Ok(None);
        }
        let Some(bytes) = self
            .shared_object_key(kernel)
            .and_then(|key| self.objects().of_others(&key, site.cancel))
        else {
            return Ok(None);
        };
        let object = site.folder.join(format!("{name}-brought.o"));
        fs::write(&object, bytes).map_err(|e| MeasurerError::folder(&object, &e))?;
        let library = format!("{name}.so");
        let mut is_linked = written::fault(&object, self.isa()).is_none();
        if is_linked {
            let mut args = vec!["-shared", "-Wl,-z,defs"];
            args.extend(kernel.openmp.then_some("-fopenmp"));
            let c = self.compile(site, &args, &object, &site.folder.join(&library))?;
            is_linked = c.ok && site.folder.join(&library).is_file();
        }
        let _ = fs::remove_file(&object);
        Ok(is_linked.then(|| Built::Library(library.into())))
    }

    /// The same by way of an object, which networks and exports are linked from, too.
    fn build_of_object(&self, kernel: &KernelSource, name: &str, site: BuildSite) -> Build {
        let object = site.folder.join(format!("{name}.o"));
        let cpu = match self.object_at(kernel, &object, site)? {
            Object::Made(cpu) => cpu,
            Object::Cancelled => return Ok(None),
            Object::Refused(said, cpu) => {
                let c = Compiled { ok: false, said, cpu, killed: false };
                return self.judge(c, name, 0.0, site);
            }
        };
        let mut args = vec!["-shared"];
        args.extend(kernel.openmp.then_some("-fopenmp"));
        args.extend(kernel.flags.iter().map(String::as_str));
        let c = self.compile(site, &args, &object, &site.folder.join(format!("{name}.so")))?;
        let _ = fs::remove_file(&object);
        self.judge(c, name, cpu, site)
    }

    /// Judges a compiler run that should have made the library; `cpu` seconds went before.
    fn judge(&self, c: Compiled, name: &str, cpu: f64, site: BuildSite) -> Build {
        if c.killed && site.cancel.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let cpu = cpu + c.cpu;
        if c.ok && site.folder.join(format!("{name}.so")).is_file() {
            return Ok(Some((Built::Library(format!("{name}.so").into()), cpu)));
        }
        if let Some(fault) = SYSTEM_FAULTS.into_iter().find(|f| c.said.contains(f)) {
            return Err(MeasurerError::Folder { path: site.folder.into(), reason: fault.into() });
        }
        // A compiler that went away would refuse everything, so it has to build something now.
        let check = self.check(site.folder, site.cancel)?;
        Ok(Some((Built::Refused(first_error(&c.said)), cpu + check)))
    }
}

fn strs(all: &[String]) -> Vec<&str> {
    all.iter().map(String::as_str).collect()
}
