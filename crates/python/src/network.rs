//! Networks from Python: [`export`] writes a model as a C library and builds it, as `squall export`
//! does; the package's Python code (`python/squall`) then loads the library and calls it. This
//! module runs no kernel itself.

use crate::interrupt::{Callers, Message, beside};
use crate::raised;
use crate::tune::{dimensions, line, precision, target};
use pyo3::prelude::*;
use squall::files::user_cache;
use squall::library::{LibraryOptions, Name};
use squall::{
    Context, Error, Event, GuessRequest, InputRequest, LibraryRequest, NetworkRequest,
    export_network,
};
use std::path::PathBuf;

/// The options of [`export`], as keyword arguments of Python's side.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct ExportOptions {
    model: String,
    name: String,
    out: PathBuf,
    store: Option<PathBuf>,
    dims: Vec<(String, String)>,
    target: String,
    precision: Option<String>,
    threads: usize,
    predictor: Option<PathBuf>,
    onnxruntime: bool,
}

impl ExportOptions {
    fn request(self, name: Name) -> PyResult<LibraryRequest> {
        let (dims, ranges) = dimensions(&self.dims)?;
        Ok(LibraryRequest {
            network: NetworkRequest {
                input: InputRequest {
                    dims,
                    ranges,
                    precision: precision(self.precision.as_deref())?,
                    ..InputRequest::new(self.model)
                },
                store: self.store,
                guess: GuessRequest {
                    predictor: self.predictor,
                    cache: user_cache(),
                    locked: false,
                    soon: false,
                },
                target: target(&self.target)?,
                threads: self.threads,
                keep: None,
            },
            options: LibraryOptions { name, onnxruntime: self.onnxruntime, build: true },
            out: self.out,
        })
    }
}

/// Writes a model as a C library and builds it; gives its description as JSON, and the exception
/// that a signal raised meanwhile, if any. `listener` is called with a line of JSON per event.
#[pyfunction]
pub fn export(
    py: Python<'_>,
    options: ExportOptions,
    listener: Option<Bound<'_, PyAny>>,
) -> PyResult<(String, Option<PyErr>)> {
    let name: Name = options.name.parse().map_err(|e: Error| raised(py, &e))?;
    let request = options.request(name)?;
    let callers = Callers { listener: listener.as_ref(), ..Callers::default() };
    let (exported, ended) = beside(py, callers, |_, send| {
        let mut listen = |event: Event<'_>| {
            if let Some(line) = line(&event) {
                // The other end listens until this thread ends.
                let _ = send.send(Message::Event(line.to_string()));
            }
        };
        export_network(&Context::with_user_cache(), &request, &mut listen)
    })?;
    let exported = exported.map_err(|e| raised(py, &e))?;
    Ok((exported.description.to_string(), ended))
}
