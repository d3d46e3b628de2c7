//! Exporting: the kernels that serve an input's tasks, as files.

use crate::error::Error;
use crate::event::Listen;
use crate::export::{Exported, GuessRequest, Guesser, choose};
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
    /// Where they were tuned into, if anywhere.
    pub store: Option<PathBuf>,
    /// How kernels that were never tuned are chosen.
    pub guess: GuessRequest,
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

/// Writes the best kernel of each task into a folder: by the store's records, or a verified guess
/// where it has none.
pub fn export(
    context: &Context,
    request: &ExportRequest,
    listen: &mut Listen<'_>,
) -> Result<Exported, Error> {
    let store = request.store.as_ref().map(Store::open_read_only).transpose()?;
    let (store, target, threads) = (store.as_ref(), request.target, request.threads);
    let input = request.input.load_tuned(context, store, target, threads)?;
    let at = context.target(target, threads)?;
    let tasks = input.select(request.only.as_deref())?;
    let mut guesser = Guesser::new(&request.guess, &tasks, store, &at, listen)?;
    let kernels = choose(&tasks, &input.own, store, &mut guesser)?;
    crate::export::export(kernels, &at, &request.out, request.build)
}
