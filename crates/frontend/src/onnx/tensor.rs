//! Decodes the tensors of an ONNX file: typed fields or raw bytes of any type become a [`Constant`]
//! of Squall's. Elements of large tensors, and those in files beside the model, are left out; sizes
//! that do not agree are refused with a message.

use super::proto::TensorProto;
use super::stored::Stored;
use squall_core::DType;
use squall_core::graph::{Constant, MOST_CONSTANT_ELEMENTS, Tensor, elements};

/// Reads a tensor of a file, its elements only where they are few enough; says what is wrong.
pub(super) fn tensor(t: &TensorProto) -> Result<Tensor, String> {
    tensor_of(t, MOST_CONSTANT_ELEMENTS)
}

/// Reads a tensor of a file, its elements where they are at most `most`.
pub(super) fn tensor_of(t: &TensorProto, most: i64) -> Result<Tensor, String> {
    let stored = Stored::of(t.data_type);
    let count = elements(&t.dims)?;
    let dtype = stored.map(|s| s.dtype);
    let absent = Tensor { dtype, shape: t.dims.clone(), constant: None };
    let Some(stored) = stored else { return Ok(absent) };
    let format = stored.dtype;
    if t.data_location == 1 || !t.external_data.is_empty() {
        return Ok(absent);
    }
    let raw = !t.raw_data.is_empty();
    if raw {
        let expected = stored.bytes(count as u64);
        if t.raw_data.len() as u64 != expected {
            return Err(format!(
                "raw_data has {} bytes, dims {:?} of {} need {expected}",
                t.raw_data.len(),
                t.dims,
                stored.name()
            ));
        }
    } else {
        let (field, held) = match format {
            DType::F32 => ("float_data", t.float_data.len()),
            DType::F64 => ("double_data", t.double_data.len()),
            DType::I64 => ("int64_data", t.int64_data.len()),
            DType::U32 | DType::U64 => ("uint64_data", t.uint64_data.len()),
            _ => ("int32_data", t.int32_data.len()),
        };
        // Tools that strip weights leave a tensor without data: only its type is needed.
        if held == 0 && count != 0 {
            return Ok(absent);
        }
        let count = if stored.is_packed() { stored.bytes(count as u64) } else { count as u64 };
        if held as u64 != count {
            return Err(format!("{field} has {held} elements, dims {:?} need {count}", t.dims));
        }
    }
    if count > most {
        return Ok(absent);
    }
    let constant = match (format, raw) {
        _ if stored.is_packed() => packed(t, stored, count as usize),
        (DType::Bool, _) => truths(t, raw),
        (DType::F64, _) => doubles(t, raw),
        (format, _) if format.is_float() => floats(t, format, raw),
        (format, true) => raw_integers(t, format),
        (format, false) => integers(t, format),
    };
    Ok(Tensor { constant: Some(constant), ..absent })
}

/// Integers of less than a byte, the first in a byte's lowest bits.
fn packed(t: &TensorProto, stored: Stored, count: usize) -> Constant {
    let byte = |at: usize| match t.raw_data.is_empty() {
        false => t.raw_data[at],
        true => t.int32_data[at] as u8,
    };
    let field = |i: usize| {
        let bit = i as u64 * stored.bits;
        stored.field(byte((bit / 8) as usize), bit % 8)
    };
    Constant::I64 { shape: t.dims.clone(), data: (0..count).map(field).collect() }
}

fn truths(t: &TensorProto, raw: bool) -> Constant {
    let data = match raw {
        true => t.raw_data.iter().map(|x| *x != 0).collect(),
        false => t.int32_data.iter().map(|x| *x != 0).collect(),
    };
    Constant::Bool { shape: t.dims.clone(), data }
}

fn doubles(t: &TensorProto, raw: bool) -> Constant {
    let data = match raw {
        true => words(&t.raw_data, f64::from_le_bytes),
        false => t.double_data.clone(),
    };
    Constant::F64 { shape: t.dims.clone(), data }
}

fn floats(t: &TensorProto, format: DType, raw: bool) -> Constant {
    let b = &t.raw_data;
    let data = match (format, raw) {
        (DType::F16, true) => words(b, |w| half(u16::from_le_bytes(w))),
        (DType::F16, false) => t.int32_data.iter().map(|x| half(*x as u16)).collect(),
        (DType::Bf16, true) => words(b, |w| bfloat(u16::from_le_bytes(w))),
        (DType::Bf16, false) => t.int32_data.iter().map(|x| bfloat(*x as u16)).collect(),
        (_, true) => words(b, f32::from_le_bytes),
        (_, false) => t.float_data.clone(),
    };
    Constant::F32 { shape: t.dims.clone(), data }
}

fn integers(t: &TensorProto, format: DType) -> Constant {
    let data = match format {
        DType::I64 => t.int64_data.clone(),
        DType::U32 | DType::U64 => t.uint64_data.iter().map(|x| *x as i64).collect(),
        _ => t.int32_data.iter().map(|x| i64::from(*x)).collect(),
    };
    Constant::I64 { shape: t.dims.clone(), data }
}

fn raw_integers(t: &TensorProto, format: DType) -> Constant {
    let b = &t.raw_data;
    let data = match format {
        DType::I8 => words(b, |w| i64::from(i8::from_le_bytes(w))),
        DType::U8 => words(b, |w| i64::from(u8::from_le_bytes(w))),
        DType::I16 => words(b, |w| i64::from(i16::from_le_bytes(w))),
        DType::U16 => words(b, |w| i64::from(u16::from_le_bytes(w))),
        DType::I32 => words(b, |w| i64::from(i32::from_le_bytes(w))),
        DType::U32 => words(b, |w| i64::from(u32::from_le_bytes(w))),
        _ => words(b, i64::from_le_bytes),
    };
    Constant::I64 { shape: t.dims.clone(), data }
}

/// Little-endian words of a file.
fn words<const N: usize, T>(bytes: &[u8], word: impl Fn([u8; N]) -> T) -> Vec<T> {
    bytes.as_chunks::<N>().0.iter().map(|w| word(*w)).collect()
}

/// A half-precision float.
fn half(bits: u16) -> f32 {
    DType::F16.half_value(bits).unwrap_or(f32::NAN)
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
            double_data: vec![16_777_217.0],
            ..Default::default()
        };
        assert_eq!(
            tensor(&t).unwrap().constant,
            Some(Constant::F64 { shape: vec![], data: vec![16_777_217.0] })
        );
        assert_eq!(
            tensor(&raw(11, &[1], &1e200f64.to_le_bytes())).unwrap().constant,
            Some(Constant::F64 { shape: vec![1], data: vec![1e200] })
        );
    }

    #[test]
    fn sizes_must_agree() {
        assert_eq!(
            tensor(&raw(1, &[2], &[0; 7])).unwrap_err(),
            "raw_data has 7 bytes, dims [2] of f32 need 8"
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
    fn integers_of_less_than_a_byte_are_unpacked() {
        let read = |t: &TensorProto| {
            let read = tensor(t).unwrap();
            (read.dtype, read.constant.unwrap().as_i64().unwrap().to_vec())
        };
        let bytes = [0x1f, 0x80];
        let unsigned = (Some(DType::U8), vec![15, 1, 0]);
        assert_eq!(read(&raw(21, &[3], &bytes)), unsigned);
        assert_eq!(read(&raw(22, &[3], &bytes)), (Some(DType::I8), vec![-1, 1, 0]));
        assert_eq!(read(&raw(22, &[4], &bytes)).1, [-1, 1, 0, -8]);
        assert_eq!(read(&raw(25, &[2, 2], &[0b11_10_01_00])).1, [0, 1, 2, 3]);
        assert_eq!(read(&raw(26, &[4], &[0b11_10_01_00])).1, [0, 1, -2, -1]);
        let int32_data = vec![0x1f, 0x80];
        let typed = TensorProto { data_type: 21, dims: vec![3], int32_data, ..Default::default() };
        assert_eq!(read(&typed), unsigned);
        for (count, dims) in [(1, 3), (3, 3), (2, 2)] {
            let e = tensor(&raw(22, &[dims], &vec![0; count])).unwrap_err();
            assert!(e.contains("of s4 need"), "{e}");
        }
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
            Tensor { dtype: Some(DType::F32), shape: vec![64, 3, 7, 7], constant: None }
        );
    }
}
