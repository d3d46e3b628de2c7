//! NumPy's `.npy` files of float32, as bytes: the format in which inputs and expected outputs of
//! models are exchanged.

/// A tensor as a `.npy` file holds it.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Extents, outermost first.
    pub shape: Vec<i64>,
    /// Values in row-major order.
    pub values: Vec<f32>,
}

/// A file that is not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NpyError(String);

fn fail<T>(message: impl Into<String>) -> Result<T, NpyError> {
    Err(NpyError(message.into()))
}

const MAGIC: &[u8] = b"\x93NUMPY";

/// Reads an array of float32, or of float64 rounded to it, in either byte order's little-endian
/// form and row-major order.
pub fn read(bytes: &[u8]) -> Result<Array, NpyError> {
    let Some(rest) = bytes.strip_prefix(MAGIC) else { return fail("it is no .npy file: it does not begin with \\x93NUMPY") };
    let (length, rest) = match *rest {
        [1, _, a, b, ref rest @ ..] => (usize::from(u16::from_le_bytes([a, b])), rest),
        [2 | 3, _, a, b, c, d, ref rest @ ..] => (u32::from_le_bytes([a, b, c, d]) as usize, rest),
        [v, ..] => return fail(format!("version {v} of the .npy format is not read")),
        [] => return fail("the file is cut off in its header"),
    };
    let (Some(header), Some(data)) = (rest.get(..length), rest.get(length..)) else { return fail("the file is cut off in its header") };
    let header = String::from_utf8_lossy(header);
    let entry = |key: &str| header.split_once(&format!("'{key}':")).map(|(_, r)| r.trim_start());
    let Some(descr) = entry("descr") else { return fail("its header does not say the element type") };
    let width = match descr.get(..5) {
        Some("'<f4'") => 4,
        Some("'<f8'") => 8,
        _ => {
            let found: String = descr.chars().take_while(|c| *c != ',').take(40).collect();
            return fail(format!("its elements are {found}, expected '<f4' (little-endian float32)"));
        }
    };
    if entry("fortran_order").is_none_or(|o| !o.starts_with("False")) {
        return fail("it is in Fortran's order, expected C's (numpy.ascontiguousarray)");
    }
    let Some(list) = entry("shape").and_then(|s| s.strip_prefix('(')).and_then(|s| s.split_once(')')).map(|(l, _)| l) else {
        return fail("its header does not say the shape");
    };
    let mut shape = Vec::new();
    for n in list.split(',').map(str::trim).filter(|n| !n.is_empty()) {
        match n.parse::<i64>() {
            Ok(e) if e >= 0 => shape.push(e),
            _ => return fail(format!("`{n}` in its shape is no extent")),
        }
    }
    let count = shape.iter().try_fold(1u64, |n, &e| n.checked_mul(e as u64)).and_then(|n| n.checked_mul(width));
    if count != Some(data.len() as u64) {
        return fail(format!("it holds {} bytes of data, which do not fit the shape {shape:?}", data.len()));
    }
    let values = match width {
        4 => data.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
        _ => data.chunks_exact(8).map(|b| f64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]) as f32).collect(),
    };
    Ok(Array { shape, values })
}

/// Writes an array of float32 as a `.npy` file.
pub fn write(array: &Array) -> Vec<u8> {
    let mut list: String = array.shape.iter().map(|e| format!("{e}, ")).collect();
    if array.shape.len() > 1 {
        list.truncate(list.len() - 2);
    } else {
        list = list.trim_end().into();
    }
    let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({list}), }}");
    // Data begin at a multiple of 64 bytes, after magic, version, length and the header's newline.
    let unpadded = MAGIC.len() + 4 + header.len() + 1;
    header.extend(std::iter::repeat_n(' ', unpadded.next_multiple_of(64) - unpadded));
    header.push('\n');
    let mut out = MAGIC.to_vec();
    out.extend([1, 0]);
    out.extend((header.len() as u16).to_le_bytes());
    out.extend(header.as_bytes());
    out.extend(array.values.iter().flat_map(|x| x.to_le_bytes()));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for shape in [vec![], vec![3], vec![2, 3], vec![0, 4]] {
            let n = shape.iter().product::<i64>();
            let a = Array { values: (0..n).map(|i| i as f32 - 0.5).collect(), shape };
            let bytes = write(&a);
            assert_eq!(read(&bytes), Ok(a.clone()));
            assert_eq!((bytes.len() - a.values.len() * 4) % 64, 0);
        }
    }

    #[test]
    fn other_files_are_refused_with_the_reason() {
        let good = write(&Array { shape: vec![2], values: vec![1.0, 2.0] });
        for cut in 0..good.len() {
            assert!(read(&good[..cut]).is_err());
        }
        let with = |from: &str, to: &str| {
            let mut b = good.clone();
            let at = b.windows(from.len()).position(|w| w == from.as_bytes()).unwrap();
            b[at..at + to.len()].copy_from_slice(to.as_bytes());
            read(&b).unwrap_err().to_string()
        };
        assert!(with("'<f4'", "'>f4'").contains("'>f4'"));
        assert!(with("False", "True ").contains("Fortran"));
        assert!(with("(2,)", "(3,)").contains("shape [3]"));
        assert!(with("(2,)", "(-,)").contains("no extent"));
    }
}
