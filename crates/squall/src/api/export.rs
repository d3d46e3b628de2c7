//! The verb behind `squall export`: chooses the best kernel for each task of an input and writes
//! them as C or CUDA C files with a driver (`crate::export`). With several instruction levels as
//! targets, the exported library chooses by the CPU when it is loaded.

use crate::base::error::Error;
use crate::inference::wishes::{leave, wishes_of};
use crate::input::input_request::InputRequest;
use crate::predict::choose::choose;
use crate::predict::guess::{GuessRequest, Guesser};
use crate::predict::locked::refuse_misses;
use crate::ship::export::{Exported, Levels, join};
use crate::target::target_context::Context;
use crate::target::target_request::TargetRequest;
use crate::task::event::{Event, Listen};
use squall_records::Store;
use std::collections::HashMap;
use std::path::PathBuf;

/// Kernels to export.
#[derive(Clone, Debug, PartialEq)]
pub struct ExportRequest {
    /// The input whose kernels are exported.
    pub input: InputRequest,
    /// The store with their records, if any.
    pub store: Option<PathBuf>,
    /// How kernels that were never tuned are chosen.
    pub guess: GuessRequest,
    /// The devices that the kernels are for. Several targets are instruction levels of one
    /// architecture, among which the export chooses by the CPU at load.
    pub targets: Vec<TargetRequest>,
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
    let (store, threads) = (store.as_ref(), request.threads);
    let Some(&first) = request.targets.first() else {
        return Err(Error::Usage {
            message: "no target is named".into(),
            hint: "name `cpu`, a level of instructions or a GPU".into(),
        });
    };
    // The highest level decides how a model is divided into kernels: it is the most common one.
    let main = request.targets.iter().copied().max_by_key(TargetRequest::isa).unwrap_or(first);
    let input = request.input.load_tuned(context, store, main, threads)?;
    input.own_precision_note().into_iter().for_each(|text| listen(Event::Note(text)));
    let tasks = input.select(request.only.as_deref())?;
    let mut made = Vec::new();
    for &target in &request.targets {
        let at = context.target(target, threads)?;
        if request.guess.locked {
            refuse_misses(&request.input, &tasks, input.own(), store, &at)?;
        }
        let mut guesser = Guesser::new(&request.guess, &tasks, store, &at, listen)?;
        let kernels = choose(&tasks, input.own(), store, &mut guesser)?;
        let wishes = wishes_of(&kernels, &at, 1, &HashMap::new());
        leave(request.store.as_deref(), &wishes, &at);
        made.push((at, kernels));
    }
    let (out, build) = (&request.out, request.build);
    if let [(at, kernels)] = &mut made[..] {
        let kernels = std::mem::take(kernels);
        return crate::ship::export::export(kernels, &Levels::default(), at, out, build);
    }
    let lowest = made.iter().map(|(at, _)| at).min_by_key(|at| at.target.isa).cloned();
    let (kernels, levels) = join(made)?;
    let at = lowest.map_or_else(|| context.target(first, threads), Ok)?;
    crate::ship::export::export(kernels, &levels, &at, out, build)
}
