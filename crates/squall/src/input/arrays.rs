//! Tensors that users give to a model or get from it, as files. Input: paths of NumPy's .npy files
//! or of .pb files (one ONNX `TensorProto`, as in ONNX's test data); output: arrays in memory, each
//! with the name of the model's input or output that it is. `inference/run.rs`, `bench.rs` and
//! `check.rs` read and write tensors by these functions.

use crate::base::error::Error;
use squall_core::graph::{Constant, Tensor};
use squall_frontend::npy::{self, Array};
use squall_frontend::onnx;
use std::path::{Path, PathBuf};

/// A file that holds an array, and the input or output of the model that the array is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayFile {
    /// The name of the input or output; may be left out where the model has only one.
    pub name: Option<String>,
    /// The file.
    pub path: PathBuf,
}

/// An array with the name of the model's input or output that it is.
pub type NamedArray = (String, Array);

/// Reads a .npy file, or a .pb file in ONNX's own form.
pub fn read_array(path: &Path) -> Result<Array, Error> {
    let bytes = crate::base::files::read(path)?;
    let fault = |message: String, hint: &str| Error::Input {
        place: path.display().to_string(),
        message,
        hint: hint.into(),
    };
    if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("pb")) {
        let read = onnx::read_tensor(&bytes).map(|(_, array)| array);
        return read.map_err(|e| fault(e, "such files hold one TensorProto of ONNX"));
    }
    npy::read(&bytes)
        .map_err(|e| fault(e.to_string(), "numpy.save writes such files: numpy.save('x.npy', x)"))
}

/// Writes a .npy file.
pub fn write_array(path: &Path, array: &Array) -> Result<(), Error> {
    crate::base::files::put(path, &npy::write(array))
}

/// Which value each file is of: `names` are those that there are, of which `only` counts for a
/// file without a name. `what` is `input` or `output`.
pub fn named(
    files: &[ArrayFile],
    names: &[String],
    only: &[String],
    what: &str,
    model: &str,
) -> Result<Vec<(String, PathBuf)>, Error> {
    let fault = |message: String, hint: String| Error::Input { place: model.into(), message, hint };
    let mut list: Vec<(String, PathBuf)> = Vec::new();
    for f in files {
        let name = match (&f.name, only) {
            (Some(name), _) if names.contains(name) => name.clone(),
            (Some(name), _) => {
                let message = format!("it has no {what} `{name}`");
                return Err(fault(message, format!("its {what}s: {}", only.join(", "))));
            }
            (None, [one]) => one.clone(),
            (None, []) => {
                return Err(fault(format!("it has no {what}"), format!("leave out --{what}")));
            }
            (None, [first, ..]) => {
                let message = format!("it has {} {what}s ({})", only.len(), only.join(", "));
                let file = f.path.display();
                return Err(fault(message, format!("say which: --{what} {first}={file}")));
            }
        };
        if list.iter().any(|(n, _)| *n == name) {
            let message = format!("the {what} `{name}` is given twice");
            return Err(fault(message, "give each once".into()));
        }
        list.push((name, f.path.clone()));
    }
    Ok(list)
}

/// The files `PREFIX_0.pb`, `PREFIX_1.pb` .. of a folder, as far as there are.
pub fn numbered(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    (0..).map(|i| folder.join(format!("{prefix}_{i}.pb"))).take_while(|p| p.is_file()).collect()
}

/// An array as a constant of a model; says what types there are none of.
pub fn tensor(array: &Array) -> Result<Tensor, String> {
    let shape = array.shape.clone();
    let constant = Constant::of_bytes(array.dtype, shape.clone(), &array.bytes);
    match constant {
        Some(c) => Ok(Tensor { dtype: Some(array.dtype), shape, constant: Some(c) }),
        _ => Err(format!("values of {} cannot become constants", array.dtype.name())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_find_their_values() {
        let file = |name: Option<&str>, path: &str| ArrayFile {
            name: name.map(Into::into),
            path: path.into(),
        };
        let names = |list: &[&str]| list.iter().map(|n| n.to_string()).collect::<Vec<_>>();
        let one = names(&["x"]);
        let bare = named(&[file(None, "a.npy")], &one, &one, "input", "m").unwrap();
        assert_eq!(bare, [("x".to_string(), PathBuf::from("a.npy"))]);
        let (all, two) = (names(&["x", "y", "w"]), names(&["x", "y"]));
        assert!(named(&[file(Some("w"), "w.npy")], &all, &two, "input", "m").is_ok());
        for (files, says) in [
            (vec![file(None, "a.npy")], "2 inputs (x, y)"),
            (vec![file(Some("z"), "a.npy")], "no input `z`"),
            (vec![file(Some("x"), "a"), file(Some("x"), "b")], "given twice"),
        ] {
            let e = named(&files, &all, &two, "input", "m").unwrap_err().to_string();
            assert!(e.contains(says), "{e}");
        }
    }
}
