//! The types of elements as an ONNX file stores them, by their numbers in the specification.
//! Integers of 2 and 4 bits share bytes in the file and are kept as bytes once they are read;
//! [`Stored`] gives the type as which elements are kept and their bits in the file. `tensor.rs`
//! reads tensors by it.

use squall_core::DType;
use squall_core::graph::infer::onnx_type;

/// Integers of less than a byte: the number of the type, its name, its bits, whether it is signed.
const PACKED: &[(i32, &str, u64, bool)] =
    &[(21, "u4", 4, false), (22, "s4", 4, true), (25, "u2", 2, false), (26, "s2", 2, true)];

/// A type of elements in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    /// The type as which they are kept.
    pub dtype: DType,
    /// Bits of an element in the file.
    pub bits: u64,
}

impl Stored {
    /// The type of this number; none where it is none that is read.
    pub fn of(number: i32) -> Option<Stored> {
        if let Some((_, _, bits, signed)) = PACKED.iter().find(|p| p.0 == number) {
            let dtype = if *signed { DType::I8 } else { DType::U8 };
            return Some(Stored { dtype, bits: *bits });
        }
        let dtype = onnx_type(i64::from(number))?;
        Some(Stored { dtype, bits: 8 * dtype.bytes() })
    }

    /// The type as which elements of the type of this number are kept.
    pub fn dtype(number: i32) -> Option<DType> {
        Stored::of(number).map(|s| s.dtype)
    }

    /// Whether several elements share a byte.
    pub fn is_packed(self) -> bool {
        self.bits < 8
    }

    /// Bytes of so many elements.
    pub fn bytes(self, count: u64) -> u64 {
        match self.is_packed() {
            true => count.div_ceil(8 / self.bits),
            false => count.saturating_mul(self.bits / 8),
        }
    }

    /// The element that begins at a bit of a byte.
    pub fn field(self, byte: u8, bit: u64) -> i64 {
        let value = i64::from(byte) >> bit & ((1 << self.bits) - 1);
        let is_negative = self.dtype == DType::I8 && value >> (self.bits - 1) == 1;
        if is_negative { value - (1 << self.bits) } else { value }
    }

    /// The name for messages.
    pub fn name(self) -> &'static str {
        let signed = self.dtype == DType::I8;
        let packed = PACKED.iter().find(|p| p.2 == self.bits && p.3 == signed);
        packed.map_or(self.dtype.name(), |p| p.1)
    }
}
