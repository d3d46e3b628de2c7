//! Elementwise functions over slices (`exp`, `tanh`, GELU, sums of products), written without calls
//! and branches, so that the compiler vectorises them. `pulp` runs each with the widest
//! instructions of the machine. The networks' layers call them.

use pulp::Arch;
use std::sync::OnceLock;

/// Runs a loop with the widest vector instructions of this machine.
#[inline(always)]
pub fn wide<R>(f: impl FnOnce() -> R) -> R {
    static ARCH: OnceLock<Arch> = OnceLock::new();
    ARCH.get_or_init(Arch::new).dispatch(f)
}

/// `exp(x)`: 2^n times a polynomial of degree 6 on [-ln2/2, ln2/2]; relative error under 1e-6.
/// Below -87 the answer is the least normal number, above 88 it stays at exp(88).
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    let x = x.clamp(-87.0, 88.0);
    // Adding 1.5 * 2^23 rounds to a whole number, whose bits are then the low bits of the sum.
    let shifted = x * std::f32::consts::LOG2_E + 12_582_912.0;
    let n = shifted - 12_582_912.0;
    // ln 2 in two parts, so that x - n ln 2 keeps its bits (Cody and Waite).
    let r = (x - n * 0.693_359_4) + n * 2.121_944_4e-4;
    let p = 1.0
        + r * (1.0
            + r * (0.5
                + r * (0.166_666_67 + r * (0.041_666_65 + r * (8.333_6e-3 + r * 1.389e-3)))));
    f32::from_bits(p.to_bits().wrapping_add(shifted.to_bits() << 23))
}

/// The logistic function.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// The hyperbolic tangent.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    2.0 * sigmoid(2.0 * x) - 1.0
}

const GELU: f32 = 1.702;

/// GELU in its sigmoid form, `x * sigmoid(1.702 x)` (Hendrycks and Gimpel 2016, section 2).
pub fn gelu(x: &[f32], y: &mut [f32]) {
    wide(
        #[inline(always)]
        || {
            for (y, &x) in y.iter_mut().zip(x) {
                *y = x * sigmoid(GELU * x);
            }
        },
    );
}

/// Replaces `dy`, the gradient of [`gelu`]'s result, by that of its argument `x`.
pub fn gelu_backward(x: &[f32], dy: &mut [f32]) {
    wide(
        #[inline(always)]
        || {
            for (d, &x) in dy.iter_mut().zip(x) {
                let s = sigmoid(GELU * x);
                *d *= s + GELU * x * s * (1.0 - s);
            }
        },
    );
}

/// `tanh` of every element, in place.
pub fn tanh_all(x: &mut [f32]) {
    wide(
        #[inline(always)]
        || x.iter_mut().for_each(|x| *x = tanh(*x)),
    );
}

/// `max(x, 0)` of every element, in place.
pub fn relu(x: &mut [f32]) {
    wide(
        #[inline(always)]
        || x.iter_mut().for_each(|x| *x = x.max(0.0)),
    );
}

/// `y += x`
pub fn add(x: &[f32], y: &mut [f32]) {
    wide(
        #[inline(always)]
        || y.iter_mut().zip(x).for_each(|(y, x)| *y += x),
    );
}

/// `y += a * x`
pub fn add_scaled(a: f32, x: &[f32], y: &mut [f32]) {
    wide(
        #[inline(always)]
        || y.iter_mut().zip(x).for_each(|(y, x)| *y += a * x),
    );
}

/// Moves `y` towards `x` by a share of the distance.
pub fn approach(share: f32, x: &[f32], y: &mut [f32]) {
    wide(
        #[inline(always)]
        || y.iter_mut().zip(x).for_each(|(y, x)| *y += share * (x - *y)),
    );
}

/// The sum of products, for loops that already run in wide instructions. Sixteen partial sums in
/// a fixed order allow vectors and give the same result on every machine.
#[inline(always)]
pub fn dot_within(x: &[f32], y: &[f32]) -> f32 {
    let mut sums = [0.0f32; 16];
    let (xs, ys) = (x.chunks_exact(16), y.chunks_exact(16));
    let rest: f32 = xs.remainder().iter().zip(ys.remainder()).map(|(x, y)| x * y).sum();
    for (x, y) in xs.zip(ys) {
        for i in 0..16 {
            sums[i] += x[i] * y[i];
        }
    }
    let mut half = 8;
    while half > 0 {
        for i in 0..half {
            sums[i] += sums[i + half];
        }
        half /= 2;
    }
    sums[0] + rest
}

/// The sum of products.
pub fn dot(x: &[f32], y: &[f32]) -> f32 {
    wide(
        #[inline(always)]
        || dot_within(x, y),
    )
}

/// The product of every row of `x` with `w`, plus `bias`; added to `y` where `onto` is
/// true.
pub fn dot_rows(x: &[f32], w: &[f32], bias: f32, y: &mut [f32], onto: bool) {
    wide(
        #[inline(always)]
        || {
            for (y, x) in y.iter_mut().zip(x.chunks_exact(w.len().max(1))) {
                *y = dot_within(x, w) + bias + if onto { *y } else { 0.0 };
            }
        },
    );
}

/// `y += x`, for loops that already run in wide instructions.
#[inline(always)]
pub fn add_within(x: &[f32], y: &mut [f32]) {
    let n = y.len();
    let x = &x[..n];
    for i in 0..n {
        y[i] += x[i];
    }
}

/// Adds `row` to every row of `y`.
pub fn add_row(row: &[f32], y: &mut [f32]) {
    wide(
        #[inline(always)]
        || {
            for y in y.chunks_exact_mut(row.len()) {
                y.iter_mut().zip(row).for_each(|(y, b)| *y += b);
            }
        },
    );
}

/// Adds the sum of all rows of `x` to `row`.
pub fn sum_rows(x: &[f32], row: &mut [f32]) {
    wide(
        #[inline(always)]
        || {
            for x in x.chunks_exact(row.len()) {
                row.iter_mut().zip(x).for_each(|(r, x)| *r += x);
            }
        },
    );
}

/// Turns scores into log-probabilities, in place; scores of minus infinity stay. The sum of
/// exponentials is taken in f64: spaces of thousands must add up to one.
pub fn log_softmax(scores: &mut [f32]) {
    let top = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if top == f32::NEG_INFINITY {
        return;
    }
    let term = |s: f32| if s == f32::NEG_INFINITY { 0.0 } else { f64::from(exp(s - top)) };
    let mut sums = [0.0f64; 16];
    let total = wide(
        #[inline(always)]
        || {
            let parts = scores.chunks_exact(16);
            let rest: f64 = parts.remainder().iter().map(|&s| term(s)).sum();
            for part in parts {
                for i in 0..16 {
                    sums[i] += term(part[i]);
                }
            }
            sums.iter().sum::<f64>() + rest
        },
    );
    let shift = top + total.ln() as f32;
    wide(
        #[inline(always)]
        || scores.iter_mut().for_each(|s| *s -= shift),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_and_tanh_are_close_everywhere() {
        for i in -8700..8800 {
            let x = i as f32 * 0.01;
            let (got, want) = (f64::from(exp(x)), f64::from(x).exp());
            assert!((got - want).abs() <= 2e-6 * want, "exp({x}) = {got}, not {want}");
            let (got, want) = (f64::from(tanh(x)), f64::from(x).tanh());
            assert!((got - want).abs() <= 1e-6, "tanh({x}) = {got}, not {want}");
        }
        assert!(exp(-1000.0) < 1e-37 && exp(-1000.0) >= 0.0);
        assert!(exp(1000.0).is_finite());
    }

    #[test]
    fn log_softmax_adds_up_to_one_and_keeps_masks() {
        let mut s: Vec<f32> = (0..5000).map(|i| ((i * 37) % 101) as f32 * 0.3 - 10.0).collect();
        s[7] = f32::NEG_INFINITY;
        log_softmax(&mut s);
        let total: f64 = s.iter().map(|&l| f64::from(l).exp()).sum();
        assert!((total - 1.0).abs() < 1e-5, "{total}");
        assert_eq!(s[7], f32::NEG_INFINITY);
        let mut none = [f32::NEG_INFINITY; 3];
        log_softmax(&mut none);
        assert!(none.iter().all(|x| *x == f32::NEG_INFINITY));
    }

    #[test]
    fn a_share_of_the_way() {
        let mut y = [1.0f32, -2.0, 4.0];
        approach(0.25, &[5.0, -2.0, 0.0], &mut y);
        assert_eq!(y, [2.0, -2.0, 3.0]);
    }

    #[test]
    fn dot_of_odd_lengths() {
        let x: Vec<f32> = (0..37).map(|i| i as f32).collect();
        assert_eq!(dot(&x, &x), (0..37).map(|i| (i * i) as f32).sum::<f32>());
    }
}
