//! Constant tensors: the bytes of files as numbers of three types.

use super::proto::TensorProto;
use super::{Element, MOST_CONSTANT_ELEMENTS, elements};

/// A tensor with known elements. Integers are widened to 64 bits; every float is kept in 32.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // the names are the types
pub enum Constant {
    F32 { shape: Vec<i64>, data: Vec<f32> },
    I64 { shape: Vec<i64>, data: Vec<i64> },
    Bool { shape: Vec<i64>, data: Vec<bool> },
}

impl Constant {
    /// Extents, outermost first.
    pub fn shape(&self) -> &[i64] {
        match self {
            Constant::F32 { shape, .. }
            | Constant::I64 { shape, .. }
            | Constant::Bool { shape, .. } => shape,
        }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        match self {
            Constant::F32 { data, .. } => data.len(),
            Constant::I64 { data, .. } => data.len(),
            Constant::Bool { data, .. } => data.len(),
        }
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The type as which elements are kept.
    pub fn element(&self) -> Element {
        match self {
            Constant::F32 { .. } => Element::F32,
            Constant::I64 { .. } => Element::I64,
            Constant::Bool { .. } => Element::Bool,
        }
    }

    /// The elements, where they are integers.
    pub fn as_i64(&self) -> Option<&[i64]> {
        match self {
            Constant::I64 { data, .. } => Some(data),
            _ => None,
        }
    }

    /// The elements, where they are floats.
    pub fn as_f32(&self) -> Option<&[f32]> {
        match self {
            Constant::F32 { data, .. } => Some(data),
            _ => None,
        }
    }

    /// A vector of integers.
    pub fn ints(data: Vec<i64>) -> Constant {
        Constant::I64 { shape: vec![data.len() as i64], data }
    }

    /// The same elements in another shape of as many elements.
    pub(crate) fn reshaped(mut self, to: Vec<i64>) -> Constant {
        match &mut self {
            Constant::F32 { shape, .. }
            | Constant::I64 { shape, .. }
            | Constant::Bool { shape, .. } => *shape = to,
        }
        self
    }
}

/// A tensor in a file: its type always, its elements where they are present and few enough.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// The type in the file.
    pub element: Element,
    /// Extents, outermost first.
    pub shape: Vec<i64>,
    /// The elements.
    pub constant: Option<Constant>,
}

/// Reads a tensor of a file, its elements only where they are few enough; says what is wrong.
pub(super) fn tensor(t: &TensorProto) -> Result<Tensor, String> {
    tensor_of(t, MOST_CONSTANT_ELEMENTS)
}

/// Reads a tensor of a file, its elements where they are at most `most`.
pub(crate) fn tensor_of(t: &TensorProto, most: i64) -> Result<Tensor, String> {
    let element = Element::from_onnx(i64::from(t.data_type));
    let count = elements(&t.dims)?;
    let absent = Tensor { element, shape: t.dims.clone(), constant: None };
    if t.data_location == 1 || !t.external_data.is_empty() || element.bytes() == 0 {
        return Ok(absent);
    }
    let raw = !t.raw_data.is_empty();
    if raw {
        let expected = count as u64 * element.bytes() as u64;
        if t.raw_data.len() as u64 != expected {
            return Err(format!(
                "raw_data has {} bytes, dims {:?} of {element} need {expected}",
                t.raw_data.len(),
                t.dims
            ));
        }
    } else {
        let (field, held) = match element {
            Element::F32 => ("float_data", t.float_data.len()),
            Element::F64 => ("double_data", t.double_data.len()),
            Element::I64 => ("int64_data", t.int64_data.len()),
            Element::U32 | Element::U64 => ("uint64_data", t.uint64_data.len()),
            _ => ("int32_data", t.int32_data.len()),
        };
        // Tools that strip weights leave a tensor without data: only its type is needed.
        if held == 0 && count != 0 {
            return Ok(absent);
        }
        if held as u64 != count as u64 {
            return Err(format!("{field} has {held} elements, dims {:?} need {count}", t.dims));
        }
    }
    if count > most {
        return Ok(absent);
    }
    let shape = t.dims.clone();
    let b = &t.raw_data;
    let constant = match element {
        Element::Bool if raw => Constant::Bool { shape, data: b.iter().map(|x| *x != 0).collect() },
        Element::Bool => {
            Constant::Bool { shape, data: t.int32_data.iter().map(|x| *x != 0).collect() }
        }
        Element::F32 if raw => Constant::F32 { shape, data: words(b, f32::from_le_bytes) },
        Element::F32 => Constant::F32 { shape, data: t.float_data.clone() },
        Element::F64 if raw => {
            Constant::F32 { shape, data: words(b, |w| f64::from_le_bytes(w) as f32) }
        }
        Element::F64 => {
            Constant::F32 { shape, data: t.double_data.iter().map(|x| *x as f32).collect() }
        }
        Element::F16 if raw => {
            Constant::F32 { shape, data: words(b, |w| half(u16::from_le_bytes(w))) }
        }
        Element::F16 => {
            Constant::F32 { shape, data: t.int32_data.iter().map(|x| half(*x as u16)).collect() }
        }
        Element::BF16 if raw => {
            Constant::F32 { shape, data: words(b, |w| bfloat(u16::from_le_bytes(w))) }
        }
        Element::BF16 => {
            Constant::F32 { shape, data: t.int32_data.iter().map(|x| bfloat(*x as u16)).collect() }
        }
        _ if !raw => {
            let data = match element {
                Element::I64 => t.int64_data.clone(),
                Element::U32 | Element::U64 => t.uint64_data.iter().map(|x| *x as i64).collect(),
                _ => t.int32_data.iter().map(|x| i64::from(*x)).collect(),
            };
            Constant::I64 { shape, data }
        }
        Element::I8 => Constant::I64 { shape, data: words(b, |w| i64::from(i8::from_le_bytes(w))) },
        Element::U8 => Constant::I64 { shape, data: words(b, |w| i64::from(u8::from_le_bytes(w))) },
        Element::I16 => {
            Constant::I64 { shape, data: words(b, |w| i64::from(i16::from_le_bytes(w))) }
        }
        Element::U16 => {
            Constant::I64 { shape, data: words(b, |w| i64::from(u16::from_le_bytes(w))) }
        }
        Element::I32 => {
            Constant::I64 { shape, data: words(b, |w| i64::from(i32::from_le_bytes(w))) }
        }
        Element::U32 => {
            Constant::I64 { shape, data: words(b, |w| i64::from(u32::from_le_bytes(w))) }
        }
        Element::I64 | Element::U64 => Constant::I64 { shape, data: words(b, i64::from_le_bytes) },
        Element::String | Element::Unknown => return Ok(absent),
    };
    Ok(Tensor { constant: Some(constant), ..absent })
}

/// Little-endian words of a file.
fn words<const N: usize, T>(bytes: &[u8], word: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks::<N>().0.iter().map(|w| word(*w)).collect()
}

/// A half-precision float.
fn half(bits: u16) -> f32 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f32::from(bits & 0x3ff));
    let magnitude = match exponent {
        0 => fraction * 2f32.powi(-24),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        _ => (1.0 + fraction / 1024.0) * 2f32.powi(exponent - 15),
    };
    sign * magnitude
}

/// A bfloat16: the upper half of a float.
fn bfloat(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(data_type: i32, dims: &[i64], raw_data: &[u8]) -> TensorProto {
        TensorProto {
            data_type,
            dims: dims.to_vec(),
            raw_data: raw_data.to_vec(),
            ..Default::default()
        }
    }

    #[test]
    fn halves_are_exact() {
        for (bits, value) in [
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x7bff, 65504.0),
            (0x0001, 5.960_464_5e-8),
            (0x3555, 0.333_251_95),
        ] {
            assert_eq!(half(bits), value, "{bits:#x}");
        }
        assert!(half(0x7e00).is_nan());
        assert_eq!(half(0xfc00), f32::NEG_INFINITY);
        assert_eq!(bfloat(0xc040), -3.0);
    }

    #[test]
    fn every_integer_type_is_widened() {
        let read = |t, bytes: &[u8], n| {
            tensor(&raw(t, &[n], bytes)).unwrap().constant.unwrap().as_i64().unwrap().to_vec()
        };
        assert_eq!(read(2, &[255, 1], 2), [255, 1]);
        assert_eq!(read(3, &[255, 1], 2), [-1, 1]);
        assert_eq!(read(4, &[255, 255], 1), [65535]);
        assert_eq!(read(5, &[255, 255], 1), [-1]);
        assert_eq!(read(6, &[254, 255, 255, 255], 1), [-2]);
        assert_eq!(read(12, &[255, 255, 255, 255], 1), [4294967295]);
        assert_eq!(read(7, &[1, 0, 0, 0, 0, 0, 0, 128], 1), [i64::MIN + 1]);
    }

    #[test]
    fn typed_fields_are_read() {
        let t = TensorProto {
            data_type: 9,
            dims: vec![2],
            int32_data: vec![0, 7],
            ..Default::default()
        };
        assert_eq!(
            tensor(&t).unwrap().constant,
            Some(Constant::Bool { shape: vec![2], data: vec![false, true] })
        );
        let t = TensorProto {
            data_type: 10,
            dims: vec![1],
            int32_data: vec![0x3c00],
            ..Default::default()
        };
        assert_eq!(
            tensor(&t).unwrap().constant,
            Some(Constant::F32 { shape: vec![1], data: vec![1.0] })
        );
        let t = TensorProto {
            data_type: 11,
            dims: vec![],
            double_data: vec![0.5],
            ..Default::default()
        };
        assert_eq!(
            tensor(&t).unwrap().constant,
            Some(Constant::F32 { shape: vec![], data: vec![0.5] })
        );
    }

    #[test]
    fn sizes_must_agree() {
        assert_eq!(
            tensor(&raw(1, &[2], &[0; 7])).unwrap_err(),
            "raw_data has 7 bytes, dims [2] of float need 8"
        );
        assert!(tensor(&raw(1, &[-2], &[0; 8])).unwrap_err().contains("negative"));
        assert!(tensor(&raw(1, &[1 << 30, 1 << 30], &[0; 8])).unwrap_err().contains("2^40"));
        let t = TensorProto {
            data_type: 1,
            dims: vec![3],
            float_data: vec![1.0],
            ..Default::default()
        };
        assert_eq!(tensor(&t).unwrap_err(), "float_data has 1 elements, dims [3] need 3");
    }

    #[test]
    fn absent_data_keeps_the_type() {
        let t = TensorProto {
            data_type: 1,
            dims: vec![64, 3, 7, 7],
            data_location: 1,
            ..Default::default()
        };
        assert_eq!(
            tensor(&t).unwrap(),
            Tensor { element: Element::F32, shape: vec![64, 3, 7, 7], constant: None }
        );
    }
}
