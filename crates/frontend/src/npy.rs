//! NumPy's array files in C order: reads numbers of any type, writes 32-bit floats.

use squall_core::DType;
use std::fmt;

const MAGIC: &[u8] = b"\x93NUMPY";

/// An array of floats.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Extents, outermost first.
    pub shape: Vec<i64>,
    /// Elements in row-major order.
    pub data: Vec<f32>,
}

/// An array of any numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Numbers<'a> {
    /// The type of the numbers.
    pub dtype: DType,
    /// Extents, outermost first.
    pub shape: Vec<i64>,
    /// Their bytes, little-endian, in row-major order.
    pub bytes: &'a [u8],
}

/// Why a file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NpyError(String);

impl fmt::Display for NpyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NpyError {}

fn fail<T>(message: impl Into<String>) -> Result<T, NpyError> {
    Err(NpyError(message.into()))
}

/// Reads an array of floats.
pub fn read(bytes: &[u8]) -> Result<Array, NpyError> {
    let n = read_numbers(bytes)?;
    if n.dtype != DType::F32 {
        return fail(format!(
            "its elements are {}, expected f32: save it with `.astype(numpy.float32)`",
            n.dtype.name()
        ));
    }
    let data =
        n.bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    Ok(Array { shape: n.shape, data })
}

/// The spellings of types. `=` stands for the machine's order of bytes, `|` for types of one byte.
const TYPES: &[(&str, DType)] = &[
    ("f4", DType::F32),
    ("f8", DType::F64),
    ("i1", DType::I8),
    ("u1", DType::U8),
    ("i4", DType::I32),
    ("i8", DType::I64),
];

/// Reads an array of any numbers.
pub fn read_numbers(bytes: &[u8]) -> Result<Numbers<'_>, NpyError> {
    let Some(rest) = bytes.strip_prefix(MAGIC) else {
        return fail("it is no .npy file: the first bytes are not `\\x93NUMPY`");
    };
    let cut = || NpyError(format!("the file ends within its header, after {} bytes", bytes.len()));
    let (length, body) = match rest {
        [1, _, a, b, body @ ..] => (u16::from_le_bytes([*a, *b]) as usize, body),
        [2 | 3, _, a, b, c, d, body @ ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, body),
        [1..=3, ..] | [] => return Err(cut()),
        [version, ..] => {
            return fail(format!("version {version} of the format is not known (1, 2 and 3 are)"));
        }
    };
    if body.len() < length {
        return Err(cut());
    }
    let (header, data) = body.split_at(length);
    let Ok(header) = std::str::from_utf8(header) else { return fail("the header is not text") };
    let descr = entry(header, "descr")?;
    let plain = descr.trim_matches('\'');
    let Some(&(_, dtype)) =
        plain.strip_prefix(['<', '=', '|']).and_then(|p| TYPES.iter().find(|t| t.0 == p))
    else {
        return fail(format!(
            "its elements are {descr}, expected '<f4', '<f8', '|i1', '|u1', '<i4' or '<i8'"
        ));
    };
    if entry(header, "fortran_order")? != "False" {
        return fail("it is in Fortran order: save it with `numpy.ascontiguousarray`");
    }
    let shape = entry(header, "shape")?;
    let inner = shape.strip_prefix('(').and_then(|s| s.strip_suffix(')'));
    let words = inner.map(|s| s.split(',').map(str::trim).filter(|w| !w.is_empty()));
    let extents: Option<Vec<i64>> =
        words.and_then(|w| w.map(|w| w.parse().ok().filter(|e| *e >= 0)).collect());
    let Some(extents) = extents else { return fail(format!("its shape {shape} does not parse")) };
    let elements = extents.iter().try_fold(1usize, |n, &e| n.checked_mul(e as usize));
    match elements.and_then(|n| n.checked_mul(dtype.bytes() as usize)) {
        Some(size) if size == data.len() => {}
        _ => return fail(format!("shape {shape} does not match the {} bytes of data", data.len())),
    }
    Ok(Numbers { dtype, shape: extents, bytes: data })
}

/// The text of a key's value in the header, a Python dictionary of words, tuples and booleans.
fn entry<'a>(header: &'a str, key: &str) -> Result<&'a str, NpyError> {
    let missing = || NpyError(format!("the header has no `{key}`"));
    let start = header.find(&format!("'{key}'")).ok_or_else(missing)? + key.len() + 2;
    let value = header[start..].trim_start().strip_prefix(':').ok_or_else(missing)?.trim_start();
    let end = match value.starts_with('(') {
        true => value.find(')').map(|i| i + 1),
        false => value.find([',', '}']),
    };
    Ok(value[..end.ok_or_else(missing)?].trim_end())
}

/// The bytes of an array's file.
pub fn write(array: &Array) -> Vec<u8> {
    let extents: String = array.shape.iter().map(|e| format!("{e},")).collect();
    // A Python tuple of one extent needs a comma; a longer one may end with a comma.
    let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({extents}), }}");
    // The data starts at a multiple of 64 bytes.
    while !(MAGIC.len() + 4 + header.len() + 1).is_multiple_of(64) {
        header.push(' ');
    }
    header.push('\n');
    let mut out = MAGIC.to_vec();
    out.extend([1, 0]);
    out.extend((header.len() as u16).to_le_bytes());
    out.extend(header.as_bytes());
    out.extend(array.data.iter().flat_map(|x| x.to_le_bytes()));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Array {
        Array { shape: vec![2, 3], data: vec![1.0, -2.5, 0.0, 4.0, 5.0, f32::INFINITY] }
    }

    #[test]
    fn what_is_written_is_read() {
        for array in [
            sample(),
            Array { shape: vec![], data: vec![7.0] },
            Array { shape: vec![3], data: vec![1.0, 2.0, 3.0] },
        ] {
            let bytes = write(&array);
            assert_eq!(read(&bytes), Ok(array));
            // The data starts at a multiple of 64 bytes.
            assert_eq!(bytes.iter().position(|b| *b == b'\n').map(|i| (i + 1) % 64), Some(0));
        }
    }

    #[test]
    fn version_2_has_a_longer_length() {
        let one = write(&sample());
        let mut two = MAGIC.to_vec();
        two.extend([2, 0]);
        two.extend((u32::from(u16::from_le_bytes([one[8], one[9]]))).to_le_bytes());
        two.extend(&one[10..]);
        assert_eq!(read(&two), Ok(sample()));
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let bytes = write(&sample());
        let says = |b: &[u8], what: &str| {
            let e = read(b).expect_err(what).to_string();
            assert!(e.contains(what), "{e}");
        };
        says(b"", "no .npy file");
        says(&bytes[..7], "ends within its header");
        says(&bytes[..40], "ends within its header");
        says(&bytes[..bytes.len() - 1], "does not match");
        let text = |from: &str, to: &str| {
            let at = bytes.windows(from.len()).position(|w| w == from.as_bytes()).expect(from);
            let mut b = bytes.clone();
            b[at..at + from.len()].copy_from_slice(to.as_bytes());
            b
        };
        says(&text("'<f4'", "'>f4'"), "expected '<f4'");
        says(&text("'<f4'", "'<i4'"), "its elements are i32, expected f32");
        says(&text("'<f4'", "'<f8'"), "does not match the 24 bytes");
        assert_eq!(
            read_numbers(&text("'<f4'", "'<i4'")).map(|n| (n.dtype, n.bytes.len())),
            Ok((DType::I32, 24))
        );
        says(&text("False", "True "), "Fortran order");
        says(&text("(2,3,)", "(2,x,)"), "does not parse");
        says(&text("(2,3,)", "(9,3,)"), "does not match");
        says(&text("'shape'", "'shope'"), "no `shape`");
        // No prefix of a file panics.
        (0..bytes.len()).for_each(|n| assert!(read(&bytes[..n]).is_err(), "{n}"));
    }
}
