//! Weights of 4 or 8 bits in blocks that share a scale: Squall's operators over them, their shapes,
//! and the packed form that products read. No file has these operators (their domain is
//! [`DOMAIN`]): readers write them for onnxruntime's `MatMulNBits`, and for blocked
//! `DequantizeLinear` before a product.
//!
//! `PackNBits` makes the packed form of a matrix of codes (the integers in the file), its scales
//! and its zero points. Columns go in tiles of [`TILE`]. Of a tile, each [`GROUP`] bytes hold 4
//! bytes a column: with 8 bits these are the codes of 4 consecutive elements of the reduction, with
//! 4 bits those of 8, the first 4 in the low halves. Scales and zero points lie in vectors of a
//! tile, block by block. `MatMulNBits` multiplies floats with this form, `UnpackNBits` makes floats
//! of the file's form.

use super::{Ctx, Output};
use crate::DType;
use crate::graph::type_name;

/// The domain of operators that only readers write.
pub const DOMAIN: &str = "squall";
/// Columns of a tile.
pub const TILE: i64 = 16;
/// Bytes of a tile whose codes are multiplied together.
pub const GROUP: i64 = 64;
/// The longest block.
const LONGEST: i64 = 1 << 16;

/// The order in which a file holds codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `[N, blocks, bytes]`, the low half of a byte first: as `MatMulNBits` of onnxruntime has it.
    Packed,
    /// `[K, N]`, an element each, as tensors of ONNX.
    Rows,
    /// `[N, K]`, the same transposed.
    Columns,
}

/// The extents of a matrix of codes, `K` rows and `N` columns, and its format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NBits {
    /// Rows: elements of the reduction.
    pub k: i64,
    /// Columns.
    pub n: i64,
    /// Bits of a code: 4 or 8.
    pub bits: i64,
    /// Rows that share a scale.
    pub block: i64,
    /// Whether codes are signed integers, which the packed form keeps plus half their range.
    pub signed: bool,
    /// How the file holds them.
    pub form: Form,
}

impl NBits {
    /// The extents and the format of a node, from its attributes.
    pub fn of(ctx: &Ctx) -> Result<NBits, String> {
        let form = match ctx.text("form", "packed")? {
            "packed" => Form::Packed,
            "rows" => Form::Rows,
            "columns" => Form::Columns,
            other => return Err(format!("attribute `form` is `{}`", crate::text::shown(other))),
        };
        let all = NBits {
            k: ctx.int_or("K", 0)?,
            n: ctx.int_or("N", 0)?,
            bits: ctx.int_or("bits", 4)?,
            block: ctx.int_or("block_size", 0)?,
            signed: ctx.int_or("signed", 0)? != 0,
            form,
        };
        all.check()?;
        Ok(all)
    }

    /// Says what of the extents is not possible.
    pub fn check(&self) -> Result<(), String> {
        let NBits { k, n, bits, block, .. } = *self;
        if !matches!(bits, 4 | 8) {
            return Err(format!("attribute `bits` is {bits}: weights of 4 and of 8 are supported"));
        }
        if !(8..=LONGEST).contains(&block) || block % 8 != 0 {
            return Err(format!("attribute `block_size` is {block}, no multiple of 8"));
        }
        if k < 1 || n < 1 {
            return Err(format!("a matrix of {k} rows and {n} columns holds no weights"));
        }
        super::elements(&[k, n]).map(|_| ())
    }

    /// Blocks along the reduction; the last may be cut short.
    pub fn blocks(&self) -> i64 {
        (self.k + self.block - 1) / self.block
    }

    /// Tiles of columns; the last may be cut short.
    pub fn tiles(&self) -> i64 {
        (self.n + TILE - 1) / TILE
    }

    /// Groups of bytes that a tile's block has.
    pub fn groups(&self) -> i64 {
        self.block * self.bits / 32
    }

    /// What codes have in the middle of their range.
    pub fn half(&self) -> i64 {
        1 << (self.bits - 1)
    }

    /// Bytes of a column's zero points where they are packed as codes are.
    pub fn zero_bytes(&self) -> i64 {
        (self.blocks() * self.bits + 7) / 8
    }

    /// The zero point where the file gives none, as the packed form holds it.
    pub fn no_zero(&self) -> i64 {
        if self.form == Form::Packed || self.signed { self.half() } else { 0 }
    }

    /// The shapes of the packed form: codes, and scales or zero points.
    pub fn packed(&self) -> [Vec<i64>; 2] {
        let tiles = self.tiles();
        [vec![tiles, self.blocks() * self.groups(), GROUP], vec![tiles, self.blocks(), TILE]]
    }

    /// Says which operand of the file's form does not suit.
    pub fn suits(&self, codes: &[i64], scales: Typed, zeros: Option<Typed>) -> Result<(), String> {
        let blocks = self.blocks();
        let (like, each) = match self.form {
            Form::Packed => {
                (vec![self.n, blocks, self.block * self.bits / 8], vec![self.n, blocks])
            }
            Form::Rows => (vec![self.k, self.n], vec![blocks, self.n]),
            Form::Columns => (vec![self.n, self.k], vec![self.n, blocks]),
        };
        // onnxruntime takes any shape of as many elements; tensors of ONNX have these.
        let fits = |shape: &[i64], like: &[i64]| match self.form {
            Form::Packed => super::elements(shape) == super::elements(like),
            _ => shape == like,
        };
        let differs = |what: &str, shape: &[i64], like: &[i64]| match fits(shape, like) {
            true => Ok(()),
            false => Err(format!("its {what} are of shape {shape:?}, {like:?} is expected")),
        };
        differs("weights", codes, &like)?;
        differs("scales", scales.shape, &each)?;
        if scales.dtype.is_some_and(|d| d != DType::F32 && !d.is_half()) {
            return Err(format!("its scales are of {}, not f32", type_name(scales.dtype)));
        }
        let Some(zeros) = zeros else { return Ok(()) };
        match (self.form, zeros.dtype) {
            (Form::Packed, Some(d)) if d == DType::F32 || d.is_half() => {
                differs("zero points", zeros.shape, &each)
            }
            // Where constants are evaluated every whole number has 64 bits.
            (Form::Packed, Some(DType::U8 | DType::I64)) => {
                differs("zero points", zeros.shape, &[self.n, self.zero_bytes()])
            }
            (Form::Rows | Form::Columns, Some(DType::U8 | DType::I8 | DType::I64)) => {
                differs("zero points", zeros.shape, &each)
            }
            (_, dtype) => Err(format!("zero points of {} are not supported", type_name(dtype))),
        }
    }

    /// The same of a node's operands.
    fn operands_suit(&self, ctx: &Ctx) -> Result<(), String> {
        let typed = |i: usize| Ok::<_, String>(Typed { dtype: ctx.dtype(i), shape: ctx.shape(i)? });
        let zeros = ctx.operand(2).map(|_| typed(2)).transpose()?;
        self.suits(ctx.shape(0)?, typed(1)?, zeros)
    }
}

/// The type and the shape of an operand.
#[derive(Clone, Copy, Debug)]
pub struct Typed<'a> {
    /// The type of its elements.
    pub dtype: Option<DType>,
    /// Extents, outermost first.
    pub shape: &'a [i64],
}

fn output(dtype: DType, shape: Vec<i64>) -> Output {
    Output { dtype: Some(dtype), shape }
}

pub(crate) fn pack(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let w = NBits::of(ctx)?;
    w.operands_suit(ctx)?;
    let [codes, vectors] = w.packed();
    let zeros = if ctx.dtype(2).is_some_and(DType::is_float) { DType::F32 } else { DType::U8 };
    Ok(vec![output(DType::U8, codes), output(DType::F32, vectors.clone()), output(zeros, vectors)])
}

pub(crate) fn unpack(ctx: &Ctx) -> Result<Vec<Output>, String> {
    let w = NBits::of(ctx)?;
    w.operands_suit(ctx)?;
    if let Some(order) = ctx.optional_shape(3)?
        && super::elements(order)? != w.k
    {
        return Err(format!("its groups are of shape {order:?}, {} are expected", w.k));
    }
    let floats = ctx.dtype(1).filter(|d| d.is_half()).unwrap_or(DType::F32);
    Ok(vec![output(floats, vec![w.k, w.n])])
}

/// What a kernel's generator says to the operator's text; sizes of memory follow from it, so that
/// no file may.
const OF_GENERATORS: [&str; 5] = ["kept", "kernel", "prefetch", "rows", "tiles"];

pub(crate) fn matmul(ctx: &Ctx) -> Result<Vec<Output>, String> {
    if let Some(odd) = OF_GENERATORS.iter().find(|a| ctx.node.attributes.contains_key(**a)) {
        return Err(format!("attribute `{odd}` stands in no file"));
    }
    let w = NBits::of(ctx)?;
    let x = ctx.shape(0)?;
    let Some((&last, rows)) = x.split_last() else {
        return Err("its first input is a scalar".into());
    };
    if last != w.k {
        return Err(format!("its first input of shape {x:?} does not suit {} rows", w.k));
    }
    let floats = ctx.dtype(0).unwrap_or(DType::F32);
    if floats != DType::F32 && !floats.is_half() {
        let name = type_name(ctx.dtype(0));
        return Err(format!("a first input of {name} is not supported"));
    }
    let [codes, vectors] = w.packed();
    for (i, like) in [(1, &codes), (2, &vectors), (3, &vectors)] {
        if let Some(shape) = ctx.optional_shape(i)?
            && shape != like
        {
            return Err(format!("its input {i} is of shape {shape:?}, {like:?} is expected"));
        }
    }
    if let Some(bias) = ctx.optional_shape(4)?
        && bias != [w.n]
    {
        return Err(format!("its bias is of shape {bias:?}, [{}] is expected", w.n));
    }
    let shape = rows.iter().copied().chain([w.n]).collect();
    Ok(vec![output(floats, shape)])
}
