//! Accessors to the parts of a built network from which `../library` makes a C library: the plan's
//! text, the kernels that are linked, the prepared weights, and reasons why a network cannot be
//! exported.

use super::Network;
use crate::base::error::Error;
use crate::inference::kernel_text::comment;
use squall_core::KernelSource;
use squall_graph::plan::BoundedOutput;
use std::ffi::OsStr;
use std::path::Path;

/// A kernel with what stands above its text.
pub struct Kernel<'a> {
    /// As the network's program has it.
    pub source: &'a KernelSource,
    /// A comment.
    pub head: String,
}

impl Network {
    /// The text of the plan that the network's program reads.
    pub(crate) fn plan_text(&self) -> Result<String, Error> {
        let path = self.folder.join(super::files::PLAN);
        std::fs::read_to_string(&path).map_err(|source| Error::Read { path, source })
    }

    /// The kernels and plain operators that are linked into the program.
    pub(crate) fn linked_kernels(&self) -> Vec<Kernel<'_>> {
        let of = |source, head| Kernel { source, head };
        let tuned = self.kernels.iter().map(|k| of(&k.source, comment(k)));
        tuned.chain(self.plain.functions().map(|s| of(s, String::new()))).collect()
    }

    /// The outputs whose extents only the run knows: their memory has the largest extents, and the
    /// run returns the extents that it found.
    pub(crate) fn bounded(&self) -> &[BoundedOutput] {
        &self.plan.bounded
    }

    /// Why it cannot leave as a library for a GPU, or as an operator of ONNX Runtime, where it
    /// cannot: a caller's memory has the extents of the model there.
    pub(crate) fn stays(&self) -> Option<Error> {
        let is_open = |v: &super::NetworkValue| v.shape.iter().any(|e| *e < 0);
        let bounded = !self.plan.bounded.is_empty() || self.outputs.iter().any(is_open);
        bounded.then(|| Error::Input {
            place: self.name.clone(),
            message: "the extents of an output depend on the values of the run".into(),
            hint: "such models run by `squall run`, and leave as libraries for CPUs, without --ort"
                .into(),
        })
    }

    /// Writes constants and prepared weights into a file; the program prepares them, on a GPU where
    /// it is for one.
    pub(crate) fn write_weights(&self, path: &Path) -> Result<(), Error> {
        let ordinal = self.gpu.map(|n| n.to_string());
        let mut arguments = vec![OsStr::new("--weights"), path.as_os_str()];
        arguments.extend(ordinal.as_deref().map(OsStr::new));
        self.launch(&arguments).map(drop)
    }

    /// The contents of a file of its folder.
    pub(crate) fn file(&self, name: &str) -> Result<Vec<u8>, Error> {
        let path = self.folder.join(name);
        std::fs::read(&path).map_err(|source| Error::Read { path, source })
    }
}
