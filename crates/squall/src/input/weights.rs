//! Loads a model's weights. Weights that only kernels read are not loaded into this process: they
//! stay in the model's file, if they are large, or in the file of weights beside it, and the
//! network's program maps that file. Input: a model with its path; output: [`Known`], the loaded
//! weights and the places of the others.

use crate::base::error::Error;
use crate::input::user_input::ModelInput;
use squall_core::DType;
use squall_core::graph::Weights;
use squall_frontend::onnx::External;
use squall_frontend::read_weights;
use squall_graph::weights::Placed;
use std::collections::HashSet;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Component, Path, PathBuf};

/// Where a weight lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file, without links on the way.
    pub file: PathBuf,
    /// The first byte.
    pub offset: u64,
}

/// The weights of a model.
#[derive(Default)]
pub struct Known {
    /// The weights that were loaded.
    pub weights: Weights,
    /// The weights that stay in their files.
    pub placed: Placed,
    /// Where that is, by the numbers in `placed`.
    pub places: Vec<Place>,
}

/// The weights of a model's file, and of files beside it.
pub fn weights(model: &ModelInput) -> Result<Weights, Error> {
    weights_but(model, &HashSet::new()).map(|k| k.weights)
}

/// The same, of which those of these names stay where they are if they lie beside the model.
pub fn weights_but(model: &ModelInput, stay: &HashSet<String>) -> Result<Known, Error> {
    let mut known = Known::default();
    let path = &model.path;
    let bytes = crate::base::files::read_outline(path)?;
    let import = |source| Error::Import { place: path.display().to_string(), source };
    let read = read_weights(&bytes, &model.name, &mut |e| {
        let Some((file, mut open)) = located(path, e)? else { return Ok(None) };
        let is_f32 = e.dtype == Some(DType::F32);
        if is_f32 && stay.contains(&e.name) && cfg!(target_endian = "little") {
            known.placed.insert(e.name.clone(), known.places.len());
            known.places.push(Place { file, offset: e.offset });
            return Ok(None);
        }
        let fail = |e: std::io::Error| format!("`{}`: {e}", file.display());
        open.seek(SeekFrom::Start(e.offset)).map_err(fail)?;
        let mut bytes = vec![0; e.length as usize];
        open.read_exact(&mut bytes).map_err(fail)?;
        Ok(Some(bytes))
    });
    known.weights = read.map_err(import)?;
    Ok(known)
}

/// A file in a model's folder that holds a weight, if it is there. What lies outside of that
/// folder, also through a link, is not the model's: naming it is an error.
fn located(model: &Path, e: &External) -> Result<Option<(PathBuf, File)>, String> {
    let outside = |place: &Path| {
        format!(
            "its values lie in `{}`, outside of the model's folder, from where none are read",
            place.display()
        )
    };
    let name = Path::new(&e.location);
    let is_inside = |c: Component| matches!(c, Component::Normal(_) | Component::CurDir);
    if !name.components().all(is_inside) {
        return Err(outside(name));
    }
    if e.is_own() {
        return whole(model, model, e).map(Some);
    }
    let folder = model.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let path = folder.join(name);
    let (Ok(home), Ok(real)) = (folder.canonicalize(), path.canonicalize()) else {
        return Ok(None);
    };
    if !real.starts_with(&home) {
        return Err(outside(&real));
    }
    whole(&real, &path, e).map(Some)
}

/// The file that holds a weight, which it must have all of; `path` is its name for messages.
fn whole(file: &Path, path: &Path, e: &External) -> Result<(PathBuf, File), String> {
    let fail = |e: std::io::Error| format!("`{}`: {e}", path.display());
    let real = file.canonicalize().map_err(fail)?;
    let file = crate::base::files::open(&real).map_err(|e| e.to_string())?;
    // A damaged file may state any length: no more is asked for than there is.
    let there = file.metadata().map_err(fail)?.len();
    if e.offset.checked_add(e.length).is_none_or(|end| there < end) {
        return Err(format!(
            "its values should be {} bytes from byte {} of `{}`, which has {there}",
            e.length,
            e.offset,
            path.display()
        ));
    }
    Ok((real, file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_models_folder_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("in/m.onnx");
        std::fs::create_dir(folder.path().join("in")).unwrap();
        std::fs::write(folder.path().join("in/w.data"), b"abcd").unwrap();
        std::fs::write(folder.path().join("secret"), b"abcd").unwrap();
        let secret = folder.path().join("secret");
        std::os::unix::fs::symlink(&secret, folder.path().join("in/link")).unwrap();
        std::os::unix::fs::symlink("w.data", folder.path().join("in/alias")).unwrap();
        let located = |name: &str, offset, length| {
            let (name, location) = (String::new(), name.to_string());
            let found = located(&model, &External { name, location, offset, length, dtype: None })?;
            Ok::<_, String>(found.map(|(file, _)| file))
        };
        let home = folder.path().canonicalize().unwrap();
        for name in ["w.data", "./w.data", "alias"] {
            assert_eq!(located(name, 0, 4), Ok(Some(home.join("in/w.data"))), "{name}");
        }
        assert_eq!(located("absent", 0, 0), Ok(None));
        for (length, name) in [(4, "w.data"), (u64::MAX, "w.data")] {
            let e = located(name, 1, length).unwrap_err();
            assert!(e.contains("w.data") && e.contains("which has 4"), "{e}");
        }
        for name in ["../secret", &secret.to_string_lossy(), "link"] {
            let e = located(name, 0, 1).unwrap_err();
            assert!(e.contains("secret") && e.contains("outside"), "{e}");
        }
    }
}
