//! Constant tensors: the elements of weights and of values that are computed when a model is read.
//! Elements of all types are kept in one of four (`f32`, `f64`, `i64`, `bool`) that holds them
//! exactly; `bytes` and `of_bytes` convert to and from the type's own form in memory. Evaluators
//! (`graph/fold`) take and give constants.

use crate::DType;
use std::borrow::Cow;

/// A tensor with known elements. Integers are widened to 64 bits, those of `u64` keep their bits;
/// floats of 64 bits are kept as they are, all narrower ones in 32.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // the names are the types
pub enum Constant {
    F32 { shape: Vec<i64>, data: Vec<f32> },
    F64 { shape: Vec<i64>, data: Vec<f64> },
    I64 { shape: Vec<i64>, data: Vec<i64> },
    Bool { shape: Vec<i64>, data: Vec<bool> },
}

impl Constant {
    /// Extents, outermost first.
    pub fn shape(&self) -> &[i64] {
        match self {
            Constant::F32 { shape, .. }
            | Constant::F64 { shape, .. }
            | Constant::I64 { shape, .. }
            | Constant::Bool { shape, .. } => shape,
        }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        match self {
            Constant::F32 { data, .. } => data.len(),
            Constant::F64 { data, .. } => data.len(),
            Constant::I64 { data, .. } => data.len(),
            Constant::Bool { data, .. } => data.len(),
        }
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The type as which elements are kept.
    pub fn dtype(&self) -> DType {
        match self {
            Constant::F32 { .. } => DType::F32,
            Constant::F64 { .. } => DType::F64,
            Constant::I64 { .. } => DType::I64,
            Constant::Bool { .. } => DType::Bool,
        }
    }

    /// The elements, where they are integers.
    pub fn as_i64(&self) -> Option<&[i64]> {
        match self {
            Constant::I64 { data, .. } => Some(data),
            _ => None,
        }
    }

    /// The elements, where they are booleans.
    pub fn as_bool(&self) -> Option<&[bool]> {
        match self {
            Constant::Bool { data, .. } => Some(data),
            _ => None,
        }
    }

    /// The elements, where they are floats of at most 32 bits.
    pub fn as_f32(&self) -> Option<&[f32]> {
        match self {
            Constant::F32 { data, .. } => Some(data),
            _ => None,
        }
    }

    /// The elements as floats of 64 bits, where they are floats of any type.
    pub fn as_floats(&self) -> Option<Cow<'_, [f64]>> {
        match self {
            Constant::F32 { data, .. } => Some(data.iter().map(|x| f64::from(*x)).collect()),
            Constant::F64 { data, .. } => Some(Cow::Borrowed(data)),
            _ => None,
        }
    }

    /// The constant as a value of a type is kept: floats of 32 bits are widened where the type is
    /// `f64`.
    pub fn kept_as(self, dtype: Option<DType>) -> Constant {
        match self {
            Constant::F32 { shape, data } if dtype == Some(DType::F64) => {
                Constant::F64 { shape, data: data.into_iter().map(f64::from).collect() }
            }
            other => other,
        }
    }

    /// The elements in memory as a type keeps them, in the machine's order of bytes; none of types
    /// to which they do not convert without a rule.
    pub fn bytes(&self, dtype: DType) -> Option<Vec<u8>> {
        let whole = |data: &[i64]| {
            let cut = |n: usize| {
                let little = data.iter().flat_map(move |v| v.to_le_bytes().into_iter().take(n));
                let mut bytes: Vec<u8> = little.collect();
                if cfg!(target_endian = "big") {
                    bytes.chunks_mut(n).for_each(<[u8]>::reverse);
                }
                bytes
            };
            (dtype.is_integer() || dtype == DType::Bool).then(|| cut(dtype.bytes() as usize))
        };
        match self {
            Constant::F32 { data, .. } if dtype == DType::F32 => {
                Some(data.iter().flat_map(|x| x.to_ne_bytes()).collect())
            }
            Constant::F32 { data, .. } if dtype == DType::F64 => {
                Some(data.iter().flat_map(|x| f64::from(*x).to_ne_bytes()).collect())
            }
            Constant::F64 { data, .. } if dtype == DType::F64 => {
                Some(data.iter().flat_map(|x| x.to_ne_bytes()).collect())
            }
            Constant::F32 { data, .. } if dtype.is_half() => {
                let bits = data.iter().filter_map(|x| dtype.half_bits(*x));
                Some(bits.flat_map(u16::to_ne_bytes).collect())
            }
            Constant::F32 { .. } | Constant::F64 { .. } => None,
            Constant::I64 { data, .. } => whole(data),
            Constant::Bool { data, .. } => {
                whole(&data.iter().map(|b| i64::from(*b)).collect::<Vec<i64>>())
            }
        }
    }

    /// The constant whose elements lie in memory as a type keeps them; none of types that constants
    /// do not hold, and where the bytes are not as many as the shape says.
    pub fn of_bytes(dtype: DType, shape: Vec<i64>, bytes: &[u8]) -> Option<Constant> {
        let size = dtype.bytes() as usize;
        let count = shape.iter().try_fold(1usize, |n, &e| n.checked_mul(usize::try_from(e).ok()?));
        if count?.checked_mul(size)? != bytes.len() {
            return None;
        }
        let parts = bytes.chunks_exact(size);
        let word = |part: &[u8]| {
            let mut all = [0u8; 8];
            for (to, b) in all.iter_mut().zip(part) {
                *to = *b;
            }
            if cfg!(target_endian = "big") {
                all[..size].reverse();
            }
            u64::from_le_bytes(all)
        };
        // Shifting up and down again spreads the sign.
        let signed = |part: &[u8]| ((word(part) << (64 - 8 * size)) as i64) >> (64 - 8 * size);
        Some(match dtype {
            DType::F32 => Constant::F32 {
                shape,
                data: parts.map(|p| f32::from_bits(word(p) as u32)).collect(),
            },
            DType::F16 | DType::Bf16 => Constant::F32 {
                shape,
                data: parts.filter_map(|p| dtype.half_value(word(p) as u16)).collect(),
            },
            DType::F64 => {
                Constant::F64 { shape, data: parts.map(|p| f64::from_bits(word(p))).collect() }
            }
            DType::Bool => Constant::Bool { shape, data: parts.map(|p| p[0] != 0).collect() },
            DType::U8 | DType::U16 | DType::U32 | DType::U64 => {
                Constant::I64 { shape, data: parts.map(|p| word(p) as i64).collect() }
            }
            DType::I8 | DType::I16 | DType::I32 | DType::I64 => {
                Constant::I64 { shape, data: parts.map(signed).collect() }
            }
            _ => return None,
        })
    }

    /// A vector of integers.
    pub fn ints(data: Vec<i64>) -> Constant {
        Constant::I64 { shape: vec![data.len() as i64], data }
    }

    /// The same elements in another shape of as many elements.
    pub fn reshaped(mut self, to: Vec<i64>) -> Constant {
        match &mut self {
            Constant::F32 { shape, .. }
            | Constant::F64 { shape, .. }
            | Constant::I64 { shape, .. }
            | Constant::Bool { shape, .. } => *shape = to,
        }
        self
    }
}

/// A tensor in a file: its type always, its elements where they are present and few enough.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// The type in the file; none where it is no type of numbers.
    pub dtype: Option<DType>,
    /// Extents, outermost first.
    pub shape: Vec<i64>,
    /// The elements.
    pub constant: Option<Constant>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_keep_their_values_in_memory_of_each_type() {
        let ints =
            |data: &[i64]| Constant::I64 { shape: vec![data.len() as i64], data: data.into() };
        for (dtype, c) in [
            (DType::I8, ints(&[-128, 127, -1])),
            (DType::U8, ints(&[0, 255, 7])),
            (DType::I16, ints(&[-32768, 5])),
            (DType::U16, ints(&[65535])),
            (DType::I32, ints(&[i64::from(i32::MIN), -1])),
            (DType::U32, ints(&[i64::from(u32::MAX)])),
            (DType::I64, ints(&[i64::MIN, i64::MAX, -1])),
            (DType::U64, ints(&[-1, 1])),
            (DType::Bool, Constant::Bool { shape: vec![1, 2], data: vec![true, false] }),
            (DType::F32, Constant::F32 { shape: vec![], data: vec![-1.5] }),
            (DType::F64, Constant::F64 { shape: vec![2], data: vec![0.1, 1e200] }),
        ] {
            let bytes = c.bytes(dtype).unwrap();
            assert_eq!(bytes.len(), c.len() * dtype.bytes() as usize);
            assert_eq!(Constant::of_bytes(dtype, c.shape().to_vec(), &bytes), Some(c), "{dtype:?}");
        }
        assert_eq!(Constant::of_bytes(DType::I32, vec![2], &[0; 7]), None);
        assert_eq!(Constant::of_bytes(DType::I32, vec![-1], &[]), None);
        assert_eq!(ints(&[1]).bytes(DType::F32), None);
    }
}
