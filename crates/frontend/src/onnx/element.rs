//! The types of elements that ONNX knows.

use std::fmt;

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names are the types
pub enum Element {
    F32,
    F16,
    BF16,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Bool,
    String,
    /// Not stated, or a type that no operator here uses.
    Unknown,
}

/// Each type with its number in the specification, its name and its bytes.
const TABLE: &[(Element, i32, &str, usize)] = &[
    (Element::F32, 1, "float", 4),
    (Element::U8, 2, "uint8", 1),
    (Element::I8, 3, "int8", 1),
    (Element::U16, 4, "uint16", 2),
    (Element::I16, 5, "int16", 2),
    (Element::I32, 6, "int32", 4),
    (Element::I64, 7, "int64", 8),
    (Element::String, 8, "string", 0),
    (Element::Bool, 9, "bool", 1),
    (Element::F16, 10, "float16", 2),
    (Element::F64, 11, "double", 8),
    (Element::U32, 12, "uint32", 4),
    (Element::U64, 13, "uint64", 8),
    (Element::BF16, 16, "bfloat16", 2),
    (Element::Unknown, 0, "unknown", 0),
];

impl Element {
    /// From the number that files hold.
    pub fn from_onnx(number: i64) -> Element {
        TABLE.iter().find(|r| i64::from(r.1) == number).map_or(Element::Unknown, |r| r.0)
    }

    fn row(self) -> (&'static str, usize) {
        TABLE.iter().find(|r| r.0 == self).map_or(("unknown", 0), |r| (r.2, r.3))
    }

    /// Bytes of one element in a file; zero where that is not fixed.
    pub fn bytes(self) -> usize {
        self.row().1
    }

    /// Whether it is a floating-point type.
    pub fn is_float(self) -> bool {
        matches!(self, Element::F32 | Element::F16 | Element::BF16 | Element::F64)
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().0)
    }
}
