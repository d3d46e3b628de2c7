//! The common form of predictor files and checkpoints: both are safetensors files, whose tensors
//! are written and read here by name, type and shape. A tensor that does not fit is refused with
//! the reason ([`FileError`]).

use flate2::Compression;
use flate2::read::{GzDecoder, GzEncoder};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use squall_core::forecast::FamilyError;
use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

/// The version of predictor files that this build writes.
pub const VERSION: u32 = 5;
/// The earliest version that it still reads.
pub const EARLIEST: u32 = 4;

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
        "it is a predictor of version {found}, this build reads versions {EARLIEST} to {VERSION}: \
         train it again with this build"
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
element!(u8, Dtype::U8);
element!(i8, Dtype::I8);
element!(u16, Dtype::U16);
element!(u32, Dtype::U32);
element!(u64, Dtype::U64);
element!(f32, Dtype::F32);

/// The step of the 127 numbers, evenly spaced around 0, to which files round a row of a network's
/// parameters; 0 for a row of zeros. It has 16 significant bits, so its multiples are exact and
/// rounding what was rounded changes nothing.
fn step(row: &[f32]) -> f32 {
    const LOW: u32 = 0xff;
    let most = row.iter().fold(0.0f32, |m, x| m.max(x.abs()));
    let step = f32::from_bits((most / MOST_STEPS).to_bits().saturating_add(LOW) & !LOW);
    if most > 0.0 && step.is_normal() { step } else { 0.0 }
}

/// Steps from 0 to the largest number of a row.
const MOST_STEPS: f32 = 63.0;

/// How many steps a number is from 0.
fn steps(x: f32, step: f32) -> i8 {
    if step > 0.0 { (x / step).round().clamp(-MOST_STEPS, MOST_STEPS) as i8 } else { 0 }
}

/// Rounds a row of parameters to what a file keeps of it.
pub(crate) fn round_row(row: &mut [f32]) {
    let step = step(row);
    row.iter_mut().for_each(|x| *x = f32::from(steps(*x, step)) * step);
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

    /// Adds a matrix whose rows are rounded, each to steps of its own; see [`round_row`]. Where
    /// they are not, as those of a file of version 4, all bits are kept.
    pub fn add_rounded(&mut self, name: &str, [rows, cols]: [usize; 2], values: &[f32]) {
        let each = || values.chunks_exact(cols.max(1));
        let is_rounded = |row: &[f32]| {
            let mut again = row.to_vec();
            round_row(&mut again);
            again == row
        };
        if !each().all(is_rounded) {
            return self.add(name, &[rows, cols], values);
        }
        let all: Vec<f32> = each().map(step).collect();
        let steps: Vec<i8> =
            each().zip(&all).flat_map(|(row, s)| row.iter().map(|x| steps(*x, *s))).collect();
        self.add(name, &[rows, cols], &steps);
        self.add(format!("{name}.step"), &[rows], &all);
    }

    /// Adds a tensor of numbers that are not negative, in as few bytes as hold the largest.
    pub fn add_small(&mut self, name: impl Into<String>, shape: &[usize], values: &[u32]) {
        match values.iter().copied().max().unwrap_or(0) {
            0..=0xff => {
                let all: Vec<u8> = values.iter().map(|x| *x as u8).collect();
                self.add(name, shape, &all);
            }
            0x100..=0xffff => {
                let all: Vec<u16> = values.iter().map(|x| *x as u16).collect();
                self.add(name, shape, &all);
            }
            _ => self.add(name, shape, values),
        }
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
    /// Numbers that may still be made from others, and steps that this may still take.
    room: usize,
    steps: usize,
}

/// Numbers that are made from those of a file, for each of its bytes, and the steps that this
/// takes; real files need a fifth of it.
const MADE: usize = 8;
const STEPS: usize = 64;

impl<'a> TensorReader<'a> {
    pub fn new(bytes: &'a [u8]) -> Result<TensorReader<'a>, String> {
        let tensors = SafeTensors::deserialize(bytes).map_err(|e| format!("{e:?}"))?;
        let (room, steps) = (MADE * bytes.len(), STEPS * bytes.len());
        Ok(TensorReader { tensors, read: 0, room, steps })
    }

    /// Takes the room and the steps for numbers that are made from others; whether there are so
    /// many. A small file from a stranger shall not ask for all of the memory.
    pub fn take(&mut self, numbers: usize, steps: usize) -> bool {
        let fits = numbers <= self.room && steps <= self.steps;
        if fits {
            (self.room, self.steps) = (self.room - numbers, self.steps - steps);
        }
        fits
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

    /// Whether there is a tensor of this name.
    pub fn has(&self, name: &str) -> bool {
        self.tensors.tensor(name).is_ok()
    }

    /// What the elements of a tensor have for a type.
    fn dtype(&self, name: &str) -> Option<Dtype> {
        self.tensors.tensor(name).ok().map(|t| t.dtype())
    }

    /// Numbers of 8, 16 or 32 bits that are not negative.
    pub fn small(&mut self, name: &str, shape: &[usize]) -> Result<Vec<u32>, FileError> {
        Ok(match self.dtype(name) {
            Some(Dtype::U8) => self.get::<u8>(name, shape)?.into_iter().map(u32::from).collect(),
            Some(Dtype::U16) => self.get::<u16>(name, shape)?.into_iter().map(u32::from).collect(),
            _ => self.get(name, shape)?,
        })
    }

    /// Floats of a tensor, all of them finite; of 32 bits, of 16, or the rows of a matrix each in
    /// steps of its own.
    pub fn floats(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>, FileError> {
        let out: Vec<f32> = match (self.dtype(name), shape) {
            (Some(Dtype::I8), &[rows, cols]) => {
                let steps: Vec<f32> = self.get(&format!("{name}.step"), &[rows])?;
                let all: Vec<i8> = self.get(name, shape)?;
                let rows = all.chunks_exact(cols.max(1)).zip(steps);
                rows.flat_map(|(row, s)| row.iter().map(move |x| f32::from(*x) * s)).collect()
            }
            (Some(Dtype::F16), _) => self.halves(name, shape)?,
            _ => self.get(name, shape)?,
        };
        if out.iter().all(|x| x.is_finite()) {
            return Ok(out);
        }
        Err(FileError::Part { name: name.into(), why: "holds numbers that are not finite".into() })
    }

    /// Floats of 16 bits, which files of version 4 have.
    fn halves(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>, FileError> {
        let t = self.tensors.tensor(name).map_err(|e| FileError::Header(e.to_string()))?;
        if t.shape() != shape {
            let why = format!("is {:?}, expected {shape:?}", t.shape());
            return Err(FileError::Part { name: name.into(), why });
        }
        self.read += 1;
        Ok(u16::read_all(t.data()).into_iter().map(of_half).collect())
    }

    /// The elements of a tensor of one dimension, however many there are.
    pub fn list<T: Element>(&mut self, name: &str) -> Result<Vec<T>, FileError> {
        let n = self.len(name)?;
        self.get(name, &[n])
    }
}

/// How files that are packed begin.
const PACKED: [u8; 2] = [0x1f, 0x8b];
/// What is packed is at most so many times as long as its packed form.
const MOST_PACKED: u64 = 16;

/// Packs the bytes of a file (gzip), unless they would take so little room that they were refused.
pub(crate) fn packed(bytes: Vec<u8>) -> std::io::Result<Vec<u8>> {
    let mut out = Vec::new();
    GzEncoder::new(&bytes[..], Compression::new(6)).read_to_end(&mut out)?;
    Ok(if MOST_PACKED * out.len() as u64 >= bytes.len() as u64 { out } else { bytes })
}

/// The bytes of a file, unpacked where they are packed. A file from a stranger may claim to be
/// longer than any memory: it is unpacked no further than a real one would be.
pub(crate) fn unpacked(bytes: &[u8]) -> Result<Cow<'_, [u8]>, String> {
    if !bytes.starts_with(&PACKED) {
        return Ok(Cow::Borrowed(bytes));
    }
    let most = MOST_PACKED * bytes.len() as u64;
    let out = read_at_most(GzDecoder::new(bytes), most);
    let out = out.map_err(|e| format!("it cannot be unpacked: {e}"))?;
    out.map(Cow::Owned).ok_or_else(|| format!("it unpacks to more than {most} bytes"))
}

/// All that a reader gives; `None` where that is more than `most` bytes.
pub(crate) fn read_at_most(from: impl Read, most: u64) -> std::io::Result<Option<Vec<u8>>> {
    let mut out = Vec::new();
    let read = from.take(most + 1).read_to_end(&mut out)?;
    Ok((read as u64 <= most).then_some(out))
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
    use squall_core::DType;

    #[test]
    fn what_was_rounded_is_read_as_it_was_and_not_rounded_again() {
        let mut list: Vec<f32> =
            vec![0.0, -1.0, 0.1, 6e-5, -3e-8, 1e30, -1e-30, 7.5, 0.0, 0.0, 0.0, 0.0];
        list.chunks_exact_mut(4).for_each(round_row);
        let near = |i: usize, x: f32| (list[i] - x).abs() < 0.008;
        assert!(near(1, -1.0) && near(2, 0.1) && near(11, 0.0), "{list:?}");
        let mut again = list.clone();
        again.chunks_exact_mut(4).for_each(round_row);
        assert_eq!(again, list);
        let mut out = TensorWriter::default();
        out.add_rounded("x", [3, 4], &list);
        let bytes = out.finish("k", "{}".into()).unwrap();
        let mut all = TensorReader::new(&bytes).unwrap();
        assert_eq!(all.floats("x", &[3, 4]).unwrap(), list);
        assert_eq!(all.counts(), (2, 2));
        assert!(all.floats("x", &[4, 3]).is_err() && all.get::<f32>("x", &[3, 4]).is_err());
        // What is no number is refused, as in 32 bits.
        let mut out = TensorWriter::default();
        out.add("x", &[1, 2], &[1i8, 2]);
        out.add("x.step", &[1], &[f32::NAN]);
        let bytes = out.finish("k", "{}".into()).unwrap();
        assert!(TensorReader::new(&bytes).unwrap().floats("x", &[1, 2]).is_err());
    }

    #[test]
    fn what_is_packed_is_unpacked_and_a_bomb_is_not() {
        let text = b"a predictor".repeat(9);
        assert_eq!(unpacked(&packed(text.clone()).unwrap()).unwrap().as_ref(), text);
        assert_eq!(unpacked(&text).unwrap().as_ref(), text);
        let zeros = vec![0; 1 << 22];
        assert_eq!(packed(zeros.clone()).unwrap(), zeros, "it would be refused");
        let mut bomb = Vec::new();
        GzEncoder::new(&zeros[..], Compression::fast()).read_to_end(&mut bomb).unwrap();
        assert!(unpacked(&bomb).unwrap_err().contains("more than"));
        assert!(unpacked(&packed(text.clone()).unwrap()[..12]).is_err());
    }

    #[test]
    fn small_numbers_take_few_bytes() {
        for (most, dtype) in [(255, Dtype::U8), (256, Dtype::U16), (1 << 16, Dtype::U32)] {
            let mut out = TensorWriter::default();
            out.add_small("x", &[2], &[3, most]);
            let bytes = out.finish("k", "{}".into()).unwrap();
            let mut all = TensorReader::new(&bytes).unwrap();
            assert_eq!(
                (all.dtype("x"), all.small("x", &[2]).unwrap()),
                (Some(dtype), vec![3, most])
            );
        }
    }

    #[test]
    fn numbers_of_16_bits_are_read() {
        let values = [0.0, -1.0, 0.5, 65504.0, f32::NAN];
        for n in [4, 5] {
            let bits = values[..n].iter().map(|v| DType::F16.half_bits(*v).unwrap().to_le_bytes());
            let mut out = TensorWriter::default();
            out.tensors.push(("x".into(), Dtype::F16, vec![n], bits.flatten().collect()));
            let bytes = out.finish("k", "{}".into()).unwrap();
            let found = TensorReader::new(&bytes).unwrap().floats("x", &[n]);
            assert_eq!(found.ok(), (n == 4).then(|| values[..4].to_vec()));
        }
    }
}
