//! The verb behind `squall export --network NAME`: builds a whole model from the store's kernels
//! and writes it as a C library for a CPU or a GPU (`crate::library`). `watch.rs` repeats it
//! whenever the winners change.

use crate::base::error::Error;
use crate::inference::run::{NetworkRequest, leave_wishes, network_to_export};
use crate::ship::library::{ExportedLibrary, LibraryOptions, export_library};
use crate::target::target_context::Context;
use crate::task::event::Listen;
use std::path::PathBuf;

/// A model as a library.
#[derive(Clone, Debug, PartialEq)]
pub struct LibraryRequest {
    /// The model, and what its kernels are made with.
    pub network: NetworkRequest,
    /// How the library is called and what belongs to it.
    pub options: LibraryOptions,
    /// The folder to write; made if need be.
    pub out: PathBuf,
}

/// Writes a model as a C library into a folder: kernels by the store's records, or verified guesses
/// where it has none, and the weights as the kernels want them.
pub fn export_network(
    context: &Context,
    request: &LibraryRequest,
    listen: &mut Listen<'_>,
) -> Result<ExportedLibrary, Error> {
    let network = network_to_export(context, &request.network, listen)?;
    leave_wishes(context, &request.network, &network, &[], 0)?;
    let at = context.target(request.network.target, request.network.threads)?;
    export_library(&network, &request.network.input, &request.options, &at, &request.out)
}
