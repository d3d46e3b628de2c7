//! Random tensors for the campaign of graphs, with the numbers at which programs go wrong among
//! them: NaN, infinities, both zeros, denormals, and numbers at the limits of their types. Input: a
//! type, a shape and the kind of elements; output: an array.

use squall_core::DType;
use squall_frontend::npy::Array;
use squall_fuzz::Draw;

/// The kind of elements of a fresh tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fill {
    /// Whatever the graph's hardness says.
    Any,
    /// Finite numbers of at most 4.
    Tame,
    /// Finite numbers above 0, of at most 4.
    Positive,
    /// Whole numbers from the first to the second, both included.
    Within(i64, i64),
    /// Whole numbers from 2 to 9 or their negatives, where the type has them.
    Divisor,
}

/// The hardness of the numbers of a graph's inputs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Hardness {
    /// Up to 4.
    Tame,
    /// Among them NaN, infinities, both zeros, denormals.
    Special,
    /// These and numbers near the limits of their types.
    Huge,
}

/// Numbers that are no ordinary ones.
const SPECIAL: [f64; 8] =
    [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1e-40, -3e-42, 1.0];

/// Numbers whose squares or sums overflow, or that lie at limits of whole types.
const HUGE: [f64; 10] =
    [1e30, -3e20, 3.0e38, 16777217.0, 2147483648.0, -2147483648.0, 65504.0, 1e-30, -88.5, 127.5];

/// A tensor of a type, a shape and a kind of elements.
pub fn array(
    draw: &mut Draw<'static>,
    dtype: DType,
    shape: &[i64],
    fill: Fill,
    hardness: Hardness,
) -> Array {
    let count = shape.iter().product::<i64>().max(0) as usize;
    // Only some tensors of a hard graph have hard elements: NaN everywhere hides everything.
    let hardness = if draw.below(3) == 0 { Hardness::Tame } else { hardness };
    let mut bytes = Vec::new();
    for _ in 0..count {
        match dtype {
            DType::F32 => bytes.extend((real(draw, fill, hardness) as f32).to_ne_bytes()),
            DType::F16 | DType::Bf16 => {
                let bits = dtype.half_bits(real(draw, fill, hardness) as f32);
                bytes.extend(bits.unwrap_or(0).to_ne_bytes());
            }
            DType::F64 => bytes.extend(real(draw, fill, hardness).to_ne_bytes()),
            DType::Bool => bytes.push(draw.below(2) as u8),
            _ => {
                let n = whole(draw, dtype, fill, hardness);
                bytes.extend(&n.to_le_bytes()[..dtype.bytes() as usize]);
            }
        }
    }
    Array { dtype, shape: shape.to_vec(), bytes }
}

fn real(draw: &mut Draw<'static>, fill: Fill, hardness: Hardness) -> f64 {
    match fill {
        Fill::Positive => 0.125 + draw.below(4096) as f64 / 1024.0,
        Fill::Within(a, b) => (a + draw.below((b - a + 1) as usize) as i64) as f64,
        Fill::Divisor => {
            let x = 0.5 + draw.below(2048) as f64 / 512.0;
            if draw.below(2) == 0 { x } else { -x }
        }
        Fill::Any if hardness != Hardness::Tame && draw.below(6) == 0 => {
            SPECIAL[draw.below(SPECIAL.len())]
        }
        Fill::Any if hardness == Hardness::Huge && draw.below(5) == 0 => {
            HUGE[draw.below(HUGE.len())]
        }
        // Halves and whole numbers are where rounding ties and comparisons are equal.
        _ if draw.below(5) == 0 => (draw.below(17) as f64 - 8.0) / 2.0,
        _ => draw.below(1 << 20) as f64 / f64::from(1 << 17) - 4.0,
    }
}

fn whole(draw: &mut Draw<'static>, dtype: DType, fill: Fill, hardness: Hardness) -> i64 {
    let is_signed = matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64);
    match fill {
        Fill::Within(a, b) => a + draw.below((b - a + 1) as usize) as i64,
        Fill::Positive => 1 + draw.below(9) as i64,
        Fill::Divisor => {
            let n = 2 + draw.below(8) as i64;
            if is_signed && draw.below(2) == 0 { -n } else { n }
        }
        Fill::Any if hardness == Hardness::Huge && draw.below(6) == 0 => {
            let bits = dtype.bytes() * 8;
            let most = if is_signed { (1_u64 << (bits - 1)) - 1 } else { u64::MAX >> (64 - bits) };
            match draw.below(3) {
                0 => most as i64,
                1 => most.wrapping_add(1) as i64,
                _ => draw.bits() as i64,
            }
        }
        _ => {
            let n = draw.below(12) as i64;
            if is_signed { n - 5 } else { n }
        }
    }
}
