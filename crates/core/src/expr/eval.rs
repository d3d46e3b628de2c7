//! Evaluation of scalar expressions in double precision, and rounding to the formats of tensors
//! (`f16`, `bf16`, bytes). These functions define the right result of a kernel:
//! [`Workload::evaluate`](crate::Workload::evaluate) and the compiler's interpreter of loop nests
//! (`compiler/src/nest/interpret.rs`) call them, and tests compare generated code with both.

use super::{Affine, Binary, Cond, DType, Expr, Source, Unary, Var};

impl Unary {
    /// The function on doubles.
    pub fn apply(self, x: f64) -> f64 {
        match self {
            Unary::Neg => -x,
            Unary::Abs => x.abs(),
            Unary::Exp => x.exp(),
            Unary::Log => x.ln(),
            Unary::Sqrt => x.sqrt(),
            Unary::Tanh => x.tanh(),
            Unary::Erf => erf(x),
            Unary::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            Unary::Floor => x.floor(),
            Unary::Ceil => x.ceil(),
            Unary::Round => x.round_ties_even(),
            Unary::Sin => x.sin(),
            Unary::Cos => x.cos(),
            Unary::Sign if x.is_nan() => x,
            Unary::Sign => f64::from(i8::from(x > 0.0) - i8::from(x < 0.0)),
            Unary::EvenU8 => words(x, i16::from, 0),
            Unary::OddU8 => words(x, i16::from, 1),
            Unary::EvenI8 => words(x, |b| i16::from(b as i8), 0),
            Unary::OddI8 => words(x, |b| i16::from(b as i8), 1),
        }
    }
}

impl Binary {
    /// The function on doubles.
    pub fn apply(self, x: f64, y: f64) -> f64 {
        match self {
            Binary::Add => x + y,
            Binary::Sub => x - y,
            Binary::Mul => x * y,
            Binary::Div => x / y,
            Binary::Max => larger(x, y),
            Binary::Min => smaller(x, y),
            Binary::Pow => x.powf(y),
            Binary::Dot => dot(x, y),
            Binary::DotPair => dot_pair(x, y),
            Binary::DotWords => dot_words(x, y),
            Binary::Pair => pair(x, y),
        }
    }
}

/// The larger of two numbers, and NaN where one is: as `numpy.maximum`, and not as C's `fmax`.
pub fn larger(x: f64, y: f64) -> f64 {
    if x.is_nan() || y.is_nan() { f64::NAN } else { x.max(y) }
}

/// The smaller of two numbers, and NaN where one is.
pub fn smaller(x: f64, y: f64) -> f64 {
    if x.is_nan() || y.is_nan() { f64::NAN } else { x.min(y) }
}

/// The nearest whole number between two. No format of these has a NaN, which becomes the lowest.
fn whole(x: f64, low: f64, high: f64) -> f64 {
    x.round_ties_even().max(low).min(high)
}

impl DType {
    /// `x` rounded to the nearest value of the format.
    pub fn round(self, x: f64) -> f64 {
        match self {
            DType::F32 => f64::from(x as f32),
            DType::Bf16 => {
                let bits = (x as f32).to_bits();
                let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) & 0xffff_0000;
                f64::from(f32::from_bits(rounded))
            }
            DType::F16 => round_f16(x),
            // As `cvt.rn.tf32.f32` does: 11 significant bits, ties to even.
            DType::Tf32 => {
                let bits = (x as f32).to_bits();
                let rounded = bits.wrapping_add(0xfff + ((bits >> 13) & 1)) & !0x1fff;
                f64::from(if x.is_finite() { f32::from_bits(rounded) } else { x as f32 })
            }
            DType::I8 => whole(x, -128.0, 127.0),
            DType::U8 => whole(x, 0.0, 255.0),
            DType::I16 => whole(x, -32768.0, 32767.0),
            DType::U16 => whole(x, 0.0, 65535.0),
            DType::U32 => whole(x, 0.0, f64::from(u32::MAX)),
            DType::U64 => whole(x, 0.0, u64::MAX as f64),
            DType::Bool => f64::from(u8::from(x != 0.0)),
            DType::I32 => whole(x, f64::from(i32::MIN), f64::from(i32::MAX)),
            // Doubles from 2^53 on are whole numbers, so rounding changes smaller ones alone.
            DType::I64 => whole(x, i64::MIN as f64, i64::MAX as f64),
            DType::F64 | DType::U8x4 | DType::I8x4 | DType::Bf16x2 | DType::I16x2 => x,
        }
    }
}

impl DType {
    /// The bits of a number rounded to a format of 16 bits; none for any other format.
    pub fn half_bits(self, x: f32) -> Option<u16> {
        if !self.is_half() {
            return None;
        }
        let (sign, bits) = ((x.to_bits() >> 16) as u16 & 0x8000, x.to_bits() & 0x7fff_ffff);
        let size = f32::from_bits(bits);
        // To the nearest, ties to even: what is added carries into the last bit that stays.
        let cut =
            |bits: u32, by: u32| ((bits + (1 << (by - 1)) - 1 + (bits >> by & 1)) >> by) as u16;
        Some(match self {
            _ if x.is_nan() => sign | if self == DType::Bf16 { 0x7fc0 } else { 0x7e00 },
            DType::Bf16 => sign | cut(bits, 16),
            _ if size >= 65520.0 => sign | 0x7c00,
            // Below 2^-14 the bits count steps of 2^-24, which floats from a half on have, too.
            _ if size < 6.103_515_6e-5 => sign | ((size + 0.5).to_bits() - 0x3f00_0000) as u16,
            _ => sign | cut(bits - (112 << 23), 13),
        })
    }

    /// The number that bits of a format of 16 bits mean; none of any other format.
    pub fn half_value(self, bits: u16) -> Option<f32> {
        if self == DType::Bf16 {
            return Some(f32::from_bits(u32::from(bits) << 16));
        }
        let sign = u32::from(bits & 0x8000) << 16;
        // Scaled by 2^112, exponents of both formats agree, below the normal range too.
        let scaled = f32::from_bits(u32::from(bits & 0x7fff) << 13) * 5.192_297e33;
        let beyond = if bits & 0x7c00 == 0x7c00 { 0x7f80_0000 } else { 0 };
        (self == DType::F16).then(|| f32::from_bits(scaled.to_bits() | beyond | sign))
    }
}

/// The 32 bits of a number of packed elements; none of any other number.
fn packed_bits(x: f64) -> Option<u32> {
    ((0.0..=f64::from(u32::MAX)).contains(&x) && x == x.trunc()).then_some(x as u32)
}

/// The products of four bytes without sign with four that have one, and their sum; of numbers that
/// are no four bytes, not a number.
fn dot(x: f64, y: f64) -> f64 {
    let bytes = |v: f64| packed_bits(v).map(u32::to_le_bytes);
    match (bytes(x), bytes(y)) {
        (Some(a), Some(b)) => {
            a.iter().zip(b).map(|(a, b)| f64::from(i32::from(*a) * i32::from(b as i8))).sum()
        }
        _ => f64::NAN,
    }
}

/// Two words of every other byte of four; of a number that is no four bytes, not a number.
fn words(x: f64, widen: impl Fn(u8) -> i16, first: usize) -> f64 {
    packed_bits(x).map_or(f64::NAN, |bits| {
        let bytes = bits.to_le_bytes();
        let [low, high] = [bytes[first], bytes[first + 2]].map(|b| u32::from(widen(b) as u16));
        f64::from(low | high << 16)
    })
}

/// The products of two words with two others, and their sum; of numbers that are no two words, not
/// a number.
fn dot_words(x: f64, y: f64) -> f64 {
    let words = |v: f64| packed_bits(v).map(|b| [b as u16 as i16, (b >> 16) as u16 as i16]);
    match (words(x), words(y)) {
        (Some(a), Some(b)) => {
            a.iter().zip(b).map(|(a, b)| f64::from(i32::from(*a) * i32::from(b))).sum()
        }
        _ => f64::NAN,
    }
}

/// The bits of two numbers of bf16 as one number.
fn pair(low: f64, high: f64) -> f64 {
    let bits = |x: f64| DType::Bf16.half_bits(x as f32).map_or(0, u32::from);
    f64::from(bits(low) | bits(high) << 16)
}

/// The products of two numbers of bf16 with two others, and their sum; of numbers that are no
/// pairs, not a number.
fn dot_pair(x: f64, y: f64) -> f64 {
    let numbers = |v: f64| {
        let of = |bits: u32| f64::from(f32::from_bits(bits));
        packed_bits(v).map(|v| [of(v << 16), of(v & 0xffff_0000)])
    };
    match (numbers(x), numbers(y)) {
        (Some(a), Some(b)) => a[0] * b[0] + a[1] * b[1],
        _ => f64::NAN,
    }
}

fn round_f16(x: f64) -> f64 {
    if x == 0.0 || !x.is_finite() {
        return x;
    }
    // A half has 11 significant bits and exponents from -14; below that its values are 2^-24 apart.
    let exponent = x.abs().log2().floor().max(-14.0);
    let spacing = (exponent - 10.0).exp2();
    let r = (x / spacing).round_ties_even() * spacing;
    if r.abs() > 65504.0 { f64::INFINITY.copysign(x) } else { r }
}

/// The error function, to about 1e-15: a Taylor series near zero, a continued fraction of the
/// complement beyond (Abramowitz and Stegun, 7.1.6 and 7.1.14).
pub fn erf(x: f64) -> f64 {
    let a = x.abs();
    if a > 6.0 {
        return 1f64.copysign(x);
    }
    let r = if a < 2.5 {
        let (mut term, mut sum, mut n) = (a, a, 0.0);
        while term.abs() > 1e-17 * sum.abs() {
            n += 1.0;
            term *= 2.0 * a * a / (2.0 * n + 1.0);
            sum += term;
            if n > 200.0 || sum == 0.0 {
                break;
            }
        }
        2.0 / std::f64::consts::PI.sqrt() * (-a * a).exp() * sum
    } else {
        let mut f = a;
        for k in (1..=60).rev() {
            f = a + f64::from(k) / 2.0 / f;
        }
        1.0 - (-a * a).exp() / (f * std::f64::consts::PI.sqrt())
    };
    r.copysign(x)
}

impl Cond {
    /// Whether the condition holds.
    pub fn holds(&self, value: impl Fn(Var) -> i64) -> bool {
        (self.low..self.high).contains(&self.index.eval(value))
    }
}

impl Expr {
    /// The value, with `value` giving variables and `load` giving elements.
    pub fn eval(
        &self,
        value: &impl Fn(Var) -> i64,
        load: &mut impl FnMut(Source, &[Affine]) -> f64,
    ) -> f64 {
        match self {
            Expr::Const(c) => *c,
            Expr::Load { source, index } => load(*source, index),
            Expr::Unary(op, a) => op.apply(a.eval(value, load)),
            Expr::Binary(op, a, b) => op.apply(a.eval(value, load), b.eval(value, load)),
            Expr::Select { conds, then, other } => {
                if conds.iter().all(|c| c.holds(value)) {
                    then.eval(value, load)
                } else {
                    other.eval(value, load)
                }
            }
            Expr::Cast(t, a) => t.round(a.eval(value, load)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_function_has_its_known_values() {
        for (x, y) in [
            (0.0, 0.0),
            (0.5, 0.520_499_877_813_046_5),
            (1.0, 0.842_700_792_949_714_9),
            (3.0, 0.999_977_909_503_001_4),
        ] {
            assert!((erf(x) - y).abs() < 1e-14, "erf({x}) = {}", erf(x));
            assert_eq!(erf(-x), -erf(x));
        }
    }

    #[test]
    fn formats_round() {
        assert_eq!(DType::F16.round(1.0 + 1.0 / 4096.0), 1.0);
        assert_eq!(DType::F16.round(70000.0), f64::INFINITY);
        assert_eq!(DType::Bf16.round(1.0 + 1.0 / 64.0 + 1.0 / 1024.0), 1.0 + 1.0 / 64.0);
        assert_eq!(DType::I8.round(-300.0), -128.0);
        assert_eq!(DType::Tf32.round(1.0 + 1.0 / 2048.0), 1.0);
        assert_eq!(DType::Tf32.round(1.0 + 3.0 / 2048.0), 1.0 + 2.0 / 1024.0);
        assert_eq!(DType::Tf32.round(1.0 + 1.0 / 2048.0 + 1.0 / 65536.0), 1.0 + 1.0 / 1024.0);
        assert_eq!(DType::Tf32.round(-1.0 - 1.0 / 4096.0), -1.0);
        assert!(DType::Tf32.round(f64::NAN).is_nan());
    }

    #[test]
    fn what_is_no_number_stays_none() {
        let nan = f64::NAN;
        for op in [Binary::Max, Binary::Min, Binary::Add] {
            assert!(op.apply(nan, 1.0).is_nan() && op.apply(1.0, nan).is_nan(), "{op:?}");
            assert!(op.apply(nan, f64::INFINITY).is_nan() && op.apply(nan, -0.0).is_nan());
        }
        assert!(Unary::Sign.apply(nan).is_nan());
        assert_eq!((Binary::Max.apply(-1.0, 2.0), Binary::Min.apply(-1.0, 2.0)), (2.0, -1.0));
        // Whole numbers have none: it is the lowest, as where onnxruntime quantises.
        assert_eq!((DType::U8.round(nan), DType::I8.round(nan)), (0.0, -128.0));
    }

    #[test]
    fn halves_have_the_bits_of_their_formats() {
        let f16 = |x: f32| DType::F16.half_bits(x).unwrap();
        for (x, bits) in [
            (0.0, 0),
            (-0.0, 0x8000),
            (1.0, 0x3c00),
            (-2.5, 0xc100),
            (65504.0, 0x7bff),
            (65536.0, 0x7c00),
            (6.103_515_6e-5, 0x0400),
            (5.960_464_5e-8, 1),
            (1.0e-9, 0),
            (0.1, 0x2e66),
        ] {
            assert_eq!(f16(x), bits, "{x}");
        }
        let bf16 = |x: f32| DType::Bf16.half_bits(x).unwrap();
        for (x, bits) in [(1.0, 0x3f80), (0.1, 0x3dcd), (-3.0e38, 0xff62), (f32::MAX, 0x7f80)] {
            assert_eq!(bf16(x), bits, "{x}");
        }
        assert!(f16(f32::NAN) & 0x3ff != 0 && bf16(f32::NAN) & 0x7f != 0);
        assert_eq!(DType::F32.half_bits(1.0), None);
        for bits in 0..=u16::MAX {
            for format in [DType::F16, DType::Bf16] {
                let x = format.half_value(bits).unwrap();
                assert!(x.is_nan() || format.half_bits(x) == Some(bits), "{bits:#x}");
                assert!(x.is_nan() || format.round(f64::from(x)) == f64::from(x), "{bits:#x}");
            }
        }
        assert!(DType::F16.half_value(0x7e00).unwrap().is_nan());
        // Numbers between two go where rounding leads.
        for bits in (0..0x7f00_0000u32).step_by(9973) {
            let x = f32::from_bits(bits);
            for format in [DType::F16, DType::Bf16] {
                let made = format.half_bits(-x).and_then(|b| format.half_value(b));
                assert_eq!(made, Some(format.round(f64::from(-x)) as f32), "{x}");
            }
        }
    }
}
