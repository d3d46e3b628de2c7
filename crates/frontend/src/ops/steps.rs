//! Steps that operator lines name, as epilogues and as elementwise kernels.

use crate::build::Epilogue;
use crate::build::functions::*;
use squall_core::TensorKind;
use squall_core::expr::{Expr, Unary};

/// A step's function of the value before it.
pub(super) enum Step {
    /// Of the value alone.
    One(fn(Expr) -> Expr),
    /// Of the value and a tensor of its shape.
    Two(fn(Expr, Expr) -> Expr),
    /// The sum with a weight along the channels.
    Bias,
}

/// All steps by name.
pub(super) const STEPS: &[(&str, Step)] = &[
    ("bias", Step::Bias),
    ("add", Step::Two(add)),
    ("sub", Step::Two(sub)),
    ("mul", Step::Two(mul)),
    ("div", Step::Two(div)),
    ("max", Step::Two(max)),
    ("min", Step::Two(min)),
    ("relu", Step::One(relu)),
    ("relu6", Step::One(|x| clip(x, Some(constant(0.0)), Some(constant(6.0))))),
    ("leaky_relu", Step::One(|x| leaky_relu(x, constant(0.01)))),
    ("elu", Step::One(|x| elu(x, 1.0, 1.0))),
    ("selu", Step::One(|x| selu(x, 1.673_263_2, 1.050_701))),
    ("sigmoid", Step::One(|x| Expr::unary(Unary::Sigmoid, x))),
    ("hard_sigmoid", Step::One(|x| hard_sigmoid(x, 0.2, 0.5))),
    ("hard_swish", Step::One(hard_swish)),
    ("tanh", Step::One(tanh)),
    ("erf", Step::One(|x| Expr::unary(Unary::Erf, x))),
    ("gelu", Step::One(gelu)),
    ("gelu_tanh", Step::One(gelu_tanh)),
    ("silu", Step::One(|x| swish(x, 1.0))),
    ("swish", Step::One(|x| swish(x, 1.0))),
    ("mish", Step::One(mish)),
    ("softplus", Step::One(softplus)),
    ("softsign", Step::One(softsign)),
    ("exp", Step::One(exp)),
    ("log", Step::One(|x| Expr::unary(Unary::Log, x))),
    ("sqrt", Step::One(|x| Expr::unary(Unary::Sqrt, x))),
    ("square", Step::One(|x| power(x, 2.0))),
    ("reciprocal", Step::One(|x| power(x, -1.0))),
    ("neg", Step::One(|x| Expr::unary(Unary::Neg, x))),
    ("abs", Step::One(|x| Expr::unary(Unary::Abs, x))),
    ("floor", Step::One(|x| Expr::unary(Unary::Floor, x))),
    ("ceil", Step::One(|x| Expr::unary(Unary::Ceil, x))),
    ("round", Step::One(|x| Expr::unary(Unary::Round, x))),
    ("sin", Step::One(|x| Expr::unary(Unary::Sin, x))),
    ("cos", Step::One(|x| Expr::unary(Unary::Cos, x))),
    ("sign", Step::One(|x| Expr::unary(Unary::Sign, x))),
];

/// Adds a step to an epilogue of a result of `shape`; `bias` is the shape of a bias for it.
pub(super) fn push(e: &mut Epilogue, name: &str, step: &Step, shape: &[i64], bias: Option<&[i64]>) -> Result<(), String> {
    match step {
        Step::One(f) => e.then(name, f),
        Step::Two(f) => {
            let r = e.operand("R", TensorKind::Data, shape.to_vec());
            e.then(name, |x| f(x, r));
        }
        Step::Bias => match bias {
            Some(bias) => {
                let b = e.operand("B", TensorKind::Weight, bias.to_vec());
                e.then(name, |x| add(x, b));
            }
            None => return Err("there are no channels to add a bias along".into()),
        },
    }
    Ok(())
}
