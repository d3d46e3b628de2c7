//! Tests of the plain kernels (C for one ONNX operator) of `MatMulInteger` and `QLinearMatMul`:
//! products of many extents, none and one among them, of all types of bytes, with and without zero
//! points, are compiled, run on random bytes and compared with loops that are written here, with
//! the second matrix given to each call and packed ahead of all.

use crate::plain_cases;

use plain_cases::{Case, check, check_at, packs_ahead};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus as Random;
use squall_core::DType;
use squall_core::graph::{CallOperand, Constant, OperatorCall};

/// How many zero points a matrix has.
#[derive(Clone, Copy, PartialEq)]
enum Zeros {
    None,
    One,
    Each,
}

/// A product of bytes.
#[derive(Clone, Copy)]
struct Product {
    /// Matrices in the first operand, and in the second one, which is one of all or as many.
    batch: [usize; 2],
    extents: [usize; 3],
    dtypes: [DType; 2],
    zeros: [Zeros; 2],
}

fn bytes(r: &mut Random, dtype: DType, count: usize) -> Vec<i64> {
    let (low, high) = if dtype == DType::I8 { (-128, 127) } else { (0, 255) };
    (0..count).map(|_| r.random_range(low..=high)).collect()
}

/// The sums of the products, each less its zero points.
fn sums(p: &Product, a: &[i64], b: &[i64], zeros: &[Vec<i64>; 2]) -> Vec<i64> {
    let [m, n, k] = p.extents;
    let zero = |of: usize, at: usize| match zeros[of].len() {
        0 => 0,
        1 => zeros[of][0],
        _ => zeros[of][at],
    };
    let mut all = Vec::new();
    for matrix in 0..p.batch[0] {
        let (a, b) = (&a[matrix * m * k..], &b[matrix % p.batch[1] * k * n..]);
        for row in 0..m {
            for column in 0..n {
                let one = |i: usize| {
                    (a[row * k + i] - zero(0, row)) * (b[i * n + column] - zero(1, column))
                };
                all.push((0..k).map(one).sum());
            }
        }
    }
    all
}

fn case(r: &mut Random, p: &Product, is_quantised: bool) -> Case {
    let [m, n, k] = p.extents;
    let a = bytes(r, p.dtypes[0], p.batch[0] * m * k);
    let b = bytes(r, p.dtypes[1], p.batch[1] * k * n);
    let zeros = [0, 1].map(|i| {
        let count = match p.zeros[i] {
            Zeros::None => 0,
            Zeros::One => 1,
            Zeros::Each => p.extents[i],
        };
        bytes(r, p.dtypes[i], count)
    });
    let made = sums(p, &a, &b, &zeros);
    let (mut inputs, mut operands) = (Vec::new(), Vec::new());
    let mut add = |dtype: DType, shape: &[usize], data: Vec<i64>| {
        let shape: Vec<i64> = shape.iter().map(|e| *e as i64).collect();
        inputs.push(Some(CallOperand { dtype, shape: shape.clone(), constant: None }));
        operands.push(Constant::I64 { shape, data });
    };
    let batched = |count: usize, rows: usize, columns: usize| match count {
        1 => vec![rows, columns],
        _ => vec![count, rows, columns],
    };
    let shapes = [batched(p.batch[0], m, k), batched(p.batch[1], k, n)];
    add(p.dtypes[0], &shapes[0], a);
    add(p.dtypes[1], &shapes[1], b);
    for (i, zeros) in zeros.iter().enumerate() {
        let shape = if p.zeros[i] == Zeros::Each { vec![p.extents[i]] } else { Vec::new() };
        add(p.dtypes[i], &shape, zeros.clone());
    }
    let of = |i: usize| p.zeros[i] != Zeros::None;
    let shape: Vec<i64> = batched(p.batch[0], m, n).iter().map(|e| *e as i64).collect();
    let op = if is_quantised { "QLinearMatMul" } else { "MatMulInteger" };
    let mut want: Vec<f64> = made.iter().map(|v| *v as f64).collect();
    let mut dtype = DType::I32;
    if is_quantised {
        // a, its scale and zero point, b, its, and those of the result.
        let scale = |value: f32| {
            let constant = Constant::F32 { shape: Vec::new(), data: vec![value] };
            (Some(CallOperand { dtype: DType::F32, shape: Vec::new(), constant: None }), constant)
        };
        let [(one, first), (_, second), (_, third)] = [0.5, 0.25, 64.0].map(scale);
        dtype = DType::U8;
        let point = Some(CallOperand { dtype, shape: Vec::new(), constant: None });
        let of_point = Constant::I64 { shape: Vec::new(), data: vec![128] };
        let [x, y, zx, zy] = [0, 1, 2, 3].map(|i| (inputs[i].clone(), operands[i].clone()));
        let order =
            [x, (one.clone(), first), zx, y, (one.clone(), second), zy, (one, third)].into_iter();
        (inputs, operands) = order.chain([(point, of_point)]).unzip();
        let quantised = |v: &i64| {
            let v = (*v as f32 * (0.5 * 0.25 / 64.0)).round_ties_even() + 128.0;
            f64::from(v.clamp(0.0, 255.0))
        };
        want = made.iter().map(quantised).collect();
    } else {
        let kept = [true, true, of(0), of(1)];
        operands = operands.into_iter().zip(kept).filter(|o| o.1).map(|o| o.0).collect();
        inputs = inputs.into_iter().zip(kept).map(|(o, k)| o.filter(|_| k)).collect();
    }
    let outputs = vec![Some(CallOperand { dtype, shape, constant: None })];
    let call = OperatorCall {
        op: op.into(),
        domain: String::new(),
        opset: 20,
        attributes: Default::default(),
        inputs,
        outputs,
    };
    Case { call, operands, want }
}

#[test]
fn products_of_bytes_are_those_of_loops() {
    use DType::{I8, U8};
    let mut r = Random::seed_from_u64(58);
    let mut cases = Vec::new();
    let products = [
        ([1, 1], [1, 1, 1], [U8, U8], [Zeros::None, Zeros::None]),
        ([1, 1], [7, 70, 13], [U8, I8], [Zeros::One, Zeros::Each]),
        ([1, 1], [13, 64, 31], [I8, I8], [Zeros::Each, Zeros::One]),
        ([1, 1], [6, 129, 4], [I8, U8], [Zeros::Each, Zeros::Each]),
        ([3, 1], [5, 3, 6], [U8, U8], [Zeros::One, Zeros::One]),
        ([3, 3], [2, 66, 5], [U8, I8], [Zeros::None, Zeros::None]),
        // No row, no column, and sums of nothing.
        ([1, 1], [0, 4, 4], [U8, U8], [Zeros::One, Zeros::One]),
        ([1, 1], [4, 0, 4], [U8, I8], [Zeros::One, Zeros::One]),
        ([1, 1], [4, 4, 0], [U8, U8], [Zeros::One, Zeros::One]),
    ];
    for (batch, extents, dtypes, zeros) in products {
        let p = Product { batch, extents, dtypes, zeros };
        cases.push(case(&mut r, &p, false));
        if zeros.iter().all(|z| *z != Zeros::None) {
            cases.push(case(&mut r, &p, true));
        }
    }
    let packed = cases.iter().filter(|c| packs_ahead(c)).count();
    assert!(packed > 6 && packed < cases.len(), "{packed} cases pack a matrix ahead");
    check(&cases);
    #[cfg(target_arch = "x86_64")]
    for level in ["-mno-avx512f", "-mno-avx"] {
        check_at(&[level], &cases);
    }
}
