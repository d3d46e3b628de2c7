//! The elementwise functions of neural networks as expressions: `relu`, `gelu`, `swish`, `clip` and
//! others, each from an argument's expression to an expression. No function branches on its
//! argument: piecewise functions are written with `max` and `min`, which every target has.
//! `core/src/operators/elementwise.rs` uses them as the formulas of ONNX operators.

use crate::expr::{Binary, Expr, Unary};

/// A constant.
pub fn c(x: f64) -> Expr {
    Expr::Const(x)
}

/// `a + b`.
pub fn add(a: Expr, b: Expr) -> Expr {
    Expr::binary(Binary::Add, a, b)
}

/// `a - b`.
pub fn sub(a: Expr, b: Expr) -> Expr {
    Expr::binary(Binary::Sub, a, b)
}

/// `a * b`.
pub fn mul(a: Expr, b: Expr) -> Expr {
    Expr::binary(Binary::Mul, a, b)
}

/// `a / b`.
pub fn div(a: Expr, b: Expr) -> Expr {
    Expr::binary(Binary::Div, a, b)
}

/// The larger.
pub fn max(a: Expr, b: Expr) -> Expr {
    Expr::binary(Binary::Max, a, b)
}

/// The smaller.
pub fn min(a: Expr, b: Expr) -> Expr {
    Expr::binary(Binary::Min, a, b)
}

fn exp(x: Expr) -> Expr {
    Expr::unary(Unary::Exp, x)
}

/// `max(x, 0)`.
pub fn relu(x: Expr) -> Expr {
    max(x, c(0.0))
}

/// `x` above 0, `slope * x` below.
pub fn leaky_relu(x: Expr, slope: Expr) -> Expr {
    add(relu(x.clone()), mul(slope, min(x, c(0.0))))
}

/// `x` above 0, `alpha * (exp(x) - 1)` below; all times `gamma`.
pub fn selu(x: Expr, alpha: f64, gamma: f64) -> Expr {
    let below = sub(exp(min(x.clone(), c(0.0))), c(1.0));
    let below = if alpha == 1.0 { below } else { mul(c(alpha), below) };
    let e = add(relu(x), below);
    if gamma == 1.0 { e } else { mul(c(gamma), e) }
}

/// `x` above 0, `alpha * (exp(x / alpha) - 1)` below.
pub fn celu(x: Expr, alpha: f64) -> Expr {
    match alpha == 1.0 {
        true => selu(x, 1.0, 1.0),
        false => {
            add(relu(x.clone()), mul(c(alpha), sub(exp(div(min(x, c(0.0)), c(alpha))), c(1.0))))
        }
    }
}

/// `x` limited on one side or both.
pub fn clip(x: Expr, low: Option<Expr>, high: Option<Expr>) -> Expr {
    let x = match low {
        Some(low) => max(x, low),
        None => x,
    };
    match high {
        Some(high) => min(x, high),
        None => x,
    }
}

/// `alpha * x + beta` limited to 0 and 1.
pub fn hard_sigmoid(x: Expr, alpha: f64, beta: f64) -> Expr {
    clip(add(mul(x, c(alpha)), c(beta)), Some(c(0.0)), Some(c(1.0)))
}

/// `x * hard_sigmoid(x)` with slope 1/6.
pub fn hard_swish(x: Expr) -> Expr {
    mul(x.clone(), hard_sigmoid(x, 1.0 / 6.0, 0.5))
}

/// `log(1 + exp(x))`, in a form that does not overflow.
pub fn softplus(x: Expr) -> Expr {
    let small = exp(Expr::unary(Unary::Neg, Expr::unary(Unary::Abs, x.clone())));
    add(relu(x), Expr::unary(Unary::Log, add(c(1.0), small)))
}

/// `x / (1 + |x|)`.
pub fn softsign(x: Expr) -> Expr {
    div(x.clone(), add(c(1.0), Expr::unary(Unary::Abs, x)))
}

/// `x * sigmoid(beta * x)`.
pub fn swish(x: Expr, beta: f64) -> Expr {
    let inner = if beta == 1.0 { x.clone() } else { mul(c(beta), x.clone()) };
    mul(x, Expr::unary(Unary::Sigmoid, inner))
}

/// `x * tanh(softplus(x))`.
pub fn mish(x: Expr) -> Expr {
    mul(x.clone(), Expr::unary(Unary::Tanh, softplus(x)))
}

/// `x * Phi(x)`, exactly.
pub fn gelu(x: Expr) -> Expr {
    let phi =
        add(c(1.0), Expr::unary(Unary::Erf, mul(x.clone(), c(std::f64::consts::FRAC_1_SQRT_2))));
    mul(mul(c(0.5), x), phi)
}

/// `x * Phi(x)` by the usual approximation with `tanh`.
pub fn gelu_tanh(x: Expr) -> Expr {
    let cube = mul(mul(mul(c(0.044715), x.clone()), x.clone()), x.clone());
    let inner = mul(c((2.0 / std::f64::consts::PI).sqrt()), add(x.clone(), cube));
    mul(mul(c(0.5), x), add(c(1.0), Expr::unary(Unary::Tanh, inner)))
}

/// `a` to the power of a number, by products where that is exact.
pub fn power(a: Expr, exponent: f64) -> Expr {
    match exponent {
        1.0 => a,
        2.0 => mul(a.clone(), a),
        0.5 => Expr::unary(Unary::Sqrt, a),
        -1.0 => div(c(1.0), a),
        _ => Expr::binary(Binary::Pow, a, c(exponent)),
    }
}

/// A function of one tensor.
pub type Function = fn(Expr) -> Expr;

/// The functions of one tensor that operator lines name.
pub const NAMED: &[(&str, Function)] = &[
    ("relu", relu),
    ("relu6", |x| clip(x, Some(c(0.0)), Some(c(6.0)))),
    ("leaky_relu", |x| leaky_relu(x, c(0.01))),
    ("elu", |x| selu(x, 1.0, 1.0)),
    ("selu", |x| selu(x, 1.673_263_192_176_818_8, 1.050_701_022_148_132_3)),
    ("sigmoid", |x| Expr::unary(Unary::Sigmoid, x)),
    ("tanh", |x| Expr::unary(Unary::Tanh, x)),
    ("hardsigmoid", |x| hard_sigmoid(x, 1.0 / 6.0, 0.5)),
    ("hardswish", hard_swish),
    ("gelu", gelu),
    ("gelu_tanh", gelu_tanh),
    ("swish", |x| swish(x, 1.0)),
    ("mish", mish),
    ("softplus", softplus),
    ("softsign", softsign),
    ("exp", exp),
    ("log", |x| Expr::unary(Unary::Log, x)),
    ("sqrt", |x| Expr::unary(Unary::Sqrt, x)),
    ("erf", |x| Expr::unary(Unary::Erf, x)),
    ("abs", |x| Expr::unary(Unary::Abs, x)),
    ("neg", |x| Expr::unary(Unary::Neg, x)),
];
