//! Tests of plain kernels (`src/plain`, untuned C for one ONNX operator at constant shapes): each
//! is compiled by the C compilers at hand, with warnings as errors, run on random shapes and
//! values, and compared with the constant evaluators of `core` or with loops written here.

use crate::plain_cases;

use plain_cases::{Case, check, values};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;
use squall_core::DType;
use squall_core::graph::{Attribute, CallOperand, Constant, Node, OperatorCall};
use squall_core::operators;
use squall_testing::samples;
use std::collections::BTreeMap;

fn random(r: &mut Random, dtype: DType, shape: &[i64]) -> Constant {
    let n = shape.iter().product::<i64>() as usize;
    let shape = shape.to_vec();
    match dtype {
        DType::F32 => {
            let data = (0..n).map(|_| r.random_range(-40..40i32) as f32 / 8.0).collect();
            Constant::F32 { shape, data }
        }
        DType::Bool => Constant::Bool { shape, data: (0..n).map(|_| r.random()).collect() },
        DType::U8 => {
            Constant::I64 { shape, data: (0..n).map(|_| r.random_range(1..200)).collect() }
        }
        _ => {
            let value = |r: &mut Random| {
                let v = r.random_range(1..30i64);
                if r.random() { v } else { -v }
            };
            Constant::I64 { shape, data: (0..n).map(|_| value(r)).collect() }
        }
    }
}

/// A case whose expected result comes from the constant evaluators. The generator also knows the
/// elements of the operands behind the first `moving` ones.
fn folded(
    op: &str,
    operands: Vec<(DType, Constant)>,
    moving: usize,
    attributes: &[(&str, Attribute)],
) -> Case {
    let attributes: BTreeMap<String, Attribute> =
        attributes.iter().map(|(n, a)| (n.to_string(), a.clone())).collect();
    let node = Node {
        name: op.into(),
        op: op.into(),
        domain: String::new(),
        inputs: (0..operands.len()).map(Some).collect(),
        outputs: vec![operands.len()],
        attributes: attributes.clone(),
        folded: false,
        problem: None,
    };
    let inputs: Vec<Option<Constant>> = operands.iter().map(|o| Some(o.1.clone())).collect();
    let dtypes: Vec<Option<DType>> = operands.iter().map(|o| Some(o.0)).collect();
    let made = operators::evaluate_as(&node, &inputs, &dtypes, 20).expect(op).expect(op);
    let dtype = match (&made[0], operands.last()) {
        (Constant::Bool { .. }, _) => DType::Bool,
        (Constant::F32 { .. }, _) => DType::F32,
        (_, _) if operands[0].0 == DType::F32 || op == "NonZero" => DType::I64,
        _ => operands[0].0,
    };
    let call = OperatorCall {
        op: op.into(),
        domain: String::new(),
        opset: 20,
        attributes,
        inputs: operands
            .iter()
            .enumerate()
            .map(|(i, (dtype, c))| {
                let constant = (i >= moving).then(|| c.clone());
                Some(CallOperand { dtype: *dtype, shape: c.shape().to_vec(), constant })
            })
            .collect(),
        outputs: vec![Some(CallOperand { dtype, shape: made[0].shape().to_vec(), constant: None })],
    };
    let want = values(&made[0]);
    Case { call, operands: operands.into_iter().map(|o| o.1).collect(), want }
}

/// A shape, and one that broadcasts to it.
fn broadcasting(r: &mut Random) -> (Vec<i64>, Vec<i64>) {
    let rank = r.random_range(0..5usize);
    let a: Vec<i64> = (0..rank).map(|_| r.random_range(1..4)).collect();
    let skip = r.random_range(0..=rank);
    let b = a[skip..].iter().map(|d| if r.random() { *d } else { 1 }).collect();
    (a, b)
}

#[test]
fn elementwise_operators_broadcast_in_all_types() {
    let mut r = Random::seed_from_u64(1);
    let mut cases = Vec::new();
    for round in 0..samples(1, 4) {
        for op in ["Add", "Sub", "Mul", "Div", "Min", "Max"] {
            for dtype in [DType::F32, DType::I32, DType::I64, DType::U8] {
                let (a, b) = broadcasting(&mut r);
                let (a, b) = if round % 2 == 0 { (a, b) } else { (b, a) };
                let (x, y) = (random(&mut r, dtype, &a), random(&mut r, dtype, &b));
                let zero = y.as_f32().is_some_and(|v| v.contains(&0.0));
                if op == "Div" && zero {
                    continue;
                }
                cases.push(folded(op, vec![(dtype, x), (dtype, y)], 2, &[]));
            }
        }
        for op in ["Equal", "Less", "GreaterOrEqual"] {
            let (a, b) = broadcasting(&mut r);
            let (x, y) = (random(&mut r, DType::I32, &a), random(&mut r, DType::I32, &b));
            cases.push(folded(op, vec![(DType::I32, x), (DType::I32, y)], 2, &[]));
        }
        let (a, b) = broadcasting(&mut r);
        let operands = vec![
            (DType::Bool, random(&mut r, DType::Bool, &b)),
            (DType::F32, random(&mut r, DType::F32, &a)),
            (DType::F32, random(&mut r, DType::F32, &b)),
        ];
        cases.push(folded("Where", operands, 3, &[]));
        for op in ["Neg", "Abs", "Floor", "Ceil", "Round", "Exp", "Sign"] {
            let x = random(&mut r, DType::F32, &a);
            cases.push(folded(op, vec![(DType::F32, x)], 1, &[]));
        }
    }
    check(&cases);
}

#[test]
fn moves_and_reductions_are_those_of_constants() {
    let mut r = Random::seed_from_u64(2);
    let ints = Constant::ints;
    let mut cases = Vec::new();
    for _ in 0..samples(2, 6) {
        let shape: Vec<i64> = (0..3).map(|_| r.random_range(1..6)).collect();
        let x = (DType::F32, random(&mut r, DType::F32, &shape));
        let i64s = |v: Vec<i64>| (DType::I64, ints(v));
        let perm = Attribute::Ints(vec![2, 0, 1]);
        cases.push(folded("Transpose", vec![x.clone()], 1, &[("perm", perm)]));
        let pads = i64s(vec![1, 0, 2, 0, 3, 1]);
        for mode in ["constant", "edge", "reflect", "wrap"] {
            let mode = Attribute::String(mode.into());
            cases.push(folded("Pad", vec![x.clone(), pads.clone()], 1, &[("mode", mode)]));
        }
        let [s, e, a, t] = [vec![-1, 0], vec![-9, 9], vec![0, 2], vec![-1, 2]].map(i64s);
        cases.push(folded("Slice", vec![x.clone(), s, e, a, t], 1, &[]));
        cases.push(folded("Tile", vec![x.clone(), i64s(vec![2, 1, 3])], 1, &[]));
        let axis = r.random_range(0..3usize);
        let at: Vec<i64> = (0..4).map(|_| r.random_range(-shape[axis]..shape[axis])).collect();
        let axis_is = ("axis", Attribute::Int(axis as i64));
        cases.push(folded("Gather", vec![x.clone(), i64s(at)], 2, std::slice::from_ref(&axis_is)));
        let y = (DType::F32, random(&mut r, DType::F32, &shape));
        cases.push(folded("Concat", vec![x.clone(), y], 2, std::slice::from_ref(&axis_is)));
        let data = (0..shape.iter().product()).map(|_| r.random_range(-shape[axis]..shape[axis]));
        let places = Constant::I64 { shape: shape.clone(), data: data.collect() };
        let operands = vec![x.clone(), (DType::I64, places)];
        cases.push(folded("GatherElements", operands, 2, &[axis_is]));
        let row = vec![r.random_range(0..shape[0]), r.random_range(-shape[1]..0)];
        let row = Constant::I64 { shape: vec![1, 2], data: row };
        cases.push(folded("GatherND", vec![x.clone(), (DType::I64, row.clone())], 2, &[]));
        let new = (DType::F32, random(&mut r, DType::F32, &[1, shape[2]]));
        cases.push(folded("ScatterND", vec![x.clone(), (DType::I64, row), new], 3, &[]));
        cases.push(folded("Trilu", vec![x.clone()], 1, &[("upper", Attribute::Int(0))]));
        for op in ["ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin"] {
            for (dtype, axes) in [(DType::F32, vec![1]), (DType::I32, vec![2, 0])] {
                let x = (dtype, random(&mut r, dtype, &shape));
                cases.push(folded(op, vec![x, i64s(axes)], 1, &[]));
            }
        }
    }
    check(&cases);
}

/// A product of matrices by its definition.
fn product(a: &[f32], b: &[f32], [m, n, k]: [usize; 3]) -> Vec<f64> {
    let sum = |i: usize, j: usize| -> f64 {
        (0..k).map(|l| f64::from(a[i * k + l]) * f64::from(b[l * n + j])).sum()
    };
    (0..m * n).map(|at| sum(at / n, at % n)).collect()
}

#[test]
fn products_of_all_sizes_are_right() {
    let mut r = Random::seed_from_u64(3);
    let mut cases = Vec::new();
    for [m, n, k] in [[1, 1, 1], [4, 16, 8], [5, 17, 3], [3, 40, 33], [9, 2, 7], [8, 16, 0]] {
        let (a, b) = (random(&mut r, DType::F32, &[m, k]), random(&mut r, DType::F32, &[k, n]));
        let sizes = [m as usize, n as usize, k as usize];
        let want = product(a.as_f32().unwrap(), b.as_f32().unwrap(), sizes);
        let float = |shape: &[i64]| {
            Some(CallOperand { dtype: DType::F32, shape: shape.to_vec(), constant: None })
        };
        let call = OperatorCall {
            op: "MatMul".into(),
            domain: String::new(),
            opset: 20,
            attributes: BTreeMap::new(),
            inputs: vec![float(&[m, k]), float(&[k, n])],
            outputs: vec![float(&[m, n])],
        };
        cases.push(Case { call, operands: vec![a, b], want });
    }
    check(&cases);
}
