//! Operators that compute each element alone, of one operand or of several that are broadcast.

use super::Generator;
use super::broadcast::nest;
use super::program::{Program, is_unsigned, limits};
use squall_core::DType;
use squall_core::text::shown;

pub(super) const OPS: &[(&str, Generator)] = &[
    ("Abs", unary),
    ("Acos", unary),
    ("Acosh", unary),
    ("Add", binary),
    ("And", binary),
    ("Asin", unary),
    ("Asinh", unary),
    ("Atan", unary),
    ("Atanh", unary),
    ("BitShift", binary),
    ("BitwiseAnd", binary),
    ("BitwiseNot", unary),
    ("BitwiseOr", binary),
    ("BitwiseXor", binary),
    ("Ceil", unary),
    ("Celu", unary),
    ("Clip", clip),
    ("Cos", unary),
    ("Cosh", unary),
    ("Div", binary),
    ("Dropout", dropout),
    ("Elu", unary),
    ("Equal", binary),
    ("Erf", unary),
    ("Exp", unary),
    ("Floor", unary),
    ("Gelu", unary),
    ("Greater", binary),
    ("GreaterOrEqual", binary),
    ("HardSigmoid", unary),
    ("HardSwish", unary),
    ("IsInf", unary),
    ("IsNaN", unary),
    ("LeakyRelu", unary),
    ("Less", binary),
    ("LessOrEqual", binary),
    ("Log", unary),
    ("Max", variadic),
    ("Mean", variadic),
    ("Min", variadic),
    ("Mish", unary),
    ("Mod", binary),
    ("Mul", binary),
    ("Neg", unary),
    ("Not", unary),
    ("Or", binary),
    ("PRelu", prelu),
    ("Pow", power),
    ("Reciprocal", unary),
    ("Relu", unary),
    ("Round", unary),
    ("Selu", unary),
    ("Shrink", unary),
    ("Sigmoid", unary),
    ("Sign", unary),
    ("Sin", unary),
    ("Sinh", unary),
    ("Softplus", unary),
    ("Softsign", unary),
    ("Sqrt", unary),
    ("Sub", binary),
    ("Sum", variadic),
    ("SwiGLU", binary),
    ("Swish", unary),
    ("Tan", unary),
    ("Tanh", unary),
    ("ThresholdedRelu", unary),
    ("Where", select),
    ("Xor", binary),
];

/// Functions of one float `x` (in `R`), and of one integer or boolean (in `T0`); empty where
/// there is none. `A` and `B` are attributes.
const UNARY: &[(&str, &str, &str)] = &[
    ("Abs", "F(fabs)(x)", "(T0)(x < 0 ? 0 - (U)x : (U)x)"),
    ("Acos", "F(acos)(x)", ""),
    ("Acosh", "F(acosh)(x)", ""),
    ("Asin", "F(asin)(x)", ""),
    ("Asinh", "F(asinh)(x)", ""),
    ("Atan", "F(atan)(x)", ""),
    ("Atanh", "F(atanh)(x)", ""),
    ("BitwiseNot", "", "(T0)~x"),
    ("Ceil", "F(ceil)(x)", "x"),
    ("Celu", "x > 0 ? x : A * F(expm1)(x / A)", ""),
    ("Cos", "F(cos)(x)", ""),
    ("Cosh", "F(cosh)(x)", ""),
    ("Elu", "x > 0 ? x : A * F(expm1)(x)", ""),
    ("Erf", "F(erf)(x)", ""),
    ("Exp", "EXP(x)", ""),
    ("Floor", "F(floor)(x)", "x"),
    ("HardSigmoid", "unit_r(A * x + B)", ""),
    ("HardSwish", "x * unit_r(x * C(0.16666666666666666) + C(0.5))", ""),
    ("IsNaN", "x != x", "0"),
    ("LeakyRelu", "x < 0 ? A * x : x", ""),
    ("Log", "F(log)(x)", ""),
    ("Mish", "x * F(tanh)(softplus_r(x))", ""),
    ("Neg", "-x", "(T0)(0 - (U)x)"),
    ("Not", "", "!x"),
    ("Reciprocal", "C(1) / x", ""),
    ("Relu", "x < 0 ? C(0) : x", "x < 0 ? (T0)0 : x"),
    ("Round", "F(rint)(x)", "x"),
    ("Selu", "x > 0 ? B * x : B * (A * F(expm1)(x))", ""),
    ("Shrink", "x < -A ? x + B : x > A ? x - B : C(0)", ""),
    ("Sigmoid", "sigmoid_r(x)", ""),
    ("Sign", "x != x ? x : (R)((x > 0) - (x < 0))", "(T0)((x > 0) - (x < 0))"),
    ("Sin", "F(sin)(x)", ""),
    ("Sinh", "F(sinh)(x)", ""),
    ("Softplus", "softplus_r(x)", ""),
    ("Softsign", "x / (C(1) + F(fabs)(x))", ""),
    ("Sqrt", "F(sqrt)(x)", ""),
    ("Swish", "x * sigmoid_r(A * x)", ""),
    ("Tan", "F(tan)(x)", ""),
    ("Tanh", "F(tanh)(x)", ""),
    ("ThresholdedRelu", "x > A ? x : C(0)", ""),
];

/// The attributes that functions of one operand have, with their values where they are absent.
const ATTRIBUTES: &[(&str, &str, f32, &str, f32)] = &[
    ("Celu", "alpha", 1.0, "", 0.0),
    ("Elu", "alpha", 1.0, "", 0.0),
    ("HardSigmoid", "alpha", 0.2, "beta", 0.5),
    ("LeakyRelu", "alpha", 0.01, "", 0.0),
    ("Selu", "alpha", 1.673_263_2, "gamma", 1.050_701),
    ("Shrink", "lambd", 0.5, "bias", 0.0),
    ("SwiGLU", "alpha", 1.0, "", 0.0),
    ("Swish", "alpha", 1.0, "", 0.0),
    ("ThresholdedRelu", "alpha", 1.0, "", 0.0),
];

/// Gives the macros `A` and `B` their values, and refuses attributes that are not known.
fn attributes(p: &mut Program) -> Result<(), String> {
    let op = p.ctx.node.op.clone();
    let row = ATTRIBUTES.iter().find(|r| r.0 == op);
    let known = row.map_or(["", ""], |r| [r.1, r.3]);
    for (macro_name, (name, default)) in ["A", "B"]
        .iter()
        .zip(row.map_or([("", 0.0); 2], |r| [(r.1, r.2), (r.3, r.4)]))
        .filter(|x| !x.1.0.is_empty())
    {
        let value = p.ctx.float_or(name, default)?;
        p.float(macro_name, value);
    }
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
    let row = UNARY.iter().find(|r| r.0 == op);
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
            row.map(|r| (r.1, r.2)).ok_or("it has no plain kernel")?
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
    // Of unsigned numbers, comparisons with zero are always the same.
    let form = match (is_unsigned(d), op.as_str()) {
        (true, "Abs" | "Relu") => "x",
        (true, "Sign") => "(T0)(x != 0)",
        _ => form,
    };
    p.body(&format!("  for (long i = 0; i < M0; i++) {{ {x}y0[i] = (Y0)({form}); }}\n"));
    Ok(())
}

/// Functions of two operands `a` and `b`: of floats, of integers, of booleans.
const BINARY: &[(&str, &str, &str, &str)] = &[
    ("Add", "a + b", "(T0)((U)a + (U)b)", ""),
    ("And", "", "", "a && b"),
    ("BitwiseAnd", "", "(T0)(a & b)", ""),
    ("BitwiseOr", "", "(T0)(a | b)", ""),
    ("BitwiseXor", "", "(T0)(a ^ b)", ""),
    ("Equal", "a == b", "a == b", "a == b"),
    ("Greater", "a > b", "a > b", "a > b"),
    ("GreaterOrEqual", "a >= b", "a >= b", "a >= b"),
    ("Less", "a < b", "a < b", "a < b"),
    ("LessOrEqual", "a <= b", "a <= b", "a <= b"),
    ("Mul", "a * b", "(T0)((U)a * (U)b)", ""),
    ("Or", "", "", "a || b"),
    ("Sub", "a - b", "(T0)((U)a - (U)b)", ""),
    ("SwiGLU", "a * sigmoid_r(A * a) * b", "", ""),
    ("Xor", "", "", "!a != !b"),
];

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
            let row = BINARY.iter().find(|r| r.0 == op).ok_or("it has no plain kernel")?;
            let form = match real {
                true => row.1,
                false if d == DType::Bool => row.3,
                false => row.2,
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

/// A division of integers; those by zero stop the call, those that overflow wrap around.
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
    let text = nest(p, &[0, 1, 2])?.text("    y0[@OUT] = x0[@IN0] ? x1[@IN1] : x2[@IN2];");
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
