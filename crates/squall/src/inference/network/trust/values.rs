//! Random operands for steps under test (`probe.rs`): ordinary numbers, and sets with hard ones
//! (zeros of both signs, denormals, infinities, NaN) among them. `compare.c` draws the same kinds
//! of sets.

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus as Random;
use squall_core::DType;

/// Sets of operands: ordinary numbers; with zeros of both signs, denormals and larger numbers; with
/// infinities and what is no number. Sums of the largest floats are left out: they overflow in one
/// order and not in another.
pub const SETS: [usize; 3] = [ORDINARY, SMALL, NOT_FINITE];
/// The sets for a step with many elements.
pub const SETS_OF_MANY: [usize; 2] = [ORDINARY, NOT_FINITE];
const ORDINARY: usize = 0;
const SMALL: usize = 1;
const NOT_FINITE: usize = 2;

/// Ranges of whole numbers that are tried until an operator takes one: the same as `compare.c` has.
pub const RANGES: usize = 7;

/// The least and the largest whole number of a range: those that the operator's text names, any
/// small ones, those that count from both ends of the least extent, and ever fewer.
pub fn whole_range(
    dtype: DType,
    range: usize,
    legal: Option<(i64, i64)>,
    least: i64,
) -> (i64, i64) {
    let least = least.max(1);
    let (low, high) = match (range, dtype) {
        (0, _) if legal.is_some() => legal.unwrap_or_default(),
        (0 | 1, DType::I8) => (-128, 127),
        (0 | 1, DType::U8) => (0, 255),
        (0 | 1, _) => (-100, 100),
        (2, _) => (-least, least - 1),
        (3, _) => (0, least - 1),
        (4, _) => (0, 1),
        (5, _) => (1, 1),
        _ => (0, 0),
    };
    let is_unsigned = matches!(dtype, DType::U8 | DType::U16 | DType::U32 | DType::U64);
    let low = if is_unsigned { low.max(0) } else { low };
    (low, high.max(low))
}

/// The bytes of random elements, as many as are asked for; whole ones lie in `range`.
pub fn random(
    by: &mut Random,
    dtype: DType,
    elements: usize,
    set: usize,
    range: (i64, i64),
) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(elements * dtype.bytes() as usize);
    for _ in 0..elements {
        match dtype {
            DType::F64 => bytes.extend(real(by, set).to_ne_bytes()),
            d if d.is_half() => {
                let x = real(by, set) as f32;
                bytes.extend(d.half_bits(x).unwrap_or(0).to_ne_bytes());
            }
            DType::Bool => bytes.push(u8::from(by.random_bool(0.5))),
            d if d.is_integer() => {
                let x = by.random_range(range.0..=range.1);
                bytes.extend(&x.to_le_bytes()[..d.bytes() as usize]);
            }
            _ => bytes.extend((real(by, set) as f32).to_ne_bytes()),
        }
    }
    bytes
}

/// A number of a set: one in eight is a hard one.
fn real(by: &mut Random, set: usize) -> f64 {
    const SOME: [f64; 10] = [0.0, -0.0, 1e-40, -1e-40, 1.0, -1.0, 0.5, 2.5, 40.0, -40.0];
    const ODD: [f64; 6] = [f64::NAN, f64::INFINITY, -f64::INFINITY, 0.0, -0.0, f64::NAN];
    if set != ORDINARY && by.random_range(0..8) == 0 {
        return match set {
            SMALL => SOME[by.random_range(0..SOME.len())],
            _ => ODD[by.random_range(0..ODD.len())],
        };
    }
    let x = by.random_range(-1.0..1.0);
    if by.random_bool(0.5) { x } else { 4.0 * x }
}
