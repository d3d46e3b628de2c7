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
    ("scaledtanh", "A * TANH(B * x)", Some(1.0), Some(1.0)),
    ("sigmoid", "sigmoid_r(x)", None, None),
    ("softplus", "softplus_r(x)", None, None),
    ("softsign", "x / (1 + F(fabs)(x))", None, None),
    ("tanh", "TANH(x)", None, None),
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

/// Steps whose products of inputs are computed together, ahead of the recurrence.
const STEPS_AHEAD: i64 = 64;

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
    let rows = r.batch * STEPS_AHEAD.min(r.steps);
    p.int("AHEAD", STEPS_AHEAD.min(r.steps).max(1));
    for (name, n) in [
        ("h", r.batch * r.hidden),
        ("cell", r.batch * r.hidden),
        ("reset", r.batch * r.hidden),
        ("ahead", rows * gates * r.hidden),
        ("sums", r.batch * gates * r.hidden),
        ("bias", gates * r.hidden),
    ] {
        p.scratch_pointer("R", name, n, 4);
    }
    p.scratch_pointer("const R *", "from", rows, 8);
    p.scratch_pointer("const R *", "states", r.batch, 8);
    p.body("  (void)cell, (void)reset;\n");
    if p.result(0).is_some() {
        p.body("  for (long i = 0; i < M0; i++) y0[i] = 0;\n");
    }
    for d in 0..r.directions {
        let text = direction(p, &r, &op, d)?;
        p.body(&text);
    }
    Ok(())
}

/// One step of a row of the batch: from `g`, the gates' products with the inputs, and `s`, those
/// with the state, to the state `u` and the cell `v`. A last gate of a GRU that is multiplied after
/// the reset has its product made here, of all rows: it is a step of its own.
fn step(p: &Program, op: &str, d: i64) -> Result<String, String> {
    let last_bias = match p.has(3) {
        true => format!("x3[({d} * 2 + 1) * GATES * HIDDEN + 2 * HIDDEN + i]"),
        false => "0".into(),
    };
    Ok(match op {
        "RNN" => format!("u[i] = gate{d}_0(CLIP(g[i] + s[i] + bias[i]));"),
        "GRU" if p.ctx.int_or("linear_before_reset", 0)? != 0 => format!(
            "const R z = gate{d}_0(CLIP(g[i] + s[i] + bias[i]));
        const R r = gate{d}_0(CLIP(g[HIDDEN + i] + s[HIDDEN + i] + bias[HIDDEN + i]));
        const R last = s[2 * HIDDEN + i] + {last_bias};
        const R n = g[2 * HIDDEN + i] + bias[2 * HIDDEN + i] + r * last;
        u[i] = (1 - z) * gate{d}_1(CLIP(n)) + z * u[i];"
        ),
        "GRU" => format!(
            "const R z = gate{d}_0(CLIP(g[i] + s[i] + bias[i]));
        const R n = g[2 * HIDDEN + i] + bias[2 * HIDDEN + i] + s[2 * HIDDEN + i] + {last_bias};
        u[i] = (1 - z) * gate{d}_1(CLIP(n)) + z * u[i];"
        ),
        _ => {
            let peep = |gate: i64, of: &str| match p.has(7) {
                true => format!(" + x7[({d} * 3 + {gate}) * HIDDEN + i] * {of}"),
                false => String::new(),
            };
            let sum = |gate: i64| {
                let at = format!("{gate} * HIDDEN + i");
                format!("g[{at}] + s[{at}] + bias[{at}]")
            };
            let forget = match p.ctx.int_or("input_forget", 0)? != 0 {
                true => "1 - input".to_string(),
                false => format!("gate{d}_0(CLIP({}{}))", sum(2), peep(2, "v[i]")),
            };
            format!(
                "const R input = gate{d}_0(CLIP({}{})), forget = {forget};
        const R c = forget * v[i] + input * gate{d}_1(CLIP({}));
        const R o = gate{d}_0(CLIP({}{}));
        v[i] = c, u[i] = o * gate{d}_2(c);",
                sum(0),
                peep(0, "v[i]"),
                sum(3),
                sum(1),
                peep(1, "c")
            )
        }
    })
}

/// The product of the last gate of a GRU with states that were reset first, of all rows that go on.
fn reset_first(p: &Program, op: &str, d: i64) -> Result<String, String> {
    if op != "GRU" || p.ctx.int_or("linear_before_reset", 0)? != 0 {
        return Ok(String::new());
    }
    Ok(format!(
        "      for (long b = 0, a = 0; b < BATCH; b++) {{
        if (s >= LENGTH(b)) continue;
        const R *g = ahead + ((s - first) * BATCH + b) * GATES * HIDDEN + HIDDEN;
        const R *t = sums + a * GATES * HIDDEN + HIDDEN, *u = h + b * HIDDEN;
        R *to = reset + a * HIDDEN;
        for (long i = 0; i < HIDDEN; i++)
          to[i] = gate{d}_0(CLIP(g[i] + t[i] + bias[HIDDEN + i])) * u[i];
        states[a++] = to;
      }}
      dot_matrix(states, active, r + 2 * HIDDEN * HIDDEN, HIDDEN, HIDDEN, sums + 2 * HIDDEN, \
         GATES * HIDDEN);
"
    ))
}

/// What is added to a gate's products once: its biases. The recurrent bias of a GRU's last gate may
/// stand behind the reset, so that `step` adds it.
fn added(p: &Program, op: &str, d: i64) -> String {
    match p.has(3) {
        true => {
            let own = format!("x3[{d} * 2 * GATES * HIDDEN + k]");
            let recurrent = format!("x3[({d} * 2 + 1) * GATES * HIDDEN + k]");
            match op {
                "GRU" => format!("{own} + (k < 2 * HIDDEN ? {recurrent} : 0)"),
                _ => format!("{own} + {recurrent}"),
            }
        }
        false => "0".into(),
    }
}

/// Stores the last states and cells, `last` being the number of a row of theirs.
fn last_states(p: &Program, last: &str) -> String {
    let mut text = String::new();
    for (i, of) in [(1, "h"), (2, "cell")] {
        if p.result(i).is_some() {
            let _ = writeln!(
                text,
                "    for (long b = 0; b < BATCH; b++)\n      for (long i = 0; i < HIDDEN; i++) \
                 y{i}[({last}) * HIDDEN + i] = {of}[b * HIDDEN + i];"
            );
        }
    }
    text
}

/// All steps in one direction: of some steps at a time the products of the inputs are made
/// together, then each step multiplies the states of all rows of the batch that go on.
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
    let bias = added(p, op, d);
    let recurrent_gates =
        if reset_first(p, op, d)?.is_empty() { "GATES * HIDDEN" } else { "2 * HIDDEN" };
    let store = match p.result(0).is_some() {
        true => {
            format!("        for (long i = 0; i < HIDDEN; i++) y0[({all}) * HIDDEN + i] = u[i];\n")
        }
        false => String::new(),
    };
    let mut text = format!(
        "  {{
    const T1 *w = x1 + {d} * GATES * HIDDEN * FEATURES;
    const T2 *r = x2 + {d} * GATES * HIDDEN * HIDDEN;
    long longest = 0;
    for (long k = 0; k < GATES * HIDDEN; k++) bias[k] = {bias};
    for (long b = 0; b < BATCH; b++) {{
      const long length = LENGTH(b);
      if (length < 0 || length > STEPS) return 1;
      if (length > longest) longest = length;
      R *u = h + b * HIDDEN, *v = cell + b * HIDDEN;
      for (long i = 0; i < HIDDEN; i++) u[i] = {u}, v[i] = {v};
    }}
    for (long first = 0; first < longest; first += AHEAD) {{
      const long end = longest - first < AHEAD ? longest : first + AHEAD;
      for (long s = first; s < end; s++)
        for (long b = 0; b < BATCH; b++) {{
          const long length = LENGTH(b), t = {t};
          from[(s - first) * BATCH + b] = x0 + (s < length ? {x} : b) * FEATURES;
        }}
      dot_matrix(from, (end - first) * BATCH, w, GATES * HIDDEN, FEATURES, ahead, GATES * HIDDEN);
      for (long s = first; s < end; s++) {{
      long active = 0;
      for (long b = 0; b < BATCH; b++)
        if (s < LENGTH(b)) states[active++] = h + b * HIDDEN;
      dot_matrix(states, active, r, {recurrent_gates}, HIDDEN, sums, GATES * HIDDEN);
{reset}      for (long b = 0, a = 0; b < BATCH; b++) {{
        const long length = LENGTH(b), t = {t};
        (void)t;
        if (s >= length) continue;
        const R *restrict g = ahead + ((s - first) * BATCH + b) * GATES * HIDDEN;
        const R *restrict s = sums + a++ * GATES * HIDDEN;
        R *restrict u = h + b * HIDDEN, *restrict v = cell + b * HIDDEN;
        (void)v;
        for (long i = 0; i < HIDDEN; i++) {{
        {step}
        }}
{store}      }}
      }}
    }}
",
        u = state(5),
        v = if op == "LSTM" { state(6) } else { "0".into() },
        t = if back { "length - 1 - s" } else { "s" },
        x = format_args!("({x})"),
        reset = reset_first(p, op, d)?,
        step = step(p, op, d)?,
    );
    text += &last_states(p, &last);
    Ok((text + "  }\n").replace("LENGTH(b)", length))
}
