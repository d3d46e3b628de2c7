//! Reads and writes the numbers in the file of a chooser of solvers (`file.rs`, `forest_file.rs`):
//! integers of 7 bits a byte, signed integers, and floats. A file that ends early is an error,
//! never a panic.

use crate::tensors::FileError;

/// A file that does not fit together, and why.
pub fn broken(why: impl Into<String>) -> FileError {
    FileError::Header(why.into())
}

/// Writes a number of 7 bits a byte, the last one without the highest bit.
pub fn put(out: &mut Vec<u8>, mut n: u64) {
    while n > 0x7f {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Writes a number that may be negative.
pub fn put_signed(out: &mut Vec<u8>, n: i64) {
    put(out, ((n << 1) ^ (n >> 63)) as u64);
}

/// The bytes that are not read yet.
pub struct Cursor<'a>(pub &'a [u8]);

impl Cursor<'_> {
    /// The next bytes.
    pub fn bytes(&mut self, n: usize) -> Result<&[u8], FileError> {
        if self.0.len() < n {
            return Err(broken("it is cut short"));
        }
        let (head, rest) = self.0.split_at(n);
        self.0 = rest;
        Ok(head)
    }

    /// The next byte.
    pub fn byte(&mut self) -> Result<u8, FileError> {
        Ok(self.bytes(1)?[0])
    }

    /// The next number of 7 bits a byte.
    pub fn number(&mut self) -> Result<u64, FileError> {
        let mut out = 0u64;
        for shift in (0..64).step_by(7) {
            let b = self.byte()?;
            out |= u64::from(b & 0x7f) << shift;
            if b & 0x80 == 0 {
                return Ok(out);
            }
        }
        Err(broken("a number is too long"))
    }

    /// The next number that may be negative.
    pub fn signed(&mut self) -> Result<i64, FileError> {
        let n = self.number()?;
        Ok((n >> 1) as i64 ^ -((n & 1) as i64))
    }

    /// The next number of 32 bits with a fraction.
    pub fn float(&mut self) -> Result<f32, FileError> {
        let b = self.bytes(4)?;
        let x = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
        if x.is_nan() { Err(broken("it holds a number that is none")) } else { Ok(x) }
    }
}
