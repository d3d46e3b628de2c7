//! Comparison of a network's outputs with the outputs that it should have. Input: two lists of
//! named arrays and a [`Tolerance`]; output: a [`Checked`] with the largest difference of each
//! output and whether all are within tolerance. `squall check` (`api/check.rs`) calls it for
//! outputs from files and for outputs that plain loops computed; [`Loss`] says what another
//! precision costs against 32-bit floats.

use crate::inference::network::{Layer, LayerKind, PlainShare, plain_shares};
use crate::input::arrays::NamedArray;
use crate::input::precision::Precision;
use crate::predict::counts::KernelCounts;
use squall_core::DType;
use squall_frontend::npy::Array;

/// How far floats may be off. Whole numbers and booleans must be exact.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// This much absolutely for values up to 1, and relative to larger values.
    Scaled(f64),
    /// NumPy's rule: the sum of an absolute and a relative part.
    Sum {
        /// Relative to the expected value.
        relative: f64,
        /// Added to it.
        absolute: f64,
    },
}

impl Tolerance {
    fn allows(self, want: f64) -> f64 {
        match self {
            Tolerance::Scaled(t) => t * want.abs().max(1.0),
            Tolerance::Sum { relative, absolute } => absolute + relative * want.abs(),
        }
    }
}

/// Outputs that a run should have, and how closely it must meet them.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// The outputs that are compared.
    outputs: &'a [NamedArray],
    tolerance: Tolerance,
    /// Whether numbers are as exact as the largest of their output, and not each by itself.
    by_largest: bool,
    /// Of inputs with hard values, whether these may spread: see [`Expected::of_hard_inputs`].
    hard: Option<bool>,
}

impl<'a> Expected<'a> {
    /// Outputs of ordinary inputs.
    pub fn new(outputs: &'a [NamedArray], tolerance: Tolerance) -> Expected<'a> {
        Expected { outputs, tolerance, by_largest: false, hard: None }
    }

    /// Outputs that were computed in another way, of weights that may be random: sums of large
    /// numbers that nearly cancel are as exact as these. A tolerance by NumPy's rule, which the
    /// user gives, is of each element.
    pub fn computed(outputs: &'a [NamedArray], tolerance: Tolerance) -> Expected<'a> {
        let by_largest = matches!(tolerance, Tolerance::Scaled(_));
        Expected { outputs, tolerance, by_largest, hard: None }
    }

    /// Outputs of inputs among which are NaN, infinities and large numbers. A NaN may not be lost.
    /// Where `spreads`, neighbours of one may be NaN, too: Winograd's transforms and zeros beside a
    /// window multiply it. Numbers are as exact as the largest of their output; such as are near
    /// the limit of f32 may be beyond it.
    pub fn of_hard_inputs(
        outputs: &'a [NamedArray],
        tolerance: Tolerance,
        spreads: bool,
    ) -> Expected<'a> {
        Expected { outputs, tolerance, by_largest: true, hard: Some(spreads) }
    }

    /// The largest difference of an output from the one wanted, and how many elements differ by
    /// more than is allowed.
    fn compare(&self, got: &Array, want: &Array) -> (f64, u64) {
        if got.dtype != want.dtype || got.bytes.len() != want.bytes.len() {
            return (f64::INFINITY, want.elements().max(got.elements()).max(1) as u64);
        }
        let size = want.dtype.bytes() as usize;
        let numbers = (0..want.elements()).filter_map(|i| want.number(i));
        let largest = match self.by_largest {
            // A hard input of 1e15 that comes through makes no other element less exact.
            true => numbers.map(f64::abs).filter(|x| *x < 1e10).fold(0f64, f64::max),
            false => 0.0,
        };
        let (mut max, mut wrong) = (0f64, 0);
        for i in 0..want.elements() {
            let bytes = i * size..(i + 1) * size;
            if got.bytes[bytes.clone()] == want.bytes[bytes] {
                continue;
            }
            let (Some(g), Some(w)) = (got.number(i), want.number(i)) else {
                wrong += 1;
                continue;
            };
            if !want.dtype.is_float() {
                // A whole number may be the place of what spread.
                wrong += u64::from(self.hard != Some(true));
                max = max.max((g - w).abs());
                continue;
            }
            if g == w || (g.is_nan() && w.is_nan()) || self.is_excused(g, w) {
                continue;
            }
            let d = (g - w).abs();
            // A NaN on one side only is as wrong as can be.
            max = if d.is_nan() { f64::INFINITY } else { max.max(d) };
            // Infinities that are not equal differ by more than any tolerance.
            if !d.is_finite() || d > self.tolerance.allows(w.abs().max(largest)) {
                wrong += 1;
            }
        }
        (max, wrong)
    }

    /// Whether hard inputs are why one of two numbers is finite and the other is not.
    fn is_excused(&self, got: f64, want: f64) -> bool {
        /// Above this, sums overflow in one order and not in another.
        const NEAR_THE_LIMIT: f64 = 1e30;
        let Some(spreads) = self.hard else { return false };
        match (got.is_finite(), want.is_finite()) {
            (true, true) => false,
            (true, false) => !want.is_nan() && got.abs() > NEAR_THE_LIMIT,
            (false, true) => spreads || want.abs() > NEAR_THE_LIMIT,
            (false, false) => spreads && got.is_nan(),
        }
    }
}

/// The findings of a check.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Checked {
    /// How far floats may be off.
    pub tolerance: Option<Tolerance>,
    /// Whether the model was held against its own operators by plain loops.
    pub is_literal: bool,
    /// Runs that were compared.
    pub runs: u64,
    /// Largest absolute difference.
    pub max_error: f64,
    /// Elements that differ by more than the tolerance.
    pub wrong: u64,
    /// Elements compared.
    pub elements: u64,
    /// Calls of kernels.
    pub calls: u64,
    /// Distinct kernels, and how many of them were tuned.
    pub kernels: KernelCounts,
    /// The format in which they work.
    pub precision: Precision,
    /// Outputs of which the type or the shape differs, in words.
    pub differences: Vec<String>,
    /// The operators that plain ones ran, with their time.
    pub plain: Vec<PlainShare>,
    /// Notes for the user about plain operators that run by another build than the usual one.
    pub fallbacks: Vec<String>,
    /// The loss by the format of the kernels, where that is not f32.
    pub loss: Option<Loss>,
}

/// How far floats of a network in another format lie from those of the same network in f32.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Loss {
    /// The largest absolute difference.
    pub max_error: f64,
    /// The largest absolute value in f32.
    pub largest: f64,
    /// The root of the mean square of differences, over that of the values in f32.
    pub relative: f64,
    /// Of how many elements.
    pub elements: u64,
    /// Sums of squares of differences and of values.
    squares: [f64; 2],
}

impl Loss {
    /// Adds a run in both formats.
    pub fn add(&mut self, outputs: &[NamedArray], in_f32: &[NamedArray]) {
        for (name, want) in in_f32.iter().filter(|(_, a)| a.dtype.is_float()) {
            let Some((_, got)) = outputs.iter().find(|(n, _)| n == name) else { continue };
            for i in 0..want.elements().min(got.elements()) {
                let (Some(g), Some(w)) = (got.number(i), want.number(i)) else { continue };
                if g == w || (g.is_nan() && w.is_nan()) {
                    self.squares[1] += if w.is_finite() { w * w } else { 0.0 };
                    self.largest = self.largest.max(w.abs());
                    continue;
                }
                let d = (g - w).abs();
                let d = if d.is_nan() { f64::INFINITY } else { d };
                self.max_error = self.max_error.max(d);
                self.largest = self.largest.max(w.abs());
                self.squares[0] += d * d;
                self.squares[1] += w * w;
            }
            self.elements += want.elements() as u64;
        }
        let [off, all] = self.squares;
        self.relative = if off > 0.0 { (off / all).sqrt() } else { 0.0 };
    }
}

impl Checked {
    /// Whether everything agrees.
    pub fn is_right(&self) -> bool {
        self.wrong == 0 && self.differences.is_empty()
    }

    /// Adds a run: its outputs, its steps, and the outputs that are expected.
    pub fn add(&mut self, outputs: &[NamedArray], layers: &[Layer], expected: &Expected<'_>) {
        self.runs += u64::from(!expected.outputs.is_empty());
        self.calls += layers.iter().filter(|l| l.kind == LayerKind::Kernel).count() as u64;
        self.plain = plain_shares(layers);
        for (name, want) in expected.outputs {
            let Some((_, got)) = outputs.iter().find(|(n, _)| n == name) else { continue };
            // A .npy file has numbers of bf16 as their bits.
            let are_bits = (want.dtype, got.dtype) == (DType::U16, DType::Bf16);
            let of_bits = are_bits.then(|| Array { dtype: DType::Bf16, ..want.clone() });
            let want = of_bits.as_ref().unwrap_or(want);
            if (got.dtype, &got.shape) != (want.dtype, &want.shape) {
                self.differences.push(format!(
                    "output `{name}` is {} {:?}, expected {} {:?}",
                    got.dtype.name(),
                    got.shape,
                    want.dtype.name(),
                    want.shape
                ));
            }
            let (max, wrong) = expected.compare(got, want);
            self.max_error = self.max_error.max(max);
            self.wrong += wrong;
            self.elements += want.elements() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_found_and_tolerated_by_size() {
        let x = |data: &[f32]| Array::floats(vec![data.len() as i64], data);
        let compare = |a: &[f32], b: &[f32], t| Expected::new(&[], t).compare(&x(a), &x(b));
        let same = [1.0, f32::NAN, f32::INFINITY];
        assert_eq!(compare(&same, &same, Tolerance::Scaled(0.0)), (0.0, 0));
        let (max, wrong) = compare(&[1.0, 1000.05], &[1.0, 1000.0], Tolerance::Scaled(1e-4));
        assert!(max > 0.04 && wrong == 0);
        assert_eq!(compare(&[0.0002], &[0.0], Tolerance::Scaled(1e-4)).1, 1);
        let nan = compare(&[f32::NAN, 1.0], &[0.0, 1.0], Tolerance::Scaled(1.0));
        assert_eq!(nan, (f64::INFINITY, 1));
        let sum = Tolerance::Sum { relative: 1e-3, absolute: 0.0 };
        assert_eq!(compare(&[1e-4], &[1.05e-4], sum).1, 1);
        assert_eq!(compare(&[-f32::INFINITY], &[f32::INFINITY], sum).1, 1);
    }

    #[test]
    fn a_nan_of_a_hard_input_is_not_lost_and_may_spread() {
        let x = |data: &[f32]| Array::floats(vec![data.len() as i64], data);
        let wrong = |got: &[f32], want: &[f32], spreads| {
            let expected = Expected::of_hard_inputs(&[], Tolerance::Scaled(1e-4), spreads);
            expected.compare(&x(got), &x(want)).1
        };
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        for spreads in [false, true] {
            assert_eq!(wrong(&[0.0, 1.0], &[nan, 1.0], spreads), 1, "it was lost");
            assert_eq!(wrong(&[nan, 1.0], &[nan, 1.0], spreads), 0);
            assert_eq!(wrong(&[1.0], &[inf], spreads), 1);
            assert_eq!(wrong(&[-inf], &[inf], spreads), 1);
            assert_eq!(wrong(&[inf], &[3.3e38], spreads), 0, "near the limit");
            assert_eq!(wrong(&[1e15, 3.0], &[1e15, 4.0], spreads), 1, "1e15 excuses nothing");
            assert_eq!(wrong(&[1e5, 3.0], &[1e5, 4.0], spreads), 0, "as exact as 1e5");
            assert_eq!(wrong(&[1.0, 3.0], &[1.0, 4.0], spreads), 1);
        }
        assert_eq!(wrong(&[nan], &[1.0], false), 1);
        assert_eq!(wrong(&[nan, nan], &[1.0, inf], true), 0);
    }

    #[test]
    fn a_loss_is_relative_to_what_there_is() {
        let x =
            |data: &[f32]| vec![("y".to_string(), Array::floats(vec![data.len() as i64], data))];
        let mut loss = Loss::default();
        loss.add(&x(&[3.0, 4.0]), &x(&[3.0, 4.0]));
        assert_eq!((loss.max_error, loss.relative, loss.largest), (0.0, 0.0, 4.0));
        loss.add(&x(&[3.5, 4.0]), &x(&[3.0, 4.0]));
        assert_eq!((loss.max_error, loss.elements), (0.5, 4));
        assert!((loss.relative - 0.5 / 50f64.sqrt()).abs() < 1e-12, "{loss:?}");
        loss.add(&x(&[f32::NAN, 0.0]), &x(&[1.0, 0.0]));
        assert!(loss.max_error.is_infinite());
    }

    #[test]
    fn whole_numbers_must_be_exact() {
        let x = |n: i64| Array { dtype: DType::I64, shape: vec![], bytes: n.to_ne_bytes().into() };
        let compare =
            |a: &Array, b: &Array| Expected::new(&[], Tolerance::Scaled(10.0)).compare(a, b);
        assert_eq!(compare(&x(5), &x(5)).1, 0);
        // As doubles both are the same.
        assert_eq!(compare(&x((1 << 60) + 1), &x(1 << 60)).1, 1);
        let other = Array { dtype: DType::F32, shape: vec![], bytes: vec![0; 4] };
        assert_eq!(compare(&other, &x(0)).1, 1);
    }
}
