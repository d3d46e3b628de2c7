//! Shapes of Squall's own operators over bytes that hold quantised numbers: a byte `b` stands for
//! `(b - zero) * scale`. No file has these operators (their domain is that of [`super::nbits`]):
//! the graph's rewriting of quantised models (`graph/src/bytes`) writes them, for CPUs. Images have
//! their channels last, and channels are filled up to a multiple of four, which kernels multiply at
//! once.
//!
//! `ToBytes` and `FromBytes` lead in and out of this form, `PackBytes` brings constant weights into
//! it, with a scale and an offset for each channel of the result that hold all that scales, zero
//! points and a bias say (`core/src/operator/quantised.rs`). `ConvBytes` and `MatMulBytes` read
//! packed weights, `ScaleBytes` reads the factors and addends of channels that `PackScales` packs,
//! or those of a normalisation; `SumBytes`, `GateBytes` and `MeanBytes` read a few floats instead
//! (`core/src/operator/bytes.rs`). `MapBytes` looks each byte up in a table of 256.
//!
//! Where ranges are found in every run, `ToBytes` reads two or three more operands: the scale in
//! its own unit, the zero point unless it is known to be zero, and the reciprocal of the scale
//! (`core/src/operator/bytes.rs`); `ProductBytes` and `ConvProductBytes` give floats, images in the
//! model's order.

use super::{Ctx, Output};
use crate::operator::{BytePool, ByteRange, ByteResult, ByteSum, Conv, MatMul};
use crate::{DType, TensorKind};

/// Bytes that kernels take at once.
pub const FOUR: i64 = 4;

/// A number of channels, filled up to a multiple of four.
pub fn filled(channels: i64) -> i64 {
    (channels + FOUR - 1) / FOUR * FOUR
}

/// How weights lie in the file before they are packed, and the kind of kernel that reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weights {
    /// Filters `[k, c, r, s]`, packed as `[k, r, s, c]`.
    Filters,
    /// Filters of one channel each, `[c, 1, r, s]`, packed as floats `[r, s, c]`.
    Depthwise,
    /// `[n, k]`, packed as they are.
    Rows,
    /// `[k, n]`, packed as `[n, k]`.
    Columns,
}

impl Weights {
    /// All forms, with their spelling.
    pub const ALL: &'static [(Weights, &'static str)] = &[
        (Weights::Filters, "filters"),
        (Weights::Depthwise, "depthwise"),
        (Weights::Rows, "rows"),
        (Weights::Columns, "columns"),
    ];

    /// The form of a node's weights, by its attribute `form`.
    pub fn of(ctx: &Ctx) -> Result<Weights, String> {
        let word = ctx.text("form", "")?;
        let found = Weights::ALL.iter().find(|(_, name)| *name == word);
        found.map(|(form, _)| *form).ok_or_else(|| "attribute `form` is not known".into())
    }

    /// The spelling.
    pub fn name(self) -> &'static str {
        Weights::ALL.iter().find(|(form, _)| *form == self).map_or("", |(_, name)| name)
    }

    /// The shape of packed weights and the number of channels of the result, of a shape in the
    /// file.
    pub fn packed(self, shape: &[i64]) -> Result<(Vec<i64>, i64), String> {
        Ok(match (self, shape) {
            (Weights::Filters, &[k, c, r, s]) => (vec![filled(k), r, s, filled(c)], filled(k)),
            (Weights::Depthwise, &[c, 1, r, s]) => (vec![r, s, filled(c)], filled(c)),
            (Weights::Rows, &[n, k]) | (Weights::Columns, &[k, n]) => (vec![n, k], n),
            _ => return Err(format!("weights of shape {shape:?} are no {}", self.name())),
        })
    }
}

fn byte(shape: Vec<i64>) -> Result<Vec<Output>, String> {
    Ok(vec![Output { dtype: Some(DType::U8), shape }])
}

pub(crate) fn like(ctx: &Ctx, i: usize) -> Result<Vec<Output>, String> {
    byte(ctx.shape(i)?.to_vec())
}

/// The extents of an image, batch and channels with its rows and columns.
fn image(shape: &[i64]) -> Result<[i64; 4], String> {
    <[i64; 4]>::try_from(shape).map_err(|_| format!("a tensor of shape {shape:?} is no image"))
}

fn is_last(ctx: &Ctx) -> Result<bool, String> {
    Ok(ctx.int_or("channels_last", 0)? != 0)
}

pub(crate) fn to_bytes(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let shape = ctx.shape(0)?;
    if !is_last(ctx)? {
        return byte(shape.to_vec());
    }
    let [n, c, h, w] = image(shape)?;
    byte(vec![n, h, w, filled(c)])
}

pub(crate) fn from_bytes(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let shape = ctx.shape(0)?;
    let dtype = match ctx.text("to", "f32")? {
        "f32" => DType::F32,
        "u8" => DType::U8,
        "i8" => DType::I8,
        _ => return Err("attribute `to` is not known".into()),
    };
    let shape = if is_last(ctx)? {
        let [n, h, w, c] = image(shape)?;
        let channels = ctx.int_or("channels", c)?;
        if filled(channels) != c {
            return Err(format!("{channels} channels are not filled up to {c}"));
        }
        vec![n, channels, h, w]
    } else {
        shape.to_vec()
    };
    Ok(vec![Output { dtype: Some(dtype), shape }])
}

pub(crate) fn pack(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let form = Weights::of(ctx)?;
    let (shape, channels) = form.packed(ctx.shape(0)?)?;
    let weights = if form == Weights::Depthwise { DType::F32 } else { DType::I8 };
    let vector = || Output { dtype: Some(DType::F32), shape: vec![channels] };
    Ok(vec![Output { dtype: Some(weights), shape }, vector(), vector()])
}

fn ends(ctx: &Ctx, [low, high]: [&str; 2]) -> Result<ByteRange, String> {
    let end = |name: &str, otherwise: i64| {
        let end = ctx.int_or(name, otherwise)?;
        u8::try_from(end).map_err(|_| format!("attribute `{name}` is {end}, no byte"))
    };
    Ok(ByteRange { low: end(low, 0)?, high: end(high, 255)? })
}

pub(crate) fn pack_scales(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let channels = ctx.int_or("channels", 0)?;
    let channels = if ctx.int_or("filled", 0)? != 0 { filled(channels) } else { channels };
    let vector = || Output { dtype: Some(DType::F32), shape: vec![channels] };
    Ok(vec![vector(), vector()])
}

/// The range of a node's results.
pub fn range(ctx: &Ctx) -> Result<ByteRange, String> {
    ends(ctx, ["low", "high"])
}

/// What becomes of the sums of a convolution or a product: behind its weights' offsets it may read
/// what else goes into a sum of its bytes, whose range `sum_low` and `sum_high` say.
pub fn result(ctx: &Ctx) -> Result<ByteResult, String> {
    let addends = match ctx.inputs.len() {
        4 => None,
        n @ (5 | 6) => Some(n - 4),
        n => return Err(format!("it has {n} inputs")),
    };
    let range_of_sum = ends(ctx, ["sum_low", "sum_high"])?;
    let sum = addends.map(|addends| ByteSum { addends, range: range_of_sum });
    Ok(ByteResult { range: range(ctx)?, sum })
}

/// The zero point of a node's operand.
pub fn zero(ctx: &Ctx) -> Result<u8, String> {
    let zero = ctx.int_or("zero", 0)?;
    u8::try_from(zero).map_err(|_| format!("attribute `zero` is {zero}, no byte"))
}

fn numbers<const N: usize>(ctx: &Ctx, name: &str, otherwise: i64) -> Result<[i64; N], String> {
    let Some(list) = ctx.ints(name)? else { return Ok([otherwise; N]) };
    if list.iter().any(|x| !(0..=1 << 24).contains(x)) {
        return Err(format!("attribute `{name}` is {list:?}"));
    }
    let wrong = |_| format!("attribute `{name}` has {} numbers, not {N}", list.len());
    <[i64; N]>::try_from(list).map_err(wrong)
}

/// The convolution of a node whose packed weights are its operand `weights`, and what it reads
/// behind these has a number for each channel of the result.
pub fn convolution(ctx: &Ctx, weights: usize) -> Result<Conv, String> {
    let [n, h, w, c] = image(ctx.shape(0)?)?;
    let groups = ctx.int_or("group", 1)?;
    let (k, r, s, groups) = match *ctx.shape(weights)? {
        [k, r, s, of] if groups > 0 && of.checked_mul(groups) == Some(c) => (k, r, s, groups),
        [r, s, of] if of == c => (c, r, s, c),
        ref other => return Err(format!("filters {other:?} do not suit {c} channels")),
    };
    for i in weights + 1..(weights + 3).min(4) {
        if ctx.shape(i)? != [k] {
            return Err(format!("its input {i} has not one number for each of {k} channels"));
        }
    }
    Ok(Conv {
        n,
        c,
        h,
        w,
        k,
        r,
        s,
        stride: numbers(ctx, "strides", 1)?,
        pads: numbers(ctx, "pads", 0)?,
        dilation: numbers(ctx, "dilations", 1)?,
        groups,
    })
}

pub(crate) fn conv(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let conv = convolution(ctx, 1)?;
    conv.in_bytes(zero(ctx)?, result(ctx)?)?;
    let [n, k, p, q] = conv.output();
    byte(vec![n, p, q, k])
}

pub(crate) fn dynamic_conv(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let conv = convolution(ctx, 2)?;
    if conv.is_padded() && elements(ctx, 4)? != FOUR {
        return Err("its border is not four bytes".into());
    }
    conv.of_dynamic_bytes()?;
    let [n, k, p, q] = conv.output();
    Ok(vec![Output { dtype: Some(DType::F32), shape: vec![n, k, p, q] }])
}

/// Elements of an operand.
pub fn elements(ctx: &Ctx, i: usize) -> Result<i64, String> {
    Ok(ctx.shape(i)?.iter().product())
}

/// The product of a node by the packed weights that are its operand `weights`.
pub fn product(ctx: &Ctx, weights: usize) -> Result<MatMul, String> {
    let (x, w) = (ctx.shape(0)?, ctx.shape(weights)?);
    match (x.split_last(), w) {
        (Some((&k, rows)), &[n, of]) if k == of => {
            Ok(MatMul::plain(rows.iter().product(), n, k, TensorKind::Weight))
        }
        _ => Err(format!("operands of shapes {x:?} and {w:?} do not suit each other")),
    }
}

/// The shape of such a product's result.
fn rows_of(ctx: &Ctx, weights: usize) -> Result<Vec<i64>, String> {
    let n = product(ctx, weights)?.n;
    let rows = ctx.shape(0)?.split_last().map_or(&[][..], |(_, rows)| rows);
    Ok(rows.iter().copied().chain([n]).collect())
}

pub(crate) fn matmul(ctx: &Ctx) -> Result<Vec<Output>, String> {
    byte(rows_of(ctx, 1)?)
}

pub(crate) fn dynamic_product(ctx: &Ctx) -> Result<Vec<Output>, String> {
    Ok(vec![Output { dtype: Some(DType::F32), shape: rows_of(ctx, 2)? }])
}

/// The pooling of a node.
pub fn pool(ctx: &Ctx) -> Result<BytePool, String> {
    let [n, h, w, c] = image(ctx.shape(0)?)?;
    Ok(BytePool {
        n,
        h,
        w,
        c,
        kernel: numbers(ctx, "kernel_shape", 1)?,
        stride: numbers(ctx, "strides", 1)?,
        pads: numbers(ctx, "pads", 0)?,
        dilation: numbers(ctx, "dilations", 1)?,
    })
}

pub(crate) fn pooled(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let pool = pool(ctx)?;
    let [p, q] = pool.positions()?;
    byte(vec![pool.n, p, q, pool.c])
}
