//! Facts of the operands of a plan's moves of data (copies, fills, conversions): element type,
//! number of elements, first element, and a number as bytes. `files.rs`, `device.rs` and `trust/`
//! use them.

use squall_core::DType;
use squall_core::graph::Constant;
use squall_graph::plan::{BlockPlace, Plan, ValueSource};

/// The element type and the number of elements of a move's source: a whole constant, or a whole
/// block.
pub fn source_of(plan: &Plan, from: &ValueSource) -> (DType, usize) {
    match from {
        ValueSource::Constant(c) => (plan.constants[*c].dtype, plan.constants[*c].len()),
        ValueSource::Block(p) => target_of(plan, p),
    }
}

/// The element type and the number of elements of the block that a move writes.
pub fn target_of(plan: &Plan, to: &BlockPlace) -> (DType, usize) {
    (plan.blocks[to.block].dtype, plan.blocks[to.block].elements)
}

/// The element of the source's block at which a move begins to read.
pub fn first_of(from: &ValueSource) -> usize {
    match from {
        ValueSource::Constant(_) => 0,
        ValueSource::Block(p) => p.offset,
    }
}

/// The bytes of a number in an element type. Fractions of whole numbers are cut off; booleans are 1
/// for all numbers but 0.
pub fn number(value: f32, dtype: DType) -> Vec<u8> {
    match dtype {
        DType::F64 => f64::from(value).to_ne_bytes().to_vec(),
        DType::Bool => vec![u8::from(value != 0.0)],
        d if d.is_half() => d.half_bits(value).unwrap_or(0).to_ne_bytes().to_vec(),
        d if d.is_integer() => Constant::I64 { shape: Vec::new(), data: vec![value as i64] }
            .bytes(d)
            .unwrap_or_default(),
        _ => value.to_ne_bytes().to_vec(),
    }
}
