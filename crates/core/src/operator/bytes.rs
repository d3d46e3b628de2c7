//! Workloads over bytes that hold quantised numbers, beside convolutions and products (those are in
//! `quantised.rs`): rounding floats to bytes, sums and products of two tensors, and pools of images
//! whose channels lie last. Input: sizes; output: a workload.
//!
//! A byte `b` stands for `(b - zero) * scale`. Scales and zero points reach a kernel as a weight
//! `F` of a few floats, so that kernels of one shape are one task. Results are rounded to the
//! nearest whole number, ties to even, and saturated. `graph/src/fuse/anchor/bytes.rs` builds these
//! workloads.

use super::quantised::{ByteRange, ByteSum, OFFSET_UNIT, padded};
use super::window::Window;
use super::written;
use crate::Workload;

/// The most elements of a kernel's tensor.
const MOST: i64 = 1 << 31;

/// The workload of a sum of one or two tensors of `elements` bytes.
pub fn byte_sum(elements: i64, sum: ByteSum) -> Result<Workload, String> {
    if !(1..=MOST).contains(&elements) || !(1..=2).contains(&sum.addends) {
        return Err(format!("a sum of {} tensors of {elements} bytes", sum.addends));
    }
    written(&format!(
        "workload elementwise\ndata X: u8[{elements}]\n{}stage Y: u8[i: {elements}] = {}\noutput Y",
        sum.inputs(&elements.to_string()),
        sum.of("X[i]", "i")
    ))
}

/// Floats brought to bytes by a scale and, where there is one, a zero point `D` that the run alone
/// knows: `S` is the scale times [`OFFSET_UNIT`], `I` the reciprocal of `S`. An image `[n, c,
/// places]` gives `[n, places, c]`; what is no image has neither.
///
/// The quotient is one step of Newton's iteration from the product with the reciprocal, which
/// rounds as a division does where a CPU multiplies and adds at once (Markstein, 1990). The unit, a
/// power of two, goes with both numbers, which are the same for all elements.
pub fn rounded_to_bytes([n, c, places]: [i64; 3], has_zero: bool) -> Result<Workload, String> {
    if [n, c, places].iter().any(|x| !(1..=MOST).contains(x)) {
        return Err(format!("{n} images of {c} channels at {places} places"));
    }
    let (x, scale) = ("X[n, c, i]", format!("(S[0] * {:?})", 1.0 / OFFSET_UNIT));
    let inverse = format!("(I[0] * {OFFSET_UNIT:?})");
    let quotient = format!("{x} * {inverse} + ({x} - {x} * {inverse} * {scale}) * {inverse}");
    // The last rounding only says that results are whole: the zero point is.
    let (zero, value) = match has_zero {
        true => ("data D: f32[1]\n", format!("round({quotient}) + D[0]")),
        false => ("", quotient),
    };
    written(&format!(
        "workload elementwise\ndata X: f32[{n}, {c}, {places}]\ndata S: f32[1]\n{zero}data I: \
         f32[1]\nstage Y: u8[n: {n}, i: {places}, c: {c}] = {}\noutput Y",
        ByteRange::ALL.of(&value)
    ))
}

/// `x S + Z` of rows of bytes, with a factor and an addend for each of their channels.
pub fn scaled_bytes(rows: i64, channels: i64, range: ByteRange) -> Result<Workload, String> {
    if [rows, channels].iter().any(|x| !(1..=MOST).contains(x)) {
        return Err(format!("{rows} rows of {channels} bytes"));
    }
    written(&format!(
        "workload elementwise\ndata X: u8[{rows}, {channels}]\nweight S: f32[{channels}]\nweight \
         Z: f32[{channels}]\nstage Y: u8[i: {rows}, c: {channels}] = {}\noutput Y",
        range.of(&format!("X[i, c] * S[c] + Z[c] * {OFFSET_UNIT:?}"))
    ))
}

/// The product of two tensors of bytes, the second with one byte for some that lie `inner` apart:
/// `x[outer, middle, inner]` by `r[outer, inner]`, as a gate of channels is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names are the axes
pub struct Gate {
    pub outer: i64,
    pub middle: i64,
    pub inner: i64,
}

impl Gate {
    /// What products are multiplied by beside their own factor: it brings those of random bytes
    /// into the range of a byte.
    pub const UNIT: f64 = 1.0 / 256.0;

    /// What a kernel reads of the zero points of both, the factor and the offset.
    pub fn numbers(zeros: [f64; 2], factor: f64, offset: f64) -> [f64; 4] {
        [zeros[0], zeros[1], factor / Gate::UNIT - 1.0, offset]
    }

    /// `(x - zero) (r - zero) factor + offset`.
    pub fn workload(&self, range: ByteRange) -> Result<Workload, String> {
        let &Gate { outer, middle, inner } = self;
        if [outer, middle, inner].iter().any(|x| !(1..=MOST).contains(x)) {
            return Err(format!("a gate of {outer} x {middle} x {inner} bytes"));
        }
        let value = format!(
            "(X[a, i, c] - F[0]) * (R[a, c] - F[1]) * ((F[2] + 1) * {:?}) + F[3]",
            Gate::UNIT
        );
        written(&format!(
            "workload elementwise\ndata X: u8[{outer}, {middle}, {inner}]\ndata R: u8[{outer}, \
             {inner}]\nweight F: f32[4]\nstage Y: u8[a: {outer}, i: {middle}, c: {inner}] = \
             {}\noutput Y",
            range.of(&value)
        ))
    }
}

/// Pooling of images of bytes `[n, h, w, c]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names are the problem's
pub struct BytePool {
    pub n: i64,
    pub h: i64,
    pub w: i64,
    pub c: i64,
    /// The window's extents.
    pub kernel: [i64; 2],
    /// Strides along the height and the width.
    pub stride: [i64; 2],
    /// Padding at the top, the left, the bottom and the right.
    pub pads: [i64; 4],
    pub dilation: [i64; 2],
}

impl BytePool {
    fn windows(&self) -> Result<[Window; 2], String> {
        let axis = |i: usize, extent| Window {
            extent,
            kernel: self.kernel[i],
            stride: self.stride[i],
            before: self.pads[i],
            after: self.pads[i + 2],
            dilation: self.dilation[i],
        };
        let all = [axis(0, self.h), axis(1, self.w)];
        all[0].check("height")?;
        all[1].check("width")?;
        if [self.n, self.c].iter().any(|x| !(1..=1 << 24).contains(x)) {
            return Err(format!("pooling needs positive sizes, not n={} c={}", self.n, self.c));
        }
        Ok(all)
    }

    /// Positions along the height and the width.
    pub fn positions(&self) -> Result<[i64; 2], String> {
        Ok(self.windows()?.map(|w| w.positions()))
    }

    /// The greatest byte of each window. What is outside of the image is never the greatest.
    pub fn greatest(&self) -> Result<Workload, String> {
        self.reduced("max", 0, "M[n, p, q, c]")
    }

    /// What a kernel reads of what sums of a window are multiplied by, and of the offset.
    pub fn numbers(&self, factor: f64, offset: f64) -> [f64; 2] {
        [factor / self.unit() - 1.0, offset]
    }

    /// The mean of each window as its sum by a factor plus an offset; `zero` stands for what is
    /// outside of the image.
    pub fn mean(&self, zero: u8, range: ByteRange) -> Result<Workload, String> {
        let value = format!("M[n, p, q, c] * ((F[0] + 1) * {:?}) + F[1]", self.unit());
        self.reduced("sum", zero, &range.of(&value))
    }

    /// A power of two that brings sums of windows into the range of a byte.
    fn unit(&self) -> f64 {
        (-((self.kernel[0] * self.kernel[1]).max(1) as f64).log2().round()).exp2()
    }

    fn reduced(&self, reducer: &str, border: u8, value: &str) -> Result<Workload, String> {
        let [h, w] = self.windows()?;
        let &BytePool { n, c, kernel: [r, s], .. } = self;
        let axes = format!("n: {n}, p: {}, q: {}, c: {c}", h.positions(), w.positions());
        let (copy, x) = padded("u8", c, border, n, h, w);
        let parameters = if value.contains("F[") { "weight F: f32[2]\n" } else { "" };
        written(&format!(
            "workload pool\ndata X: u8[{n}, {}, {}, {c}]\n{parameters}{copy}stage M: f32[{axes}] = \
             {reducer}(r: {r}, s: {s}) {x}[n, {}, {}, c]\nstage Y: u8[{axes}] = {value}\noutput Y",
            self.h,
            self.w,
            h.index("p", "r"),
            w.index("q", "s"),
        ))
    }
}
