//! Reads and writes NumPy's array files (.npy): numbers of any type, in both orders of bytes and of
//! axes. Output: an [`Array`] in row-major order and the machine's byte order. Users give and get
//! the inputs and outputs of networks and kernels in this form.

use squall_core::DType;
use std::fmt;

const MAGIC: &[u8] = b"\x93NUMPY";

/// An array of numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// The type of the numbers.
    pub dtype: DType,
    /// Extents, outermost first.
    pub shape: Vec<i64>,
    /// The numbers' bytes in the machine's order, elements in row-major order.
    pub bytes: Vec<u8>,
}

impl Array {
    /// An array of floats, in row-major order.
    pub fn floats(shape: Vec<i64>, data: &[f32]) -> Array {
        let bytes = data.iter().flat_map(|x| x.to_ne_bytes()).collect();
        Array { dtype: DType::F32, shape, bytes }
    }

    /// The number of elements.
    pub fn elements(&self) -> usize {
        self.bytes.len() / self.dtype.bytes() as usize
    }

    /// Its elements, where they are 32-bit floats.
    pub fn f32s(&self) -> Option<Vec<f32>> {
        let word = |b: &[u8]| f32::from_ne_bytes([b[0], b[1], b[2], b[3]]);
        (self.dtype == DType::F32).then(|| self.bytes.chunks_exact(4).map(word).collect())
    }

    /// An element as a 64-bit float; whole numbers beyond 2^53 are rounded. None of
    /// packed ones.
    pub fn number(&self, i: usize) -> Option<f64> {
        let size = self.dtype.bytes() as usize;
        let b = self.bytes.get(i * size..(i + 1) * size)?;
        let two = || [b[0], b[1]];
        let four = || [b[0], b[1], b[2], b[3]];
        let eight = || [b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]];
        Some(match self.dtype {
            DType::F32 | DType::Tf32 => f64::from(f32::from_ne_bytes(four())),
            DType::F64 => f64::from_ne_bytes(eight()),
            DType::I8 => f64::from(b[0] as i8),
            DType::U8 | DType::Bool => f64::from(b[0]),
            DType::I16 => f64::from(i16::from_ne_bytes(two())),
            DType::U16 => f64::from(u16::from_ne_bytes(two())),
            DType::I32 => f64::from(i32::from_ne_bytes(four())),
            DType::U32 => f64::from(u32::from_ne_bytes(four())),
            DType::I64 => i64::from_ne_bytes(eight()) as f64,
            DType::U64 => u64::from_ne_bytes(eight()) as f64,
            DType::F16 | DType::Bf16 => {
                f64::from(self.dtype.half_value(u16::from_ne_bytes(two()))?)
            }
            DType::U8x4 | DType::I8x4 | DType::Bf16x2 | DType::I16x2 => return None,
        })
    }
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

/// The spellings of types. `=` stands for the machine's order of bytes, `|` for types of one byte.
const TYPES: &[(&str, DType)] = &[
    ("f4", DType::F32),
    ("f8", DType::F64),
    ("f2", DType::F16),
    ("i1", DType::I8),
    ("u1", DType::U8),
    ("i2", DType::I16),
    ("u2", DType::U16),
    ("i4", DType::I32),
    ("u4", DType::U32),
    ("i8", DType::I64),
    ("u8", DType::U64),
    ("b1", DType::Bool),
];

/// What a file's header says.
struct Header<'a> {
    dtype: DType,
    shape: Vec<i64>,
    /// The most significant byte comes first.
    big: bool,
    /// The first axis runs fastest.
    fortran: bool,
    bytes: &'a [u8],
}

/// Reads an array.
pub fn read(bytes: &[u8]) -> Result<Array, NpyError> {
    let h = header(bytes)?;
    let size = h.dtype.bytes() as usize;
    let mut bytes = h.bytes.to_vec();
    if h.big != cfg!(target_endian = "big") {
        bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    }
    if h.fortran && h.shape.len() > 1 {
        bytes = row_major(&bytes, &h.shape, size);
    }
    Ok(Array { dtype: h.dtype, shape: h.shape, bytes })
}

/// Elements whose first axis runs fastest, in row-major order.
fn row_major(bytes: &[u8], shape: &[i64], size: usize) -> Vec<u8> {
    let mut strides = Vec::new();
    let mut stride = size;
    for &e in shape {
        strides.push(stride);
        stride *= e as usize;
    }
    let mut out = Vec::with_capacity(bytes.len());
    let mut place = vec![0usize; shape.len()];
    for _ in 0..bytes.len() / size {
        let at: usize = place.iter().zip(&strides).map(|(p, s)| p * s).sum();
        out.extend_from_slice(&bytes[at..at + size]);
        for axis in (0..shape.len()).rev() {
            place[axis] += 1;
            if (place[axis] as i64) < shape[axis] {
                break;
            }
            place[axis] = 0;
        }
    }
    out
}

/// Reads an array of numbers whose file is laid out as memory is: little-endian, row-major.
pub fn read_numbers(bytes: &[u8]) -> Result<Numbers<'_>, NpyError> {
    let h = header(bytes)?;
    if h.big {
        return fail("its bytes are in big-endian order: save it with `.astype('<f4')` or alike");
    }
    if h.fortran && h.shape.len() > 1 {
        return fail("it is in Fortran order: save it with `numpy.ascontiguousarray`");
    }
    Ok(Numbers { dtype: h.dtype, shape: h.shape, bytes: h.bytes })
}

fn header(bytes: &[u8]) -> Result<Header<'_>, NpyError> {
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
    let order = plain.chars().next().filter(|c| "<>=|".contains(*c));
    let known = order.and_then(|o| TYPES.iter().find(|t| t.0 == &plain[o.len_utf8()..]));
    let (Some(order), Some(&(_, dtype))) = (order, known) else {
        return fail(format!(
            "its elements are {descr}, expected floats ('<f4'), whole numbers ('<i8') or booleans \
             ('|b1')"
        ));
    };
    let big = order == '>' || (order == '=' && cfg!(target_endian = "big"));
    let fortran = match entry(header, "fortran_order")? {
        "False" => false,
        "True" => true,
        other => return fail(format!("its fortran_order is {other}, expected True or False")),
    };
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
    Ok(Header { dtype, shape: extents, big, fortran, bytes: data })
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

/// The bytes of an array's file; of bfloat16, which NumPy does not have, those of its bits.
pub fn write(array: &Array) -> Vec<u8> {
    let extents: String = array.shape.iter().map(|e| format!("{e},")).collect();
    let name = TYPES.iter().find(|t| t.1 == array.dtype).map_or("u2", |t| t.0);
    let order = match name {
        "i1" | "u1" | "b1" => '|',
        _ if cfg!(target_endian = "big") => '>',
        _ => '<',
    };
    // A Python tuple of one extent needs a comma; a longer one may end with a comma.
    let mut header =
        format!("{{'descr': '{order}{name}', 'fortran_order': False, 'shape': ({extents}), }}");
    // The data starts at a multiple of 64 bytes.
    while !(MAGIC.len() + 4 + header.len() + 1).is_multiple_of(64) {
        header.push(' ');
    }
    header.push('\n');
    let mut out = MAGIC.to_vec();
    out.extend([1, 0]);
    out.extend((header.len() as u16).to_le_bytes());
    out.extend(header.as_bytes());
    out.extend(&array.bytes);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Array {
        Array::floats(vec![2, 3], &[1.0, -2.5, 0.0, 4.0, 5.0, f32::INFINITY])
    }

    #[test]
    fn what_is_written_is_read() {
        for array in [
            sample(),
            Array::floats(vec![], &[7.0]),
            Array::floats(vec![3], &[1.0, 2.0, 3.0]),
            Array::floats(vec![2, 0], &[]),
            Array { dtype: DType::Bool, shape: vec![2], bytes: vec![0, 1] },
            Array { dtype: DType::U64, shape: vec![1], bytes: vec![1; 8] },
            Array { dtype: DType::I16, shape: vec![1, 1], bytes: vec![0xff, 3] },
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
    fn other_orders_are_read() {
        let plain = write(&sample());
        let text = |from: &str, to: &str| {
            let at = plain.windows(from.len()).position(|w| w == from.as_bytes()).expect(from);
            let mut b = plain.clone();
            b[at..at + from.len()].copy_from_slice(to.as_bytes());
            b
        };
        let mut big = text("'<f4'", "'>f4'");
        let start = big.len() - 24;
        big[start..].chunks_mut(4).for_each(<[u8]>::reverse);
        assert_eq!(read(&big), Ok(sample()));
        // The columns of a matrix come first.
        let fortran = read(&text("False", "True ")).unwrap();
        assert_eq!(fortran.shape, [2, 3]);
        assert_eq!(fortran.f32s().unwrap(), [1.0, 0.0, 5.0, -2.5, 4.0, f32::INFINITY]);
        assert_eq!(fortran.number(3), Some(-2.5));
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
        says(&text("'<f4'", "'<c8'"), "its elements are '<c8', expected floats");
        says(&text("'<f4'", "'xf4'"), "expected floats");
        says(&text("'<f4'", "'<f8'"), "does not match the 24 bytes");
        assert_eq!(
            read_numbers(&text("'<f4'", "'<i4'")).map(|n| (n.dtype, n.bytes.len())),
            Ok((DType::I32, 24))
        );
        let e = read_numbers(&text("False", "True ")).expect_err("refused").to_string();
        assert!(e.contains("Fortran order"), "{e}");
        says(&text("False", "Maybe"), "expected True or False");
        says(&text("(2,3,)", "(2,x,)"), "does not parse");
        says(&text("(2,3,)", "(9,3,)"), "does not match");
        says(&text("'shape'", "'shope'"), "no `shape`");
        // No prefix of a file panics.
        (0..bytes.len()).for_each(|n| assert!(read(&bytes[..n]).is_err(), "{n}"));
    }
}
