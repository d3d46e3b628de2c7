//! Constant tensors: numbers of three types in memory.

use crate::DType;

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
    pub fn dtype(&self) -> DType {
        match self {
            Constant::F32 { .. } => DType::F32,
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
    pub fn reshaped(mut self, to: Vec<i64>) -> Constant {
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
    /// The type in the file; none where it is no type of numbers.
    pub dtype: Option<DType>,
    /// Extents, outermost first.
    pub shape: Vec<i64>,
    /// The elements.
    pub constant: Option<Constant>,
}
