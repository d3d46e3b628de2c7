//! The rows of ONNX's elementwise operators (`Add`, `Relu`, `Gelu`, ..), with NumPy's broadcasting
//! between operands. A row states shapes, evaluator, formula and C of an operator, for example
//! `each("Abs", ..).is(Unary::Abs).c("F(fabs)(x)", ..)`; a new elementwise operator is a new row
//! here. `operators/mod.rs` has the table of all families.

use super::each::each;
use super::{Moving, Operands, Row};
use crate::expr::{Binary, Expr, Unary};
use crate::graph::fold::{self, Float as _, Function};
use crate::graph::infer::elementwise;
use crate::graph::{Attribute, Constant};
use crate::operator::functions::{self as f, c};

/// A function of both types of floats.
macro_rules! function {
    (|$x:ident| $body:expr) => {
        Function::new(|$x: f32| $body, |$x: f64| $body)
    };
    ($name:ident) => {
        Function::new(f32::$name, f64::$name)
    };
}

pub(super) const ROWS: &[Row] = &[
    each("Abs", elementwise::same)
        .is(Unary::Abs)
        .c("F(fabs)(x)", "(T0)(x < 0 ? 0 - (U)x : (U)x)")
        .c_of_unsigned("x")
        .folds_by(function!(abs).of_whole(i64::wrapping_abs).of_unsigned(|v| v))
        .never_negative(),
    each("Acos", elementwise::same).c("ACOS(x)", ""),
    each("Acosh", elementwise::same).c("ACOSH(x)", ""),
    each("Asin", elementwise::same).c("ASIN(x)", ""),
    each("Asinh", elementwise::same).c("ASINH(x)", ""),
    each("Atan", elementwise::same).c("ATAN(x)", ""),
    each("Atanh", elementwise::same).c("ATANH(x)", ""),
    each("Ceil", elementwise::same)
        .is(Unary::Ceil)
        .c("F(ceil)(x)", "x")
        .folds_by(function!(ceil).of_whole(|v| v))
        .keeps_sign(),
    each("Celu", elementwise::same)
        .formula_by(celu)
        .c("x > 0 ? x : A * F(expm1)(x / A)", "")
        .attributes(&[("alpha", 1.0)]),
    each("Clip", elementwise::same).formula_by(clip).called(clip_name).folds(fold::clip).spreads(),
    each("Cos", elementwise::same).is(Unary::Cos).c("F(cos)(x)", "").folds_by(function!(cos)),
    each("Cosh", elementwise::same).c("COSH(x)", ""),
    each("Elu", elementwise::same)
        .formula_by(|o| Ok(f::selu(o.need(0)?, o.finite("alpha", 1.0)?, 1.0)))
        .c("x > 0 ? x : A * F(expm1)(x)", "")
        .attributes(&[("alpha", 1.0)]),
    each("Erf", elementwise::same).is(Unary::Erf).c("F(erf)(x)", ""),
    each("Exp", elementwise::same)
        .is(Unary::Exp)
        .c("EXP(x)", "")
        .folds_by(function!(exp))
        .never_negative(),
    each("Floor", elementwise::same)
        .is(Unary::Floor)
        .c("F(floor)(x)", "x")
        .folds_by(function!(floor).of_whole(|v| v))
        .keeps_sign(),
    each("Gelu", elementwise::same).formula_by(gelu),
    each("HardSigmoid", elementwise::same)
        .formula_by(|o| {
            Ok(f::hard_sigmoid(o.need(0)?, o.float("alpha", 0.2), o.float("beta", 0.5)))
        })
        .c("unit_r(A * x + B)", "")
        .attributes(&[("alpha", 0.2), ("beta", 0.5)])
        .never_negative(),
    each("HardSwish", elementwise::same)
        .formula_by(|o| Ok(f::hard_swish(o.need(0)?)))
        .c("x * unit_r(x * C(0.16666666666666666) + C(0.5))", "")
        .keeps_sign(),
    each("Identity", elementwise::same).folds(fold::renamed).keeps_sign().renames(),
    each("LeakyRelu", elementwise::same)
        .formula_by(|o| Ok(f::leaky_relu(o.need(0)?, c(o.finite("alpha", 0.01)?))))
        .c("x < 0 ? A * x : x", "")
        .attributes(&[("alpha", 0.01)]),
    each("Log", elementwise::same).is(Unary::Log).c("F(log)(x)", "").folds_by(function!(ln)),
    each("Mish", elementwise::same)
        .formula_by(|o| Ok(f::mish(o.need(0)?)))
        .c("x * F(tanh)(softplus_r(x))", ""),
    each("Neg", elementwise::same)
        .is(Unary::Neg)
        .c("-x", "(T0)(0 - (U)x)")
        .folds_by(function!(|v| -v).of_whole(i64::wrapping_neg)),
    each("Not", elementwise::same).c("", "!x").folds(fold::not),
    each("Reciprocal", elementwise::same)
        .formula_by(|o| Ok(f::div(c(1.0), o.need(0)?)))
        .c("C(1) / x", "")
        .folds_by(function!(recip)),
    each("Relu", elementwise::same)
        .formula_by(|o| Ok(f::relu(o.need(0)?)))
        .c("x < 0 ? C(0) : x", "x < 0 ? (T0)0 : x")
        .c_of_unsigned("x")
        .folds_by(function!(|v| v.most(0.0)).of_whole(|v| v.max(0)).of_unsigned(|v| v))
        .never_negative(),
    each("Round", elementwise::same)
        .is(Unary::Round)
        .c("F(rint)(x)", "x")
        .folds_by(function!(round_ties_even).of_whole(|v| v))
        .keeps_sign(),
    each("Selu", elementwise::same)
        .formula_by(|o| {
            Ok(f::selu(
                o.need(0)?,
                o.finite("alpha", 1.673_263_192_176_818_8)?,
                o.finite("gamma", 1.050_701_022_148_132_3)?,
            ))
        })
        .c("x > 0 ? B * x : B * (A * F(expm1)(x))", "")
        .attributes(&[("alpha", 1.673_263_2), ("gamma", 1.050_701)]),
    each("Shrink", elementwise::same)
        .c("x < -A ? x + B : x > A ? x - B : C(0)", "")
        .attributes(&[("lambd", 0.5), ("bias", 0.0)]),
    each("Sigmoid", elementwise::same).is(Unary::Sigmoid).c("sigmoid_r(x)", "").never_negative(),
    each("Sign", elementwise::same)
        .is(Unary::Sign)
        .c("x != x ? x : (R)((x > 0) - (x < 0))", "(T0)((x > 0) - (x < 0))")
        .c_of_unsigned("(T0)(x != 0)")
        .folds_by(
            function!(|v| if v == 0.0 { 0.0 } else { v.signum() })
                .of_whole(i64::signum)
                .of_unsigned(|v| i64::from(v != 0)),
        ),
    each("Sin", elementwise::same).is(Unary::Sin).c("F(sin)(x)", "").folds_by(function!(sin)),
    each("Sinh", elementwise::same).c("SINH(x)", ""),
    each("Softplus", elementwise::same)
        .formula_by(|o| Ok(f::softplus(o.need(0)?)))
        .c("softplus_r(x)", "")
        .never_negative(),
    each("Softsign", elementwise::same)
        .formula_by(|o| Ok(f::softsign(o.need(0)?)))
        .c("x / (C(1) + F(fabs)(x))", ""),
    each("Sqrt", elementwise::same)
        .is(Unary::Sqrt)
        .c("F(sqrt)(x)", "")
        .folds_by(function!(sqrt))
        .never_negative(),
    each("Swish", elementwise::same)
        .formula_by(|o| Ok(f::swish(o.need(0)?, o.float("alpha", 1.0))))
        .c("x * sigmoid_r(A * x)", "")
        .attributes(&[("alpha", 1.0)]),
    each("Tan", elementwise::same).c("F(tan)(x)", ""),
    each("Tanh", elementwise::same).is(Unary::Tanh).c("F(tanh)(x)", "").folds_by(function!(tanh)),
    each("ThresholdedRelu", elementwise::same)
        .c("x > A ? x : C(0)", "")
        .attributes(&[("alpha", 1.0)]),
    each("IsNaN", elementwise::test).c("x != x", "0"),
    each("IsInf", elementwise::test),
    each("Dropout", elementwise::dropout)
        .folds(fold::renamed)
        .keeps_sign()
        .renames()
        .spreads()
        .limits("at inference: it drops nothing"),
    each("PRelu", elementwise::prelu).formula_by(sloped),
    each("Cast", elementwise::cast).folds(fold::cast).moves_data().spreads(),
    each("CastLike", elementwise::cast_like).folds(fold::cast).spreads(),
    each("Add", elementwise::arithmetic)
        .formula_by(|o| Ok(f::add(o.need(0)?, o.need(1)?)))
        .commutes()
        .c_of_two("a + b", "(T0)((U)a + (U)b)", "")
        .folds(fold::arithmetic)
        .keeps_sign_of_all(),
    each("Sub", elementwise::arithmetic)
        .formula_by(|o| Ok(f::sub(o.need(0)?, o.need(1)?)))
        .c_of_two("a - b", "(T0)((U)a - (U)b)", "")
        .folds(fold::arithmetic),
    each("Mul", elementwise::arithmetic)
        .formula_by(|o| Ok(f::mul(o.need(0)?, o.need(1)?)))
        .commutes()
        .c_of_two("a * b", "(T0)((U)a * (U)b)", "")
        .folds(fold::arithmetic)
        .keeps_sign_of_all(),
    each("Div", elementwise::arithmetic)
        .formula_by(quotient)
        .folds(fold::arithmetic)
        .keeps_sign_of_all(),
    each("Mod", elementwise::arithmetic).folds(fold::arithmetic),
    each("Pow", elementwise::power).formula_by(power).folds(fold::arithmetic),
    each("Min", elementwise::arithmetic)
        .formula_by(|o| o.folded(f::min))
        .commutes()
        .folds(fold::arithmetic)
        .keeps_sign_of_all(),
    each("Max", elementwise::arithmetic)
        .formula_by(|o| o.folded(f::max))
        .commutes()
        .folds(fold::arithmetic),
    each("Mean", elementwise::arithmetic)
        .formula_by(|o| Ok(f::div(o.folded(f::add)?, c(o.count() as f64))))
        .keeps_sign_of_all(),
    each("Sum", elementwise::arithmetic)
        .formula_by(|o| o.folded(f::add))
        .commutes()
        .folds(fold::arithmetic)
        .called(|_| Some("add"))
        .keeps_sign_of_all(),
    each("Equal", elementwise::compare).c_of_two("a == b", "a == b", "a == b").folds(fold::compare),
    each("Less", elementwise::compare).c_of_two("a < b", "a < b", "a < b").folds(fold::compare),
    each("Greater", elementwise::compare).c_of_two("a > b", "a > b", "a > b").folds(fold::compare),
    each("LessOrEqual", elementwise::compare)
        .c_of_two("a <= b", "a <= b", "a <= b")
        .folds(fold::compare),
    each("GreaterOrEqual", elementwise::compare)
        .c_of_two("a >= b", "a >= b", "a >= b")
        .folds(fold::compare),
    each("And", elementwise::compare).c_of_two("", "", "a && b").folds(fold::compare),
    each("Or", elementwise::compare).c_of_two("", "", "a || b").folds(fold::compare),
    each("Xor", elementwise::compare).c_of_two("", "", "!a != !b").folds(fold::compare),
    each("Where", elementwise::select)
        .folds(fold::select)
        .moves(Moving::Only(&[1, 2]))
        .picks(&[1, 2]),
    each("BitCast", elementwise::bit_cast),
    each("BitShift", elementwise::arithmetic),
    each("BitwiseAnd", elementwise::arithmetic).c_of_two("", "(T0)(a & b)", ""),
    each("BitwiseNot", elementwise::same).c("", "(T0)~x"),
    each("BitwiseOr", elementwise::arithmetic).c_of_two("", "(T0)(a | b)", ""),
    each("BitwiseXor", elementwise::arithmetic).c_of_two("", "(T0)(a ^ b)", ""),
    each("OptionalGetElement", elementwise::same).limits("of tensors"),
    each("OptionalHasElement", elementwise::has_element).limits("of tensors"),
    each("SwiGLU", elementwise::arithmetic)
        .formula_by(|o| Ok(f::mul(f::swish(o.need(0)?, o.float("alpha", 1.0)), o.need(1)?)))
        .c_of_two("a * sigmoid_r(A * a) * b", "", "")
        .attributes(&[("alpha", 1.0)]),
];

/// A product is cheaper than a division, and of powers of two it is the same.
fn quotient(o: &Operands) -> Result<Expr, String> {
    let x = o.need(0)?;
    Ok(match o.need(1)? {
        Expr::Const(d) if d != 0.0 && is_power_of_two(d) => f::mul(x, c(1.0 / d)),
        d => f::div(x, d),
    })
}

fn is_power_of_two(x: f64) -> bool {
    let (mantissa, exponent) = (x.to_bits() & ((1 << 52) - 1), x.to_bits() >> 52 & 0x7ff);
    mantissa == 0 && (1023 - 60..1023 + 60).contains(&exponent)
}

/// The slope is multiplied by 0 where it does not count: of infinities that is NaN.
fn sloped(o: &Operands) -> Result<Expr, String> {
    let is_finite = match o.ctx.operand(1).and_then(|slope| slope.constant) {
        Some(Constant::F32 { data, .. }) => data.iter().all(|x| x.is_finite()),
        Some(Constant::F64 { data, .. }) => data.iter().all(|x| x.is_finite()),
        _ => true,
    };
    if !(o.is_weight)(1) || !is_finite {
        return Err("its slope is no weight of finite numbers".into());
    }
    Ok(f::leaky_relu(o.need(0)?, o.need(1)?))
}

fn celu(o: &Operands) -> Result<Expr, String> {
    match o.finite("alpha", 1.0)? {
        0.0 => Err("its alpha is 0".into()),
        alpha => Ok(f::celu(o.need(0)?, alpha)),
    }
}

fn gelu(o: &Operands) -> Result<Expr, String> {
    let is_by_tanh = o.ctx.text("approximate", "none") == Ok("tanh");
    Ok(if is_by_tanh { f::gelu_tanh(o.need(0)?) } else { f::gelu(o.need(0)?) })
}

fn power(o: &Operands) -> Result<Expr, String> {
    let x = o.need(0)?;
    Ok(match o.need(1)? {
        Expr::Const(p) => f::power(x, p),
        p => Expr::binary(Binary::Pow, x, p),
    })
}

fn clip(o: &Operands) -> Result<Expr, String> {
    let (low, high) = limits(o)?;
    Ok(f::clip(o.need(0)?, low, high))
}

/// Limits by which a Clip has another name.
fn clip_name(o: &Operands) -> Option<&'static str> {
    let (low, high) = limits(o).ok()?;
    let is = |e: &Option<Expr>, x: f64| matches!(e, Some(Expr::Const(v)) if *v == x);
    match (is(&low, 0.0), is(&high, 6.0), high.is_none()) {
        (true, true, _) => Some("relu6"),
        (true, _, true) => Some("relu"),
        _ => None,
    }
}

/// The limits of a Clip: attributes before opset 11, inputs since.
fn limits(o: &Operands) -> Result<(Option<Expr>, Option<Expr>), String> {
    let attribute = |name: &str| match o.ctx.node.attributes.get(name) {
        // The defaults of old opsets are the ends of the format: no limit.
        Some(Attribute::Float(x)) if x.abs() < f32::MAX => Some(c(super::decimal(*x))),
        _ => None,
    };
    for limit in (1..3).filter_map(|i| o.ctx.operand(i)) {
        if limit.shape.is_some_and(|s| s.iter().product::<i64>() != 1) {
            return Err(format!("its limit `{}` is no single number", limit.name));
        }
    }
    let finite = |e: &Expr| !matches!(e, Expr::Const(x) if x.abs() >= f64::from(f32::MAX));
    let one = |i: usize, name: &str| o.get(i).filter(finite).or_else(|| attribute(name));
    Ok((one(1, "min"), one(2, "max")))
}
