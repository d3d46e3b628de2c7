//! Plain kernels (untuned C for one operator) of products of floats with weights of few bits (4 or
//! 8, `MatMulNBits`), and of packing and unpacking such weights; the packed form is described at
//! [`squall_core::graph::infer::nbits`]. The sketch `sketch/few_bits.rs` prints the same text with
//! its knobs.
//!
//! Where a model allows it (`accuracy_level` 4), each block of a row of activations is quantised to
//! signed bytes with a scale of its own, and products are summed as integers, so that the sums are
//! exact on all instruction sets. Otherwise codes become floats in registers. Both ways read the
//! packed weights once for several rows; a single row is bound by reading the weights. `mod.rs`
//! collects the tables `OPS` of all families of operators.

use super::program::{Program, long, product};
use super::{Generator, PlainSource, Unsupported};
use crate::emit::{AMX_INSTRUCTIONS, AMX_SHAPES};
use squall_core::DType;
use squall_core::graph::infer::nbits::{DOMAIN, Form, GROUP, NBits, TILE as COLUMNS};
use squall_core::graph::{Attribute, CallOperand, OperatorCall};
use squall_core::operator::{FewBits, FewBitsZero};
use std::collections::BTreeMap;

pub(super) const OPS: &[(&str, Generator)] =
    &[("MatMulNBits", matmul), ("PackNBits", pack), ("UnpackNBits", unpack)];

/// Products of rows with a tile of columns.
const TILE: &str = include_str!("nbits/tile.c");

/// The bytes of activations that are multiplied with all weights before the next activations are:
/// by vectors, and by AMX tiles, which multiply so much faster that reading the weights again would
/// cost more.
const ROWS_BYTES: i64 = 1 << 18;
const TALL_BYTES: i64 = 1 << 20;

/// Defines the extents of the weights as macros.
fn extents(p: &mut Program) -> Result<NBits, String> {
    let w = NBits::of(&p.ctx)?;
    let (blocks, bytes) = (w.blocks(), w.groups() * 64);
    for (name, value) in [
        ("KK", w.k),
        ("NN", w.n),
        ("BITS", w.bits),
        ("BLOCK", w.block),
        ("BLOCKS", blocks),
        ("BLOCK_BYTES", bytes),
        ("KP", blocks * w.block),
        ("TILES", w.tiles()),
        ("GROUPS_ALL", blocks * w.groups()),
    ] {
        // The preprocessor compares some of them.
        p.define(name, value.to_string());
    }
    Ok(w)
}

/// Rows of activations, quantised by blocks.
const QUANTISE: &str = "static void activations(const float *x, signed char *a, long a_block, \
                        float *steps, int *sums, long s_block) {
  for (long b = 0; b < BLOCKS; b++, a += a_block) {
    const long n = KK - b * BLOCK < BLOCK ? KK - b * BLOCK : BLOCK;
    int bits[BLOCK], most = 0, sum = 0;
    float largest;
    memcpy(bits, x + b * BLOCK, (unsigned long)n * sizeof(float));
    for (long i = 0; i < n; i++) {
      const int size = bits[i] & 0x7fffffff;
      most = size > most ? size : most;
    }
    memcpy(&largest, &most, sizeof largest);
    memset(a, 0, BLOCK);
    /* What is no number, or infinite, makes the whole row that. */
    steps[b * s_block] = most < 0x7f800000 ? largest / 127.0f : NAN;
    sums[b * s_block] = 0;
    if (most >= 0x7f800000 || !(largest > 1e-36f)) continue;
    const float factor = 127.0f / largest;
    for (long i = 0; i < n; i++) {
      /* This sum has no bits below one: it is rounded to even. */
      const float shifted = x[b * BLOCK + i] * factor + 12582912.0f;
      const int q = (int)(shifted - 12582912.0f);
      a[i] = (signed char)q;
      sum += q;
    }
    sums[b * s_block] = sum * SUM_UNIT;
  }
}
";

/// Rows of activations as they are, filled up to whole blocks, and their sums by block.
const COPY: &str = "static void activations(const float *x, float *a, long a_block, float *steps, \
                    float *sums, long s_block) {
  (void)steps;
  for (long b = 0; b < BLOCKS; b++, a += a_block) {
    const long n = KK - b * BLOCK < BLOCK ? KK - b * BLOCK : BLOCK;
    float part[8] = {0};
    memset(a, 0, BLOCK * sizeof(float));
    memcpy(a, x + b * BLOCK, (unsigned long)n * sizeof(float));
    for (long i = 0; i < BLOCK; i += 8)
      for (int l = 0; l < 8; l++) part[l] += a[i + l];
    for (int l = 4; l > 0; l /= 2)
      for (int i = 0; i < l; i++) part[i] += part[i + l];
    sums[b * s_block] = part[0] * SUM_UNIT;
  }
}
";

/// Bytes of an activation, its type and that of sums in C.
fn activations(p: &mut Program, whole: bool) -> (u64, &'static str, &'static str) {
    p.table("activations", if whole { QUANTISE } else { COPY }.into());
    if whole { (1, "signed char", "int") } else { (4, "float", "float") }
}

/// Refuses unknown attributes.
fn only(p: &Program) -> Result<(), String> {
    let known = [
        "K",
        "N",
        "accuracy_level",
        "bits",
        "block_size",
        "form",
        "kernel",
        "kept",
        "prefetch",
        "rows",
        "signed",
        "tiles",
        "weight_prepacked",
    ];
    super::elementwise::only(p, &known)
}

fn matmul(p: &mut Program) -> Result<(), String> {
    only(p)?;
    p.expect(0, &[DType::F32])?;
    p.expect(1, &[DType::U8])?;
    p.expect(2, &[DType::F32])?;
    let w = extents(p)?;
    let rows = product(p.out()?) / w.n;
    p.int("MM", rows);
    let whole = p.ctx.int_or("accuracy_level", 0)? == 4;
    let (bytes, ty, sum) = activations(p, whole);
    let mut text = String::new();
    if whole {
        text += "#define WHOLE\n";
    }
    let (zeros, zero_ty) = match p.has(3) {
        false => ("0", "float"),
        true if p.expect(3, &[DType::U8, DType::F32])? == DType::U8 => ("x3", "unsigned char"),
        true => ("x3", "float"),
    };
    // Sums are needed times the zero point: where all are equal, times that one.
    p.define("SUM_UNIT", if p.has(3) { "1".into() } else { w.no_zero().to_string() });
    text += &match (p.has(3), zero_ty) {
        (false, _) => format!("#define ZERO {}\n", w.no_zero()),
        (_, "float") => "#define ZERO_VECTOR(at) (*(const Floats *)(at))\n".into(),
        _ => {
            "#define ZERO_VECTOR(at) __builtin_convertvector(*(const Bytes *)(at), Floats)\n".into()
        }
    };
    let step = [32, 16, 8].into_iter().find(|s| w.block % s == 0).unwrap_or(8);
    let tile = TILE.replace("\nAMX\n", &["\n", AMX_SHAPES, AMX_INSTRUCTIONS, "\n"].concat());
    text += &format!("#define ZEROS {zero_ty}\n#define STEP {step}\n{tile}");
    let knobs = knobs(p)?;
    p.table("tile", knobs + &text);
    let padded = w.blocks() * w.block;
    let at_once = |most: i64, step: i64| {
        let fit = most / (padded * bytes as i64);
        fit.clamp(step, rows.max(step)) / step * step
    };
    let (by_vectors, by_tiles) = match p.ctx.int_or("kept", 0)? {
        0 => (at_once(ROWS_BYTES, 8), at_once(TALL_BYTES, 64)),
        n => (n, (n + 63) / 64 * 64),
    };
    p.int("BY_VECTORS", by_vectors);
    p.int("BY_TILES", by_tiles);
    // Tiles find rows at distances that the number of rows at once decides.
    let kept = if whole { by_tiles.max(by_vectors) } else { by_vectors.min(rows).max(1) };
    p.scratch_pointer(ty, "a", kept * padded, bytes);
    p.scratch_pointer("float", "steps", kept * w.blocks(), 4);
    p.scratch_pointer(sum, "sums", kept * w.blocks(), 4);
    let bias = if p.has(4) { " + x4[t * 16 + l]" } else { "" };
    // Zero points where each tile has its own.
    let zeros_at = if p.has(3) { "x3 + t * BLOCKS * 16" } else { zeros };
    p.shares_loops();
    p.body(&products(zeros_at, bias));
    on_device(p, &w);
    Ok(())
}

/// The macros of what a call chooses, which no operator of a model does.
fn knobs(p: &Program) -> Result<String, String> {
    let mut text = String::new();
    for (name, macro_name) in [("rows", "MOST"), ("prefetch", "AHEAD")] {
        if let n @ 1.. = p.ctx.int_or(name, 0)? {
            text += &format!("#define {macro_name} {n}\n");
        }
    }
    if p.ctx.int_or("tiles", 1)? == 0 {
        text += "#define NO_TILES\n";
    }
    Ok(text)
}

/// The choices of a product's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FewBitsKnobs {
    /// Rows whose sums are in registers; `None` where AMX's tiles hold them.
    pub rows: Option<i64>,
    /// Rows of activations that are multiplied with all weights before the next ones are.
    pub kept: i64,
    /// Cache lines of weights that are asked for ahead; 0 where none are.
    pub prefetch: i64,
}

/// The C text of a product with constant extents, as a function of this symbol. Its operands are
/// those of `MatMulNBits`; the fourth and the fifth may be absent.
pub(crate) fn few_bits(
    p: &FewBits,
    knobs: FewBitsKnobs,
    symbol: &str,
) -> Result<PlainSource, Unsupported> {
    let int = |name: &str, v: i64| (name.to_string(), Attribute::Int(v));
    // The number that is subtracted from all codes is half of their range, or zero.
    let (form, zero) = match p.zero {
        FewBitsZero::Same(0) => ("rows", None),
        FewBitsZero::Same(_) => ("packed", None),
        FewBitsZero::Bytes => ("packed", Some(DType::U8)),
        FewBitsZero::Floats => ("packed", Some(DType::F32)),
    };
    let attributes = BTreeMap::from([
        int("K", p.k),
        int("N", p.n),
        int("bits", p.bits),
        int("block_size", p.block),
        int("accuracy_level", if p.whole { 4 } else { 0 }),
        int("rows", knobs.rows.unwrap_or(0)),
        int("kept", knobs.kept),
        int("prefetch", knobs.prefetch),
        int("tiles", i64::from(knobs.rows.is_none())),
        ("form".to_string(), Attribute::String(form.into())),
    ]);
    let operand = |dtype, shape| CallOperand { dtype, shape, constant: None };
    let (tiles, blocks) = (p.n / COLUMNS, p.k / p.block);
    let vectors = vec![tiles, blocks, COLUMNS];
    let codes = vec![tiles, blocks, p.block * p.bits / 32, GROUP];
    let mut inputs = vec![
        Some(operand(DType::F32, vec![p.m, p.k])),
        Some(operand(DType::U8, codes)),
        Some(operand(DType::F32, vectors.clone())),
        zero.map(|dtype| operand(dtype, vectors)),
    ];
    inputs.extend(p.bias.then(|| Some(operand(DType::F32, vec![p.n]))));
    let outputs = vec![Some(operand(DType::F32, vec![p.m, p.n]))];
    let op = "MatMulNBits".to_string();
    let call = OperatorCall { op, domain: DOMAIN.into(), opset: 21, attributes, inputs, outputs };
    super::source(&call, symbol)
}

/// The loops over rows and tiles of columns: rows in as large groups as there are registers for.
fn products(zeros_at: &str, bias: &str) -> String {
    format!(
        "#define ROWS(of, count, r) \\
  of(count, x1 + t * GROUPS_ALL * 64, x2 + t * BLOCKS * 16, {zeros_at}, a + (r) * A_ROW, \\
     steps + (r) * S_ROW, sums + (r) * S_ROW, line)
#ifdef TALL
  const long at_once = BY_TILES;
#else
  const long at_once = BY_VECTORS;
#define TALL MOST
#define tall tile
#define FEWEST (MM + 1)
#endif
  for (long m = 0; m < MM; m += at_once) {{
    const long rows = MM - m < at_once ? MM - m : at_once;
    for (long r = 0; r < rows; r++)
      activations(x0 + (m + r) * KK, a + r * A_ROW, A_BLOCK, steps + r * S_ROW, sums + r * S_ROW,
                  S_BLOCK);
#ifdef _OPENMP
#pragma omp parallel for schedule(static) if (MM * NN > 4096 * 256 / KK)
#endif
    for (long t = 0; t < TILES; t++) {{
      const long wide = NN - t * 16 < 16 ? NN - t * 16 : 16;
      for (long r = 0, some; r < rows; r += some) {{
        float line[TALL * 16];
        some = rows - r < MOST ? rows - r : MOST;
        if (rows - r >= TALL && rows - r >= FEWEST) {{
          some = TALL;
          ROWS(tall, TALL, r);
        }} else if (rows - r >= FEWEST) {{
          some = FEWEST;
          ROWS(tall, FEWEST, r);
        }} else if (MM >= MOST && (MM % MOST == 0 || some == MOST)) {{
          ROWS(tile, MOST, r);
        }} else {{
          ROWS(tile, MM % MOST ? MM % MOST : 1, r);
        }}
        for (long i = 0; i < some; i++)
          for (long l = 0; l < wide; l++)
            y0[(m + r + i) * NN + t * 16 + l] = line[i * 16 + l]{bias};
      }}
    }}
  }}
"
    )
}

/// On a GPU an element is one thread's: it reads the same packed weights, in floats.
fn on_device(p: &mut Program, w: &NBits) {
    let zero = match p.has(3) {
        true => "(float)x3[(t * BLOCKS + b) * 16 + c]".into(),
        false => long(w.no_zero()),
    };
    let bias = if p.has(4) { " + x4[n]" } else { "" };
    let code = match w.bits {
        4 => "x1[(t * GROUPS_ALL + k / 8) * 64 + c * 4 + k % 4] >> (k / 4 % 2 * 4) & 15",
        _ => "x1[(t * GROUPS_ALL + k / 4) * 64 + c * 4 + k % 4]",
    };
    p.on_device(&format!(
        "  for (long m = 0; m < MM; m++)
  for (long n = 0; n < NN; n++) {{
    const long t = n / 16, c = n % 16;
    float sum = 0;
    for (long b = 0; b < BLOCKS; b++) {{
      const float zero = {zero};
      float part = 0;
      for (long i = 0; i < BLOCK; i++) {{
        const long k = b * BLOCK + i;
        if (k < KK) part += ((float)({code}) - zero) * x0[m * KK + k];
      }}
      sum += part * x2[(t * BLOCKS + b) * 16 + c];
    }}
    y0[m * NN + n] = sum{bias};
  }}
"
    ));
}

/// The function `code` that reads the file's form, and the texts of the scale and of the zero point
/// of block `b` and column `n`.
fn source(p: &mut Program, w: &NBits) -> Result<(&'static str, String), String> {
    let offset = if w.signed { format!(" + {}", w.half()) } else { String::new() };
    let field = |bytes: i64| match w.bits {
        4 => format!("x[n * {bytes}L + k / 2] >> (k % 2 * 4) & 15"),
        _ => format!("x[n * {bytes}L + k]"),
    };
    let code = match w.form {
        Form::Packed => field(w.blocks() * (w.block * w.bits / 8)),
        Form::Rows => format!("x[k * NN + n]{offset}"),
        Form::Columns => format!("x[n * KK + k]{offset}"),
    };
    p.table(
        "code",
        format!("static int code(const T0 *x, long k, long n) {{\n  return {code};\n}}\n"),
    );
    let (scale, zero) = match w.form {
        Form::Rows => ("x1[b * NN + n]", "x2[b * NN + n]"),
        _ => ("x1[n * BLOCKS + b]", "x2[n * BLOCKS + b]"),
    };
    if !p.has(2) {
        return Ok((scale, long(w.no_zero())));
    }
    if w.form != Form::Packed || p.expect(2, &[DType::U8, DType::F32])? == DType::F32 {
        return Ok((scale, format!("({zero}{offset})")));
    }
    let zero = field(w.zero_bytes());
    p.table(
        "zero",
        format!("static int zero(const T2 *x, long k, long n) {{\n  return {zero};\n}}\n"),
    );
    Ok((scale, "zero(x2, b, n)".into()))
}

fn pack(p: &mut Program) -> Result<(), String> {
    only(p)?;
    p.expect(0, &[DType::U8, DType::I8])?;
    p.expect(1, &[DType::F32])?;
    let w = extents(p)?;
    let (scale, zero) = source(p, &w)?;
    let value = match w.bits {
        4 => {
            "const long k = g * 8 + i % 4;\n    \
             const int low = n < NN && k < KK ? code(x0, k, n) : 0;\n    \
             const int high = n < NN && k + 4 < KK ? code(x0, k + 4, n) : 0;\n    \
             y0[(t * GROUPS_ALL + g) * 64 + i] = (Y0)(low | high << 4);"
        }
        _ => {
            "const long k = g * 4 + i % 4;\n    y0[(t * GROUPS_ALL + g) * 64 + i] = (Y0)(n < NN && \
             k < KK ? code(x0, k, n) : 0);"
        }
    };
    p.body(&format!(
        "  for (long t = 0; t < TILES; t++)
  for (long g = 0; g < GROUPS_ALL; g++)
  for (long i = 0; i < 64; i++) {{
    const long n = t * 16 + i / 4;
    {value}
  }}
"
    ));
    for (i, value) in [(1, scale), (2, zero.as_str())] {
        if p.result(i).is_some() {
            p.body(&format!(
                "  for (long t = 0; t < TILES; t++)
  for (long b = 0; b < BLOCKS; b++)
  for (long i = 0; i < 16; i++) {{
    const long n = t * 16 + i;
    y{i}[(t * BLOCKS + b) * 16 + i] = (Y{i})(n < NN ? {value} : 0);
  }}
"
            ));
        }
    }
    Ok(())
}

fn unpack(p: &mut Program) -> Result<(), String> {
    only(p)?;
    p.expect(0, &[DType::U8, DType::I8])?;
    p.expect(1, &[DType::F32])?;
    let w = extents(p)?;
    let (scale, zero) = source(p, &w)?;
    let block = if p.has(3) { "(long)x3[k]" } else { "k / BLOCK" };
    p.body(&format!(
        "  for (long k = 0; k < KK; k++)
  for (long n = 0; n < NN; n++) {{
    const long b = {block};
    if (b < 0 || b >= BLOCKS) return 1;
    y0[k * NN + n] = ((float)code(x0, k, n) - (float){zero}) * {scale};
  }}
"
    ));
    Ok(())
}
