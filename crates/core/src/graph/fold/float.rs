//! What evaluation needs of the two types as which floats are kept.

use std::ops::{Add, Div, Mul, Neg, Rem, Sub};

/// A float of 32 or 64 bits. Its functions hand a NaN on, as those of ONNX do.
pub(super) trait Float:
    Copy
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Rem<Output = Self>
    + Neg<Output = Self>
{
    const ZERO: Self;
    const ONE: Self;
    const INFINITY: Self;

    /// The nearest float to a whole number.
    fn of_whole(v: i64) -> Self;
    /// The nearest float to a whole number without a sign.
    fn of_unsigned(v: u64) -> Self;
    /// Whether it is no NaN.
    fn is_number(self) -> bool;
    fn power(self, to: Self) -> Self;
    /// The function of an elementwise operator, where it is evaluated.
    fn function(op: &str) -> Option<fn(Self) -> Self>;

    /// The smaller one.
    fn least(self, other: Self) -> Self {
        if self < other || !self.is_number() { self } else { other }
    }

    /// The larger one.
    fn most(self, other: Self) -> Self {
        if self > other || !self.is_number() { self } else { other }
    }
}

macro_rules! float {
    ($t:ident) => {
        impl Float for $t {
            const ZERO: $t = 0.0;
            const ONE: $t = 1.0;
            const INFINITY: $t = $t::INFINITY;

            fn of_whole(v: i64) -> $t {
                v as $t
            }

            fn of_unsigned(v: u64) -> $t {
                v as $t
            }

            fn is_number(self) -> bool {
                !self.is_nan()
            }

            fn power(self, to: $t) -> $t {
                self.powf(to)
            }

            fn function(op: &str) -> Option<fn($t) -> $t> {
                Some(match op {
                    "Neg" => |v| -v,
                    "Abs" => $t::abs,
                    "Floor" => $t::floor,
                    "Ceil" => $t::ceil,
                    "Round" => $t::round_ties_even,
                    "Sqrt" => $t::sqrt,
                    "Reciprocal" => $t::recip,
                    "Cos" => $t::cos,
                    "Exp" => $t::exp,
                    "Relu" => |v| v.most(0.0),
                    "Sin" => $t::sin,
                    "Tanh" => $t::tanh,
                    "Log" => $t::ln,
                    "Sign" => |v| if v == 0.0 { 0.0 } else { v.signum() },
                    _ => return None,
                })
            }
        }
    };
}

float!(f32);
float!(f64);
