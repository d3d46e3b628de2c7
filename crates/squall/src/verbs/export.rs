//! Exporting: the kernels that serve an input's tasks, as files.

use crate::error::Error;
use crate::export::Exported;
use crate::request::InputRequest;
use crate::settings::TargetRequest;
use crate::target_context::Context;
use squall_records::Store;
use std::path::PathBuf;

/// What to export.
#[derive(Clone, Debug, PartialEq)]
pub struct ExportRequest {
    /// The input whose kernels are exported.
    pub input: InputRequest,
    /// Where they were tuned into; plain loops if none.
    pub store: Option<PathBuf>,
    /// What the kernels are for.
    pub target: TargetRequest,
    /// Threads that a kernel may use on a CPU.
    pub threads: usize,
    /// Only tasks whose name or id matches.
    pub only: Option<String>,
    /// The folder to write; made if need be.
    pub out: PathBuf,
    /// Whether the library and the driver are compiled too.
    pub build: bool,
}

/// Writes the best kernel of each task into a folder: by the store's records, or plain loops where
/// it has none.
pub fn export(context: &Context, request: &ExportRequest) -> Result<Exported, Error> {
    let store = request.store.as_ref().map(Store::open_read_only).transpose()?;
    let (target, threads) = (request.target, request.threads);
    let input = request.input.load_tuned(context, store.as_ref(), target, threads)?;
    let at = context.target(target, threads)?;
    let only = request.only.as_deref();
    crate::export::export(&input, only, store.as_ref(), &at, &request.out, request.build)
}
