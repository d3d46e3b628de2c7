//! Plain kernels (untuned C for one ONNX operator) of the recurrent operators `RNN`, `GRU` and
//! `LSTM`, forward, backward and in both directions, with the activation functions that attributes
//! name. Input: a call at constant shapes; output: C with a loop over time steps. `mod.rs` collects
//! the tables `OPS` of all families of operators.

use super::Generator;
use super::elementwise::only;
use super::program::{Program, number};
use squall_core::DType;
use squall_core::graph::Attribute;
use squall_core::graph::infer::Recurrent;
use squall_core::text::shown;
use std::fmt::Write as _;

pub(super) const OPS: &[(&str, Generator)] =
    &[("GRU", recurrent), ("LSTM", recurrent), ("RNN", recurrent)];

/// Activation functions of gates: name, C expression, and the defaults of the parameters `A` and
/// `B` where the function has them.
const ACTIVATIONS: &[(&str, &str, Option<f32>, Option<f32>)] = &[
    ("affine", "A * x + B", Some(1.0), Some(0.0)),
    ("elu", "x >= 0 ? x : A * F(expm1)(x)", Some(1.0), None),
    ("hardsigmoid", "unit_r(A * x + B)", Some(0.2), Some(0.5)),
    ("leakyrelu", "x >= 0 ? x : A * x", Some(0.01), None),
    ("relu", "x < 0 ? C(0) : x", None, None),
    ("scaledtanh", "A * F(tanh)(B * x)", Some(1.0), Some(1.0)),
    ("sigmoid", "sigmoid_r(x)", None, None),
    ("softplus", "softplus_r(x)", None, None),
    ("softsign", "x / (1 + F(fabs)(x))", None, None),
    ("tanh", "F(tanh)(x)", None, None),
    ("thresholdedrelu", "x >= A ? x : 0", Some(1.0), None),
];

fn float_list(p: &Program, name: &str) -> Result<Vec<f32>, String> {
    match p.ctx.node.attributes.get(name) {
        None => Ok(Vec::new()),
        Some(Attribute::Floats(v)) => Ok(v.clone()),
        Some(_) => Err(format!("attribute `{name}` is no list of floats")),
    }
}

/// Writes the activation functions of all directions: `gate0_1` is the second one of the first
/// direction. Each takes its parameters in turn from the node's lists.
fn activations(p: &mut Program, r: &Recurrent, usual: &[&str]) -> Result<(), String> {
    let names: Vec<String> = match p.ctx.node.attributes.get("activations") {
        None => (0..r.directions).flat_map(|_| usual.iter().map(|s| s.to_string())).collect(),
        Some(Attribute::Strings(v)) => v.clone(),
        Some(_) => return Err("attribute `activations` is no list of strings".into()),
    };
    if names.len() as i64 != r.directions * usual.len() as i64 {
        return Err(format!("attribute `activations` has {} elements", names.len()));
    }
    let (alphas, betas) = (float_list(p, "activation_alpha")?, float_list(p, "activation_beta")?);
    let (mut alphas, mut betas) = (alphas.into_iter(), betas.into_iter());
    for (i, name) in names.iter().enumerate() {
        let row = ACTIVATIONS.iter().find(|a| a.0 == name.to_lowercase());
        let row = row.ok_or_else(|| format!("activation `{}` is not supported", shown(name)))?;
        let value = |usual: Option<f32>, given: &mut std::vec::IntoIter<f32>| {
            usual.map(|d| format!("C({})", number(f64::from(given.next().unwrap_or(d)))))
        };
        let (a, b) = (value(row.2, &mut alphas), value(row.3, &mut betas));
        let form = row.1.replace("A *", &format!("{} *", a.clone().unwrap_or_default()));
        let form = form.replace("+ B", &format!("+ {}", b.clone().unwrap_or_default()));
        let form = form.replace("(B *", &format!("({} *", b.unwrap_or_default()));
        let form = form.replace(">= A", &format!(">= {}", a.unwrap_or_default()));
        let function = format!("gate{}_{}", i / usual.len(), i % usual.len());
        p.table(&function, format!("static inline R {function}(R x) {{ return {form}; }}\n"));
    }
    Ok(())
}

const DOT: &str = "static inline R dot(const R *a, const R *b, long n) {
  R part[16], s = 0;
  for (int l = 0; l < 16; l++) part[l] = 0;
  long i = 0;
  for (; i + 16 <= n; i += 16)
    for (int l = 0; l < 16; l++) part[l] = mad_r(a[i + l], b[i + l], part[l]);
  for (; i < n; i++) part[0] = mad_r(a[i], b[i], part[0]);
  for (int l = 0; l < 16; l++) s += part[l];
  return s;
}
";

/// `CLIP(x)`, which limits what functions of gates see.
fn clip(p: &mut Program) -> Result<(), String> {
    let limit = p.ctx.float_or("clip", 0.0)?;
    match limit > 0.0 {
        true => {
            p.float("LIMIT", limit);
            p.define("CLIP(x)", "((x) < -LIMIT ? -LIMIT : (x) > LIMIT ? LIMIT : (x))");
        }
        false => p.define("CLIP(x)", "(x)"),
    }
    Ok(())
}

fn recurrent(p: &mut Program) -> Result<(), String> {
    only(
        p,
        &[
            "activation_alpha",
            "activation_beta",
            "activations",
            "clip",
            "direction",
            "hidden_size",
            "input_forget",
            "layout",
            "linear_before_reset",
            "output_sequence",
        ],
    )?;
    p.real0()?;
    if p.dtype(0)? != DType::F32 {
        return Err("elements of type f64 are not supported".into());
    }
    let r = Recurrent::of(&p.ctx)?;
    let op = p.ctx.node.op.clone();
    let (gates, usual): (i64, &[&str]) = match op.as_str() {
        "LSTM" => (4, &["Sigmoid", "Tanh", "Tanh"]),
        "GRU" => (3, &["Sigmoid", "Tanh"]),
        _ => (1, &["Tanh"]),
    };
    activations(p, &r, usual)?;
    clip(p)?;
    p.table("dot", DOT.into());
    for (name, v) in [
        ("STEPS", r.steps),
        ("BATCH", r.batch),
        ("FEATURES", r.features),
        ("HIDDEN", r.hidden),
        ("DIRS", r.directions),
        ("GATES", gates),
    ] {
        p.int(name, v);
    }
    for (name, n) in [("h", r.hidden), ("cell", r.hidden), ("g", gates * r.hidden), ("n", r.hidden)]
    {
        p.scratch_pointer("R", name, n, 8);
    }
    p.body("  (void)cell, (void)n;\n");
    if p.result(0).is_some() {
        p.body("  for (long i = 0; i < M0; i++) y0[i] = 0;\n");
    }
    for d in 0..r.directions {
        let text = direction(p, &r, &op, d)?;
        p.body(&text);
    }
    Ok(())
}

/// One step from the gates' sums `g` to the state `h`.
fn step(p: &Program, op: &str, d: i64) -> Result<String, String> {
    let bias = |gate: &str, of: i64| match p.has(3) {
        true => format!("x3[({d} * 2 + {of}) * GATES * HIDDEN + {gate} * HIDDEN + i]"),
        false => "0".into(),
    };
    Ok(match op {
        "RNN" => format!(
            "      for (long i = 0; i < HIDDEN; i++) n[i] = g[i] + dot(r + i * HIDDEN, h, \
            HIDDEN) + {};
      for (long i = 0; i < HIDDEN; i++) h[i] = gate{d}_0(CLIP(n[i]));
",
            bias("0", 1)
        ),
        "GRU" => {
            let last = match p.ctx.int_or("linear_before_reset", 0)? != 0 {
                true => format!(
                    "      for (long i = 0; i < HIDDEN; i++) n[i] = g[2 * HIDDEN + i] + g[HIDDEN \
                    + i] * \
                     (dot(r + (2 * HIDDEN + i) * HIDDEN, h, HIDDEN) + {});\n",
                    bias("2", 1)
                ),
                false => format!(
                    "      for (long i = 0; i < HIDDEN; i++) cell[i] = g[HIDDEN + i] * h[i];
      for (long i = 0; i < HIDDEN; i++) n[i] = g[2 * HIDDEN + i] + dot(r + (2 * HIDDEN + i) * \
      HIDDEN, \
                     cell, HIDDEN) + {};\n",
                    bias("2", 1)
                ),
            };
            format!(
                "      for (long k = 0; k < 2 * HIDDEN; k++) {{
        const long i = k % HIDDEN;
        (void)i;
        g[k] += dot(r + k * HIDDEN, h, HIDDEN) + {};
        g[k] = gate{d}_0(CLIP(g[k]));
      }}
{last}      for (long i = 0; i < HIDDEN; i++)
        h[i] = (1 - g[i]) * gate{d}_1(CLIP(n[i])) + g[i] * h[i];
",
                bias("k / HIDDEN", 1)
            )
        }
        _ => {
            let peep = |gate: i64, of: &str| match p.has(7) {
                true => format!(" + x7[({d} * 3 + {gate}) * HIDDEN + i] * {of}"),
                false => String::new(),
            };
            let forget = match p.ctx.int_or("input_forget", 0)? != 0 {
                true => "1 - input".to_string(),
                false => format!("gate{d}_0(CLIP(g[2 * HIDDEN + i]{}))", peep(2, "cell[i]")),
            };
            format!(
                "      for (long k = 0; k < 4 * HIDDEN; k++) {{
        const long i = k % HIDDEN;
        (void)i;
        g[k] += dot(r + k * HIDDEN, h, HIDDEN) + {};
      }}
      for (long i = 0; i < HIDDEN; i++) {{
        const R input = gate{d}_0(CLIP(g[i]{})), forget = {forget};
        const R c = forget * cell[i] + input * gate{d}_1(CLIP(g[3 * HIDDEN + i]));
        const R o = gate{d}_0(CLIP(g[HIDDEN + i]{}));
        cell[i] = c, h[i] = o * gate{d}_2(c);
      }}
",
                bias("k / HIDDEN", 1),
                peep(0, "cell[i]"),
                peep(1, "c")
            )
        }
    })
}

fn direction(p: &Program, r: &Recurrent, op: &str, d: i64) -> Result<String, String> {
    let back = d == 1 || p.ctx.text("direction", "forward")? == "reverse";
    let (x, all, last) = match r.batch_first {
        true => {
            ("b * STEPS + t", format!("(b * STEPS + t) * DIRS + {d}"), format!("b * DIRS + {d}"))
        }
        false => {
            ("t * BATCH + b", format!("(t * DIRS + {d}) * BATCH + b"), format!("{d} * BATCH + b"))
        }
    };
    let length = if p.has(4) { "(long)x4[b]" } else { "STEPS" };
    let state = |i: usize| match p.has(i) {
        true => format!("x{i}[({last}) * HIDDEN + i]"),
        false => "0".into(),
    };
    let bias = match p.has(3) {
        true => format!(" + x3[{d} * 2 * GATES * HIDDEN + k]"),
        false => String::new(),
    };
    let mut text = format!(
        "  for (long b = 0; b < BATCH; b++) {{
    const T1 *w = x1 + {d} * GATES * HIDDEN * FEATURES;
    const T2 *r = x2 + {d} * GATES * HIDDEN * HIDDEN;
    const long length = {length};
    if (length < 0 || length > STEPS) return 1;
    for (long i = 0; i < HIDDEN; i++) h[i] = {}, cell[i] = {};
    for (long s = 0; s < length; s++) {{
      const long t = {};
      const T0 *x = x0 + ({x}) * FEATURES;
      for (long k = 0; k < GATES * HIDDEN; k++) g[k] = dot(w + k * FEATURES, x, FEATURES){bias};
{}",
        state(5),
        if op == "LSTM" { state(6) } else { "0".into() },
        if back { "length - 1 - s" } else { "s" },
        step(p, op, d)?
    );
    if p.result(0).is_some() {
        let _ = writeln!(
            text,
            "      for (long i = 0; i < HIDDEN; i++) y0[({all}) * HIDDEN + i] = h[i];"
        );
    }
    text += "    }\n";
    for (i, of) in [(1, "h"), (2, "cell")] {
        if p.result(i).is_some() {
            let _ = writeln!(
                text,
                "    for (long i = 0; i < HIDDEN; i++) y{i}[({last}) * HIDDEN + i] = {of}[i];"
            );
        }
    }
    Ok(text + "  }\n")
}
