//! Plain kernels (untuned C for one ONNX operator) of `Attention`, `RotaryEmbedding`,
//! `LinearAttention` and `CausalConvWithState` (ONNX operators around transformers). As in every
//! file of `plain`, `OPS` maps each operator to the function that writes its C for a call at
//! constant shapes; attributes and types that are not written are refused with a reason. `mod.rs`
//! collects the tables `OPS` of all families of operators.

use super::Generator;
use super::broadcast::broadcast_strides;
use super::elementwise::only;
use super::program::{Program, product};
use squall_core::DType;
use squall_core::graph::infer::AttentionShape;
use squall_core::text::shown;

pub(super) const OPS: &[(&str, Generator)] = &[
    ("Attention", attention),
    ("CausalConvWithState", causal_conv),
    ("LinearAttention", linear_attention),
    ("RotaryEmbedding", rotary),
];

/// Refuses operands of 64-bit floats.
fn only_f32(p: &mut Program) -> Result<(), String> {
    for i in 0..p.ctx.inputs.len() {
        if p.has(i) && p.dtype(i)? == DType::F64 {
            return Err("elements of type f64 are not supported".into());
        }
    }
    p.real0()
}

/// The tests whether a query sees a key, as C expressions in `b`, `i` (query) and `j` (key).
fn visible(p: &Program, s: &AttentionShape) -> Result<Vec<String>, String> {
    let offset = match (p.has(4), p.has(6)) {
        (true, _) => format!("{}L", s.past),
        (_, true) => "((long)x6[b] - QUERIES)".into(),
        _ => "0L".into(),
    };
    let mut tests = Vec::new();
    if p.ctx.int_or("is_causal", 0)? != 0 {
        tests.push(format!("j <= i + {offset}"));
    }
    for (name, form) in [("left_window_size", "-"), ("right_window_size", "+")] {
        let size = p.ctx.int_or(name, -1)?;
        let sign = if form == "-" { ">=" } else { "<=" };
        if size >= 0 {
            tests.push(format!("j {sign} i + {offset} {form} {size}L"));
        }
    }
    if p.has(6) {
        tests.push("j < (long)x6[b]".into());
    }
    Ok(tests)
}

/// The mask's part of the bias of key `j`: `-INFINITY` where it forbids.
fn mask(p: &Program, s: &AttentionShape, tests: &mut Vec<String>) -> Result<String, String> {
    if !p.has(3) {
        return Ok("0".into());
    }
    let shape = p.shape(3)?;
    let width = shape.last().copied().unwrap_or(1);
    // A short mask forbids the keys behind it.
    let total = s.total();
    let to = [s.batch, s.heads, s.queries, if width == 1 { total } else { width }];
    let short = width != 1 && width < total;
    if width > total || shape.len() > 4 {
        return Err(format!("its mask has shape {shape:?}"));
    }
    squall_core::graph::infer::broadcast(shape, &to).map_err(|e| format!("its mask: {e}"))?;
    let st = broadcast_strides(shape, &to);
    let place = format!("b * {}L + h * {}L + i * {}L + j * {}L", st[0], st[1], st[2], st[3]);
    if short {
        tests.push(format!("j < {width}L"));
    }
    if p.dtype(3)? == DType::Bool {
        tests.push(format!("x3[{place}]"));
        return Ok("0".into());
    }
    Ok(format!("x3[{place}]"))
}

const ATTENTION: &[&str] = &[
    "is_causal",
    "kv_num_heads",
    "left_window_size",
    "q_num_heads",
    "qk_matmul_output_mode",
    "right_window_size",
    "scale",
    "softcap",
    "softmax_precision",
];

/// Where row `i` of a head begins in an operand of `steps` rows of `size` elements each.
fn row_at(s: &AttentionShape, head: (&str, &str), steps: &str, i: &str, size: &str) -> String {
    let (head, heads) = head;
    match s.packed {
        true => format!("((b * {steps} + {i}) * {heads} + {head}) * {size}"),
        false => format!("((b * {heads} + {head}) * {steps} + {i}) * {size}"),
    }
}

/// The rows of key `j` and of its value, of the past or of this call.
fn key_and_value(p: &Program, s: &AttentionShape) -> (String, String) {
    let row = |x: usize, of: usize, size: &str| {
        let new = row_at(s, ("g", "KVS"), "KEYS", "(j - PAST)", size);
        match p.has(4) {
            true => {
                format!("j < PAST ? x{of} + ((b * KVS + g) * PAST + j) * {size} : x{x} + {new}")
            }
            false => format!("x{x} + {new}"),
        }
    };
    (row(1, 4, "HEAD"), row(2, 5, "VALUE"))
}

/// Copies the rows of all keys and of all values to the results that ask for them.
fn present(p: &mut Program, key: &str, value: &str) {
    for (i, size, row) in [(1, "HEAD", key), (2, "VALUE", value)] {
        if p.result(i).is_some() {
            p.body(&format!(
                "  for (long b = 0; b < BATCH; b++)
  for (long g = 0; g < KVS; g++)
  for (long j = 0; j < TOTAL; j++) {{
    const R *row = {row};
    for (long d = 0; d < {size}; d++) y{i}[((b * KVS + g) * TOTAL + j) * {size} + d] = row[d];
  }}
"
            ));
        }
    }
}

/// The extents and numbers of an attention node as macros; gives whether its scores are capped.
fn attention_macros(p: &mut Program, s: &AttentionShape) -> Result<bool, String> {
    let scale = p.ctx.float_or("scale", 1.0 / (s.head as f32).sqrt())?;
    let cap = p.ctx.float_or("softcap", 0.0)?;
    p.float("SCALE", scale);
    p.float("CAP", cap);
    for (name, v) in [
        ("BATCH", s.batch),
        ("HEADS", s.heads),
        ("KVS", s.kv_heads),
        ("QUERIES", s.queries),
        ("KEYS", s.keys),
        ("PAST", s.past),
        ("TOTAL", s.total()),
        ("HEAD", s.head),
        ("VALUE", s.value_head),
    ] {
        p.int(name, v);
    }
    Ok(cap > 0.0)
}

fn attention(p: &mut Program) -> Result<(), String> {
    only(p, ATTENTION)?;
    only_f32(p)?;
    let s = AttentionShape::of(&p.ctx)?;
    let capped = match attention_macros(p, &s)? {
        true => "s[j] = CAP * F(tanh)(s[j] / CAP);",
        false => "",
    };
    let (key, value) = key_and_value(p, &s);
    let mut tests = visible(p, &s)?;
    let bias = mask(p, &s, &mut tests)?;
    let test = if tests.is_empty() { "1".to_string() } else { tests.join(" && ") };
    let mode = p.ctx.int_or("qk_matmul_output_mode", 0)?;
    let wanted = p.result(3).is_some();
    let store = |m: i64| match wanted && m == mode {
        true => "y3[((b * HEADS + h) * QUERIES + i) * TOTAL + j] = s[j];",
        false => "",
    };
    p.scratch_pointer("R", "s", s.total(), 8);
    present(p, &key, &value);
    p.body(&format!(
        "  for (long b = 0; b < BATCH; b++)
  for (long h = 0; h < HEADS; h++)
  for (long i = 0; i < QUERIES; i++) {{
    const long g = h / (HEADS / KVS);
    const R *q = x0 + {query};
    R most = -C(INFINITY), sum = 0;
    for (long j = 0; j < TOTAL; j++) {{
      const R *k = {key};
      R part[8], v = 0;
      long d = 0;
      for (int l = 0; l < 8; l++) part[l] = 0;
      for (; d + 8 <= HEAD; d += 8)
        for (int l = 0; l < 8; l++) part[l] = mad_r(q[d + l], k[d + l], part[l]);
      for (; d < HEAD; d++) part[0] = mad_r(q[d], k[d], part[0]);
      for (int l = 0; l < 8; l++) v += part[l];
      s[j] = v * SCALE;
      {raw} {capped} {soft}
      s[j] = {test} ? s[j] + {bias} : -C(INFINITY);
      {masked}
      most = s[j] > most ? s[j] : most;
    }}
    if (most == -C(INFINITY)) most = 0;
    for (long j = 0; j < TOTAL; j++) s[j] = s[j] == -C(INFINITY) ? 0 : EXP(s[j] - most);
    for (long j = 0; j < TOTAL; j++) sum += s[j];
    if (sum == 0) sum = 1;
    for (long j = 0; j < TOTAL; j++) s[j] /= sum;
    {probabilities}
    Y0 *y = y0 + {result};
    for (long d = 0; d < VALUE; d++) y[d] = 0;
    for (long j = 0; j < TOTAL; j++) {{
      const R *v = {value};
      const R w = s[j];
      for (long d = 0; d < VALUE; d++) y[d] = mad_r(w, v[d], y[d]);
    }}
  }}
",
        query = row_at(&s, ("h", "HEADS"), "QUERIES", "i", "HEAD"),
        result = row_at(&s, ("h", "HEADS"), "QUERIES", "i", "VALUE"),
        raw = store(0),
        soft = store(1),
        masked = store(2),
        probabilities = match store(3) {
            "" => String::new(),
            text => format!("for (long j = 0; j < TOTAL; j++) {text}"),
        },
    ));
    Ok(())
}

fn rotary(p: &mut Program) -> Result<(), String> {
    only(p, &["interleaved", "num_heads", "rotary_embedding_dim"])?;
    only_f32(p)?;
    let x = p.shape(0)?;
    let heads = match x {
        [_, h, _, _] => *h,
        _ => p.ctx.int_or("num_heads", 0)?,
    };
    let size = match x {
        [_, _, _, d] => *d,
        [_, _, d] if heads > 0 && d % heads == 0 => d / heads,
        _ => return Err("attribute `num_heads` is missing, or does not suit its input".into()),
    };
    let steps = if x.len() == 4 { x[2] } else { x[1] };
    let turned = match p.ctx.int_or("rotary_embedding_dim", 0)? {
        0 => size,
        n => n,
    };
    let cache = p.shape(1)?;
    if turned % 2 != 0 || turned > size || cache.last() != Some(&(turned / 2)) {
        return Err(format!("{turned} turned features of {size} do not suit a cache {cache:?}"));
    }
    // Each step has a position, or a row of both caches.
    let rows = if p.has(3) { product(p.shape(3)?) } else { product(&cache[..cache.len() - 1]) };
    if p.shape(2)? != cache || rows != x[0] * steps {
        return Err(format!("its caches or positions do not suit its input of shape {x:?}"));
    }
    for (name, v) in [
        ("BATCH", x[0]),
        ("HEADS", heads),
        ("STEPS", steps),
        ("SIZE", size),
        ("HALF", turned / 2),
        ("CACHED", cache[0]),
    ] {
        p.int(name, v);
    }
    let place = match x.len() {
        4 => "((b * HEADS + h) * STEPS + t) * SIZE",
        _ => "((b * STEPS + t) * HEADS + h) * SIZE",
    };
    let row = match p.has(3) {
        true => {
            "    const long row = (long)x3[b * STEPS + t];\n    if (row < 0 || row >= CACHED) \
            return 1;\n"
        }
        false => "    const long row = b * STEPS + t;\n",
    };
    let (one, two) = match p.ctx.int_or("interleaved", 0)? != 0 {
        true => ("2 * k", "2 * k + 1"),
        false => ("k", "HALF + k"),
    };
    p.body(&format!(
        "  for (long b = 0; b < BATCH; b++)
  for (long t = 0; t < STEPS; t++)
  for (long h = 0; h < HEADS; h++) {{
{row}    const T0 *x = x0 + {place};
    Y0 *y = y0 + {place};
    for (long k = 0; k < HALF; k++) {{
      const R c = x1[row * HALF + k], s = x2[row * HALF + k];
      y[{one}] = c * x[{one}] - s * x[{two}];
      y[{two}] = s * x[{one}] + c * x[{two}];
    }}
    for (long k = 2 * HALF; k < SIZE; k++) y[k] = x[k];
  }}
"
    ));
    Ok(())
}

fn causal_conv(p: &mut Program) -> Result<(), String> {
    only(p, &["activation"])?;
    only_f32(p)?;
    let (x, k) = (p.shape(0)?, p.shape(1)?[2]);
    for (name, v) in [("BATCH", x[0]), ("CHANNELS", x[1]), ("STEPS", x[2]), ("KERNEL", k)] {
        p.int(name, v);
    }
    let end = match p.ctx.text("activation", "none")? {
        "none" => "v",
        "silu" | "swish" => "v * sigmoid_r(v)",
        other => return Err(format!("attribute `activation` is `{}`", shown(other))),
    };
    let past = |at: &str| match p.has(3) {
        true => format!("x3[n * (KERNEL - 1) + ({at})]"),
        false => "0".into(),
    };
    let bias = if p.has(2) { "x2[n % CHANNELS]" } else { "0" };
    let state = match p.result(1).is_some() {
        true => format!(
            "    for (long k = 0; k < KERNEL - 1; k++) {{
      const long at = STEPS + k;
      y1[n * (KERNEL - 1) + k] = at < KERNEL - 1 ? {} : x0[n * STEPS + at - (KERNEL - 1)];
    }}
",
            past("at")
        ),
        false => String::new(),
    };
    p.body(&format!(
        "  for (long n = 0; n < BATCH * CHANNELS; n++) {{
    for (long t = 0; t < STEPS; t++) {{
      R v = {bias};
      for (long k = 0; k < KERNEL; k++) {{
        const long at = t + k;
        const R e = at < KERNEL - 1 ? {} : x0[n * STEPS + at - (KERNEL - 1)];
        v += e * x1[n % CHANNELS * KERNEL + k];
      }}
      y0[n * STEPS + t] = {end};
    }}
{state}  }}
",
        past("at")
    ));
    Ok(())
}

/// The factor by which a step of linear attention decays feature `k` of a state, as a C expression.
fn decay(p: &Program, gated: bool, kvs: i64, dk: i64) -> Result<&'static str, String> {
    Ok(match (gated, gated.then(|| p.shape(4)).transpose()?) {
        (true, Some([_, _, n])) if *n == kvs => "EXP(x4[(b * STEPS + t) * KVS + g])",
        (true, Some([_, _, n])) if *n == kvs * dk => {
            "EXP(x4[((b * STEPS + t) * KVS + g) * DK + k])"
        }
        (true, s) => return Err(format!("its decay has shape {s:?}")),
        _ => "1",
    })
}

/// How much of a step's value linear attention adds to its state, as a C expression.
fn beta(p: &Program, delta: bool, kvs: i64) -> Result<&'static str, String> {
    Ok(match (delta, delta.then(|| p.shape(5)).transpose()?) {
        (true, Some([_, _, n])) if *n == kvs => "x5[(b * STEPS + t) * KVS + g]",
        (true, Some([_, _, 1])) => "x5[b * STEPS + t]",
        (true, s) => return Err(format!("its beta has shape {s:?}")),
        _ => "1",
    })
}

fn linear_attention(p: &mut Program) -> Result<(), String> {
    only(p, &["chunk_size", "kv_num_heads", "q_num_heads", "scale", "update_rule"])?;
    only_f32(p)?;
    let rule = p.ctx.text("update_rule", "gated_delta")?;
    let (gated, delta) = match rule {
        "linear" => (false, false),
        "gated" => (true, false),
        "delta" => (false, true),
        "gated_delta" => (true, true),
        other => return Err(format!("attribute `update_rule` is `{}`", shown(other))),
    };
    if gated != p.has(4) || delta != p.has(5) {
        return Err(format!("its decay or beta does not suit the rule `{rule}`"));
    }
    let (heads, kvs) = (p.ctx.int_or("q_num_heads", 1)?, p.ctx.int_or("kv_num_heads", 1)?);
    let (q, v) = (p.shape(0)?, p.shape(2)?);
    let (dk, dv) = (q[2] / heads, v[2] / kvs);
    for (name, n) in
        [("BATCH", q[0]), ("STEPS", q[1]), ("HEADS", heads), ("KVS", kvs), ("DK", dk), ("DV", dv)]
    {
        p.int(name, n);
    }
    let scale = match p.ctx.float_or("scale", 0.0)? {
        0.0 => 1.0 / (dk as f32).sqrt(),
        s => s,
    };
    p.float("SCALE", scale);
    let (decay, beta) = (decay(p, gated, kvs, dk)?, beta(p, delta, kvs)?);
    let start = if p.has(3) { "x3[(b * KVS + g) * DK * DV + i]" } else { "0" };
    let minus = match delta {
        true => {
            "for (long k = 0; k < DK; k++) for (long d = 0; d < DV; d++) u[d] -= s[k * DV + d] * \
            key[k];"
        }
        false => "",
    };
    p.scratch_pointer("R", "s", dk * dv, 8);
    p.scratch_pointer("R", "u", dv, 8);
    let last = match p.result(1).is_some() {
        true => "    for (long i = 0; i < DK * DV; i++) y1[(b * KVS + g) * DK * DV + i] = s[i];\n",
        false => "",
    };
    p.body(&format!(
        "  for (long b = 0; b < BATCH; b++)
  for (long g = 0; g < KVS; g++) {{
    for (long i = 0; i < DK * DV; i++) s[i] = {start};
    for (long t = 0; t < STEPS; t++) {{
      const R *key = x1 + ((b * STEPS + t) * KVS + g) * DK;
      const R *value = x2 + ((b * STEPS + t) * KVS + g) * DV;
      for (long k = 0; k < DK; k++) {{
        const R decay = {decay};
        for (long d = 0; d < DV; d++) s[k * DV + d] *= decay;
      }}
      for (long d = 0; d < DV; d++) u[d] = value[d];
      {minus}
      for (long k = 0; k < DK; k++) {{
        const R w = {beta} * key[k];
        for (long d = 0; d < DV; d++) s[k * DV + d] = mad_r(w, u[d], s[k * DV + d]);
      }}
      for (long h = g * (HEADS / KVS); h < (g + 1) * (HEADS / KVS); h++) {{
        const R *q = x0 + ((b * STEPS + t) * HEADS + h) * DK;
        Y0 *y = y0 + ((b * STEPS + t) * HEADS + h) * DV;
        for (long d = 0; d < DV; d++) y[d] = 0;
        for (long k = 0; k < DK; k++)
          for (long d = 0; d < DV; d++) y[d] += q[k] * SCALE * s[k * DV + d];
      }}
    }}
{last}  }}
"
    ));
    Ok(())
}
