//! The rows of elementwise operators in the campaign's table of random graphs (`rows/mod.rs`): most
//! are an operator with the types that it takes, for example `one("Abs", Keeps, NUMBER)`. A row's
//! function draws one use of the operator, a node with operands and attributes, in the graph under
//! construction (`graph.rs`); its effect, such as `Keeps` or `Rounds`, says whether results stay
//! exact. `cargo xtask campaign graphs` runs the graphs by Squall and by onnxruntime.

use super::{EVERY, FLOAT, Make, NUMBER, Row, SIGNED, WHOLE};
use crate::campaign::graphs::graph::Effect::{Amplifies, Breaks, Exact, Keeps, Rounds};
use crate::campaign::graphs::graph::{Call, Fill, Graph, number_of};
use squall_core::DType::{self, Bool, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
use squall_testing::onnx::{float, int, text};

const fn one(op: &'static str, effect: super::Effect, of: &'static [DType]) -> Row {
    Row::new(op, effect, Make::One(of))
}

const fn two(op: &'static str, effect: super::Effect, of: &'static [DType]) -> Row {
    Row::new(op, effect, Make::Two(of, Fill::Any))
}

pub const ROWS: &[Row] = &[
    one("Abs", Keeps, NUMBER),
    one("Neg", Keeps, SIGNED),
    one("Sign", Exact, NUMBER),
    one("Relu", Keeps, SIGNED).since(14),
    one("Floor", Exact, FLOAT),
    one("Ceil", Exact, FLOAT),
    one("Round", Exact, FLOAT),
    one("Identity", Keeps, EVERY),
    one("Not", Exact, &[Bool]),
    one("IsNaN", Exact, FLOAT),
    Row::own("IsInf", Exact, |g| {
        let x = g.any(FLOAT, 0, 4);
        let (a, b) = (g.within(0, 1), g.within(0, 1));
        Some(Call::of(&[x]).with(int("detect_negative", a)).with(int("detect_positive", b)))
    }),
    one("BitwiseNot", Exact, WHOLE).since(18),
    one("Acos", Amplifies, FLOAT),
    one("Acosh", Amplifies, FLOAT),
    one("Asin", Amplifies, FLOAT),
    one("Asinh", Amplifies, FLOAT),
    one("Atan", Rounds, FLOAT),
    one("Atanh", Amplifies, FLOAT),
    one("Cos", Amplifies, FLOAT),
    one("Cosh", Amplifies, FLOAT),
    one("Erf", Rounds, &[F32]),
    one("Exp", Amplifies, FLOAT),
    one("Log", Amplifies, FLOAT),
    one("Reciprocal", Amplifies, FLOAT),
    one("Sigmoid", Rounds, FLOAT),
    one("Sin", Amplifies, FLOAT),
    one("Sinh", Amplifies, FLOAT),
    one("Softplus", Rounds, FLOAT),
    one("Softsign", Rounds, FLOAT),
    one("Sqrt", Amplifies, FLOAT),
    one("Tan", Amplifies, FLOAT),
    one("Tanh", Rounds, FLOAT),
    one("HardSwish", Rounds, &[F32]).since(14),
    one("Mish", Rounds, &[F32]).since(18),
    Row::own("Swish", Rounds, |g| alpha(g, &[F32], 0.25)).since(24),
    two("SwiGLU", Rounds, &[F32]).since(28),
    Row::own("BitCast", Exact, |g| {
        let x = g.any(&[F32, I32, U32], 0, 4);
        let to = g.dtype(&[I32, U32]);
        Some(Call::of(&[x]).with(int("to", number_of(to).into())))
    })
    .since(26)
    .tame(),
    Row::own("Gelu", Rounds, |g| {
        let x = g.floats(0, 4);
        let how = if g.coin() { "none" } else { "tanh" };
        Some(Call::of(&[x]).with(text("approximate", how)))
    })
    .since(20),
    Row::own("Celu", Rounds, |g| alpha(g, &[F32], 0.25)).since(12),
    Row::own("Elu", Rounds, |g| alpha(g, FLOAT, 0.25)),
    Row::own("LeakyRelu", Rounds, |g| alpha(g, FLOAT, -0.5)),
    Row::own("ThresholdedRelu", Breaks, |g| alpha(g, &[F32], 0.0)),
    Row::own("Selu", Rounds, |g| alpha_gamma(g, "gamma")),
    Row::own("HardSigmoid", Rounds, |g| alpha_gamma(g, "beta")),
    Row::own("Shrink", Breaks, |g| {
        let x = g.floats(0, 4);
        Some(Call::of(&[x]).with(float("lambd", 0.75)).with(float("bias", 0.25)))
    }),
    Row::own("PRelu", Rounds, |g| {
        let x = g.any(FLOAT, 1, 4);
        let shape = g.shape_of(x);
        let mut slope = shape.clone();
        slope.iter_mut().for_each(|e| *e = if g.draw.below(2) == 0 { 1 } else { *e });
        let dtype = g.values[x].dtype;
        let s = g.fresh(dtype, &slope, Fill::Tame);
        Some(Call::of(&[x, s]))
    }),
    Row::own("Clip", Keeps, |g| {
        let x = g.any(NUMBER, 0, 4);
        let dtype = g.values[x].dtype;
        // A lower bound above the upper one is not said to mean anything.
        let low = g.coin().then(|| g.fresh(dtype, &[], Fill::Within(0, 2)));
        let high = (low.is_none() || g.coin()).then(|| g.fresh(dtype, &[], Fill::Within(2, 5)));
        Some(Call::of(&[x]).and(low).and(high))
    })
    .since(12),
    two("Add", Rounds, NUMBER),
    two("Sub", Rounds, NUMBER),
    two("Mul", Rounds, NUMBER),
    // Whole numbers are not divided by zero, nor the least by -1.
    Row::new("Div", Amplifies, Make::Two(NUMBER, Fill::Divisor)),
    two("Div", Amplifies, &[F32]),
    two("PRelu", Rounds, &[F32]),
    Row::own("Pow", Amplifies, |g| {
        let base = [F32, F32, F64, I32, I64];
        let x = g.any(&base, 0, 3);
        let dtype = g.values[x].dtype;
        let shape = g.shape_of(x);
        let shape = g.broadcast_shape(&shape);
        // Powers of whole numbers that do not fit have no meaning.
        let is_whole = !dtype.is_float();
        let x = if is_whole { g.fresh(dtype, &shape, Fill::Within(-3, 5)) } else { x };
        let of = if is_whole { dtype } else { [F32, dtype][g.draw.below(2)] };
        let fill = if is_whole || g.coin() { Fill::Within(0, 4) } else { Fill::Any };
        let y = g.fresh(of, &shape, fill);
        Some(Call::of(&[x, y]))
    })
    .since(15),
    Row::own("Mod", Exact, |g| {
        let x = g.any(WHOLE, 0, 4);
        let fmod = g.within(0, 1);
        let y = g.partner(x, Fill::Divisor);
        Some(Call::of(&[x, y]).with(int("fmod", fmod)))
    }),
    Row::own("Mod", Exact, |g| {
        let x = g.any(FLOAT, 0, 4);
        let y = g.partner(x, Fill::Divisor);
        Some(Call::of(&[x, y]).with(int("fmod", 1)))
    })
    .tame(),
    Row::own("BitShift", Exact, |g| {
        let of = [U8, U16, U32, U64];
        let x = g.any(&of, 0, 4);
        // A shift by the width of the type or more has no meaning.
        let y = g.partner(x, Fill::Within(0, 7));
        let way = if g.coin() { "LEFT" } else { "RIGHT" };
        Some(Call::of(&[x, y]).with(text("direction", way)))
    }),
    two("And", Exact, &[Bool]),
    two("Or", Exact, &[Bool]),
    two("Xor", Exact, &[Bool]),
    two("BitwiseAnd", Exact, WHOLE).since(18),
    two("BitwiseOr", Exact, WHOLE).since(18),
    two("BitwiseXor", Exact, WHOLE).since(18),
    two("Equal", Exact, EVERY),
    two("Greater", Exact, NUMBER),
    two("GreaterOrEqual", Exact, NUMBER).since(12),
    two("Less", Exact, NUMBER),
    two("LessOrEqual", Exact, NUMBER).since(12),
    Row::new("Max", Keeps, Make::Many(NUMBER)).since(12),
    Row::new("Min", Keeps, Make::Many(NUMBER)).since(12),
    Row::new("Sum", Rounds, Make::Many(FLOAT)),
    Row::new("Mean", Rounds, Make::Many(FLOAT)),
    Row::own("Where", Keeps, |g| {
        let x = g.any(EVERY, 0, 4);
        let y = g.partner(x, Fill::Any);
        let shape = g.shape_of(x);
        let shape = g.broadcast_shape(&shape);
        let there: Vec<usize> = (0..g.values.len())
            .filter(|&i| g.values[i].dtype == Bool && g.values[i].shape == shape)
            .collect();
        let c = match there.first() {
            Some(c) => *c,
            None => g.fresh(Bool, &shape, Fill::Any),
        };
        Some(Call::of(&[c, x, y]))
    }),
    Row::own("Cast", Breaks, |g| {
        let x = g.any(&[F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, Bool], 0, 4);
        let from = g.values[x].dtype;
        let all = [F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, Bool];
        let to = g.dtype(&all);
        let is_whole = !to.is_float() && to != Bool;
        // What does not fit into a whole type, NaN too, has no meaning there.
        let x = if from.is_float() && is_whole {
            let shape = g.shape_of(x);
            let is_signed = matches!(to, I8 | I16 | I32 | I64);
            g.fresh(from, &shape, if is_signed { Fill::Tame } else { Fill::Positive })
        } else {
            x
        };
        Some(Call::of(&[x]).with(int("to", number_of(to).into())))
    }),
    Row::own("CastLike", Breaks, |g| {
        let x = g.any(&[F32, F64, I32, I64, Bool], 0, 4);
        let to = g.dtype(&[F32, F64, Bool]);
        let like = g.fresh(to, &[1], Fill::Any);
        Some(Call::of(&[x, like]))
    })
    .since(15),
];

fn alpha(g: &mut Graph<'_>, of: &[DType], least: f32) -> Option<Call> {
    let x = g.any(of, 0, 4);
    let a = least + g.within(1, 8) as f32 / 4.0;
    Some(Call::of(&[x]).with(float("alpha", a)))
}

fn alpha_gamma(g: &mut Graph<'_>, second: &str) -> Option<Call> {
    let x = g.any(FLOAT, 0, 4);
    let call = Call::of(&[x]);
    if g.coin() {
        return Some(call);
    }
    let (a, b) = (g.within(1, 6) as f32 / 4.0, g.within(0, 6) as f32 / 4.0);
    Some(call.with(float("alpha", a)).with(float(second, b)))
}
