//! Tests of the plain kernels (C for one ONNX operator) of `LSTM`, `GRU` and `RNN`: networks of
//! many extents, among them such that fill a panel of packed weights in part, are compiled, run on
//! random values and compared with loops in 64-bit floats that are written here.

use crate::plain_cases;

use plain_cases::{Case, check};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;
use squall_core::DType;
use squall_core::graph::{Attribute, CallOperand, Constant, OperatorCall};
use std::collections::BTreeMap;

/// A recurrent operator's extents, and what of the standard it uses.
#[derive(Clone, Copy)]
struct Net {
    op: &'static str,
    steps: usize,
    batch: usize,
    features: usize,
    hidden: usize,
    directions: usize,
    /// Rows of the batch end early, and states are given.
    has_states: bool,
    linear_before_reset: bool,
}

impl Net {
    fn gates(&self) -> usize {
        match self.op {
            "LSTM" => 4,
            "GRU" => 3,
            _ => 1,
        }
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The operands, of which those of states are there where the network has some.
struct Operands {
    x: Vec<f32>,
    w: Vec<f32>,
    r: Vec<f32>,
    bias: Vec<f32>,
    lengths: Vec<i64>,
    states: Vec<f32>,
}

/// One step of a row: the next state, and the cell of an LSTM in place. `w` and `r` are sums of
/// gates with the input and the state.
fn step(
    n: &Net,
    sums: &[Vec<f64>; 2],
    last: &dyn Fn(&[f64]) -> Vec<f64>,
    old: [&[f64]; 2],
) -> [Vec<f64>; 2] {
    let [w, r] = sums;
    let [state, cell] = old;
    let size = n.hidden;
    let both = |gate: usize, i: usize| w[gate * size + i] + r[gate * size + i];
    let (mut next, mut cells) = (vec![0.0; size], cell.to_vec());
    let reset: Vec<f64> = match n.op {
        "GRU" => (0..size).map(|i| sigmoid(both(1, i))).collect(),
        _ => Vec::new(),
    };
    let after_reset = match n.op == "GRU" && !n.linear_before_reset {
        true => last(&(0..size).map(|i| reset[i] * state[i]).collect::<Vec<f64>>()),
        false => Vec::new(),
    };
    for i in 0..size {
        next[i] = match n.op {
            "LSTM" => {
                cells[i] = sigmoid(both(2, i)) * cell[i] + sigmoid(both(0, i)) * both(3, i).tanh();
                sigmoid(both(1, i)) * cells[i].tanh()
            }
            "GRU" => {
                let recurrent = match n.linear_before_reset {
                    true => reset[i] * r[2 * size + i],
                    false => after_reset[i],
                };
                let z = sigmoid(both(0, i));
                (1.0 - z) * (w[2 * size + i] + recurrent).tanh() + z * state[i]
            }
            _ => both(0, i).tanh(),
        };
    }
    [next, cells]
}

/// All states, then the last ones.
fn expected(n: &Net, o: &Operands) -> Vec<f64> {
    let (size, rows) = (n.hidden, n.gates() * n.hidden);
    let mut all = vec![0.0; n.steps * n.directions * n.batch * size];
    let mut ends = Vec::new();
    for d in 0..n.directions {
        let sums = |of: &[f64], weights: &[f32], which: usize| -> Vec<f64> {
            let k = of.len();
            let one = |row: usize| -> f64 {
                let weights = &weights[(d * rows + row) * k..][..k];
                let sum: f64 = of.iter().zip(weights).map(|(a, b)| a * f64::from(*b)).sum();
                sum + f64::from(o.bias[(d * 2 + which) * rows + row])
            };
            (0..rows).map(one).collect()
        };
        for b in 0..n.batch {
            let begin = (d * n.batch + b) * size;
            let given = |i: usize| f64::from(o.states[begin + i]);
            let mut state: Vec<f64> =
                (0..size).map(|i| if n.has_states { given(i) } else { 0.0 }).collect();
            let mut cell = vec![0.0; size];
            let length = if n.has_states { o.lengths[b] as usize } else { n.steps };
            for s in 0..length {
                let t = if d == 1 { length - 1 - s } else { s };
                let input: Vec<f64> = o.x[(t * n.batch + b) * n.features..][..n.features]
                    .iter()
                    .map(|v| f64::from(*v))
                    .collect();
                let made = [sums(&input, &o.w, 0), sums(&state, &o.r, 1)];
                let last = |reset: &[f64]| sums(reset, &o.r, 1)[2 * size..].to_vec();
                [state, cell] = step(n, &made, &last, [&state, &cell]);
                all[((t * n.directions + d) * n.batch + b) * size..][..size]
                    .copy_from_slice(&state);
            }
            ends.extend(state);
        }
    }
    all.extend(ends);
    all
}

fn case(r: &mut Random, n: &Net) -> Case {
    let (rows, d) = (n.gates() * n.hidden, n.directions);
    let mut draw = |count: usize, scale: f32| -> Vec<f32> {
        (0..count).map(|_| r.random_range(-100..100i32) as f32 * scale).collect()
    };
    let mut o = Operands {
        x: draw(n.steps * n.batch * n.features, 0.01),
        w: draw(d * rows * n.features, 0.003),
        r: draw(d * rows * n.hidden, 0.003),
        bias: draw(d * 2 * rows, 0.005),
        lengths: Vec::new(),
        states: draw(d * n.batch * n.hidden, 0.01),
    };
    o.lengths = (0..n.batch).map(|_| r.random_range(0..=n.steps as i64)).collect();
    let want = expected(n, &o);
    let mut inputs = Vec::new();
    let mut operands = Vec::new();
    let mut add = |dtype: DType, shape: &[usize], c: &dyn Fn(Vec<i64>) -> Constant| {
        let shape: Vec<i64> = shape.iter().map(|e| *e as i64).collect();
        operands.push(c(shape.clone()));
        inputs.push(Some(CallOperand { dtype, shape, constant: None }));
    };
    let float = |data: &Vec<f32>| {
        let data = data.clone();
        move |shape: Vec<i64>| Constant::F32 { shape, data: data.clone() }
    };
    add(DType::F32, &[n.steps, n.batch, n.features], &float(&o.x));
    add(DType::F32, &[d, rows, n.features], &float(&o.w));
    add(DType::F32, &[d, rows, n.hidden], &float(&o.r));
    add(DType::F32, &[d, 2 * rows], &float(&o.bias));
    if n.has_states {
        let lengths = |shape| Constant::I64 { shape, data: o.lengths.clone() };
        add(DType::I32, &[n.batch], &lengths);
        add(DType::F32, &[d, n.batch, n.hidden], &float(&o.states));
    }
    let mut attributes = BTreeMap::new();
    let direction = if d == 2 { "bidirectional" } else { "forward" };
    attributes.insert("direction".into(), Attribute::String(direction.into()));
    if n.op == "GRU" {
        let before = i64::from(n.linear_before_reset);
        attributes.insert("linear_before_reset".into(), Attribute::Int(before));
    }
    let result = |shape: &[usize]| {
        let shape = shape.iter().map(|e| *e as i64).collect();
        Some(CallOperand { dtype: DType::F32, shape, constant: None })
    };
    let outputs = vec![result(&[n.steps, d, n.batch, n.hidden]), result(&[d, n.batch, n.hidden])];
    let (op, domain) = (n.op.to_string(), String::new());
    Case {
        call: OperatorCall { op, domain, opset: 20, attributes, inputs, outputs },
        operands,
        want,
    }
}

#[test]
fn recurrences_are_those_of_loops() {
    let mut r = Random::seed_from_u64(41);
    let mut cases = Vec::new();
    let extents = [
        // Steps, batch, features, hidden: few rows, a row alone, whole panels and parts of them.
        [3, 2, 5, 7],
        [20, 1, 9, 20],
        [8, 4, 16, 16],
        [8, 7, 33, 37],
        [2, 13, 1, 1],
        [9, 3, 520, 5],
        [16, 1, 1, 1],
        [17, 2, 0, 3],
    ];
    for (i, extent) in extents.into_iter().enumerate() {
        let [steps, batch, features, hidden] = extent;
        // Half of the operators at each: compilers take a second for one.
        let operators = [("LSTM", false), ("GRU", false), ("GRU", true), ("RNN", false)];
        for (op, linear_before_reset) in operators.into_iter().skip(i % 2).step_by(2) {
            let (directions, has_states) = (1 + i / 2 % 2, i % 3 != 1);
            let n = Net {
                op,
                steps,
                batch,
                features,
                hidden,
                directions,
                has_states,
                linear_before_reset,
            };
            cases.push(case(&mut r, &n));
        }
    }
    let packed = cases.iter().filter(|c| plain_cases::packs_ahead(c)).count();
    assert!(packed > 2, "{packed} cases pack weights ahead");
    check(&cases);
    #[cfg(target_arch = "x86_64")]
    for level in ["-mno-avx512f", "-mno-avx"] {
        plain_cases::check_at(&[level], &cases);
    }
}
