//! What predictor files and checkpoints have in common: both are safetensors files, whose tensors
//! are written and read here by name, type and shape. Whatever does not fit is refused with its
//! reason.

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use squall_core::DType;
use squall_core::forecast::FamilyError;
use std::collections::HashMap;
use std::path::Path;

/// The version of predictor files that this build writes, and the only one that it reads.
pub const VERSION: u32 = 4;

/// Why a predictor file or a checkpoint cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the messages say what the fields are
pub enum FileError {
    #[error("{path}: {error}")]
    Io { path: String, error: std::io::Error },
    #[error("it is no predictor: {0}; `squall train --out FILE` writes one")]
    NotAPredictor(String),
    #[error("it is no checkpoint of training: {0}")]
    NotACheckpoint(String),
    #[error(
        "it is a predictor of version {found}, this build reads version {VERSION}: train it again \
         with this build"
    )]
    Version { found: u32 },
    #[error("its header does not fit: {0}")]
    Header(String),
    #[error("its part `{name}` {why}")]
    Part { name: String, why: String },
    #[error(transparent)]
    Family(#[from] FamilyError),
}

/// An element type that files hold, little-endian.
pub(crate) trait Element: Copy {
    const DTYPE: Dtype;
    /// Appends the element's bytes.
    fn write(self, out: &mut Vec<u8>);
    /// Elements from bytes; bytes beyond the last whole element are dropped.
    fn read_all(bytes: &[u8]) -> Vec<Self>;
}

macro_rules! element {
    ($type:ty, $dtype:expr) => {
        impl Element for $type {
            const DTYPE: Dtype = $dtype;
            fn write(self, out: &mut Vec<u8>) {
                out.extend(self.to_le_bytes());
            }
            fn read_all(bytes: &[u8]) -> Vec<$type> {
                bytes.as_chunks().0.iter().map(|b| <$type>::from_le_bytes(*b)).collect()
            }
        }
    };
}
element!(u16, Dtype::U16);
element!(u32, Dtype::U32);
element!(u64, Dtype::U64);
element!(f32, Dtype::F32);

/// The number rounded to 16 bits, as files keep the parameters of networks: 11 significant bits are
/// more than training decides. Beyond the format's range it is the range's end.
pub(crate) fn half(x: f32) -> f32 {
    const MOST: f32 = 65504.0;
    DType::F16.round(f64::from(x.clamp(-MOST, MOST))) as f32
}

/// The number that 16 bits stand for.
fn of_half(bits: u16) -> f32 {
    let (sign, exponent, fraction) = (bits >> 15, i32::from(bits >> 10 & 31), bits & 1023);
    let size = match exponent {
        0 => f32::from(fraction) * 2f32.powi(-24),
        31 if fraction == 0 => f32::INFINITY,
        31 => f32::NAN,
        e => (1.0 + f32::from(fraction) / 1024.0) * 2f32.powi(e - 15),
    };
    if sign == 1 { -size } else { size }
}

/// The tensors of a file that is written, in order.
#[derive(Default)]
pub(crate) struct TensorWriter {
    /// Name, type, shape, bytes.
    tensors: Vec<(String, Dtype, Vec<usize>, Vec<u8>)>,
}

impl TensorWriter {
    /// Adds a tensor.
    pub fn add<T: Element>(&mut self, name: impl Into<String>, shape: &[usize], values: &[T]) {
        let mut bytes = Vec::with_capacity(size_of_val(values));
        values.iter().for_each(|v| v.write(&mut bytes));
        self.tensors.push((name.into(), T::DTYPE, shape.to_vec(), bytes));
    }

    /// Adds a tensor of numbers that are rounded to 16 bits; see [`half`].
    pub fn add_halves(&mut self, name: impl Into<String>, shape: &[usize], values: &[f32]) {
        let bits = |v: &f32| DType::F16.half_bits(*v).unwrap_or(0).to_le_bytes();
        let bytes = values.iter().flat_map(bits).collect();
        self.tensors.push((name.into(), Dtype::F16, shape.to_vec(), bytes));
    }

    /// Adds a tensor of one dimension.
    pub fn add_list<T: Element>(&mut self, name: impl Into<String>, values: &[T]) {
        self.add(name, &[values.len()], values);
    }

    /// The file: a header under a key of the metadata, and the tensors.
    pub fn finish(&self, key: &str, header: String) -> Result<Vec<u8>, FileError> {
        let broken = |e: &dyn std::fmt::Display| FileError::Header(e.to_string());
        let mut views = Vec::with_capacity(self.tensors.len());
        for (name, dtype, shape, bytes) in &self.tensors {
            let view = TensorView::new(*dtype, shape.clone(), bytes).map_err(|e| broken(&e))?;
            views.push((name.as_str(), view));
        }
        safetensors::serialize(views, Some(HashMap::from([(key.to_owned(), header)])))
            .map_err(|e| broken(&e))
    }
}

/// The header of a file, if its metadata has one under the key.
pub(crate) fn header(bytes: &[u8], key: &str) -> Result<Option<String>, String> {
    let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(|e| format!("{e:?}"))?;
    Ok(metadata.metadata().as_ref().and_then(|m| m.get(key)).cloned())
}

/// The tensors of a file that is read, counting how many were asked for.
pub(crate) struct TensorReader<'a> {
    tensors: SafeTensors<'a>,
    read: usize,
}

impl<'a> TensorReader<'a> {
    pub fn new(bytes: &'a [u8]) -> Result<TensorReader<'a>, String> {
        let tensors = SafeTensors::deserialize(bytes).map_err(|e| format!("{e:?}"))?;
        Ok(TensorReader { tensors, read: 0 })
    }

    /// How many tensors the file has, and how many were read.
    pub fn counts(&self) -> (usize, usize) {
        (self.tensors.len(), self.read)
    }

    /// The number of elements of a tensor.
    pub fn len(&self, name: &str) -> Result<usize, FileError> {
        let missing = |_| FileError::Part { name: name.into(), why: "is missing".into() };
        Ok(self.tensors.tensor(name).map_err(missing)?.shape().iter().product())
    }

    /// The elements of a tensor, if it has this type and shape.
    pub fn get<T: Element>(&mut self, name: &str, shape: &[usize]) -> Result<Vec<T>, FileError> {
        let fault = |why: String| FileError::Part { name: name.into(), why };
        let t = self.tensors.tensor(name).map_err(|_| fault("is missing".into()))?;
        if t.dtype() != T::DTYPE || t.shape() != shape {
            let (dtype, found) = (t.dtype(), t.shape());
            let expected = T::DTYPE;
            return Err(fault(format!("is {dtype:?} {found:?}, expected {expected:?} {shape:?}")));
        }
        self.read += 1;
        Ok(T::read_all(t.data()))
    }

    /// Floats of a tensor, all of them finite; of 32 bits or of 16.
    pub fn floats(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>, FileError> {
        let is_half = |t: TensorView| t.dtype() == Dtype::F16 && t.shape() == shape;
        let out: Vec<f32> = match self.tensors.tensor(name).is_ok_and(is_half) {
            true => {
                self.read += 1;
                let t = self.tensors.tensor(name).map_err(|e| FileError::Header(e.to_string()))?;
                u16::read_all(t.data()).into_iter().map(of_half).collect()
            }
            false => self.get(name, shape)?,
        };
        if out.iter().all(|x| x.is_finite()) {
            return Ok(out);
        }
        Err(FileError::Part { name: name.into(), why: "holds numbers that are not finite".into() })
    }

    /// The elements of a tensor of one dimension, however many there are.
    pub fn list<T: Element>(&mut self, name: &str) -> Result<Vec<T>, FileError> {
        let n = self.len(name)?;
        self.get(name, &[n])
    }
}

/// Writes under another name first and renames then, so that a reader never sees half a file.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part = path.with_file_name(name);
    let write = || {
        let mut f = std::fs::File::create(&part)?;
        std::io::Write::write_all(&mut f, bytes)?;
        f.sync_all()?;
        std::fs::rename(&part, path)
    };
    write().map_err(|error| {
        // The file could not be completed and is of no use; if it cannot be removed either, the
        // first error is the one to report.
        let _ = std::fs::remove_file(&part);
        FileError::Io { path: path.display().to_string(), error }
    })
}

/// Reads a regular file: a pipe would be waited for without end, and a device has no end.
pub(crate) fn read_file(path: &Path) -> std::io::Result<Vec<u8>> {
    match std::fs::metadata(path)?.is_file() {
        true => std::fs::read(path),
        false => Err(std::io::Error::other("it is no file, but a folder, a pipe or a device")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_16_bits_are_read_as_they_were_written() {
        let list: Vec<f32> =
            [0.0, -1.0, 0.1, 6e-5, -3e-8, 1e-9, 65504.0, 1e9, -1e9, 0.333].map(half).to_vec();
        let mut out = TensorWriter::default();
        out.add_halves("x", &[2, 5], &list);
        let bytes = out.finish("k", "{}".into()).unwrap();
        let mut all = TensorReader::new(&bytes).unwrap();
        assert_eq!(all.floats("x", &[2, 5]).unwrap(), list);
        assert_eq!(all.counts(), (1, 1));
        assert!(all.floats("x", &[10]).is_err() && all.get::<f32>("x", &[2, 5]).is_err());
        // What is no number is refused, as in 32 bits.
        let mut out = TensorWriter::default();
        out.add_halves("x", &[1], &[f32::NAN]);
        let bytes = out.finish("k", "{}".into()).unwrap();
        assert!(TensorReader::new(&bytes).unwrap().floats("x", &[1]).is_err());
    }
}
