//! Writes an ONNX model that other libraries can load: weights that the file lacks become the same
//! random values that Squall uses, in one more file. Input: a model; output: the path of a complete
//! model in a given folder. `mod.rs` calls it before it starts a library.

use crate::base::error::Error;
use crate::input::user_input::{Input, ModelInput};
use squall_core::graph::Constant;
use squall_frontend::onnx::{External, external_weights, with_weights_at};
use squall_graph::weights::random_value;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Component, Path, PathBuf};

/// The file of the weights that are made.
const MADE: &str = "squall-made.weights";

/// Writes the model and its weights into a folder and returns the path of the model there. Absent
/// weights get places of their own in the added file, even if the model says that they share bytes.
pub fn complete(input: &Input, folder: &Path) -> Result<PathBuf, Error> {
    let no_model = || Error::Nothing(format!("`{}` is no model", input.name()));
    let ModelInput { name, graph, path, .. } = input.model().ok_or_else(no_model)?;
    let import = |source| Error::Import { place: path.display().to_string(), source };
    let bytes = crate::base::files::read(path)?;
    let external = external_weights(&bytes, name).map_err(import)?;
    if external.is_empty() {
        return std::path::absolute(path)
            .map_err(|source| Error::Read { path: path.clone(), source });
    }
    let made = folder.join(MADE);
    let write = |source| Error::Write { path: made.clone(), source };
    let mut file = BufWriter::new(File::create(&made).map_err(write)?);
    let mut places = Vec::new();
    let mut offset = 0;
    for e in external {
        let beside = path.parent().unwrap_or(Path::new(".")).join(&e.location);
        if beside.is_file() {
            link(path, &e, &beside, folder)?;
            continue;
        }
        let bytes = bytes_of(random_value(graph.model(), &e.name));
        if bytes.len() as u64 != e.length {
            return Err(Error::Input {
                place: path.display().to_string(),
                message: format!("weight `{}` is absent and is not of floats", e.name),
                hint: format!("put `{}` beside the model", e.location),
            });
        }
        file.write_all(&bytes).map_err(write)?;
        places.push(External { location: MADE.into(), offset, ..e });
        offset += bytes.len() as u64;
    }
    file.flush().map_err(write)?;
    let model = folder.join("model.onnx");
    let moved = with_weights_at(&bytes, &places, name).map_err(import)?;
    std::fs::write(&model, moved).map_err(|source| Error::Write { path: model.clone(), source })?;
    Ok(model)
}

/// Puts a file of weights that is there where the model in `folder` looks for it.
fn link(model: &Path, e: &External, from: &Path, folder: &Path) -> Result<(), Error> {
    let inside = |c| matches!(c, Component::Normal(_) | Component::CurDir);
    if !Path::new(&e.location).components().all(inside) {
        return Err(Error::Input {
            place: model.display().to_string(),
            message: format!("weight `{}` lies at `{}`", e.name, e.location),
            hint: "weights lie in the model's folder".into(),
        });
    }
    let to = folder.join(&e.location);
    let write = |source| Error::Write { path: to.clone(), source };
    if let Some(parent) = to.parent() {
        std::fs::create_dir_all(parent).map_err(write)?;
    }
    if !to.exists() && std::fs::hard_link(from, &to).is_err() {
        std::fs::copy(from, &to).map_err(write)?;
    }
    Ok(())
}

/// The bytes of a weight; none where ours makes none.
fn bytes_of(made: Option<Constant>) -> Vec<u8> {
    match made {
        Some(Constant::F32 { data, .. }) => data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        Some(Constant::F64 { data, .. }) => data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        _ => Vec::new(),
    }
}
