//! Matrix products of floats with weights of 4 or 8 bits, in the packed form that
//! [`nbits`](crate::graph::infer::nbits) describes. Input: the sizes and formats of a [`FewBits`];
//! output: a workload whose expression unpacks codes exactly; `FewBits::of` recognises such a
//! workload again. `compiler/src/sketch/few_bits.rs` makes its kernels from a text with knobs,
//! since no schedule of the expression unpacks codes as vector instructions do.

use super::written;
use crate::expr::{Expr, Unary};
use crate::graph::infer::nbits::{GROUP, NBits, TILE};
use crate::{DType, Workload};

/// `Y[m, n] = sum(k) A[m, k] * (code[k, n] - zero) * scale`, where blocks of the reduction share
/// scales and zero points. Blocks and tiles are whole: `k` is a multiple of `block`, `n` of 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FewBits {
    /// Rows of activations.
    pub m: i64,
    /// Elements of the reduction.
    pub k: i64,
    /// Columns.
    pub n: i64,
    /// Bits of a code: 4 or 8.
    pub bits: i64,
    /// Elements of the reduction that share a scale.
    pub block: i64,
    /// Whether activations are quantised to signed bytes, each block of a row by its largest.
    pub whole: bool,
    /// The type of zero points; where they are absent, all are this number.
    pub zero: FewBitsZero,
    /// Whether columns have an addend each.
    pub bias: bool,
}

/// Zero points of codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FewBitsZero {
    /// One number for all codes: 0, or half of their range.
    Same(i64),
    /// A tensor of bytes.
    Bytes,
    /// A tensor of floats.
    Floats,
}

impl FewBits {
    /// The product of `m` rows with these weights.
    pub fn new(m: i64, w: &NBits, whole: bool, zero: FewBitsZero, bias: bool) -> FewBits {
        FewBits { m, k: w.k, n: w.n, bits: w.bits, block: w.block, whole, zero, bias }
    }

    /// A readable name.
    pub fn name(&self) -> String {
        let level = if self.whole { "_int8" } else { "" };
        format!("matmul_{}x{}x{}_b{}x{}{level}", self.m, self.n, self.k, self.bits, self.block)
    }

    /// The expression. Inputs are `A`, the packed codes `W`, their scales `S`, and zero points `Z`
    /// and addends `B` where there are some.
    ///
    /// # Errors
    /// Where sizes are not possible, or blocks or tiles are cut short.
    pub fn workload(&self) -> Result<Workload, String> {
        let &FewBits { m, k, n, bits, block, whole, zero, bias } = self;
        if [m, k, n].iter().any(|x| !(1..=1 << 31).contains(x)) || !matches!(bits, 4 | 8) {
            return Err(format!("a product of {m} rows, {k} by {n} codes of {bits} bits"));
        }
        if !(8..=1 << 16).contains(&block) || block % 8 != 0 || k % block != 0 || n % TILE != 0 {
            return Err(format!(
                "products of {k} by {n} codes in blocks of {block} have cut blocks or columns"
            ));
        }
        if let FewBitsZero::Same(z) = zero
            && ![0, 1 << (bits - 1)].contains(&z)
        {
            return Err(format!("all zero points of codes of {bits} bits are {z}"));
        }
        let (tiles, blocks, groups) = (n / TILE, k / block, block * bits / 32);
        let all = blocks * groups;
        let mut text = format!(
            "workload matmul\ndata A: f32[{m}, {blocks}, {block}]\ndata W: u8[{tiles}, {all}, \
             {TILE}, {}]\ndata S: f32[{tiles}, {blocks}, {TILE}]\n",
            GROUP / TILE
        );
        let zero = match zero {
            FewBitsZero::Same(z) => z.to_string(),
            FewBitsZero::Bytes | FewBitsZero::Floats => {
                let ty = if zero == FewBitsZero::Bytes { "u8" } else { "f32" };
                text += &format!("data Z: {ty}[{tiles}, {blocks}, {TILE}]\n");
                "Z[t, b, c]".into()
            }
        };
        if bias {
            text += &format!("data B: f32[{tiles}, {TILE}]\n");
        }
        let packed = format!("W[t, {groups}*b + g, c, j]");
        let (code, inner, at) = match bits {
            4 => (
                format!(
                    "select(0 <= h < 1, {packed} - floor({packed} * 0.0625) * 16, floor({packed} \
                     * 0.0625))"
                ),
                "h: 2, j: 4",
                "8*g + 4*h + j",
            ),
            _ => (packed, "j: 4", "4*g + j"),
        };
        let (a, scale) = match whole {
            true => {
                text += &format!(
                    "stage X: f32[m: {m}, b: {blocks}] = max(k: {block}) abs(A[m, b, k])\nstage \
                     Q: f32[m: {m}, b: {blocks}, k: {block}] = round(A[m, b, k] * (127 / max(X[m, \
                     b], 1e-36)))\n"
                );
                (format!("Q[m, b, {at}]"), "(S[t, b, c] * (X[m, b] / 127))")
            }
            false => (format!("A[m, b, {at}]"), "S[t, b, c]"),
        };
        let (name, axes) = (if bias { "P" } else { "Y" }, format!("m: {m}, t: {tiles}, c: {TILE}"));
        text += &format!(
            "stage {name}: f32[{axes}] = sum(b: {blocks}, g: {groups}, {inner}) {a} * (({code} - \
             {zero}) * {scale})\n"
        );
        if bias {
            text += &format!("stage Y: f32[{axes}] = P[m, t, c] + B[t, c]\n");
        }
        written(&(text + "output Y"))
    }

    /// The product that a workload is, where it is one as [`FewBits::workload`] writes it.
    pub fn of(w: &Workload) -> Option<FewBits> {
        let input = |name: &str| w.inputs.iter().find(|i| i.name == name);
        let (a, codes) = (input("A")?, input("W")?);
        let (&[m, blocks, block], &[tiles, all, TILE, _]) = (&a.shape[..], &codes.shape[..]) else {
            return None;
        };
        let bits = all.checked_mul(32)?.checked_div(blocks.checked_mul(block)?)?;
        let zero = match input("Z").map(|z| z.dtype) {
            Some(DType::U8) => FewBitsZero::Bytes,
            Some(_) => FewBitsZero::Floats,
            None => FewBitsZero::Same(same_zero(w)?),
        };
        let rounds = |e: &Expr| matches!(e, Expr::Unary(Unary::Round, _));
        let found = FewBits {
            m,
            k: blocks.checked_mul(block)?,
            n: tiles.checked_mul(TILE)?,
            bits,
            block,
            whole: w.stages.iter().any(|s| rounds(&s.body)),
            zero,
            bias: input("B").is_some(),
        };
        (found.workload().as_ref() == Ok(w)).then_some(found)
    }
}

/// The number that is subtracted from codes, where one is.
fn same_zero(w: &Workload) -> Option<i64> {
    let sum = w.stages.iter().find(|s| s.reduction.is_some() && s.axes.len() == 3)?;
    let mut found = None;
    sum.body.visit(&mut |e| {
        if let Expr::Binary(crate::expr::Binary::Sub, _, zero) = e
            && let Expr::Const(z) = **zero
        {
            found.get_or_insert(z as i64);
        }
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_is_found_in_its_expression_again() {
        for (bits, block) in [(4, 32), (8, 32), (4, 8), (8, 256)] {
            for whole in [false, true] {
                let half = FewBitsZero::Same(1 << (bits - 1));
                for zero in [half, FewBitsZero::Same(0), FewBitsZero::Bytes, FewBitsZero::Floats] {
                    for bias in [false, true] {
                        let (m, k, n) = (3, 2 * block, 48);
                        let p = FewBits { m, k, n, bits, block, whole, zero, bias };
                        let w = p.workload().unwrap();
                        assert_eq!(FewBits::of(&w), Some(p), "{w}");
                        assert_eq!(w.flop(), 2 * (m * k * n) as u64);
                        assert_eq!(w.multiplies_bytes(), whole);
                        let again = Workload::parse(&w.to_string()).unwrap();
                        assert_eq!(again, w);
                    }
                }
            }
        }
    }

    #[test]
    fn others_are_none_and_cut_ones_are_refused() {
        let product = crate::operator::MatMul::plain(4, 16, 32, crate::TensorKind::Weight);
        assert_eq!(FewBits::of(&product.workload().unwrap()), None);
        let zero = FewBitsZero::Same(8);
        let p = FewBits { m: 1, k: 64, n: 32, bits: 4, block: 32, whole: true, zero, bias: false };
        let mut w = p.workload().unwrap();
        w.inputs[1].shape[1] += 1;
        assert_eq!(FewBits::of(&w), None);
        for odd in [
            FewBits { n: 33, ..p },
            FewBits { k: 65, ..p },
            FewBits { block: 12, ..p },
            FewBits { bits: 2, ..p },
            FewBits { bits: 8, ..p },
            FewBits { m: 0, ..p },
            FewBits { m: i64::MAX, ..p },
        ] {
            assert!(odd.workload().is_err(), "{odd:?}");
        }
    }
}
