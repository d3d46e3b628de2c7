//! A model with all of its weights, as other libraries read it: those that the file does not hold
//! become the random ones that ours takes, in files where the model says that they lie.

use crate::error::Error;
use crate::input::Input;
use squall_core::graph::Constant;
use squall_frontend::onnx::external_weights;
use squall_graph::weights::random_value;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};

/// Writes the model and its weights into a folder; the model's file there.
pub fn complete(input: &Input, folder: &Path) -> Result<PathBuf, Error> {
    let no_model = || Error::Nothing(format!("`{}` is no model", input.name));
    let (Some(graph), Some(path)) = (&input.graph, &input.path) else { return Err(no_model()) };
    let bytes = crate::files::read(path)?;
    let external = external_weights(&bytes, &input.name)
        .map_err(|source| Error::Import { place: path.display().to_string(), source })?;
    if external.is_empty() {
        return std::path::absolute(path)
            .map_err(|source| Error::Read { path: path.clone(), source });
    }
    let model = folder.join("model.onnx");
    std::fs::write(&model, &bytes)
        .map_err(|source| Error::Write { path: model.clone(), source })?;
    for e in &external {
        let inside = |c| matches!(c, Component::Normal(_) | Component::CurDir);
        if !Path::new(&e.location).components().all(inside) {
            return Err(Error::Input {
                place: path.display().to_string(),
                message: format!("weight `{}` lies at `{}`", e.name, e.location),
                hint: "weights lie in the model's folder".into(),
            });
        }
        let to = folder.join(&e.location);
        let write = |source| Error::Write { path: to.clone(), source };
        if let Some(parent) = to.parent() {
            std::fs::create_dir_all(parent).map_err(write)?;
        }
        let beside = path.parent().unwrap_or(Path::new(".")).join(&e.location);
        if beside.is_file() {
            if !to.exists() && std::fs::hard_link(&beside, &to).is_err() {
                std::fs::copy(&beside, &to).map_err(write)?;
            }
            continue;
        }
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&to);
        let bytes = bytes_of(random_value(graph.model(), &e.name));
        let fill = |f: File| {
            f.write_all_at(&bytes, e.offset)?;
            // What ours does not read is a hole: a file may state any length.
            let end = e.offset.saturating_add(e.length).min(i64::MAX as u64);
            if f.metadata()?.len() < end { f.set_len(end) } else { Ok(()) }
        };
        file.and_then(fill).map_err(write)?;
    }
    Ok(model)
}

/// The bytes of a weight; none where ours makes none.
fn bytes_of(made: Option<Constant>) -> Vec<u8> {
    match made {
        Some(Constant::F32 { data, .. }) => data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        _ => Vec::new(),
    }
}
