//! Plain kernels (untuned C for one operator) of `ToBytes`, `FromBytes` and `MapBytes`,
//! operators of Squall's own that rewritten quantised models contain
//! (`core/src/graph/infer/bytes.rs`): they convert tensors to bytes with the channels of images
//! last, as kernels of bytes read them, and back, and apply a table to each byte. `mod.rs` collects
//! the tables `OPS` of all families of operators.

use super::Generator;
use super::program::{Program, product};
use squall_core::DType;
use squall_core::graph::infer::bytes::filled;
use squall_core::operator::OFFSET_UNIT;

pub(super) const OPS: &[(&str, Generator)] =
    &[("ToBytes", to_bytes), ("FromBytes", from_bytes), ("MapBytes", map)];

/// Pixels whose channels are interleaved together.
const AT_ONCE: i64 = 64;

/// Defines the scale and the zero point as macros.
fn scale(p: &mut Program) -> Result<(), String> {
    let scale = p.ctx.float_or("scale", 1.0)?;
    p.define("SCALE", format!("{scale:e}f"));
    let zero = squall_core::graph::infer::bytes::zero(&p.ctx)?;
    p.int("ZERO", zero.into());
    Ok(())
}

/// Defines the extents of images, and the number of channels that theirs are padded to.
fn image(p: &mut Program, [n, c, h, w]: [i64; 4]) {
    for (name, value) in [("IMAGES", n), ("C", c), ("CF", filled(c)), ("PIXELS", h * w)] {
        p.define(name, value.to_string());
    }
    p.define("AT_ONCE", AT_ONCE.to_string());
}

fn four(shape: &[i64]) -> Result<[i64; 4], String> {
    shape.try_into().map_err(|_| format!("a tensor of shape {shape:?} is no image"))
}

/// The C text of an operand's element as a byte. A NaN becomes 0 as well.
fn entered(dtype: DType, x: &str) -> String {
    match dtype {
        DType::F32 => format!("byte_of({x}, SCALE, ZERO)"),
        DType::I8 => format!("(unsigned char)({x} ^ 0x80)"),
        _ => format!("(unsigned char){x}"),
    }
}

/// Loops over blocks of pixels: `count` from `first` on, of image `n`.
const BLOCKS: &str = "  for (long b = 0; b < IMAGES * ((PIXELS + AT_ONCE - 1) / AT_ONCE); b++) {
    const long blocks = (PIXELS + AT_ONCE - 1) / AT_ONCE, n = b / blocks;
    const long first = b % blocks * AT_ONCE;
    const long count = PIXELS - first < AT_ONCE ? PIXELS - first : AT_ONCE;
";

const BYTE_OF: &str = "static inline unsigned char byte_of(float x, float scale, float zero) {
  float v = rintf(x / scale) + zero;
  v = v > 0.0f ? v : 0.0f;
  return (unsigned char)(int)(v < 255.0f ? v : 255.0f);
}
";

fn to_bytes(p: &mut Program) -> Result<(), String> {
    let dtype = p.expect(0, &[DType::F32, DType::U8, DType::I8])?;
    // The run may say how.
    if p.ctx.inputs.len() > 1 {
        for i in [1, 2].into_iter().filter(|&i| p.has(i)).collect::<Vec<_>>() {
            p.expect(i, &[DType::F32])?;
            if product(p.shape(i)?) != 1 {
                return Err("its scale and its zero point are not one number each".into());
            }
        }
        p.define("SCALE", "scale");
        p.define("ZERO", "zero");
    } else {
        scale(p)?;
    }
    let zero = if p.has(2) { "x2[0]" } else { "0" };
    let given = match p.ctx.inputs.len() {
        1 => String::new(),
        _ => format!("  const float scale = x1[0] / {OFFSET_UNIT:?}f, zero = {zero};\n"),
    };
    p.table("byte_of", BYTE_OF.into());
    let value = |x: &str| entered(dtype, x);
    p.shares_loops();
    if p.ctx.int_or("channels_last", 0)? == 0 {
        let value = value("x0[i]");
        p.body(&format!("{given}  for (long i = 0; i < N0; i++) y0[i] = {value};\n"));
        return Ok(());
    }
    let shape = four(p.shape(0)?)?;
    image(p, shape);
    // Four channels are one word; of more, each is spread over its pixels.
    let spread = match filled(shape[1]) {
        4 => {
            "      unsigned *const word = (unsigned *)to;
      for (long i = 0; i < count; i++)
        word[i] = t[0][i] | (unsigned)t[1][i] << 8 | (unsigned)t[2][i] << 16 | (unsigned)t[3][i] \
             << 24;
"
        }
        _ => {
            "      for (long i = 0; i < count; i++)
        for (long l = 0; l < 4; l++) to[i * CF + c + l] = t[l][i];
"
        }
    };
    p.body(&format!(
        "{given}{BLOCKS}    unsigned char *const to = y0 + (n * PIXELS + first) * CF;
    for (long c = 0; c < CF; c += 4) {{
      unsigned char t[4][AT_ONCE];
      for (long l = 0; l < 4; l++) {{
        if (c + l >= C) {{
          for (long i = 0; i < count; i++) t[l][i] = ZERO;
          continue;
        }}
        const T0 *const from = x0 + (n * C + c + l) * PIXELS + first;
        for (long i = 0; i < count; i++) t[l][i] = {};
      }}
{spread}    }}
  }}
",
        value("from[i]")
    ));
    Ok(())
}

fn from_bytes(p: &mut Program) -> Result<(), String> {
    scale(p)?;
    p.expect(0, &[DType::U8])?;
    let value = |x: &str| match p.out_type() {
        Ok(DType::F32) => Ok(format!("((float)({x} - ZERO)) * SCALE")),
        Ok(DType::U8) => Ok(x.to_string()),
        Ok(DType::I8) => Ok(format!("(signed char)({x} - 128)")),
        Ok(other) => Err(format!("bytes do not become {}", other.name())),
        Err(e) => Err(e),
    };
    let (flat, placed) = (value("x0[i]")?, value("from[i * CF + c]")?);
    p.shares_loops();
    if p.ctx.int_or("channels_last", 0)? == 0 {
        p.body(&format!("  for (long i = 0; i < N0; i++) y0[i] = {flat};\n"));
        return Ok(());
    }
    let shape = four(p.out()?)?;
    image(p, shape);
    if filled(shape[1]) != four(p.shape(0)?)?[3] || product(p.shape(0)?) == 0 {
        return Err("its channels are not filled up".into());
    }
    p.body(&format!(
        "{BLOCKS}    const unsigned char *const from = x0 + (n * PIXELS + first) * CF;
    for (long c = 0; c < C; c++)
      for (long i = 0; i < count; i++) y0[(n * C + c) * PIXELS + first + i] = {placed};
  }}
"
    ));
    Ok(())
}

fn map(p: &mut Program) -> Result<(), String> {
    p.expect(0, &[DType::U8])?;
    p.expect(1, &[DType::U8])?;
    if product(p.shape(1)?) != 256 {
        return Err("its table has not 256 bytes".into());
    }
    p.table("looked_up", LOOKED_UP.into());
    p.shares_loops();
    p.body(
        "  const long blocks = (N0 + 4095) / 4096;
  for (long b = 0; b < blocks; b++)
    looked_up(x0 + b * 4096, y0 + b * 4096, x1, N0 - b * 4096 < 4096 ? N0 - b * 4096 : 4096);
",
    );
    Ok(())
}

/// Lookups one by one, or 64 at once: with AVX-512 VBMI two instructions look a byte up in the
/// lower and the upper half of the table, and the byte's top bit selects one. Without VBMI the
/// table holds pairs, and the lowest bit selects one of a pair.
const LOOKED_UP: &str = "#if defined(__AVX512BW__)
#include <immintrin.h>
#if !defined(__AVX512VBMI__)
static inline __m512i pair_of(__m512i byte, __m512i t0, __m512i t1, __m512i t2, __m512i t3) {
  const __m512i pair = _mm512_srli_epi16(byte, 1), one = _mm512_set1_epi16(1);
  const __m512i low = _mm512_permutex2var_epi16(t0, pair, t1);
  const __m512i high = _mm512_permutex2var_epi16(t2, pair, t3);
  const __mmask32 upper = _mm512_movepi16_mask(_mm512_slli_epi16(pair, 9));
  const __m512i found = _mm512_mask_blend_epi16(upper, low, high);
  return _mm512_srlv_epi16(found, _mm512_slli_epi16(_mm512_and_si512(byte, one), 3));
}
#endif
#endif
static inline void looked_up(const unsigned char *x, unsigned char *y, const unsigned char *t,
                             long n) {
  long i = 0;
#if defined(__AVX512BW__)
  const __m512i t0 = _mm512_loadu_si512(t), t1 = _mm512_loadu_si512(t + 64);
  const __m512i t2 = _mm512_loadu_si512(t + 128), t3 = _mm512_loadu_si512(t + 192);
  for (; i + 64 <= n; i += 64) {
    const __m512i v = _mm512_loadu_si512(x + i);
#if defined(__AVX512VBMI__)
    const __m512i low = _mm512_permutex2var_epi8(t0, v, t1);
    const __m512i high = _mm512_permutex2var_epi8(t2, v, t3);
    const __m512i found = _mm512_mask_blend_epi8(_mm512_movepi8_mask(v), low, high);
#else
    const __m512i low_byte = _mm512_set1_epi16(255);
    const __m512i even = pair_of(_mm512_and_si512(v, low_byte), t0, t1, t2, t3);
    const __m512i odd = pair_of(_mm512_srli_epi16(v, 8), t0, t1, t2, t3);
    const __m512i found =
        _mm512_or_si512(_mm512_and_si512(even, low_byte), _mm512_slli_epi16(odd, 8));
#endif
    _mm512_storeu_si512(y + i, found);
  }
#endif
  for (; i < n; i++) y[i] = t[x[i]];
}
";
