//! Tests of the plain kernels (C for one ONNX operator) of `LSTM`, `GRU` and `RNN`: networks of
//! many extents, some of which fill only a part of a panel of packed weights, are compiled, run on
//! random values and compared with loops in 64-bit floats that are written here.

use crate::plain_cases;

use plain_cases::{Case, check};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;
use squall_core::DType;
use squall_core::graph::{Attribute, CallOperand, Constant, OperatorCall};
use std::collections::BTreeMap;

/// A recurrent operator's extents, and the parts of the standard that it uses.
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
    more: More,
}

/// Parts of the standard that few models use.
#[derive(Clone, Copy, Default)]
struct More {
    is_reverse: bool,
    batch_first: bool,
    lacks_bias: bool,
    /// An LSTM gets first cells and peepholes, and its input and forget gates are one.
    has_peepholes: bool,
    joins_gates: bool,
    /// The second direction of an RNN has ReLU in the place of tanh.
    has_relu: bool,
    clip: Option<f32>,
}

impl Net {
    fn gates(&self) -> usize {
        match self.op {
            "LSTM" => 4,
            "GRU" => 3,
            _ => 1,
        }
    }

    /// The number of a row of states of row `b` of the batch.
    fn state(&self, d: usize, b: usize) -> usize {
        if self.more.batch_first { b * self.directions + d } else { d * self.batch + b }
    }

    /// The number of the row of the inputs for row `b` of the batch at step `t`.
    fn input(&self, t: usize, b: usize) -> usize {
        if self.more.batch_first { b * self.steps + t } else { t * self.batch + b }
    }

    fn result(&self, t: usize, d: usize, b: usize) -> usize {
        match self.more.batch_first {
            true => (b * self.steps + t) * self.directions + d,
            false => (t * self.directions + d) * self.batch + b,
        }
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The elements of a call's operands; those of the states are used where `has_states` is true.
struct Operands {
    x: Vec<f32>,
    w: Vec<f32>,
    r: Vec<f32>,
    bias: Vec<f32>,
    lengths: Vec<i64>,
    states: Vec<f32>,
    cells: Vec<f32>,
    peepholes: Vec<f32>,
}

/// One step of a row in direction `d`: the next state and cell. `sums` are those of gates with the
/// input and with the state.
fn step(
    n: &Net,
    o: &Operands,
    d: usize,
    sums: &[Vec<f64>; 2],
    last: &dyn Fn(&[f64]) -> Vec<f64>,
    old: [&[f64]; 2],
) -> [Vec<f64>; 2] {
    let [w, r] = sums;
    let clip = f64::from(n.more.clip.unwrap_or(f32::INFINITY));
    let sigmoid = |x: f64| sigmoid(x.clamp(-clip, clip));
    let tanh = |x: f64| x.clamp(-clip, clip).tanh();
    let peep = |gate: usize, i: usize, cell: f64| match n.more.has_peepholes {
        true => f64::from(o.peepholes[(d * 3 + gate) * n.hidden + i]) * cell,
        false => 0.0,
    };
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
                let input = sigmoid(both(0, i) + peep(0, i, cell[i]));
                let forget = match n.more.joins_gates {
                    true => 1.0 - input,
                    false => sigmoid(both(2, i) + peep(2, i, cell[i])),
                };
                cells[i] = forget * cell[i] + input * tanh(both(3, i));
                sigmoid(both(1, i) + peep(1, i, cells[i])) * cells[i].tanh()
            }
            "GRU" => {
                let recurrent = match n.linear_before_reset {
                    true => reset[i] * r[2 * size + i],
                    false => after_reset[i],
                };
                let z = sigmoid(both(0, i));
                (1.0 - z) * tanh(w[2 * size + i] + recurrent) + z * state[i]
            }
            _ if n.more.has_relu && d == 1 => both(0, i).clamp(-clip, clip).max(0.0),
            _ => tanh(both(0, i)),
        };
    }
    [next, cells]
}

/// All states, then the last ones, then the last cells of an LSTM.
fn expected(n: &Net, o: &Operands) -> Vec<f64> {
    let (size, rows) = (n.hidden, n.gates() * n.hidden);
    let mut all = vec![0.0; n.steps * n.directions * n.batch * size];
    let mut ends = vec![0.0; n.directions * n.batch * size];
    let mut end_cells = ends.clone();
    for d in 0..n.directions {
        let sums = |of: &[f64], weights: &[f32], which: usize| -> Vec<f64> {
            let k = of.len();
            let one = |row: usize| -> f64 {
                let weights = &weights[(d * rows + row) * k..][..k];
                let sum: f64 = of.iter().zip(weights).map(|(a, b)| a * f64::from(*b)).sum();
                let bias = f64::from(o.bias[(d * 2 + which) * rows + row]);
                if n.more.lacks_bias { sum } else { sum + bias }
            };
            (0..rows).map(one).collect()
        };
        for b in 0..n.batch {
            let begin = n.state(d, b) * size;
            let given = |of: &[f32], is_there: bool| -> Vec<f64> {
                let one = |i: usize| if is_there { f64::from(of[begin + i]) } else { 0.0 };
                (0..size).map(one).collect()
            };
            let mut state = given(&o.states, n.has_states);
            let mut cell = given(&o.cells, n.more.has_peepholes);
            let length = if n.has_states { o.lengths[b] as usize } else { n.steps };
            for s in 0..length {
                let t = if d == 1 || n.more.is_reverse { length - 1 - s } else { s };
                let input: Vec<f64> = o.x[n.input(t, b) * n.features..][..n.features]
                    .iter()
                    .map(|v| f64::from(*v))
                    .collect();
                let made = [sums(&input, &o.w, 0), sums(&state, &o.r, 1)];
                let last = |reset: &[f64]| sums(reset, &o.r, 1)[2 * size..].to_vec();
                [state, cell] = step(n, o, d, &made, &last, [&state, &cell]);
                all[n.result(t, d, b) * size..][..size].copy_from_slice(&state);
            }
            ends[begin..][..size].copy_from_slice(&state);
            end_cells[begin..][..size].copy_from_slice(&cell);
        }
    }
    all.extend(ends);
    if n.op == "LSTM" {
        all.extend(end_cells);
    }
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
        cells: draw(d * n.batch * n.hidden, 0.01),
        peepholes: draw(d * 3 * n.hidden, 0.005),
    };
    o.lengths = (0..n.batch).map(|_| r.random_range(0..=n.steps as i64)).collect();
    let want = expected(n, &o);
    let (inputs, operands) = given(n, &o);
    let result = |shape: &[usize]| {
        let shape = shape.iter().map(|e| *e as i64).collect();
        Some(CallOperand { dtype: DType::F32, shape, constant: None })
    };
    let (all, last) = match n.more.batch_first {
        true => ([n.batch, n.steps, d, n.hidden], [n.batch, d, n.hidden]),
        false => ([n.steps, d, n.batch, n.hidden], [d, n.batch, n.hidden]),
    };
    let mut outputs = vec![result(&all), result(&last)];
    if n.op == "LSTM" {
        outputs.push(result(&last));
    }
    let (op, domain, attributes) = (n.op.to_string(), String::new(), attributes(n));
    Case {
        call: OperatorCall { op, domain, opset: 20, attributes, inputs, outputs },
        operands,
        want,
    }
}

/// The operands of a call that are there, as the call has them and by their values.
fn given(n: &Net, o: &Operands) -> (Vec<Option<CallOperand>>, Vec<Constant>) {
    let (rows, d) = (n.gates() * n.hidden, n.directions);
    let (mut inputs, mut operands) = (Vec::new(), Vec::new());
    let first = |size: usize| match n.more.batch_first {
        true => [n.batch, d, size],
        false => [d, n.batch, size],
    };
    let x = if n.more.batch_first { [n.batch, n.steps] } else { [n.steps, n.batch] };
    let states = n.has_states.then_some(&o.states);
    let cells = n.more.has_peepholes.then_some(&o.cells);
    let peepholes = n.more.has_peepholes.then_some(&o.peepholes);
    let bias = (!n.more.lacks_bias).then_some(&o.bias);
    let floats = [
        (Some(&o.x), vec![x[0], x[1], n.features]),
        (Some(&o.w), vec![d, rows, n.features]),
        (Some(&o.r), vec![d, rows, n.hidden]),
        (bias, vec![d, 2 * rows]),
        (states, first(n.hidden).to_vec()),
        (cells, first(n.hidden).to_vec()),
        (peepholes, vec![d, 3 * n.hidden]),
    ];
    for (place, (data, shape)) in floats.into_iter().enumerate() {
        let shape: Vec<i64> = shape.iter().map(|e| *e as i64).collect();
        // Lengths stand ahead of the states.
        if place == 4 {
            let shape = vec![n.batch as i64];
            let lengths = CallOperand { dtype: DType::I32, shape: shape.clone(), constant: None };
            inputs.push(n.has_states.then_some(lengths));
            if n.has_states {
                operands.push(Constant::I64 { shape, data: o.lengths.clone() });
            }
        }
        let operand = CallOperand { dtype: DType::F32, shape: shape.clone(), constant: None };
        inputs.push(data.map(|_| operand));
        operands.extend(data.map(|data| Constant::F32 { shape, data: data.clone() }));
    }
    while inputs.last().is_some_and(Option::is_none) {
        inputs.pop();
    }
    (inputs, operands)
}

fn attributes(n: &Net) -> BTreeMap<String, Attribute> {
    let mut all = BTreeMap::new();
    let direction = match (n.directions, n.more.is_reverse) {
        (2, _) => "bidirectional",
        (_, true) => "reverse",
        (_, false) => "forward",
    };
    all.insert("direction".into(), Attribute::String(direction.into()));
    if n.op == "GRU" {
        let before = i64::from(n.linear_before_reset);
        all.insert("linear_before_reset".into(), Attribute::Int(before));
    }
    if n.more.batch_first {
        all.insert("layout".into(), Attribute::Int(1));
    }
    if n.more.joins_gates {
        all.insert("input_forget".into(), Attribute::Int(1));
    }
    if n.more.has_relu {
        let names = ["Tanh", "Relu"].map(String::from).to_vec();
        all.insert("activations".into(), Attribute::Strings(names));
    }
    all.extend(n.more.clip.map(|c| ("clip".into(), Attribute::Float(c))));
    all
}

/// A recurrence of these steps, rows, features, units and directions, without options.
fn net(op: &'static str, extents: [usize; 5]) -> Net {
    let [steps, batch, features, hidden, directions] = extents;
    let (linear_before_reset, has_states, more) = (false, false, More::default());
    Net { op, steps, batch, features, hidden, directions, has_states, linear_before_reset, more }
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
                has_states,
                linear_before_reset,
                ..net(op, [steps, batch, features, hidden, directions])
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

#[test]
fn recurrences_of_all_attributes_and_small_extents_are_those_of_loops() {
    let mut r = Random::seed_from_u64(43);
    let usual = More::default();
    let peepholes = More { has_peepholes: true, ..usual };
    let reverse = More { is_reverse: true, ..usual };
    let clip = Some(0.25);
    let nets = [
        Net { more: peepholes, ..net("LSTM", [5, 3, 4, 6, 2]) },
        Net {
            has_states: true,
            more: More { batch_first: true, joins_gates: true, clip, ..peepholes },
            ..net("LSTM", [4, 5, 3, 7, 2])
        },
        Net { has_states: true, more: reverse, ..net("LSTM", [6, 2, 3, 40, 1]) },
        Net {
            has_states: true,
            more: More { batch_first: true, clip, ..usual },
            ..net("GRU", [4, 3, 5, 6, 2])
        },
        Net {
            has_states: true,
            linear_before_reset: true,
            more: More { batch_first: true, lacks_bias: true, clip, ..reverse },
            ..net("GRU", [5, 9, 2, 33, 1])
        },
        Net {
            has_states: true,
            more: More { has_relu: true, ..usual },
            ..net("RNN", [4, 3, 3, 5, 2])
        },
        // More rows than are multiplied ahead at once on a GPU.
        Net { more: More { has_relu: true, ..usual }, ..net("RNN", [70, 64, 1, 1, 2]) },
        // No step, and one; no batch, no unit.
        Net { more: peepholes, ..net("LSTM", [0, 2, 3, 4, 2]) },
        Net { has_states: true, ..net("GRU", [1, 1, 1, 1, 2]) },
        net("GRU", [0, 1, 2, 3, 1]),
        net("LSTM", [2, 0, 3, 4, 1]),
        net("RNN", [2, 3, 4, 0, 1]),
    ];
    check(&nets.map(|n| case(&mut r, &n)));
}
