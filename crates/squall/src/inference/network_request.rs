//! The request behind `run`, `bench`, `check` and `export --network`: a model, the store of its
//! kernels, and a target; and what the model's file says of its inputs and outputs.

use crate::base::error::Error;
use crate::input::input_request::InputRequest;
use crate::predict::guess::GuessRequest;
use crate::target::target_request::TargetRequest;
use squall_frontend::onnx::{self, Signature};
use std::path::{Path, PathBuf};

/// A model, its store of kernels and its target.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkRequest {
    /// The model.
    pub input: InputRequest,
    /// The store whose kernels are used, if any.
    pub store: Option<PathBuf>,
    /// How kernels that were never tuned are chosen.
    pub guess: GuessRequest,
    /// The device that it is run on.
    pub target: TargetRequest,
    /// Threads that a kernel may use.
    pub threads: usize,
    /// A folder for the program that runs it; what did not change there is not compiled again.
    pub keep: Option<PathBuf>,
}

impl NetworkRequest {
    /// The same request for one inference, whose result is wanted soon and whose time matters
    /// little.
    pub fn soon(&self) -> NetworkRequest {
        NetworkRequest { guess: GuessRequest { soon: true, ..self.guess.clone() }, ..self.clone() }
    }
}

/// What the model's file says that it takes and gives.
pub(crate) fn signature(request: &NetworkRequest) -> Result<Signature, Error> {
    let path = Path::new(&request.input.source);
    if path.extension().is_none_or(|e| !e.eq_ignore_ascii_case("onnx")) {
        return Err(Error::Input {
            place: request.input.source.clone(),
            message: "it is no model that can be run".into(),
            hint: "give a model.onnx".into(),
        });
    }
    let bytes = crate::base::files::read_outline(path)?;
    onnx::signature(&bytes, &request.input.source)
        .map_err(|source| Error::Import { place: request.input.source.clone(), source })
}
