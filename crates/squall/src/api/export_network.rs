//! The verb behind `squall export --network NAME`: builds a whole model from the store's kernels
//! and writes it as a C library for a CPU or a GPU (`crate::library`). `watch.rs` repeats it
//! whenever the winners change.

use crate::base::error::Error;
use crate::inference::network::Packing;
use crate::inference::network_request::NetworkRequest;
use crate::inference::ranged::varying;
use crate::inference::run::{leave_wishes, network_to_export, say_of};
use crate::ship::library::{Exported, ExportedLibrary, LibraryOptions, export_library};
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
    let wanted = &request.network;
    let at = context.target(wanted.target, wanted.threads)?;
    let (input, options) = (&wanted.input, &request.options);
    if input.ranges.is_empty() {
        let network = network_to_export(context, wanted, listen)?;
        leave_wishes(context, wanted, &network, &[], 0)?;
        return export_library(&Exported::Fixed(&network), input, options, &at, &request.out);
    }
    let varying = varying(context, wanted, Packing::InCalls, listen)?;
    say_of(&varying.network, listen);
    leave_wishes(context, wanted, &varying.network, &[], 0)?;
    export_library(&Exported::Varying(&varying), input, options, &at, &request.out)
}
