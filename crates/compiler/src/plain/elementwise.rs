//! Plain kernels (untuned C for one ONNX operator) of elementwise operators: each element of the
//! result depends on one element of each operand, of which several may be broadcast. Most
//! operators' C is the text in their row of `core/src/operators/elementwise.rs`, around which this
//! file writes loops; `OPS` lists the operators that need more. Input: a call at constant shapes;
//! output: C. `mod.rs` collects the tables `OPS` of all families of operators.

use super::Generator;
use super::broadcast::nest;
use super::program::{Program, is_unsigned, limits};
use squall_core::DType;
use squall_core::operators::{Each, Row, standard};
use squall_core::text::shown;

/// Operators whose C is more than the text in their rows.
pub(super) const OPS: &[(&str, Generator)] = &[
    ("BitShift", binary),
    ("Clip", clip),
    ("Div", binary),
    ("Dropout", dropout),
    ("Gelu", unary),
    ("IsInf", unary),
    ("Max", variadic),
    ("Mean", variadic),
    ("Min", variadic),
    ("Mod", binary),
    ("PRelu", prelu),
    ("Pow", power),
    ("Sum", variadic),
    ("Where", select),
];

/// The generator of an operator that is written by the text in its row.
pub(super) fn by_row(row: &Row) -> Option<Generator> {
    match row.each?.c?.operands {
        1 => Some(unary),
        _ => Some(binary),
    }
}

/// Whether an operator's C is written here, as loops over elements.
pub(super) fn writes(row: &Row) -> bool {
    by_row(row).is_some() || OPS.iter().any(|(name, _)| *name == row.name)
}

/// The elementwise part of the row of a program's operator.
fn each_of(p: &Program) -> Option<Each> {
    standard(&p.ctx.node.op)?.each
}

/// Gives the macros `A` and `B` their values, and refuses attributes that are not known.
fn attributes(p: &mut Program) -> Result<(), String> {
    let list = each_of(p).map_or(&[][..], |each| each.attributes);
    for (macro_name, (name, default)) in ["A", "B"].iter().zip(list) {
        let value = p.ctx.float_or(name, *default)?;
        p.float(macro_name, value);
    }
    let known: Vec<&str> = list.iter().map(|(name, _)| *name).collect();
    only(p, &known)
}

/// Refuses all attributes but these.
pub(super) fn only(p: &Program, known: &[&str]) -> Result<(), String> {
    let free = ["consumed_inputs", "axis", "broadcast"];
    let extra = |n: &&String| !known.contains(&n.as_str()) && !free.contains(&n.as_str());
    match p.ctx.node.attributes.keys().find(extra) {
        Some(name) => Err(format!("attribute `{}` is not supported", shown(name))),
        None => Ok(()),
    }
}

fn is_real(d: DType) -> bool {
    matches!(d, DType::F32 | DType::F64)
}

/// `U`, the type in which integers of an operand wrap around.
fn wrapping(p: &mut Program, d: DType) {
    let wide = matches!(d, DType::I64 | DType::U64);
    p.define("U", if wide { "unsigned long long" } else { "unsigned" });
}

fn unary(p: &mut Program) -> Result<(), String> {
    let d = p.dtype(0)?;
    let op = p.ctx.node.op.clone();
    let texts = each_of(p).and_then(|each| each.c);
    let (real, integer) = match op.as_str() {
        "Gelu" => {
            only(p, &["approximate"])?;
            match p.ctx.text("approximate", "none")? {
                "tanh" => {
                    let form = "C(0.5) * x * (C(1) + F(tanh)(C(0.7978845608028654) * \
                                (x + C(0.044715) * x * x * x)))";
                    (form, "")
                }
                "none" => ("C(0.5) * x * (C(1) + F(erf)(x * C(0.7071067811865476)))", ""),
                other => return Err(format!("attribute `approximate` is `{}`", shown(other))),
            }
        }
        "IsInf" => {
            only(p, &["detect_negative", "detect_positive"])?;
            let on = |n| Ok::<_, String>(p.ctx.int_or(n, 1)? != 0);
            let form = match (on("detect_negative")?, on("detect_positive")?) {
                (true, true) => "x == C(INFINITY) || x == -C(INFINITY)",
                (true, false) => "x == -C(INFINITY)",
                (false, true) => "x == C(INFINITY)",
                (false, false) => "(void)x, 0",
            };
            (form, "")
        }
        _ => {
            attributes(p)?;
            texts.map(|c| (c.of_floats, c.of_whole)).ok_or("it has no plain kernel")?
        }
    };
    let form = if is_real(d) { real } else { integer };
    if form.is_empty() {
        return Err(format!("elements of type {} are not supported", d.name()));
    }
    if is_real(d) {
        p.real0()?;
    }
    wrapping(p, d);
    let x = if form == "0" { "" } else { "const T0 x = x0[i]; " };
    let of_unsigned = texts.and_then(|c| c.of_unsigned).filter(|_| is_unsigned(d));
    let form = of_unsigned.unwrap_or(form);
    p.body(&format!("  for (long i = 0; i < M0; i++) {{ {x}y0[i] = (Y0)({form}); }}\n"));
    Ok(())
}

fn binary(p: &mut Program) -> Result<(), String> {
    let d = p.dtype(0)?;
    let op = p.ctx.node.op.clone();
    let mut guard = String::new();
    let form: String = match (op.as_str(), is_real(d)) {
        ("Div", true) => "a / b".into(),
        ("Div", false) => division(d, &mut guard, "(T0)(a / b)"),
        ("Mod", _) => {
            only(p, &["fmod"])?;
            remainder(p, d, &mut guard)?
        }
        ("BitShift", _) => {
            only(p, &["direction"])?;
            let shift = match p.ctx.text("direction", "")? {
                "LEFT" => "(T0)((U)a << (unsigned)b)",
                "RIGHT" => "(T0)(a >> (unsigned)b)",
                other => return Err(format!("attribute `direction` is `{}`", shown(other))),
            };
            if is_real(d) || d == DType::Bool {
                return Err(format!("elements of type {} are not supported", d.name()));
            }
            let bits = 8 * d.bytes();
            let out = match is_unsigned(d) || shift.contains("<<") {
                true => "0",
                false => "(T0)(a < 0 ? -1 : 0)",
            };
            let negative = if is_unsigned(d) { "" } else { "b < 0 || " };
            format!("{negative}b >= {bits} ? {out} : {shift}")
        }
        (_, real) => {
            attributes(p)?;
            let texts = each_of(p).and_then(|each| each.c).ok_or("it has no plain kernel")?;
            let form = match real {
                true => texts.of_floats,
                false if d == DType::Bool => texts.of_booleans,
                false => texts.of_whole,
            };
            form.into()
        }
    };
    if form.is_empty() {
        return Err(format!("elements of type {} are not supported", d.name()));
    }
    if is_real(d) {
        p.real0()?;
    }
    wrapping(p, d);
    let text = nest(p, &[0, 1])?.text(&format!(
        "    const T0 a = x0[@IN0]; const T1 b = x1[@IN1];\n{guard}    y0[@OUT] = (Y0)({form});"
    ));
    p.body(&text);
    Ok(())
}

/// A division of integers; a division by zero stops the call, an overflow wraps around.
fn division(d: DType, guard: &mut String, form: &str) -> String {
    *guard += "    if (b == 0) return 1;\n";
    match limits(d) {
        Some((low, _)) if !is_unsigned(d) => {
            let overflow = if form.contains('%') { "(T0)0" } else { "a" };
            format!("a == {low} && b == -1 ? {overflow} : {form}")
        }
        _ => form.into(),
    }
}

fn remainder(p: &Program, d: DType, guard: &mut String) -> Result<String, String> {
    let c = p.ctx.int_or("fmod", 0)? != 0;
    Ok(match (is_real(d), c || is_unsigned(d)) {
        (true, true) => "F(fmod)(a, b)".into(),
        (true, false) => "float_mod(a, b)".into(),
        (false, true) => division(d, guard, "(T0)(a % b)"),
        (false, false) => division(d, guard, "python_mod(T0, a, b)"),
    })
}

fn power(p: &mut Program) -> Result<(), String> {
    only(p, &[])?;
    let (d, e) = (p.dtype(0)?, p.dtype(1)?);
    if d == DType::Bool || e == DType::Bool {
        return Err("elements of type bool are not supported".into());
    }
    let form = match (is_real(d), is_real(e)) {
        (true, _) => "F(pow)(a, (R)b)",
        (false, true) if is_unsigned(d) => "to_u64(pow((double)a, (double)b))",
        (false, true) => "to_i64(pow((double)a, (double)b))",
        (false, false) if is_unsigned(e) => "integer_power((unsigned long long)a, (long long)b)",
        (false, false) => {
            "b < 0 ? (T0)(a == 1 ? 1 : 0) : (T0)integer_power((unsigned long long)a, (long long)b)"
        }
    };
    if is_real(d) {
        p.real0()?;
    }
    let known = p.ctx.operand(1).and_then(|o| o.constant);
    let exponent = known.filter(|c| c.len() == 1).and_then(|c| c.as_floats()?.first().copied());
    let form = match exponent {
        Some(2.0) if is_real(d) => "(void)b, a * a",
        Some(0.5) if is_real(d) => "(void)b, F(sqrt)(a)",
        _ => form,
    };
    let text = nest(p, &[0, 1])?.text(&format!(
        "    const T0 a = x0[@IN0]; const T1 b = x1[@IN1];\n    y0[@OUT] = (Y0)({form});"
    ));
    p.body(&text);
    Ok(())
}

fn variadic(p: &mut Program) -> Result<(), String> {
    only(p, &[])?;
    let d = p.dtype(0)?;
    let n = p.ctx.inputs.len();
    let op = p.ctx.node.op.clone();
    let step = match (op.as_str(), is_real(d)) {
        ("Max", true) => "v = a > v || a != a ? a : v;",
        ("Min", true) => "v = a < v || a != a ? a : v;",
        ("Max", false) => "v = a > v ? a : v;",
        ("Min", false) => "v = a < v ? a : v;",
        ("Sum" | "Mean", true) => "v += a;",
        _ => return Err(format!("elements of type {} are not supported", d.name())),
    };
    let all: Vec<usize> = (0..n).collect();
    let mut inner = String::from("    T0 v = x0[@IN0];\n");
    for i in 1..n {
        inner += &format!("    {{ const T0 a = x{i}[@IN{i}]; {step} }}\n");
    }
    inner += &match op.as_str() {
        "Mean" => format!("    y0[@OUT] = v / (T0){n};"),
        _ => "    y0[@OUT] = v;".to_string(),
    };
    let text = nest(p, &all)?.text(&inner);
    p.body(&text);
    Ok(())
}

fn select(p: &mut Program) -> Result<(), String> {
    // Both are read, so that compilers choose between vectors in the place of a branch an element.
    let text = nest(p, &[0, 1, 2])?.text(
        "    const T1 a = x1[@IN1]; const T2 b = x2[@IN2];\n    y0[@OUT] = x0[@IN0] ? a : b;",
    );
    p.body(&text);
    Ok(())
}

fn prelu(p: &mut Program) -> Result<(), String> {
    let d = p.dtype(0)?;
    // Readers align the slope of older versions, which runs along the channels, where they know it.
    let slope = p.shape(1)?;
    if p.ctx.opset < 7 && p.shape(0)?.len() > 2 && slope.len() == 1 && slope[0] != 1 {
        return Err(format!("a slope along channels in opset {} is not supported", p.ctx.opset));
    }
    wrapping(p, d);
    let form = match is_real(d) {
        true => "a < 0 ? a * b : a",
        false if is_unsigned(d) => "(void)b, a",
        false => "a < 0 ? (T0)((U)a * (U)b) : a",
    };
    let text = nest(p, &[0, 1])?.text(&format!(
        "    const T0 a = x0[@IN0]; const T1 b = x1[@IN1];\n    y0[@OUT] = (Y0)({form});"
    ));
    p.body(&text);
    Ok(())
}

fn clip(p: &mut Program) -> Result<(), String> {
    only(p, &["min", "max"])?;
    let d = p.dtype(0)?;
    let mut inner = String::from("    T0 v = x0[i];\n");
    if p.ctx.opset < 11 {
        p.real0()?;
        let low = p.ctx.float_or("min", f32::MIN)?;
        let high = p.ctx.float_or("max", f32::MAX)?;
        p.float("LOW", low);
        p.float("HIGH", high);
        inner += "    v = v < LOW ? LOW : v;\n    v = v > HIGH ? HIGH : v;\n";
    } else {
        for (i, sign) in [(1, '<'), (2, '>')] {
            if p.has(i) {
                // A bound that is NaN is none that may be passed over: the result is NaN.
                let none = if is_real(d) { format!(" || *x{i} != *x{i}") } else { String::new() };
                inner += &format!("    v = v {sign} *x{i}{none} ? *x{i} : v;\n");
            }
        }
    }
    p.body(&format!("  for (long i = 0; i < M0; i++) {{\n{inner}    y0[i] = v;\n  }}\n"));
    Ok(())
}

/// At inference, dropout hands its operand on and drops nothing.
fn dropout(p: &mut Program) -> Result<(), String> {
    if p.result(0).is_some() {
        p.body("  for (long i = 0; i < M0; i++) y0[i] = x0[i];\n");
    }
    if p.result(1).is_some() {
        p.body("  for (long i = 0; i < M1; i++) y1[i] = 1;\n");
    }
    Ok(())
}
