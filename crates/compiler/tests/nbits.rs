//! Tests of products with weights of few bits (`plain/nbits.rs`): the C code packs weights into the
//! same bytes as the constant evaluator; products with packed weights equal products with the
//! weights that the file means, at each level of instructions, and extreme values do not saturate.

use crate::plain_cases;

use plain_cases::{Case, check, check_at, values};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;
use squall_core::DType;
use squall_core::graph::infer::nbits::DOMAIN;
use squall_core::graph::{Attribute, CallOperand, Constant, Node, OperatorCall};
use squall_core::operators;
use squall_testing::samples;
use std::collections::BTreeMap;

/// The weights of a product in the form of an ONNX file.
struct Weights {
    attributes: BTreeMap<String, Attribute>,
    /// Codes, scales, and zero points where there are some.
    operands: Vec<(DType, Constant)>,
}

fn whole(r: &mut Random, shape: &[i64], range: std::ops::Range<i64>) -> Constant {
    let n = shape.iter().product::<i64>();
    Constant::I64 {
        shape: shape.to_vec(),
        data: (0..n).map(|_| r.random_range(range.clone())).collect(),
    }
}

fn floats(r: &mut Random, shape: &[i64], step: f32) -> Constant {
    let n = shape.iter().product::<i64>();
    let one = |r: &mut Random| r.random_range(-40..40i32) as f32 * step;
    Constant::F32 { shape: shape.to_vec(), data: (0..n).map(|_| one(r)).collect() }
}

/// The form of zero points.
#[derive(Clone, Copy, PartialEq)]
enum Zeros {
    Absent,
    Whole,
    Floats,
}

/// Weights of `bits` bits: `k` rows and `n` columns, of which each has a scale for `block` rows.
struct Sizes {
    k: i64,
    n: i64,
    bits: i64,
    block: i64,
}

fn weights(r: &mut Random, sizes: Sizes, form: &str, zeros: Zeros) -> Weights {
    let Sizes { k, n, bits, block } = sizes;
    let blocks = (k + block - 1) / block;
    let signed = form != "packed" && r.random();
    let (codes, each) = match form {
        "packed" => (vec![n, blocks, block * bits / 8], vec![n, blocks]),
        "rows" => (vec![k, n], vec![blocks, n]),
        _ => (vec![n, k], vec![n, blocks]),
    };
    let (dtype, range) = match (form, signed) {
        ("packed", _) => (DType::U8, 0..256),
        (_, true) => (DType::I8, -(1 << (bits - 1))..1 << (bits - 1)),
        (_, false) => (DType::U8, 0..1 << bits),
    };
    let mut operands = vec![
        (dtype, whole(r, &codes, range.clone())),
        (DType::F32, floats(r, &each, 1.0 / 1024.0)),
    ];
    match zeros {
        Zeros::Absent => {}
        Zeros::Whole if form == "packed" => {
            operands.push((DType::U8, whole(r, &[n, (blocks * bits + 7) / 8], range)));
        }
        Zeros::Whole => operands.push((dtype, whole(r, &each, range))),
        Zeros::Floats => operands.push((DType::F32, floats(r, &each, 0.5))),
    }
    let int = |name: &str, v: i64| (name.to_string(), Attribute::Int(v));
    let attributes = BTreeMap::from([
        int("K", k),
        int("N", n),
        int("bits", bits),
        int("block_size", block),
        int("signed", i64::from(signed)),
        ("form".to_string(), Attribute::String(form.into())),
    ]);
    Weights { attributes, operands }
}

fn operand(dtype: DType, c: &Constant) -> Option<CallOperand> {
    Some(CallOperand { dtype, shape: c.shape().to_vec(), constant: None })
}

/// The results of an operator over weights, by the evaluator of constants.
fn evaluated(op: &str, w: &Weights, outputs: usize) -> Vec<Constant> {
    let node = Node {
        name: op.into(),
        op: op.into(),
        domain: DOMAIN.into(),
        inputs: (0..w.operands.len()).map(Some).collect(),
        outputs: (0..outputs).map(|i| 9 + i).collect(),
        attributes: w.attributes.clone(),
        folded: false,
        problem: None,
    };
    let inputs: Vec<Option<Constant>> = w.operands.iter().map(|o| Some(o.1.clone())).collect();
    operators::evaluate(&node, &inputs, 21).expect(op).expect(op)
}

fn call(
    op: &str,
    attributes: BTreeMap<String, Attribute>,
    inputs: Vec<Option<CallOperand>>,
    outputs: Vec<Option<CallOperand>>,
) -> OperatorCall {
    OperatorCall { op: op.into(), domain: DOMAIN.into(), opset: 21, attributes, inputs, outputs }
}

/// The packed form and the floats of weights by C.
fn packing(w: &Weights, zeros: Zeros) -> [Case; 2] {
    let inputs = || w.operands.iter().map(|(d, c)| operand(*d, c)).collect::<Vec<_>>();
    let operands = || w.operands.iter().map(|o| o.1.clone()).collect::<Vec<_>>();
    let types = [
        DType::U8,
        DType::F32,
        match zeros {
            Zeros::Floats => DType::F32,
            _ => DType::U8,
        },
    ];
    let case = |op: &str, made: Vec<Constant>, types: &[DType]| Case {
        call: call(
            op,
            w.attributes.clone(),
            inputs(),
            made.iter().zip(types).map(|(c, d)| operand(*d, c)).collect(),
        ),
        operands: operands(),
        want: made.iter().flat_map(values).collect(),
    };
    [
        case("PackNBits", evaluated("PackNBits", w, 3), &types),
        case("UnpackNBits", evaluated("UnpackNBits", w, 1), &[DType::F32]),
    ]
}

/// Activations as each block of them is quantised to signed bytes.
fn quantised(x: &[f32], k: usize, block: usize) -> Vec<f64> {
    let mut out = Vec::new();
    for row in x.chunks(k) {
        for part in row.chunks(block) {
            let largest = part.iter().fold(0f32, |m, v| m.max(v.abs()));
            let factor = if largest > 0.0 { 127.0 / largest } else { 0.0 };
            let step = f64::from(largest / 127.0);
            out.extend(part.iter().map(|v| f64::from((v * factor).round_ties_even()) * step));
        }
    }
    out
}

/// A product of `m` rows.
fn multiplied(r: &mut Random, w: &Weights, m: i64, level: i64, has_bias: bool) -> Case {
    let int = |name: &str| match w.attributes[name] {
        Attribute::Int(v) => v,
        _ => panic!("{name}"),
    };
    let (k, n, block) = (int("K"), int("N"), int("block_size"));
    let x = floats(r, &[m, k], 0.125);
    let bias = floats(r, &[n], 0.25);
    let packed = evaluated("PackNBits", w, 3);
    let dense = &evaluated("UnpackNBits", w, 1)[0];
    let (a, b) = (x.as_f32().unwrap(), dense.as_f32().unwrap());
    let a = match level {
        4 => quantised(a, k as usize, block as usize),
        _ => a.iter().map(|v| f64::from(*v)).collect(),
    };
    let (k, n) = (k as usize, n as usize);
    let want = (0..m as usize * n).map(|at| {
        let sum: f64 = (0..k).map(|l| a[at / n * k + l] * f64::from(b[l * n + at % n])).sum();
        sum + if has_bias { f64::from(bias.as_f32().unwrap()[at % n]) } else { 0.0 }
    });
    let want = want.collect();
    let zeros = w.operands.get(2).map(|z| if z.0 == DType::F32 { DType::F32 } else { DType::U8 });
    let mut operands = vec![x];
    let mut inputs = vec![operand(DType::F32, &operands[0])];
    for (c, dtype) in packed.into_iter().zip([Some(DType::U8), Some(DType::F32), zeros]) {
        inputs.push(dtype.and_then(|d| operand(d, &c)));
        operands.extend(dtype.map(|_| c));
    }
    if has_bias {
        inputs.push(operand(DType::F32, &bias));
        operands.push(bias);
    }
    let mut attributes = w.attributes.clone();
    attributes.insert("accuracy_level".into(), Attribute::Int(level));
    let y = Some(CallOperand { dtype: DType::F32, shape: vec![m, n as i64], constant: None });
    Case { call: call("MatMulNBits", attributes, inputs, vec![y]), operands, want }
}

#[test]
fn weights_are_packed_alike_by_c_and_by_evaluation() {
    let mut r = Random::seed_from_u64(1);
    let mut cases = Vec::new();
    let sizes = [(33, 17, 16), (300, 3, 256), (16, 16, 16), (40, 5, 32), (7, 1, 8)];
    for (k, n, block) in sizes.into_iter().take(samples(2, 5)) {
        for bits in [4, 8] {
            for (form, zeros) in [
                ("packed", Zeros::Absent),
                ("packed", Zeros::Whole),
                ("packed", Zeros::Floats),
                ("rows", Zeros::Absent),
                ("columns", Zeros::Whole),
            ] {
                let w = weights(&mut r, Sizes { k, n, bits, block }, form, zeros);
                cases.extend(packing(&w, zeros));
            }
        }
    }
    check(&cases);
}

/// Products with random weights, all computed in this way.
fn products(seed: u64, level: i64) -> Vec<Case> {
    let mut r = Random::seed_from_u64(seed);
    let mut cases = Vec::new();
    let forms = ["packed", "rows", "columns"];
    for round in 0..samples(8, 24) {
        let block = [16, 32, 64, 128, 256, 8][round % 6];
        let k = r.random_range(1..2 * block + 9);
        let n = [1, 15, 16, 17, 40][r.random_range(0..5usize)];
        let bits = if round / 6 % 2 == 0 { 4 } else { 8 };
        let form = forms[r.random_range(0..3usize)];
        let zeros = match r.random_range(0..3) {
            0 => Zeros::Absent,
            1 if form == "packed" => Zeros::Floats,
            _ => Zeros::Whole,
        };
        let w = weights(&mut r, Sizes { k, n, bits, block }, form, zeros);
        let m = [1, 2, 3, 4, 5, 9, 21, 85][r.random_range(0..8usize)];
        let has_bias = r.random();
        cases.push(multiplied(&mut r, &w, m, level, has_bias));
    }
    cases
}

#[test]
fn products_are_those_of_the_weights_that_are_meant() {
    check(&products(2, 0));
    // A GPU does not quantise activations.
    check_at(&[], &products(3, 4));
}

#[cfg(target_arch = "x86_64")]
#[test]
fn products_are_the_same_at_each_level_of_instructions() {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let vnni = ["-mavx2", "-mfma", "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512vnni"];
    let amx = [&vnni[..], &["-mamx-tile", "-mamx-int8"]].concat();
    let levels: [(&[&str], bool); 4] = [
        (&["-mavx2", "-mfma"], is_x86_feature_detected!("avx2")),
        (&["-mavx2", "-mfma", "-mavxvnni"], is_x86_feature_detected!("avxvnni")),
        (&vnni, is_x86_feature_detected!("avx512vnni") && is_x86_feature_detected!("avx512vl")),
        (&amx, cpu.contains(" amx_int8")),
    ];
    for (flags, _) in levels.into_iter().filter(|l| l.1) {
        check_at(flags, &products(4, 4));
        check_at(flags, &products(5, 0));
    }
}

/// Sums of the largest codes and activations are exact where 16 bits would saturate.
#[test]
fn extremes_do_not_saturate() {
    let level: &[&str] = match cfg!(target_arch = "x86_64") && has_avx2() {
        true => &["-mavx2"],
        false => &[],
    };
    let mut cases = Vec::new();
    for (bits, block) in [(4, 32), (8, 32), (8, 256), (4, 256)] {
        let (k, n) = (2 * block, 16);
        let codes = vec![255; (n * 2 * block * bits / 8) as usize];
        let scales = vec![1.0 / 4096.0; 2 * n as usize];
        let int = |name: &str, v: i64| (name.to_string(), Attribute::Int(v));
        let w = Weights {
            attributes: BTreeMap::from([
                int("K", k),
                int("N", n),
                int("bits", bits),
                int("block_size", block),
                ("form".to_string(), Attribute::String("packed".into())),
            ]),
            operands: vec![
                (DType::U8, Constant::I64 { shape: vec![n, 2, block * bits / 8], data: codes }),
                (DType::F32, Constant::F32 { shape: vec![n, 2], data: scales }),
            ],
        };
        let mut case = multiplied(&mut Random::seed_from_u64(6), &w, 5, 4, false);
        // All activations are 127 steps, or all are -127.
        let sign = |row: usize| if row.is_multiple_of(2) { 1.0 } else { -1.0 };
        let data = (0..5 * k as usize).map(|at| sign(at / k as usize)).collect();
        case.operands[0] = Constant::F32 { shape: vec![5, k], data };
        let half = (1 << (bits - 1)) as f64 - 1.0;
        let each = |at: usize| f64::from(sign(at / n as usize)) * k as f64 * half / 4096.0;
        case.want = (0..5 * n as usize).map(each).collect();
        cases.push(case);
    }
    check_at(level, &cases);
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx2() -> bool {
    false
}
