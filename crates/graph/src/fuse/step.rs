//! Elementwise nodes as expressions of their inputs.

use crate::feed::Norm;
use crate::view::{View, decimal, float, input, int, word};
use squall_core::expr::{Expr, Unary};
use squall_core::graph::{Attribute, Constant, Node, ValueId};
use squall_core::operator::functions::{self as f, c};

/// Whether an operator computes each element from the elements at the same place.
pub fn is_elementwise(op: &str) -> bool {
    unary(op).is_some() || VARIADIC.contains(&op) || OTHERS.contains(&op)
}

const VARIADIC: &[&str] = &["Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean"];

const OTHERS: &[&str] = &[
    "Relu",
    "LeakyRelu",
    "PRelu",
    "Elu",
    "Selu",
    "Celu",
    "HardSigmoid",
    "HardSwish",
    "Clip",
    "Softplus",
    "Softsign",
    "Gelu",
    "Swish",
    "Mish",
    "Pow",
    "Reciprocal",
    "BatchNormalization",
];

fn unary(op: &str) -> Option<Unary> {
    Some(match op {
        "Neg" => Unary::Neg,
        "Abs" => Unary::Abs,
        "Exp" => Unary::Exp,
        "Log" => Unary::Log,
        "Sqrt" => Unary::Sqrt,
        "Tanh" => Unary::Tanh,
        "Erf" => Unary::Erf,
        "Sigmoid" => Unary::Sigmoid,
        "Floor" => Unary::Floor,
        "Ceil" => Unary::Ceil,
        "Round" => Unary::Round,
        "Sin" => Unary::Sin,
        "Cos" => Unary::Cos,
        "Sign" => Unary::Sign,
        _ => return None,
    })
}

/// Whether a value is constant over calls, and finite as far as its elements are known.
fn is_finite_weight(view: &View<'_>, id: Option<ValueId>) -> bool {
    let Some(id) = id.filter(|id| view.is_weight(*id)) else { return false };
    match view.constant(id) {
        Some(Constant::F32 { data, .. }) => data.iter().all(|x| x.is_finite()),
        Some(Constant::F64 { data, .. }) => data.iter().all(|x| x.is_finite()),
        _ => true,
    }
}

/// Whether the order of the inputs does not matter.
pub fn is_commutative(op: &str) -> bool {
    matches!(op, "Add" | "Mul" | "Max" | "Min" | "Sum")
}

/// The node's result and what the step is called. `args` stand for the inputs that are given, in
/// order; those of [`is_commutative`] operators in any order.
pub fn step(view: &View<'_>, node: &Node, args: &[Option<Expr>]) -> Result<(Expr, String), String> {
    let arg = |i: usize| args.get(i).cloned().flatten();
    let need = |i: usize| arg(i).ok_or_else(|| format!("its input {i} is missing"));
    let x = need(0)?;
    let op = node.op.as_str();
    let mut tag = op.to_ascii_lowercase();
    if let Some(u) = unary(op) {
        return Ok((Expr::unary(u, x), tag));
    }
    let infinite = |a: &Attribute| matches!(a, Attribute::Float(x) if !x.is_finite());
    let multiplies = matches!(op, "LeakyRelu" | "Elu" | "Selu" | "Celu");
    if multiplies && node.attributes.values().any(infinite) {
        return Err("an attribute of it is not finite".into());
    }
    let e = match op {
        "Add" => f::add(x, need(1)?),
        "Sub" => f::sub(x, need(1)?),
        "Mul" => f::mul(x, need(1)?),
        // A product is cheaper than a division, and of powers of two it is the same.
        "Div" => match need(1)? {
            Expr::Const(d) if d != 0.0 && is_power_of_two(d) => f::mul(x, c(1.0 / d)),
            d => f::div(x, d),
        },
        "Max" | "Min" | "Sum" | "Mean" => {
            let rest = (1..args.len()).map(need).collect::<Result<Vec<_>, _>>()?;
            let sum = rest.into_iter().fold(x, |a, b| match op {
                "Max" => f::max(a, b),
                "Min" => f::min(a, b),
                _ => f::add(a, b),
            });
            if op == "Sum" {
                tag = "add".into();
            }
            if op == "Mean" { f::div(sum, c(args.len() as f64)) } else { sum }
        }
        "Relu" => f::relu(x),
        "LeakyRelu" => f::leaky_relu(x, c(float(node, "alpha", 0.01))),
        // The slope is multiplied by 0 where it does not count: of infinities that is NaN.
        "PRelu" if !is_finite_weight(view, node.inputs.get(1).copied().flatten()) => {
            return Err("its slope is no weight of finite numbers".into());
        }
        "PRelu" => f::leaky_relu(x, need(1)?),
        "Elu" => f::selu(x, float(node, "alpha", 1.0), 1.0),
        "Selu" => f::selu(
            x,
            float(node, "alpha", 1.673_263_192_176_818_8),
            float(node, "gamma", 1.050_701_022_148_132_3),
        ),
        "Celu" => match float(node, "alpha", 1.0) {
            0.0 => return Err("its alpha is 0".into()),
            alpha => f::celu(x, alpha),
        },
        "HardSigmoid" => f::hard_sigmoid(x, float(node, "alpha", 0.2), float(node, "beta", 0.5)),
        "HardSwish" => f::hard_swish(x),
        "Clip" => {
            let (low, high) = limits(view, node, &arg)?;
            let is = |e: &Option<Expr>, x: f64| matches!(e, Some(Expr::Const(v)) if *v == x);
            match (is(&low, 0.0), is(&high, 6.0), high.is_none()) {
                (true, true, _) => tag = "relu6".into(),
                (true, _, true) => tag = "relu".into(),
                _ => {}
            }
            f::clip(x, low, high)
        }
        "Softplus" => f::softplus(x),
        "Softsign" => f::softsign(x),
        "Gelu" if word(node, "approximate", "none") == "tanh" => f::gelu_tanh(x),
        "Gelu" => f::gelu(x),
        "Swish" => f::swish(x, float(node, "alpha", 1.0)),
        "Mish" => f::mish(x),
        "Pow" => match need(1)? {
            Expr::Const(p) => f::power(x, p),
            p => Expr::binary(squall_core::expr::Binary::Pow, x, p),
        },
        "Reciprocal" => f::div(c(1.0), x),
        _ => return Err(format!("{op} is not elementwise")),
    };
    Ok((e, tag))
}

fn is_power_of_two(x: f64) -> bool {
    let (mantissa, exponent) = (x.to_bits() & ((1 << 52) - 1), x.to_bits() >> 52 & 0x7ff);
    mantissa == 0 && (1023 - 60..1023 + 60).contains(&exponent)
}

/// The limits of a Clip: attributes before opset 11, inputs since.
fn limits(
    view: &View<'_>,
    node: &Node,
    arg: &dyn Fn(usize) -> Option<Expr>,
) -> Result<(Option<Expr>, Option<Expr>), String> {
    let attribute = |name: &str| match node.attributes.get(name) {
        // The defaults of old opsets are the ends of the format: no limit.
        Some(Attribute::Float(x)) if x.abs() < f32::MAX => Some(c(decimal(*x))),
        _ => None,
    };
    for i in 1..3 {
        if let Some(id) = input(node, i)
            && view.shape(id).is_some_and(|s| s.iter().product::<i64>() != 1)
        {
            return Err(format!("its limit `{}` is no single number", view.name(id)));
        }
    }
    let finite = |e: &Expr| !matches!(e, Expr::Const(x) if x.abs() >= f64::from(f32::MAX));
    let one = |i: usize, name: &str| arg(i).filter(finite).or_else(|| attribute(name));
    Ok((one(1, "min"), one(2, "max")))
}

/// The normalisation that a node is.
pub fn norm(view: &View<'_>, node: &Node, shape: &[i64]) -> Result<Norm, String> {
    let &[_, channels, ..] = shape else {
        return Err(format!("its input {shape:?} has no channels"));
    };
    if int(node, "training_mode", 0) != 0 {
        return Err("it is in training mode: it computes its statistics from the batch".into());
    }
    let mut parameters = [0; 4];
    for (i, p) in parameters.iter_mut().enumerate() {
        let (id, s) = view.operand(node, i + 1)?;
        if !view.is_weight(id) {
            return Err(format!("its parameter `{}` is computed at run time", view.name(id)));
        }
        if s.iter().product::<i64>() != channels {
            return Err(format!(
                "its parameter `{}` is {s:?}, expected {channels} channels",
                view.name(id)
            ));
        }
        *p = view.root(id);
    }
    Ok(Norm { parameters, eps: float(node, "epsilon", 1e-5), channels })
}
