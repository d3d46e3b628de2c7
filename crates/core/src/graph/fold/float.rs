//! The trait [`Float`], with which evaluators of constants are written once for both types as which
//! floats are kept (`f32`, `f64`), and [`Function`], an elementwise function of one number for
//! every type, as the rows of `core/src/operators/elementwise.rs` state it.

use std::ops::{Add, Div, Mul, Neg, Rem, Sub};

/// A float of 32 or 64 bits. Its functions hand a NaN on, as those of ONNX do.
pub(crate) trait Float:
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
        }
    };
}

float!(f32);
float!(f64);

/// A function of one number, by which constants are evaluated.
#[derive(Clone, Copy)]
pub struct Function {
    pub(crate) of_f32: fn(f32) -> f32,
    pub(crate) of_f64: fn(f64) -> f64,
    pub(crate) of_whole: Option<fn(i64) -> i64>,
    pub(crate) of_unsigned: Option<fn(i64) -> i64>,
}

impl Function {
    pub(crate) const fn new(of_f32: fn(f32) -> f32, of_f64: fn(f64) -> f64) -> Function {
        Function { of_f32, of_f64, of_whole: None, of_unsigned: None }
    }

    pub(crate) const fn of_whole(self, f: fn(i64) -> i64) -> Function {
        Function { of_whole: Some(f), ..self }
    }

    pub(crate) const fn of_unsigned(self, f: fn(i64) -> i64) -> Function {
        Function { of_unsigned: Some(f), ..self }
    }
}
