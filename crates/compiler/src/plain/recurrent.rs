//! Plain kernels (untuned C for one ONNX operator) of the recurrent operators `RNN`, `GRU` and
//! `LSTM`, forward, backward and in both directions, with the activation functions that attributes
//! name. Input: a call at constant shapes; output: C with a loop over time steps. The inputs of
//! many steps are multiplied together, and a step's products with the states are added to theirs in
//! place; weights that meet several rows are packed first (`packed.c`), those that never change
//! once, ahead of all calls. `recurrent/device.rs` has the functions for GPUs. `mod.rs` collects
//! the tables `OPS` of all families of operators.

mod device;

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
    ("scaledtanh", "A * gate_tanh(B * x)", Some(1.0), Some(1.0)),
    ("sigmoid", "gate_sigmoid(x)", None, None),
    ("softplus", "softplus_r(x)", None, None),
    ("softsign", "x / (1 + F(fabs)(x))", None, None),
    ("tanh", "gate_tanh(x)", None, None),
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

/// Rows, of steps times the batch, whose products of inputs are computed together, ahead of the
/// recurrence: as many as make the packing of their weights cheap.
const ROWS_AHEAD: i64 = 256;

/// Rows from which on the packing of weights takes less time than it saves. A row alone reads each
/// weight once, and as fast as the cache gives them, packed or not.
const ROWS_TO_PACK: i64 = 16;

/// Steps from which on the weights of states are packed, which all steps multiply.
const STEPS_TO_PACK: i64 = 8;

/// Columns and elements that packing fills up to: the most lanes of a vector, and `PANEL_COLUMNS`
/// times `PANEL_DEPTH` of `packed.c`.
const LANES: i64 = 16;
const PANEL: i64 = 64 * 512;

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
    let ahead = r.steps.min(ROWS_AHEAD / r.batch.max(1)).max(1);
    p.int("AHEAD", ahead);
    let rows = r.batch * ahead;
    let way = Way::of(p, &r)?;
    for (name, n) in [
        ("h", r.batch * r.hidden),
        ("cell", r.batch * r.hidden),
        ("reset", r.batch * r.hidden),
        ("ahead", rows * gates * r.hidden),
        ("last", r.batch * r.hidden),
        ("bias", gates * r.hidden),
    ] {
        p.scratch_pointer("R", name, n, 4);
    }
    p.scratch_pointer("const R *", "from", rows, 8);
    p.scratch_pointer("const R *", "states", r.batch, 8);
    panels(p, &r, &way, gates);
    p.body("  (void)cell, (void)reset, (void)last;\n");
    // Rows of the batch that end early have zeros behind their ends.
    if p.result(0).is_some() && p.has(4) {
        p.body("  for (long i = 0; i < M0; i++) y0[i] = 0;\n");
    }
    for d in 0..r.directions {
        let text = direction(p, &r, &way, d)?;
        p.body(&text);
    }
    device::functions(p, &r, &way, gates)
}

/// Declares the memory of packed weights. Weights that never change are packed ahead of all calls,
/// into memory for all directions; calls pack other weights, into memory for those that are packed
/// at one time.
fn panels(p: &mut Program, r: &Recurrent, way: &Way, gates: i64) {
    // Each direction's panels begin a line of the cache.
    let whole = |elements: i64| (elements + LANES - 1) / LANES * LANES;
    let of_states = whole(r.hidden * (gates * r.hidden + 2 * LANES));
    let of_inputs = whole(r.features * (gates * r.hidden + LANES));
    p.int("LAST_PANEL", (2 * r.hidden + LANES - 1) / LANES * LANES * r.hidden);
    p.int("STATE_PANELS", of_states);
    p.int("INPUT_PANELS", of_inputs);
    match way.inputs {
        Packs::Not => {}
        Packs::InCalls => p.scratch_pointer("R", "panel", PANEL, 4),
        Packs::Ahead => {
            p.prepared_pointer("R", "input_panels", r.directions * of_inputs, 4);
            let text = "  for (long d = 0; d < DIRS; d++)
    pack_columns(x1 + d * GATES * HIDDEN * FEATURES, GATES * HIDDEN, FEATURES, FEATURES,
                 input_panels + d * INPUT_PANELS);\n";
            p.prepare(&[1], text);
        }
    }
    match way.states {
        Packs::Not => {}
        Packs::InCalls => p.scratch_pointer("R", "panels", of_states, 4),
        Packs::Ahead => {
            p.prepared_pointer("R", "state_panels", r.directions * of_states, 4);
            let text = format!(
                "  for (long d = 0; d < DIRS; d++) {{
    const R *r = x2 + d * GATES * HIDDEN * HIDDEN;
    R *panels = state_panels + d * STATE_PANELS;
{}  }}\n",
                way.packing()
            );
            p.prepare(&[2], &text);
        }
    }
}

/// When weights are packed into panels.
#[derive(Clone, Copy, PartialEq)]
enum Packs {
    Not,
    InCalls,
    /// Once: they are the same in all calls.
    Ahead,
}

impl Packs {
    fn of(is_worth: bool, is_fixed: bool) -> Packs {
        match (is_worth, is_fixed) {
            (false, _) => Packs::Not,
            (true, false) => Packs::InCalls,
            (true, true) => Packs::Ahead,
        }
    }
}

/// How a call makes its products. Sums have the same order no matter when weights are packed.
struct Way {
    /// When the weights of the inputs, and those of the states, are packed.
    inputs: Packs,
    states: Packs,
    /// The last gate of a GRU is multiplied apart from the others: after the reset of its states,
    /// or, where the reset comes behind the product, to sums of its own.
    has_last_gate: bool,
    resets_first: bool,
}

impl Way {
    fn of(p: &Program, r: &Recurrent) -> Result<Way, String> {
        let has_last_gate = p.ctx.node.op == "GRU";
        let rows = r.steps.saturating_mul(r.batch);
        Ok(Way {
            inputs: Packs::of(rows >= ROWS_TO_PACK, p.is_fixed(1)),
            states: Packs::of(
                r.batch > 1 && rows >= ROWS_TO_PACK && r.steps >= STEPS_TO_PACK,
                p.is_fixed(2),
            ),
            has_last_gate,
            resets_first: has_last_gate && p.ctx.int_or("linear_before_reset", 0)? == 0,
        })
    }

    /// Adds the products of a step's states with the weights of gates from the first one or, where
    /// `is_last`, of the last gate of a GRU, to sums at `to` that are `step` apart.
    fn products(&self, is_last: bool, to: &str, step: &str) -> String {
        let gates = match (is_last, self.has_last_gate) {
            (true, _) => "HIDDEN",
            (false, true) => "2 * HIDDEN",
            (false, false) => "GATES * HIDDEN",
        };
        let (name, weights) = match (self.states != Packs::Not, is_last) {
            (true, false) => ("packed_matrix", "panels"),
            (true, true) => ("packed_matrix", "panels + LAST_PANEL"),
            (false, false) => ("dot_matrix", "r"),
            (false, true) => ("dot_matrix", "r + 2 * HIDDEN * HIDDEN"),
        };
        format!("      {name}(states, active, {weights}, {gates}, HIDDEN, {to}, {step}, s & 1);\n")
    }

    /// Packs the weights `r` of the states of one direction into `panels`.
    fn packing(&self) -> &'static str {
        match self.has_last_gate {
            false => "    pack_columns(r, GATES * HIDDEN, HIDDEN, HIDDEN, panels);\n",
            true => {
                "    pack_columns(r, 2 * HIDDEN, HIDDEN, HIDDEN, panels);
    pack_columns(r + 2 * HIDDEN * HIDDEN, HIDDEN, HIDDEN, HIDDEN, panels + LAST_PANEL);\n"
            }
        }
    }

    /// Declares the weights of a direction, and packs them where that is done in calls.
    fn weights(&self, d: i64) -> String {
        let mut text = match self.inputs {
            Packs::Ahead => format!("    const R *w = input_panels + {d} * INPUT_PANELS;\n"),
            _ => format!("    const T1 *w = x1 + {d} * GATES * HIDDEN * FEATURES;\n"),
        };
        text += &match self.states {
            Packs::Ahead => format!("    const R *panels = state_panels + {d} * STATE_PANELS;\n"),
            _ => format!("    const T2 *r = x2 + {d} * GATES * HIDDEN * HIDDEN;\n"),
        };
        text + if self.states == Packs::InCalls { self.packing() } else { "" }
    }

    /// Adds the products of the inputs of `rows` rows to `ahead`.
    fn ahead(&self) -> String {
        let (name, last) = match self.inputs {
            Packs::Not => ("dot_matrix", "0"),
            Packs::InCalls => ("columns_matrix", "panel"),
            Packs::Ahead => ("packed_matrix", "0"),
        };
        format!("{name}(from, rows, w, GATES * HIDDEN, FEATURES, ahead, GATES * HIDDEN, {last});")
    }
}

/// How the text of a step names values of a unit.
struct Names<'a> {
    /// The sum of a gate.
    sum: &'a dyn Fn(i64) -> String,
    /// The state, and the cell of an LSTM, which the step replaces.
    state: &'a str,
    cell: &'a str,
    /// The recurrent sum of the last gate of a GRU, where it is reset behind the product.
    last: &'a str,
}

/// One step of a unit `i` of a row of the batch: from the sums of its gates to its state and cell.
fn step(p: &Program, way: &Way, d: i64, names: &Names<'_>) -> Result<String, String> {
    let Names { sum, state: u, cell: v, last } = names;
    Ok(match p.ctx.node.op.as_str() {
        "RNN" => format!("{u} = gate{d}_0(CLIP({}));", sum(0)),
        "GRU" => {
            let candidate = match way.resets_first {
                true => sum(2),
                false => format!("{} + gate{d}_0(CLIP({})) * {last}", sum(2), sum(1)),
            };
            format!(
                "const R z = gate{d}_0(CLIP({}));
        const R n = {candidate};
        {u} = (1 - z) * gate{d}_1(CLIP(n)) + z * {u};",
                sum(0)
            )
        }
        _ => {
            let peep = |gate: i64, of: &str| match p.has(7) {
                true => format!(" + x7[({d} * 3 + {gate}) * HIDDEN + i] * {of}"),
                false => String::new(),
            };
            let forget = match p.ctx.int_or("input_forget", 0)? != 0 {
                true => "1 - input".to_string(),
                false => format!("gate{d}_0(CLIP({}{}))", sum(2), peep(2, v)),
            };
            format!(
                "const R input = gate{d}_0(CLIP({}{})), forget = {forget};
        const R c = forget * {v} + input * gate{d}_1(CLIP({}));
        const R o = gate{d}_0(CLIP({}{}));
        {v} = c, {u} = o * gate{d}_2(c);",
                sum(0),
                peep(0, v),
                sum(3),
                sum(1),
                peep(1, "c")
            )
        }
    })
}

/// The product of the last gate of a GRU, of all rows that go on: to its sums with states that are
/// reset first, or to sums of its own, `last`, which begin with the recurrent bias.
fn last_gate(p: &Program, way: &Way, d: i64) -> String {
    if !way.has_last_gate {
        return String::new();
    }
    if way.resets_first {
        let product = way.products(true, "g0 + 2 * HIDDEN", "GATES * HIDDEN");
        return format!(
            "      for (long b = 0, a = 0; b < BATCH; b++) {{
        if (s >= LENGTH(b)) continue;
        const R *g = g0 + a * GATES * HIDDEN + HIDDEN, *u = h + b * HIDDEN;
        R *to = reset + a * HIDDEN;
        for (long i = 0; i < HIDDEN; i++) to[i] = gate{d}_0(CLIP(g[i])) * u[i];
        states[a++] = to;
      }}
{product}"
        );
    }
    let bias = last_bias(p, &d.to_string());
    format!(
        "      for (long a = 0; a < active; a++)
        for (long i = 0; i < HIDDEN; i++) last[a * HIDDEN + i] = {bias};
{}",
        way.products(true, "last", "HIDDEN")
    )
}

/// The recurrent bias of the last gate of a GRU, of unit `i`; `d` is the direction in C.
fn last_bias(p: &Program, d: &str) -> String {
    match p.has(3) {
        true => format!("x3[({d} * 2 + 1) * GATES * HIDDEN + 2 * HIDDEN + i]"),
        false => "0".into(),
    }
}

/// The biases of a column `k` with which the sums of gates begin; `d` is the direction in C. The
/// recurrent bias of a GRU's last gate may stand behind the reset: then it is `last_bias`.
fn added(p: &Program, way: &Way, d: &str) -> String {
    if !p.has(3) {
        return "0".into();
    }
    let own = format!("x3[{d} * 2 * GATES * HIDDEN + k]");
    let recurrent = format!("x3[({d} * 2 + 1) * GATES * HIDDEN + k]");
    match way.has_last_gate && !way.resets_first {
        true => format!("{own} + (k < 2 * HIDDEN ? {recurrent} : 0)"),
        false => format!("{own} + {recurrent}"),
    }
}

/// The numbers, in C, of the rows of a call's operands and results for row `b` of the batch at time
/// `t`.
struct Places {
    /// The row of the inputs.
    x: String,
    /// The row among the states of all steps, and that among the first or the last states.
    all: String,
    last: String,
}

impl Places {
    /// The rows of a direction, whose number in C is `d`.
    fn of(r: &Recurrent, d: &str) -> Places {
        let [x, all, last] = match r.batch_first {
            true => {
                let x = "b * STEPS + t";
                [x.into(), format!("({x}) * DIRS + {d}"), format!("b * DIRS + {d}")]
            }
            false => {
                let all = format!("(t * DIRS + {d}) * BATCH + b");
                ["t * BATCH + b".into(), all, format!("{d} * BATCH + b")]
            }
        };
        Places { x, all, last }
    }
}

/// The first state, or cell, of unit `i`, by the operand that has it; `last` is a row's number.
fn given_state(p: &Program, operand: usize, last: &str) -> String {
    match p.has(operand) {
        true => format!("x{operand}[({last}) * HIDDEN + i]"),
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
/// together, a row for each step of each row of the batch that goes on at it, then each step
/// multiplies the states of all these rows.
fn direction(p: &Program, r: &Recurrent, way: &Way, d: i64) -> Result<String, String> {
    let back = d == 1 || p.ctx.text("direction", "forward")? == "reverse";
    let Places { x, all, last } = Places::of(r, &d.to_string());
    let length = if p.has(4) { "(long)x4[b]" } else { "STEPS" };
    let state = |i: usize| given_state(p, i, &last);
    let names = Names {
        sum: &|gate| format!("g[{gate} * HIDDEN + i]"),
        state: "u[i]",
        cell: "v[i]",
        last: "e[i]",
    };
    let store = match p.result(0).is_some() {
        true => {
            format!("        for (long i = 0; i < HIDDEN; i++) y0[({all}) * HIDDEN + i] = u[i];\n")
        }
        false => String::new(),
    };
    let mut text = format!(
        "  {{
{weights}    long longest = 0;
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
      long rows = 0;
      for (long s = first; s < end; s++)
        for (long b = 0; b < BATCH; b++) {{
          const long length = LENGTH(b), t = {t};
          if (s < length) from[rows++] = x0 + {x} * FEATURES;
        }}
      for (long a = 0; a < rows; a++)
        for (long k = 0; k < GATES * HIDDEN; k++) ahead[a * GATES * HIDDEN + k] = bias[k];
      {inputs}
      R *g0 = ahead;
      for (long s = first; s < end; s++) {{
      long active = 0;
      for (long b = 0; b < BATCH; b++)
        if (s < LENGTH(b)) states[active++] = h + b * HIDDEN;
{product}{last_gate}      for (long b = 0, a = 0; b < BATCH; b++) {{
        const long length = LENGTH(b), t = {t};
        (void)t;
        if (s >= length) continue;
        const R *restrict g = g0 + a * GATES * HIDDEN, *restrict e = last + a * HIDDEN;
        R *restrict u = h + b * HIDDEN, *restrict v = cell + b * HIDDEN;
        (void)v, (void)e, a++;
        for (long i = 0; i < HIDDEN; i++) {{
        {step}
        }}
{store}      }}
      g0 += active * GATES * HIDDEN;
      }}
    }}
",
        bias = added(p, way, &d.to_string()),
        u = state(5),
        v = if p.ctx.node.op == "LSTM" { state(6) } else { "0".into() },
        t = if back { "length - 1 - s" } else { "s" },
        x = format_args!("({x})"),
        weights = way.weights(d),
        inputs = way.ahead(),
        product = way.products(false, "g0", "GATES * HIDDEN"),
        last_gate = last_gate(p, way, d),
        step = step(p, way, d, &names)?,
    );
    text += &last_states(p, &last);
    Ok((text + "  }\n").replace("LENGTH(b)", length))
}
