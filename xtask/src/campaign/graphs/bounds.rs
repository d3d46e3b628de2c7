//! The rounding errors that a random graph's values may have, element by element: the errors that
//! each node's own rounding makes, and the growth of its operands' errors. Input: a case with the
//! values of a reference; output: bounds for `compare.rs`. A value without a bound is exact, so two
//! correct programs agree on it in every bit.

use super::case::Case;
use super::compare::{Arrays, Bounds};
use super::graph::{Effect, broadcast, tensor_of};
use super::peer::evaluated;
use super::rows;
use squall_core::DType;
use squall_frontend::npy::Array;
use squall_frontend::onnx::proto::NodeProto;
use std::collections::HashMap;

/// The source of a node's errors.
enum Kind {
    /// Its results are elements of its operands.
    Chosen,
    /// A sum of operands.
    Added,
    /// A product of operands, or nearly one.
    Multiplied,
    /// Sums of elements or products: what they round has the size of their terms.
    Summed,
    /// Sums of what has one sign, and roots of those.
    Positive,
    /// Products of many elements, in any order.
    Chained,
    /// Functions of elements; errors grow by at most this factor.
    Function(f64),
    /// Exponentials that are divided by their sum, and logarithms of such.
    Softened,
    /// All else, whose operands are exact or tame.
    Other,
}

fn kind(op: &str) -> Kind {
    let keeps = |e: Effect| matches!(e, Effect::Keeps | Effect::Exact | Effect::Breaks);
    match op {
        "Add" | "Sub" | "Sum" | "Mean" => Kind::Added,
        "Mul" | "PRelu" | "SwiGLU" => Kind::Multiplied,
        "MatMul" | "Gemm" | "Einsum" | "Conv" | "ConvTranspose" | "AveragePool"
        | "GlobalAveragePool" | "ReduceSum" | "ReduceMean" | "CumSum" | "Col2Im"
        | "BatchNormalization" | "STFT" => Kind::Summed,
        "ReduceProd" => Kind::Chained,
        "ReduceL1" | "ReduceL2" | "ReduceSumSquare" | "LpPool" | "GlobalLpPool" => Kind::Positive,
        "Softmax" | "LogSoftmax" | "ReduceLogSumExp" => Kind::Softened,
        // Factors that the table draws for these are at most 2.
        "Celu" | "Elu" | "LeakyRelu" | "Selu" | "HardSigmoid" | "HardSwish" | "Swish" => {
            Kind::Function(4.0)
        }
        "Atan" | "Erf" | "Sigmoid" | "Softplus" | "Softsign" | "Tanh" | "Mish" | "Gelu"
        | "Acos" | "Acosh" | "Asin" | "Asinh" | "Atanh" | "Cos" | "Cosh" | "Exp" | "Log"
        | "Reciprocal" | "Sin" | "Sinh" | "Sqrt" | "Tan" | "Div" | "Pow" | "DequantizeLinear"
        | "Cast" | "CastLike" => Kind::Function(1.25),
        _ if rows::all().iter().any(|r| r.names().1 == op && !keeps(r.effect)) => Kind::Other,
        _ => Kind::Chosen,
    }
}

/// The bounds of a case whose values are known. `sizes` holds sums of absolute values of what
/// sums are made of, by the names of their results, where these are known.
pub fn bounds(case: &Case, values: &Arrays, sizes: &Arrays) -> Bounds {
    let constants = case.constants.iter().filter_map(|c| {
        let dtype = super::graph::NUMBERS.iter().find(|n| n.1 == c.data_type)?.0;
        let (shape, bytes) = (c.dims.clone(), c.raw_data.clone());
        Some((c.name.clone(), Array { dtype, shape, bytes }))
    });
    let mut known: HashMap<String, Array> = constants.chain(case.inputs.iter().cloned()).collect();
    known.extend(values.iter().map(|(n, a)| (n.clone(), a.clone())));
    let mut all = Bounds::new();
    for node in &case.nodes {
        for name in node.output.iter().filter(|n| !case.exact.contains(*n)) {
            let Some(y) = known.get(name) else { continue };
            if y.dtype.is_float() {
                let of = Of { case, node, known: &known, all: &all, name, y, sizes };
                let errors = of.errors();
                all.insert(name.clone(), errors);
            }
        }
    }
    all
}

/// A result whose errors are asked for.
struct Of<'a> {
    case: &'a Case,
    node: &'a NodeProto,
    known: &'a HashMap<String, Array>,
    all: &'a Bounds,
    name: &'a str,
    y: &'a Array,
    sizes: &'a Arrays,
}

impl Of<'_> {
    fn errors(&self) -> Vec<f64> {
        let y: Vec<f64> = numbers(self.y);
        let own = rounding(self.y.dtype);
        let (most, least) = limits(self.y.dtype);
        let operands = self.operands();
        let terms = operands.iter().map(|o| o.0.elements()).max().unwrap_or(1).max(y.len()) as f64;
        let size = |a: &Array| numbers(a).iter().fold(0.0, |m, x| finite(*x).max(m));
        let sizes: Vec<f64> = operands.iter().map(|o| size(o.0)).collect();
        let local = sizes.iter().copied().fold(size(self.y), f64::max);
        // The largest error of each operand; NaN counts as boundless.
        let worst: Vec<f64> = operands.iter().map(|o| worst(o.1)).collect();
        let all_worst = worst.iter().copied().fold(0.0, f64::max);
        let of = |f: &dyn Fn(usize) -> f64| -> Vec<f64> { (0..y.len()).map(f).collect() };
        let wide = |which: usize, errors: bool| self.widened(&operands, which, errors);
        if self.may_be_anything(&operands) {
            return of(&|_| f64::INFINITY);
        }
        let mut e = match kind(&self.node.op_type) {
            Kind::Chosen => self.moved(&operands, all_worst),
            Kind::Added => {
                let parts: Vec<_> =
                    (0..operands.len()).map(|i| (wide(i, true), wide(i, false))).collect();
                of(&|i| {
                    let terms: f64 = parts.iter().map(|p| finite(p.1[i])).sum();
                    let errors: f64 = parts.iter().map(|p| p.0[i]).sum();
                    let many = if parts.len() > 2 { terms } else { 0.0 };
                    beyond(terms, most) + errors + 2.0 * own * (finite(y[i]) + many)
                })
            }
            Kind::Multiplied if operands.len() == 2 => {
                let [a, b] = [0, 1].map(|i| (wide(i, true), wide(i, false)));
                let factor = if self.node.op_type == "Mul" { 1.0 } else { 4.0 };
                of(&|i| {
                    let (x, z) = (finite(a.1[i]), finite(b.1[i]));
                    let errors = a.0[i] * z + b.0[i] * x + a.0[i] * b.0[i];
                    // What overflows is finite where a sum takes the product unrounded.
                    let over = if self.node.op_type == "Mul" { beyond(x * z, most) } else { 0.0 };
                    over + factor
                        * (errors + 2.0 * own * finite(y[i]) + 8.0 * EPSILON * finite(y[i]))
                })
            }
            Kind::Summed | Kind::Multiplied => {
                let products: f64 = sizes.iter().map(|s| s.max(1.0)).product();
                let sums = self.sizes.get(self.name).map(numbers);
                let sum = |i: usize| match &sums {
                    Some(s) if s.len() == y.len() => s[i],
                    _ => terms * products,
                };
                let errors: f64 = (0..worst.len())
                    .filter(|&j| worst[j] > 0.0)
                    .map(|j| worst[j] * products / sizes[j].max(1.0) * terms)
                    .sum();
                let relative = rounding_of_sums(self.y.dtype) * (8.0 + 4.0 * terms.sqrt());
                of(&|i| {
                    let s = sum(i);
                    beyond(s, most) + errors + relative * s + own * finite(y[i])
                })
            }
            Kind::Positive => {
                let s = sizes.first().copied().unwrap_or(0.0);
                self.of_one_sign(&y, s, terms, all_worst)
            }
            Kind::Function(factor) => {
                let x = wide(0, true);
                let near = local.min(1.0);
                let relative = rounding_of_sums(self.y.dtype) * 16.0;
                of(&|i| factor * x[i] + own * finite(y[i]) + relative * (finite(y[i]) + near))
            }
            Kind::Softened => self.of_softened(&y, local, terms, all_worst),
            Kind::Other if self.node.op_type == "ReduceLogSum" => {
                self.of_logarithms(&y, local, terms, all_worst)
            }
            Kind::Chained | Kind::Other => self.of_any(&y, local, terms, all_worst),
        };
        e.iter_mut().for_each(|x| *x = if x.is_nan() { f64::INFINITY } else { *x + least });
        e
    }

    /// Whether the order in which a node computes decides between a number and none.
    fn may_be_anything(&self, operands: &[(&Array, Option<&Vec<f64>>)]) -> bool {
        match kind(&self.node.op_type) {
            // An infinity times what may be 0, or of another sign; and a filter's zeros beside its
            // taps make no number of an infinity's neighbours (decision 0079).
            Kind::Summed | Kind::Multiplied => {
                let is_padded = self.node.op_type.starts_with("Conv");
                let is_vague = || operands.iter().any(|o| is_vague(&numbers(o.0), o.1));
                let is_found =
                    |f: fn(f64) -> bool| operands.iter().any(|o| numbers(o.0).into_iter().any(f));
                is_padded && is_found(|x| !x.is_finite())
                    || is_found(f64::is_infinite) && is_vague()
            }
            Kind::Chained => {
                let most = limits(self.y.dtype).0;
                operands.iter().any(|o| leaves_range(&numbers(o.0), most))
            }
            _ => false,
        }
    }

    /// The errors of exponentials that are divided by their sum, and of logarithms of such.
    fn of_softened(&self, y: &[f64], local: f64, terms: f64, worst: f64) -> Vec<f64> {
        let sums = rounding_of_sums(self.y.dtype) * (32.0 + 4.0 * terms.sqrt());
        let relative = rounding(self.y.dtype) + sums;
        let (absolute, errors) = match self.node.op_type == "Softmax" {
            true => (relative * 0.1, (2.0 * worst).min(1.0) * std::f64::consts::E),
            false => (relative * local.max(1.0), 2.0 * worst),
        };
        y.iter().map(|y| errors + absolute + relative * finite(*y)).collect()
    }

    /// The errors of logarithms of sums, which may as well be 0 where their terms cancel out.
    fn of_logarithms(&self, y: &[f64], local: f64, terms: f64, worst: f64) -> Vec<f64> {
        let sum = 4.0 * terms * local * rounding_of_sums(self.y.dtype);
        let all = self.of_any(y, local, terms, worst).into_iter();
        all.zip(y).map(|(e, y)| if sum < y.exp() { e } else { f64::INFINITY }).collect()
    }

    /// The errors of an operator of which no more is known than the sizes of its numbers.
    fn of_any(&self, y: &[f64], local: f64, terms: f64, worst: f64) -> Vec<f64> {
        let own = rounding(self.y.dtype);
        let relative = own + rounding_of_sums(self.y.dtype) * (64.0 + 16.0 * terms.sqrt());
        let errors = if worst > 0.0 { 16.0 * worst * (1.0 + local) } else { 0.0 };
        // What is as good as equal is divided by this at the least.
        let epsilon = self.node.attribute.iter().find(|a| a.name == "epsilon");
        let least = epsilon.map_or(1.0, |a| f64::from(a.f()).sqrt().clamp(1e-6, 1.0));
        let scale = local.max(1.0) / least;
        y.iter().map(|y| errors + relative * (finite(*y) + 0.05 * scale) + own * scale).collect()
    }

    /// The errors of sums of sizes, squares or cubes of numbers up to `s`, or of their roots.
    fn of_one_sign(&self, y: &[f64], s: f64, terms: f64, worst: f64) -> Vec<f64> {
        let (op, most) = (&self.node.op_type[..], limits(self.y.dtype).0);
        let is_sum = op == "ReduceL1";
        let over = beyond(if is_sum { s } else { s.powi(3) } * terms, most);
        let grown = if op == "ReduceSumSquare" { 2.0 * (s + worst) } else { 1.0 };
        let errors = if worst > 0.0 { grown * terms * worst } else { 0.0 };
        // Squares and cubes of small numbers vanish.
        let lost = if is_sum || self.y.dtype == DType::F64 { 0.0 } else { 1e-12 * terms };
        let relative = rounding(self.y.dtype) + EPSILON * (8.0 + 4.0 * terms.sqrt());
        y.iter().map(|y| over + errors + lost + relative * finite(*y)).collect()
    }

    /// The operands of floats with their errors.
    fn operands(&self) -> Vec<(&Array, Option<&Vec<f64>>)> {
        let of = |n: &String| Some((self.known.get(n)?, self.all.get(n)));
        let all = self.node.input.iter().filter_map(of);
        all.filter(|o| o.0.dtype.is_float()).collect()
    }

    /// An operand's errors, or the sizes of its elements, element by element of the result.
    fn widened(&self, all: &[(&Array, Option<&Vec<f64>>)], which: usize, errors: bool) -> Vec<f64> {
        let count = self.y.elements();
        let Some((a, e)) = all.get(which) else { return vec![0.0; count] };
        let of: Vec<f64> = match (errors, e) {
            (true, None) => return vec![0.0; count],
            (true, Some(e)) => e.to_vec(),
            (false, _) => numbers(a).iter().map(|x| x.abs()).collect(),
        };
        if broadcast(&a.shape, &self.y.shape).as_deref() != Some(&self.y.shape) {
            return vec![of.iter().copied().fold(0.0, largest); count];
        }
        (0..count).map(|i| of[place(i, &self.y.shape, &a.shape)]).collect()
    }

    /// The errors of elements that are moved or chosen.
    fn moved(&self, all: &[(&Array, Option<&Vec<f64>>)], worst: f64) -> Vec<f64> {
        let count = self.y.elements();
        let are_alike =
            |a: &Array| broadcast(&a.shape, &self.y.shape).as_deref() == Some(&self.y.shape);
        const ELEMENTWISE: [&str; 9] =
            ["Abs", "Neg", "Relu", "Identity", "Max", "Min", "Where", "Clip", "Dropout"];
        if ELEMENTWISE.contains(&&self.node.op_type[..]) && all.iter().all(|a| are_alike(a.0)) {
            let parts: Vec<_> = (0..all.len()).map(|i| self.widened(all, i, true)).collect();
            return (0..count).map(|i| parts.iter().map(|p| p[i]).fold(0.0, largest)).collect();
        }
        // Errors are moved as elements are.
        const MOVES: [&str; 11] = [
            "Transpose",
            "Reshape",
            "Flatten",
            "Squeeze",
            "Unsqueeze",
            "Concat",
            "Slice",
            "Split",
            "Expand",
            "Tile",
            "Gather",
        ];
        if worst.is_finite() && worst < 1e38 && MOVES.contains(&&self.node.op_type[..]) {
            let of = |n: &String| {
                let a = self.known.get(n)?;
                let zeros = || vec![0.0; a.elements()];
                let errors = || self.all.get(n).cloned().unwrap_or_else(zeros);
                let as_floats = || errors().iter().map(|e| *e as f32).collect::<Vec<f32>>();
                let errors = || Array::floats(a.shape.clone(), &as_floats());
                Some(tensor_of(n, &if a.dtype.is_float() { errors() } else { a.clone() }))
            };
            let operands = self.node.input.iter().filter_map(of).collect::<Vec<_>>();
            let moved = evaluated(self.case.opset, self.node, &operands);
            if let Some(e) = moved.get(self.name).filter(|e| e.elements() == count) {
                return numbers(e).iter().map(|x| x * 1.001).collect();
            }
        }
        vec![worst; count]
    }
}

const EPSILON: f64 = f32::EPSILON as f64;

/// What a type's last place is of a number.
fn rounding(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::EPSILON,
        DType::F16 => 1.0 / 1024.0,
        DType::Bf16 => 1.0 / 128.0,
        _ => EPSILON,
    }
}

/// The same of the type in which sums of it are computed.
fn rounding_of_sums(dtype: DType) -> f64 {
    if dtype == DType::F64 { f64::EPSILON } else { EPSILON }
}

/// Numbers whose sums may overflow, and numbers that may vanish.
fn limits(dtype: DType) -> (f64, f64) {
    match dtype {
        DType::F64 => (1e308, 1e-300),
        DType::F16 => (3e4, 1.3e-7),
        _ => (1.5e38, 1e-37),
    }
}

fn beyond(size: f64, most: f64) -> f64 {
    if size < most { 0.0 } else { f64::INFINITY }
}

/// Whether an element may as well be 0 or of another sign.
fn is_vague(numbers: &[f64], errors: Option<&Vec<f64>>) -> bool {
    errors.is_some_and(|e| numbers.iter().zip(e).any(|(x, e)| finite(*x) <= *e))
}

/// Whether products of some of these numbers are infinite or vanish, which then depends on the
/// order in which they are multiplied.
fn leaves_range(numbers: &[f64], most: f64) -> bool {
    let product = |f: fn(f64) -> f64| numbers.iter().map(|x| f(finite(*x))).product::<f64>();
    let small = product(|x| if x == 0.0 { 1.0 } else { x.min(1.0) });
    product(|x| x.max(1.0)) >= most || small <= 1.0 / most
}

/// The size of a number; what is infinite or NaN is so everywhere.
fn finite(x: f64) -> f64 {
    if x.is_finite() { x.abs() } else { 0.0 }
}

fn largest(a: f64, b: f64) -> f64 {
    if b.is_nan() { f64::INFINITY } else { a.max(b.abs()) }
}

fn worst(errors: Option<&Vec<f64>>) -> f64 {
    errors.map_or(0.0, |e| e.iter().copied().fold(0.0, largest))
}

fn numbers(a: &Array) -> Vec<f64> {
    (0..a.elements()).map(|i| a.number(i).unwrap_or(0.0)).collect()
}

/// Where an element of a result lies in an operand that is broadcast.
fn place(mut i: usize, to: &[i64], from: &[i64]) -> usize {
    let (mut at, mut apart) = (0, 1);
    for (k, e) in to.iter().enumerate().rev() {
        let here = i % (*e).max(1) as usize;
        i /= (*e).max(1) as usize;
        if let Some(j) = (k + from.len()).checked_sub(to.len()) {
            at += if from[j] == 1 { 0 } else { here * apart };
            apart *= from[j] as usize;
        }
    }
    at
}
