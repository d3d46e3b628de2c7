//! The functions of neural nets, spelled in the expression language. It has no select on values,
//! so that piecewise functions are sums of clipped parts.

use squall_core::expr::{Binary, Expr, Unary};

pub(crate) fn constant(c: f64) -> Expr {
    Expr::Const(c)
}

pub(crate) fn add(a: Expr, b: Expr) -> Expr {
    Expr::binary(Binary::Add, a, b)
}

pub(crate) fn sub(a: Expr, b: Expr) -> Expr {
    Expr::binary(Binary::Sub, a, b)
}

pub(crate) fn mul(a: Expr, b: Expr) -> Expr {
    Expr::binary(Binary::Mul, a, b)
}

pub(crate) fn div(a: Expr, b: Expr) -> Expr {
    Expr::binary(Binary::Div, a, b)
}

pub(crate) fn max(a: Expr, b: Expr) -> Expr {
    Expr::binary(Binary::Max, a, b)
}

pub(crate) fn min(a: Expr, b: Expr) -> Expr {
    Expr::binary(Binary::Min, a, b)
}

pub(crate) fn exp(x: Expr) -> Expr {
    Expr::unary(Unary::Exp, x)
}

pub(crate) fn tanh(x: Expr) -> Expr {
    Expr::unary(Unary::Tanh, x)
}

pub(crate) fn relu(x: Expr) -> Expr {
    max(x, constant(0.0))
}

/// `x` where it is positive, `slope * x` elsewhere.
pub(crate) fn leaky_relu(x: Expr, slope: Expr) -> Expr {
    add(relu(x.clone()), mul(min(x, constant(0.0)), slope))
}

/// `x` where it is positive, `alpha * (exp(x / width) - 1)` elsewhere.
pub(crate) fn elu(x: Expr, alpha: f64, width: f64) -> Expr {
    let low = min(x.clone(), constant(0.0));
    let low = if width == 1.0 { low } else { div(low, constant(width)) };
    let tail = sub(exp(low), constant(1.0));
    add(relu(x), if alpha == 1.0 { tail } else { mul(tail, constant(alpha)) })
}

pub(crate) fn selu(x: Expr, alpha: f64, gamma: f64) -> Expr {
    mul(elu(x, alpha, 1.0), constant(gamma))
}

pub(crate) fn clip(x: Expr, low: Option<Expr>, high: Option<Expr>) -> Expr {
    let x = match low {
        Some(low) => max(x, low),
        None => x,
    };
    match high {
        Some(high) => min(x, high),
        None => x,
    }
}

pub(crate) fn hard_sigmoid(x: Expr, alpha: f64, beta: f64) -> Expr {
    clip(add(mul(x, constant(alpha)), constant(beta)), Some(constant(0.0)), Some(constant(1.0)))
}

pub(crate) fn hard_swish(x: Expr) -> Expr {
    let gate = clip(add(div(x.clone(), constant(6.0)), constant(0.5)), Some(constant(0.0)), Some(constant(1.0)));
    mul(x, gate)
}

/// `log(1 + exp(x))`, without overflow for large `x`.
pub(crate) fn softplus(x: Expr) -> Expr {
    let far = exp(Expr::unary(Unary::Neg, Expr::unary(Unary::Abs, x.clone())));
    add(relu(x), Expr::unary(Unary::Log, add(far, constant(1.0))))
}

pub(crate) fn mish(x: Expr) -> Expr {
    mul(x.clone(), tanh(softplus(x)))
}

/// `x * sigmoid(alpha * x)`.
pub(crate) fn swish(x: Expr, alpha: f64) -> Expr {
    let inner = if alpha == 1.0 { x.clone() } else { mul(x.clone(), constant(alpha)) };
    mul(x, Expr::unary(Unary::Sigmoid, inner))
}

/// The root of 2 as models in float32 write it.
const ROOT_2: f64 = 1.4142135;

pub(crate) fn gelu(x: Expr) -> Expr {
    let erf = Expr::unary(Unary::Erf, div(x.clone(), constant(ROOT_2)));
    mul(mul(x, add(erf, constant(1.0))), constant(0.5))
}

/// The approximation of GELU by a hyperbolic tangent.
pub(crate) fn gelu_tanh(x: Expr) -> Expr {
    let cube = mul(mul(x.clone(), x.clone()), mul(x.clone(), constant(0.044715)));
    let inner = mul(add(x.clone(), cube), constant((2.0 / std::f64::consts::PI).sqrt()));
    mul(mul(x, add(tanh(inner), constant(1.0))), constant(0.5))
}

pub(crate) fn softsign(x: Expr) -> Expr {
    div(x.clone(), add(Expr::unary(Unary::Abs, x), constant(1.0)))
}

/// `x` to a fixed power; small ones without the function `pow`.
pub(crate) fn power(x: Expr, exponent: f64) -> Expr {
    match exponent {
        1.0 => x,
        2.0 => mul(x.clone(), x),
        3.0 => mul(mul(x.clone(), x.clone()), x),
        0.5 => Expr::unary(Unary::Sqrt, x),
        -1.0 => div(constant(1.0), x),
        e => Expr::binary(Binary::Pow, x, constant(e)),
    }
}
