//! Plain kernels (untuned C for one ONNX operator) of quantisation: `QuantizeLinear` and its
//! relatives convert tensors to and from integers with a scale and a zero point, and `QLinearConv`,
//! `QLinearMatMul` and `MatMulInteger` multiply quantised tensors. Input: a call at constant
//! shapes; output: C, whose products come from `byte_product.c` and `convolution.rs`, on GPUs from
//! `byte_sums.rs`. `mod.rs` collects the tables `OPS` of all families of operators.

use super::Generator;
use super::byte_sums::{self, row_and_column};
use super::convolution::{forward, one_by_one, quantized_operands};
use super::elementwise::only;
use super::matmul::Batched;
use super::program::{Program, limits, product};
use super::reduce::split_at;
use squall_core::DType;
use squall_core::graph::infer::window;

pub(super) const OPS: &[(&str, Generator)] = &[
    ("DequantizeLinear", dequantize),
    ("DynamicQuantizeLinear", dynamic),
    ("MatMulInteger", matmul_integer),
    ("QLinearConv", qlinear_conv),
    ("QLinearMatMul", qlinear_matmul),
    ("QuantizeLinear", quantize),
];

const ATTRIBUTES: &[&str] = &["axis", "block_size", "output_dtype", "precision", "saturate"];

/// The attributes of quantising: `ATTRIBUTES` and the number of bits of integers narrower than a
/// byte.
const OF_QUANTISING: &[&str] =
    &["axis", "bits", "block_size", "output_dtype", "precision", "saturate"];

/// The C expression of an element's index in the scale tensor, for the element `(o, e, i)`; defines
/// the extents.
fn scale_place(p: &mut Program) -> Result<&'static str, String> {
    let (x, scale) = (p.shape(0)?, p.shape(1)?);
    let block = p.ctx.int_or("block_size", 0)?;
    if product(scale) == 1 && scale.len() <= 1 {
        [("OUTER", 1), ("EXTENT", 1), ("INNER", product(x))].iter().for_each(|(n, v)| p.int(n, *v));
        return Ok("0");
    }
    let axis = p.ctx.axis(p.ctx.int_or("axis", 1)?, x.len())?;
    split_at(p, x, axis);
    if scale.len() == 1 && scale[0] == x[axis] {
        return Ok("e");
    }
    let blocks = |i: usize| match i == axis {
        true => block > 0 && scale[i] == (x[i] + block - 1) / block,
        false => scale[i] == x[i],
    };
    if scale.len() == x.len() && (0..x.len()).all(blocks) {
        p.int("BLOCK", block);
        p.int("BLOCKS", scale[axis]);
        return Ok("(o * BLOCKS + e / BLOCK) * INNER + i");
    }
    Err(format!("a scale of shape {scale:?} does not suit {x:?}"))
}

/// Saturation of an integer `v`, held in a double, to a type. A NaN becomes the lowest value, as in
/// onnxruntime.
fn saturated(d: DType) -> Result<String, String> {
    let small = matches!(d, DType::I8 | DType::U8 | DType::I16 | DType::U16);
    match limits(d) {
        Some((low, high)) if small => {
            Ok(format!("(!(v > {low}) ? {low} : v > {high} ? {high} : (int)v)"))
        }
        _ => Err(format!("quantized elements of type {} are not supported", d.name())),
    }
}

/// Saturation to a range of integers.
fn between(low: i64, high: i64) -> String {
    format!("(!(v > ({low})) ? ({low}) : v > {high} ? {high} : (int)v)")
}

const LOOPS: &str = "  for (long o = 0; o < OUTER; o++)
  for (long e = 0; e < EXTENT; e++)
  for (long i = 0; i < INNER; i++) {
    const long at = (o * EXTENT + e) * INNER + i;
";

fn quantize(p: &mut Program) -> Result<(), String> {
    only(p, OF_QUANTISING)?;
    p.expect(0, &[DType::F32, DType::I32])?;
    p.expect(1, &[DType::F32])?;
    p.real(DType::F32)?;
    let place = scale_place(p)?;
    let zero = if p.has(2) { format!("(float)x2[{place}]") } else { "0".into() };
    let value = match (p.ctx.int_or("bits", 8)?, p.out_type()?) {
        (bits @ (2 | 4), DType::U8) => between(0, (1 << bits) - 1),
        (bits @ (2 | 4), DType::I8) => between(-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
        (_, dtype) => saturated(dtype)?,
    };
    p.body(&format!(
        "{LOOPS}    const float v = F(rint)((float)x0[at] / x1[{place}]) + {zero};\n    y0[at] = \
         (Y0){value};\n  }}\n"
    ));
    Ok(())
}

fn dequantize(p: &mut Program) -> Result<(), String> {
    only(p, ATTRIBUTES)?;
    p.expect(0, &[DType::I8, DType::U8, DType::I16, DType::U16, DType::I32])?;
    p.expect(1, &[DType::F32])?;
    let place = scale_place(p)?;
    let zero = if p.has(2) { format!(" - (float)x2[{place}]") } else { String::new() };
    p.body(&format!("{LOOPS}    y0[at] = ((float)x0[at]{zero}) * x1[{place}];\n  }}\n"));
    Ok(())
}

fn dynamic(p: &mut Program) -> Result<(), String> {
    only(p, &[])?;
    p.expect(0, &[DType::F32])?;
    // The scale of a tensor with a NaN is NaN, so that its bytes stand for NaN; bytes themselves
    // have none.
    let body = "  float lows[32] = {0}, highs[32] = {0}, low = 0, high = 0;
  int odd[32] = {0}, any = 0;
  for (long i = 0; i + 32 <= N0; i += 32)
    for (int l = 0; l < 32; l++) {
      const float x = x0[i + l];
      lows[l] = x < lows[l] ? x : lows[l], highs[l] = x > highs[l] ? x : highs[l];
      odd[l] |= x != x;
    }
  for (long i = N0 / 32 * 32; i < N0; i++) {
    const float x = x0[i];
    low = x < low ? x : low, high = x > high ? x : high, any |= x != x;
  }
  for (int l = 0; l < 32; l++) {
    low = lows[l] < low ? lows[l] : low, high = highs[l] > high ? highs[l] : high;
    any |= odd[l];
  }
  if (any) low = high = NAN;
  const float scale = high > low || high != high ? (high - low) / 255.0f : 1.0f;
  float zero = rintf(-low / scale);
  zero = !(zero > 0) ? 0 : zero > 255 ? 255 : zero;
";
    p.body(body);
    // Compilers convert and pack whole vectors where the loop takes 64 elements at a time.
    let stores = [
        "  for (long i = 0; i < N0 / 64 * 64; i += 64) {
    int whole[64];
    for (int l = 0; l < 64; l++) {
      float v = rintf(x0[i + l] / scale) + zero;
      v = v > 0 ? v : 0;
      whole[l] = (int)(v < 255 ? v : 255);
    }
    for (int l = 0; l < 64; l++) y0[i + l] = (Y0)whole[l];
  }
  for (long i = N0 / 64 * 64; i < N0; i++) {
    const float v = rintf(x0[i] / scale) + zero;
    y0[i] = (Y0)(!(v > 0) ? 0 : v > 255 ? 255 : (int)v);
  }
",
        "  y1[0] = scale;\n",
        "  y2[0] = (Y2)zero;\n",
    ];
    for (i, store) in stores.iter().enumerate() {
        if p.result(i).is_some() {
            p.body(store);
        }
    }
    dynamic_on_device(p);
    Ok(())
}

/// The levels in which a GPU's threads look for the least and the largest element: the number of
/// threads of each level. The threads of the first level share the elements; those of a later level
/// share the least and largest ones that the threads before found, 16 to 64 of them a thread.
const LEVELS: [i64; 4] = [16384, 256, 16, 1];

/// On a GPU several levels of threads look for the ends of the range, a loop for each level. The
/// last level computes the scale and the zero point from the ends. A last loop makes the bytes, one
/// a thread. The values that one loop leaves to the next lie in memory of the call.
fn dynamic_on_device(p: &mut Program) {
    let mut text = p.device_pointer("float", "found", 2, 4);
    let last = LEVELS.len() - 1;
    for (level, threads) in LEVELS.iter().enumerate().take(last) {
        text += &p.device_pointer("float", &format!("lows{level}"), *threads, 4);
        text += &p.device_pointer("float", &format!("highs{level}"), *threads, 4);
    }
    for (level, threads) in LEVELS.iter().enumerate() {
        let (count, low, high) = match level.checked_sub(1) {
            None => ("N0".to_string(), "x0[i]".to_string(), "x0[i]".to_string()),
            Some(l) => (LEVELS[l].to_string(), format!("lows{l}[i]"), format!("highs{l}[i]")),
        };
        text += &format!(
            "  for (long t = 0; t < {threads}; t++) {{
    float low = 0, high = 0;
    for (long i = t; i < {count}; i += {threads}) {{
      const float a = {low}, b = {high};
      low = a < low || a != a ? a : low;
      high = b > high || b != b ? b : high;
    }}
"
        );
        if level < last {
            text += &format!("    lows{level}[t] = low, highs{level}[t] = high;\n  }}\n");
        }
    }
    text += "    const float scale = high > low || high != high ? (high - low) / 255.0f : 1.0f;
    const float zero = rintf(-low / scale);
    found[0] = scale, found[1] = !(zero > 0) ? 0 : zero > 255 ? 255 : zero;
";
    if p.result(1).is_some() {
        text += "    y1[0] = scale;\n";
    }
    if p.result(2).is_some() {
        text += "    y2[0] = (Y2)found[1];\n";
    }
    text += "  }\n";
    if p.result(0).is_some() {
        text += "  for (long i = 0; i < N0; i++) {
    const float v = rintf(x0[i] / found[0]) + found[1];
    y0[i] = (Y0)(!(v > 0) ? 0 : v > 255 ? 255 : (int)v);
  }
";
    }
    p.on_device(&text);
}

/// Where an operand's scale or zero point of row or column `index` lies: one, or one of each.
fn each(p: &Program, i: usize, extent: i64, index: &str) -> Result<String, String> {
    if !p.has(i) {
        return Ok("0".into());
    }
    match product(p.shape(i)?) {
        1 => Ok(format!("x{i}[0]")),
        n if n == extent => Ok(format!("x{i}[{index}]")),
        n => Err(format!("its input {i} of {n} elements does not suit {extent}")),
    }
}

/// Declares `byte_product` of two matrices of bytes and the memory that it works in, with the zero
/// points of rows and columns; gives the matrices and the call, in which `@T` is where the sums go.
/// Where the second matrix and its zero points are the same in all calls, its panels are packed
/// ahead of them.
fn products(
    p: &mut Program,
    [a, za]: [usize; 2],
    [b, zb]: [usize; 2],
) -> Result<(Batched, String), String> {
    for i in [a, b] {
        p.expect(i, &[DType::I8, DType::U8])?;
    }
    let batched = Batched::of(p.shape(a)?, p.shape(b)?)?;
    let [m, n, k] = batched.extents;
    let is_ahead = p.is_fixed(b) && (!p.has(zb) || p.is_fixed(zb));
    let column = each(p, zb, n, "i")?;
    for (name, value) in [
        ("MM", m),
        ("NN", n),
        ("KK", k),
        ("COLUMN_STEP", i64::from(column.contains("[i]"))),
        ("PACKED_AHEAD", i64::from(is_ahead)),
    ] {
        p.int(name, value);
    }
    p.define("TA", format!("T{a}"));
    p.define("TB", format!("T{b}"));
    let zero = if p.has(zb) { format!("x{zb}") } else { "0".into() };
    p.define("TZ", format!("T{}", if p.has(zb) { zb } else { b }));
    p.table("byte_product", include_str!("byte_product.c").into());
    p.scratch_pointer("short", "rows", m * (k + 4), 2);
    for name in ["row_sums", "row_zero"] {
        p.scratch_pointer("int", name, m, 4);
    }
    // The most that a panel has in `byte_product.c`.
    let panel = 64 * ((k + 1) / 2 + 2);
    let right = match is_ahead {
        true => {
            let matrices = product(p.shape(b)?) / (n * k).max(1);
            p.prepared_pointer("unsigned", "panels", matrices * ((n + 63) / 64) * panel, 4);
            let text = format!(
                "  for (long i = 0; i < {matrices}; i++)\n    pack_bytes(x{b} + i * KK * NN, \
                 {zero}, panels + i * PANELS);\n"
            );
            p.prepare(&[b, zb], &text);
            "0, 0, row_zero, panels + (@B) / (KK * NN) * PANELS".to_string()
        }
        false => {
            p.scratch_pointer("unsigned", "panels", panel, 4);
            format!("x{b} + (@B), {zero}, row_zero, panels")
        }
    };
    let row = each(p, za, m, "i")?;
    p.body(&format!("  for (long i = 0; i < MM; i++) row_zero[i] = (int){row};\n"));
    Ok((batched, format!("byte_product(x{a} + (@A), {right}, @T, rows, row_sums);")))
}

fn matmul_integer(p: &mut Program) -> Result<(), String> {
    only(p, &[])?;
    let (batched, call) = products(p, [0, 2], [1, 3])?;
    let text = batched.text(&format!("    {}", call.replace("@T", "y0 + (@C)")));
    p.body(&text);
    let zeros = zeros_of_place(p, &batched, [2, 3])?;
    byte_sums::on_device(p, [0, 1], &batched, &zeros, "y0[at] = (Y0)sum;")
}

/// The zero points of a product's row and column, where a GPU's thread has a sum each.
fn zeros_of_place(
    p: &Program,
    batched: &Batched,
    operands: [usize; 2],
) -> Result<[String; 2], String> {
    let [row, column] = row_and_column(batched);
    let [m, n, _] = batched.extents;
    Ok([each(p, operands[0], m, &row)?, each(p, operands[1], n, &column)?])
}

fn qlinear_matmul(p: &mut Program) -> Result<(), String> {
    only(p, &[])?;
    p.expect(1, &[DType::F32])?;
    let (batched, call) = products(p, [0, 2], [3, 5])?;
    let [m, n, _] = batched.extents;
    p.scratch_pointer("int", "c", m * n, 4);
    let (sa, sb) = (each(p, 1, m, "j / NN")?, each(p, 4, n, "j % NN")?);
    let value = saturated(p.out_type()?)?;
    let text = batched.text(&format!(
        "    {}\n    for (long j = 0; j < MM * NN; j++) \
         {{\n      const float v = rintf((float)c[j] * ({sa} * {sb} / x6[0])) + \
         (float)x7[0];\n      \
         y0[(@C) + j] = (Y0){value};\n    }}",
        call.replace("@T", "c")
    ));
    p.body(&text);
    let [row, column] = row_and_column(&batched);
    let (sa, sb) = (each(p, 1, m, &row)?, each(p, 4, n, &column)?);
    let store = format!(
        "const float v = rintf((float)sum * ({sa} * {sb} / x6[0])) + (float)x7[0];\n    y0[at] = \
         (Y0){value};"
    );
    let zeros = zeros_of_place(p, &batched, [2, 5])?;
    byte_sums::on_device(p, [0, 3], &batched, &zeros, &store)
}

fn qlinear_conv(p: &mut Program) -> Result<(), String> {
    only(p, &["auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"])?;
    p.expect(1, &[DType::F32])?;
    p.sums("int");
    let mut ctx = squall_core::graph::infer::Ctx {
        node: p.ctx.node,
        opset: p.ctx.opset,
        inputs: p.ctx.inputs.clone(),
    };
    ctx.inputs[1] = p.ctx.operand(3);
    let w = window(&ctx)?;
    let count = product(p.out()?);
    p.scratch_pointer("int", "sums", count, 4);
    let bias = if p.has(8) { "x8[i / OUT % (GROUPS * OUTS)]" } else { "0" };
    p.body(&format!("  for (long i = 0; i < M0; i++) sums[i] = {bias};\n"));
    let operands = quantized_operands(p)?;
    forward(p, &operands, &w)?;
    let channels = p.shape(3)?[0];
    let scale = each(p, 4, channels, "i / OUT % (GROUPS * OUTS)")?;
    let value = saturated(p.out_type()?)?;
    let zero = if p.has(7) { "(float)x7[0]" } else { "0" };
    p.body(&format!(
        "  for (long i = 0; i < M0; i++) {{
    const float v = rintf((float)sums[i] * (x1[0] * {scale} / x6[0])) + {zero};
    y0[i] = (Y0){value};
  }}
"
    ));
    let scale = each(p, 4, channels, "g * OUTS + m")?;
    let store = format!(
        "const float v = rintf((float)(int)sum * (x1[0] * {scale} / x6[0])) + {zero};
    y0[at] = (Y0){value};"
    );
    let begin = if p.has(8) { "(unsigned)x8[g * OUTS + m]" } else { "0" };
    one_by_one(p, &operands, &w, [begin, &store])
}
