//! Evaluators that pack weights of 4 or 8 bits (`PackNBits`) and make floats of them
//! (`UnpackNBits`). Input: the file's codes, scales and zero points; output: the packed form that
//! products read, in tiles of 16 columns. [`crate::graph::infer::nbits`] describes the form.

use super::{NOT_HERE, need};
use crate::graph::infer::nbits::{Form, GROUP, NBits, TILE};
use crate::graph::infer::{Ctx, Output};
use crate::graph::{Constant, elements};

/// A matrix of codes as the file holds it, with extents that were found to suit.
struct PackedSource<'a> {
    of: NBits,
    codes: &'a [i64],
    scales: &'a [f32],
    zeros: Option<&'a Constant>,
}

impl<'a> PackedSource<'a> {
    fn of(ctx: &Ctx<'a>) -> Result<PackedSource<'a>, String> {
        let codes = need(ctx, 0)?.as_i64().ok_or(NOT_HERE)?;
        let scales = need(ctx, 1)?.as_f32().ok_or(NOT_HERE)?;
        let zeros = ctx.constant(2, "zero points")?;
        if let Some(scale) = scales.iter().find(|s| !s.is_finite()) {
            return Err(format!("one of its scales is {scale}"));
        }
        Ok(PackedSource { of: NBits::of(ctx)?, codes, scales, zeros })
    }

    /// A field of packed bytes.
    fn field(&self, bytes: &[i64], row: i64, bytes_of_row: i64, index: i64) -> i64 {
        let bit = index * self.of.bits;
        let byte = bytes[(row * bytes_of_row + bit / 8) as usize];
        byte >> (bit % 8) & ((1 << self.of.bits) - 1)
    }

    /// A code as the packed form holds it.
    fn code(&self, k: i64, n: i64) -> i64 {
        let w = &self.of;
        let offset = if w.signed { w.half() } else { 0 };
        match w.form {
            Form::Packed => {
                let bytes = w.blocks() * (w.block * w.bits / 8);
                self.field(self.codes, n, bytes, k)
            }
            Form::Rows => self.codes[(k * w.n + n) as usize] + offset,
            Form::Columns => self.codes[(n * w.k + k) as usize] + offset,
        }
    }

    /// Where the scale of a block lies.
    fn place(&self, block: i64, n: i64) -> usize {
        let w = &self.of;
        (if w.form == Form::Rows { block * w.n + n } else { n * w.blocks() + block }) as usize
    }

    /// A zero point as the packed form holds it, where it is a whole number.
    fn zero(&self, block: i64, n: i64) -> i64 {
        let w = &self.of;
        match self.zeros {
            Some(Constant::I64 { data, .. }) if w.form == Form::Packed => {
                self.field(data, n, w.zero_bytes(), block)
            }
            Some(Constant::I64 { data, .. }) => {
                data[self.place(block, n)] + if w.signed { w.half() } else { 0 }
            }
            _ => w.no_zero(),
        }
    }
}

pub(crate) fn pack(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
    let s = PackedSource::of(ctx)?;
    let w = s.of;
    let ([codes, vectors], blocks) = (w.packed(), w.blocks());
    let mut data = Vec::with_capacity(elements(&codes)? as usize);
    let part = 32 / w.bits;
    for tile in 0..codes[0] {
        for group in 0..codes[1] {
            for byte in 0..GROUP {
                let (n, k) = (tile * TILE + byte / 4, group * part + byte % 4);
                let code = |k: i64| if n < w.n && k < w.k { s.code(k, n) } else { 0 };
                data.push(if w.bits == 8 { code(k) } else { code(k) | code(k + 4) << 4 });
            }
        }
    }
    let places = |each: &mut dyn FnMut(i64, i64)| {
        for tile in 0..vectors[0] {
            for block in 0..blocks {
                for lane in 0..TILE {
                    each(block, tile * TILE + lane);
                }
            }
        }
    };
    let mut scales = Vec::with_capacity(elements(&vectors)? as usize);
    places(&mut |b, n| scales.push(if n < w.n { s.scales[s.place(b, n)] } else { 0.0 }));
    let zeros = match s.zeros {
        Some(Constant::F32 { data, .. }) => {
            let mut floats = Vec::new();
            places(&mut |b, n| floats.push(if n < w.n { data[s.place(b, n)] } else { 0.0 }));
            Constant::F32 { shape: vectors.clone(), data: floats }
        }
        _ => {
            let mut whole = Vec::new();
            places(&mut |b, n| whole.push(if n < w.n { s.zero(b, n) } else { 0 }));
            Constant::I64 { shape: vectors.clone(), data: whole }
        }
    };
    let all = [
        Constant::I64 { shape: codes, data },
        Constant::F32 { shape: vectors, data: scales },
        zeros,
    ];
    let wanted = ctx.node.outputs.len().min(outputs.len());
    Ok(all.into_iter().take(wanted).collect())
}

pub(crate) fn unpack(ctx: &Ctx, _: &[Output]) -> Result<Vec<Constant>, String> {
    let s = PackedSource::of(ctx)?;
    let w = s.of;
    let groups = ctx.integers(3, "groups")?;
    let mut data = Vec::with_capacity(elements(&[w.k, w.n])? as usize);
    for k in 0..w.k {
        let block = groups.map_or(k / w.block, |g| g[k as usize]);
        if !(0..w.blocks()).contains(&block) {
            return Err(format!("group {block} of row {k} is outside of {}", w.blocks()));
        }
        for n in 0..w.n {
            let zero = match s.zeros {
                Some(Constant::F32 { data, .. }) => data[s.place(block, n)],
                _ => s.zero(block, n) as f32,
            };
            data.push((s.code(k, n) as f32 - zero) * s.scales[s.place(block, n)]);
        }
    }
    Ok(vec![Constant::F32 { shape: vec![w.k, w.n], data }])
}
