//! Workloads of convolutions and matrix products of bytes: unsigned data by signed weights, exact
//! sums of 32 bits, and a result that is scaled, rounded and saturated to bytes again, or floats
//! where zero points are known in the run alone. Input: the sizes of a [`Conv`] or [`MatMul`];
//! output: a workload for CPUs.
//!
//! A result is `max(min(round(C * (S * c) + Z * 64), 255), 0)`, where `C` is the sum of products of
//! bytes, `c` a power of two by the number of products, and `S` and `Z` have a number for each
//! channel. They hold all that a quantised model says: `S = sx sw / sy / c` of its scales, and in
//! `Z` the bias, the zero point of the result, and `-zx sum(w)` for the data's zero point `zx`,
//! with which images are padded. Channels lie last in memory, four of them in an element.

use super::conv::Conv;
use super::matmul::MatMul;
use super::window::{Window, inside};
use super::written;
use crate::{TensorKind, Workload};

/// The factor that [`Conv::in_bytes`] and [`MatMul::in_bytes`] apply to a channel's offset.
pub const OFFSET_UNIT: f64 = 64.0;
/// Root mean square of the product of two random bytes, with and without sign.
const BYTES: f64 = 10_900.0;
/// Root mean square of the product of an unsigned byte and a random number between -1 and 1.
const BYTE_AND_FLOAT: f64 = 85.0;

/// The factor of sums of `products` products each, beside their channel's own scale: a power of two
/// that brings sums of random factors into the range of a byte.
pub fn sum_unit(products: i64, is_depthwise: bool) -> f64 {
    let each = if is_depthwise { BYTE_AND_FLOAT } else { BYTES };
    let spread = each * (products.max(1) as f64).sqrt() / OFFSET_UNIT;
    (-spread.log2().round()).exp2()
}

/// Refuses sums of more `products` than 32 bits are sure to hold.
fn fits(products: i64) -> Result<(), String> {
    match products <= i64::from(i32::MAX) / (255 * 128) {
        true => Ok(()),
        false => Err(format!("a sum of {products} products of bytes does not fit 32 bits")),
    }
}

/// The least and the greatest byte of a result: narrower than a byte where limits such as those of
/// a ReLU lie inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// The least.
    pub low: u8,
    /// The greatest.
    pub high: u8,
}

impl ByteRange {
    /// All bytes.
    pub const ALL: ByteRange = ByteRange { low: 0, high: 255 };

    /// An expression's value rounded and saturated.
    pub(super) fn of(self, value: &str) -> String {
        format!("max(min(round({value}), {}), {})", self.high, self.low)
    }
}

/// A sum of bytes that is rounded: `x a + o` of one tensor, `x a + r b + o` of two. The numbers are
/// read as [`ByteSum::numbers`] writes them: random ones between -1 and 1, on which kernels are
/// verified, make results over all of a byte's range, by factors below 1: a value that was rounded
/// to the next step makes no more than a step then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteSum {
    /// The number of tensors: one or two.
    pub addends: usize,
    /// The range of the result's bytes.
    pub range: ByteRange,
}

impl ByteSum {
    /// The lines of the inputs beside `X`, where `R` has this shape.
    pub(super) fn inputs(self, shape: &str) -> String {
        let second =
            if self.addends == 2 { format!("data R: u8[{shape}]\n") } else { String::new() };
        format!("{second}weight F: f32[{}]\n", self.addends + 1)
    }

    /// The sum of a value and of `R` at an index.
    pub(super) fn of(self, value: &str, index: &str) -> String {
        self.range.of(&match self.addends {
            1 => format!("{value} * (F[0] * 0.5 + 0.5) + F[1] * {OFFSET_UNIT:?}"),
            _ => format!(
                "{value} * (F[0] * 0.5 + 0.5) + R[{index}] * (F[1] * 0.5 + 0.5) + F[2] * \
                 {OFFSET_UNIT:?}"
            ),
        })
    }

    /// What a kernel reads of the factors of one tensor or of two, and of the offset.
    pub fn numbers(factors: &[f64], offset: f64) -> Vec<f64> {
        factors.iter().map(|f| 2.0 * f - 1.0).chain([offset / OFFSET_UNIT]).collect()
    }
}

/// The steps that follow the scaled sums of a product or a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteResult {
    /// The range of the bytes that they are rounded to.
    pub range: ByteRange,
    /// A sum that these bytes go into, which is rounded again.
    pub sum: Option<ByteSum>,
}

impl ByteResult {
    /// Any bytes, and no more.
    pub const ANY: ByteResult = ByteResult { range: ByteRange::ALL, sum: None };

    /// The lines of the inputs that the sum reads, over a result of this shape.
    fn inputs(self, shape: &str) -> String {
        self.sum.map_or_else(String::new, |s| s.inputs(shape))
    }

    /// The stage that scales, rounds and saturates sums.
    fn stage(self, sums: &str, axes: &str, index: &str, channel: &str, unit: f64) -> String {
        let scaled =
            format!("{sums}[{index}] * (S[{channel}] * {unit:?}) + Z[{channel}] * {OFFSET_UNIT:?}");
        let first = self.range.of(&scaled);
        let value = self.sum.map_or(first.clone(), |s| s.of(&first, index));
        format!("stage Y: u8[{axes}] = {value}\noutput Y")
    }
}

impl MatMul {
    /// The product of bytes whose zero point `D` is known in the run alone, by constant bytes with
    /// a sign: the sums of what the zero point leaves, as floats. `V` has the sum of each channel's
    /// weights over [`OFFSET_UNIT`].
    pub fn of_dynamic_bytes(&self) -> Result<Workload, String> {
        let &MatMul { m, n, k, .. } = self;
        self.in_bytes(ByteResult::ANY)?;
        let fours = k / 4;
        written(&format!(
            "workload matmul\ndata A: u8x4[{m}, {fours}]\ndata D: f32[1]\nweight B: i8x4[{n}, \
             {fours}]\nweight V: f32[{n}]\nstage T: i32[m: {m}, n: {n}] = sum(k: {fours}) dot(A[m, \
             k], B[n, k])\nstage Y: f32[m: {m}, n: {n}] = T[m, n] - D[0] * (V[n] * \
             {OFFSET_UNIT:?})\noutput Y"
        ))
    }

    /// The product of bytes: data `[m, k]` by weights that lie as `[n, k]`, giving bytes.
    pub fn in_bytes(&self, result: ByteResult) -> Result<Workload, String> {
        let &MatMul { m, n, k, .. } = self;
        let plain = self.batch.iter().all(|b| b.0 == 1) && !self.a_transposed;
        if !plain || self.a != TensorKind::Data || self.b != TensorKind::Weight {
            return Err("products of bytes are made for one product with constant weights".into());
        }
        if [m, n, k].iter().any(|x| !(1..=1 << 31).contains(x)) {
            return Err(format!("a product needs positive sizes, not m={m} n={n} k={k}"));
        }
        if k % 4 != 0 {
            return Err(format!("products of bytes take four at a time, and k={k} is no multiple"));
        }
        fits(k)?;
        let (fours, unit) = (k / 4, sum_unit(k, false));
        written(&format!(
            "workload matmul\ndata A: u8x4[{m}, {fours}]\nweight B: i8x4[{n}, {fours}]\nweight S: \
             f32[{n}]\nweight Z: f32[{n}]\n{}stage T: i32[m: {m}, n: {n}] = sum(k: {fours}) \
             dot(A[m, k], B[n, k])\n{}",
            result.inputs(&format!("{m}, {n}")),
            result.stage("T", &format!("m: {m}, n: {n}"), "m, n", "n", unit)
        ))
    }
}

/// How the texts of a convolution of bytes name channels of the result: by group and filter, where
/// there are several groups.
struct Grouped {
    /// Axes with their extents.
    axes: String,
    /// Their index.
    channel: &'static str,
    /// Their extents.
    channels: String,
    /// The four of the image that the sum's `c`-th step reads.
    first: String,
}

impl Conv {
    /// The convolution of bytes with their channels last whose zero point `D` is known in the run
    /// alone: the sums of what the zero point leaves, as floats `[n, k, p, q]`. Filters lie as
    /// those of [`Conv::in_bytes`], `V` has the sum of each filter's weights over [`OFFSET_UNIT`].
    /// `E`, four times the zero point as bytes, is the border of a padded image.
    pub fn of_dynamic_bytes(&self) -> Result<Workload, String> {
        let &Conv { n, c, k, r, s, groups, .. } = self;
        self.in_bytes(0, ByteResult::ANY)?;
        let [h, w] = self.windows();
        let (row, column) = (h.index("p", "r"), w.index("q", "s"));
        if self.is_depthwise() && k == c {
            let axes = format!("n: {n}, k: {k}, p: {}, q: {}", h.positions(), w.positions());
            let (copy, x) = bordered("u8", c, "E[0]", n, h, w);
            let border = if copy.is_empty() { "" } else { "data E: u8[4]\n" };
            return written(&format!(
                "workload depthwise_conv2d\ndata X: u8[{n}, {}, {}, {c}]\ndata D: f32[1]\nweight \
                 W: f32[{r}, {s}, {c}]\nweight V: f32[{c}]\n{border}{copy}stage C: f32[{axes}] = \
                 sum(r: {r}, s: {s}) {x}[n, {row}, {column}, k] * W[r, s, k]\nstage Y: f32[{axes}] \
                 = C[n, k, p, q] - D[0] * (V[k] * {OFFSET_UNIT:?})\noutput Y",
                self.h, self.w
            ));
        }
        let fours = c / groups / 4;
        let Grouped { axes, channel, channels, first } = self.grouped();
        let axes = format!("n: {n}, {axes}, p: {}, q: {}", h.positions(), w.positions());
        let (copy, x) = bordered("u8x4", c / 4, "E[0]", n, h, w);
        let border = if copy.is_empty() { "" } else { "data E: u8x4[1]\n" };
        let (read, image) = (format!("n, {row}, {column}, {first}"), self.fours_of_image());
        written(&format!(
            "workload conv2d\ndata X: u8x4[{image}]\ndata D: f32[1]\nweight W: i8x4[{channels}, \
             {r}, {s}, {fours}]\nweight V: f32[{channels}]\n{border}{copy}stage T: i32[{axes}] = \
             sum(r: {r}, s: {s}, c: {fours}) dot({x}[{read}], W[{channel}, r, s, c])\nstage Y: \
             f32[{axes}] = T[n, {channel}, p, q] - D[0] * (V[{channel}] * \
             {OFFSET_UNIT:?})\noutput Y"
        ))
    }

    fn grouped(&self) -> Grouped {
        let &Conv { c, k, groups, .. } = self;
        let (filters, fours) = (k / groups, c / groups / 4);
        match groups {
            1 => Grouped {
                axes: format!("k: {k}"),
                channel: "k",
                channels: k.to_string(),
                first: "c".into(),
            },
            g => Grouped {
                axes: format!("g: {g}, k: {filters}"),
                channel: "g, k",
                channels: format!("{g}, {filters}"),
                first: format!("{fours}*g + c"),
            },
        }
    }

    /// The extents of the image in fours of bytes, channels last.
    fn fours_of_image(&self) -> String {
        format!("{}, {}, {}, {}", self.n, self.h, self.w, self.c / 4)
    }

    /// Whether an image has a border.
    pub fn is_padded(&self) -> bool {
        self.windows().iter().any(Window::is_padded)
    }

    /// The convolution of bytes with channels last, its border `zero`: filters lie as
    /// `[k, r, s, c / groups]`. Where each channel has one filter of its own, filters are floats of
    /// whole numbers, `[r, s, c]`.
    pub fn in_bytes(&self, zero: u8, result: ByteResult) -> Result<Workload, String> {
        let &Conv { n, c, k, r, s, groups, .. } = self;
        // Sizes, groups and windows are judged as those of floats are.
        self.workload()?;
        let [h, w] = self.windows();
        let (p, q) = (h.positions(), w.positions());
        let (row, column) = (h.index("p", "r"), w.index("q", "s"));
        let (axes, shape) =
            (format!("n: {n}, p: {p}, q: {q}, k: {k}"), format!("{n}, {p}, {q}, {k}"));
        if self.is_depthwise() && k == c {
            let unit = sum_unit(r * s, true);
            let (copy, x) = padded("u8", c, zero, n, h, w);
            return written(&format!(
                "workload depthwise_conv2d\ndata X: u8[{n}, {}, {}, {c}]\nweight W: f32[{r}, {s}, \
                 {c}]\nweight S: f32[{c}]\nweight Z: f32[{c}]\n{}{copy}stage C: f32[{axes}] = \
                 sum(r: {r}, s: {s}) {x}[n, {row}, {column}, k] * W[r, s, k]\n{}",
                self.h,
                self.w,
                result.inputs(&shape),
                result.stage("C", &axes, "n, p, q, k", "k", unit)
            ));
        }
        let of_group = c / groups;
        if of_group % 4 != 0 {
            return Err(format!(
                "convolutions of bytes take four channels at a time, and {c} in {groups} groups \
                 are not"
            ));
        }
        fits(of_group.saturating_mul(r).saturating_mul(s))?;
        let (fours, unit) = (of_group / 4, sum_unit(of_group * r * s, false));
        let (copy, x) = padded("u8x4", c / 4, zero, n, h, w);
        let image = self.fours_of_image();
        let Grouped { axes, channel, channels, first } = self.grouped();
        let axes = format!("n: {n}, p: {p}, q: {q}, {axes}");
        let index = format!("n, p, q, {channel}");
        written(&format!(
            "workload conv2d\ndata X: u8x4[{image}]\nweight W: i8x4[{channels}, {r}, {s}, \
             {fours}]\nweight S: f32[{channels}]\nweight Z: f32[{channels}]\n{}{copy}stage C: \
             i32[{axes}] = sum(r: {r}, s: {s}, c: {fours}) dot({x}[n, {row}, {column}, {first}], \
             W[{channel}, r, s, c])\n{}",
            result.inputs(&format!("{n}, {p}, {q}, {channels}")),
            result.stage("C", &axes, &index, channel, unit)
        ))
    }
}

/// The line of the stage that copies `X[n, h, w, c]` with its border into `P`, and the name of the
/// tensor to read; an empty line where nothing is padded.
pub(super) fn padded(
    format: &str,
    channels: i64,
    zero: u8,
    n: i64,
    h: Window,
    w: Window,
) -> (String, &'static str) {
    let border = if format == "u8" { u32::from(zero) } else { u32::from_le_bytes([zero; 4]) };
    bordered(format, channels, &border.to_string(), n, h, w)
}

/// The same with a border of any expression.
fn bordered(
    format: &str,
    channels: i64,
    border: &str,
    n: i64,
    h: Window,
    w: Window,
) -> (String, &'static str) {
    let Some(inside) = inside(h, w) else { return (String::new(), "X") };
    let text = format!(
        "stage P: {format}[n: {n}, h: {}, w: {}, c: {channels}] = select({}, X[n, h - {}, w - {}, \
         c], {border})\n",
        h.padded(),
        w.padded(),
        inside,
        h.before,
        w.before
    );
    (text, "P")
}
