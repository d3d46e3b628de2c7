//! Tests that NaN is kept: elementwise functions, maxima, pools, softmax and epilogues are compiled
//! and run with NaN at the first, a middle and the last element, at extents around vector widths.
//! The result must be NaN exactly where the reference's is.

use crate::cases;
use crate::machines;
use crate::plain_cases;

use cases::h200;
use machines::{Case, Machine, at_level, given, of_kind};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use squall_compiler::{nest, reference, sketches, untuned};
use squall_core::expr::{Binary, Expr, Source, Unary};
use squall_core::graph::{Attribute, CallOperand, Constant, OperatorCall};
use squall_core::operator::functions::{self as f, c};
use squall_core::operator::{LpNorm, Reduce, ReduceOp, Rotary};
use squall_core::{Isa, KernelSource, TensorKind, Workload};

const NAN: f32 = f32::NAN;
const INF: f32 = f32::INFINITY;

/// Places of NaN in rows of an extent.
fn places(extent: usize) -> [usize; 3] {
    [0, extent / 2, extent - 1]
}

/// Numbers of both signs between -2 and 2, some of them zero.
fn ordinary(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 37 + 11) % 33) as f32 / 8.0 - 2.0).collect()
}

/// A case with inputs of a workload, and the expected output: the last input holds NaN at `nans`,
/// and infinities beside them where `hard`.
fn case(text: &str, nans: &[usize], hard: bool) -> (Case, Vec<f64>) {
    let w = Workload::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    let mut all: Vec<Vec<f32>> =
        w.inputs.iter().map(|i| ordinary(i.shape.iter().product::<i64>() as usize)).collect();
    let last = all.last_mut().expect("an input");
    if hard && last.len() > 8 {
        (last[2], last[5], last[6]) = (INF, -INF, -0.0);
    }
    nans.iter().for_each(|at| last[*at] = NAN);
    let as_doubles = |v: &Vec<f32>| v.iter().map(|x| f64::from(*x)).collect();
    let want = w.evaluate(&all.iter().map(as_doubles).collect::<Vec<Vec<f64>>>());
    let bytes = |v: &Vec<f32>| v.iter().flat_map(|x| x.to_ne_bytes()).collect();
    ((w, all.iter().map(bytes).collect()), want)
}

/// A function of one tensor as a workload's text.
fn elementwise(e: Expr, n: usize) -> String {
    let mut w = Workload::parse(&format!(
        "workload elementwise\ndata X: f32[{n}]\nstage Y: f32[i: {n}] = X[i]\noutput Y"
    ))
    .unwrap();
    let x = w.stages[0].body.clone();
    w.stages[0].body = e.rewrite(&mut Clone::clone, &mut |e| match e {
        Expr::Load { .. } => x.clone(),
        e => e,
    });
    w.to_string()
}

fn cases() -> Vec<(Case, Vec<f64>)> {
    let x = || Expr::load(Source(0), Vec::new());
    let mut all = Vec::new();
    let sign = Expr::unary(Unary::Sign, x());
    let named = f::NAMED.iter().filter(|n| n.0 != "log" && n.0 != "sqrt").map(|n| (n.1)(x()));
    let others = [
        sign,
        f::celu(x(), 2.0),
        f::clip(x(), Some(c(-1.0)), None),
        f::clip(x(), None, Some(c(1.0))),
        Expr::binary(Binary::Max, c(0.5), x()),
        Expr::binary(Binary::Min, x(), f::mul(x(), c(0.5))),
    ];
    all.extend(named.chain(others).map(|e| case(&elementwise(e, 33), &places(33), false)));
    for n in [1, 3, 8, 17, 33] {
        all.push(case(&elementwise(f::relu(x()), n), &places(n), true));
        let two = format!(
            "workload w\ndata A: f32[{n}]\ndata B: f32[{n}]\nstage Y: f32[i: {n}] = max(A[i], \
             min(B[i], A[i]))\noutput Y"
        );
        all.push(case(&two, &places(n), true));
        for op in ["max", "min"] {
            // Row r has its NaN at the r-th place, the last row none.
            let nans: Vec<usize> = places(n).iter().enumerate().map(|(r, p)| r * n + p).collect();
            let rows = format!(
                "workload reduce\ndata X: f32[4, {n}]\nstage Y: f32[i: 4] = {op}(j: {n}) X[i, \
                 j]\noutput Y"
            );
            all.push(case(&rows, &nans, true));
            let columns = format!(
                "workload reduce\ndata X: f32[4, {n}]\nstage Y: f32[i: {n}] = {op}(j: 4) X[j, \
                 i]\noutput Y"
            );
            all.push(case(&columns, &[n / 2, 4 * n - 1], true));
        }
    }
    let head = "data X: f32[4, 33]\nstage M: f32[i: 4] = max(j: 33) X[i, j]\nstage E: f32[i: 4, \
                j: 33] = exp(X[i, j] - M[i])\nstage S: f32[i: 4] = sum(j: 33) E[i, j]";
    for last in ["E[i, j] / S[i]", "X[i, j] - M[i] - log(S[i])"] {
        let text =
            format!("workload softmax\n{head}\nstage Y: f32[i: 4, j: 33] = {last}\noutput Y");
        all.push(case(&text, &[0, 33 + 16, 66 + 32], false));
    }
    let powers = Reduce { op: ReduceOp::LogSumExp, axes: vec![(4, false), (33, true)] };
    let norms = [1, 2].map(|p| LpNorm { rows: 4, cols: 33, p }.workload());
    for rows in norms.into_iter().chain([powers.workload()]) {
        all.push(case(&rows.unwrap().to_string(), &[0, 33 + 16, 66 + 32], false));
    }
    for are_side_by_side in [false, true] {
        let kinds = [TensorKind::Data, TensorKind::Weight];
        let turned = Rotary { batch: 2, heads: 3, steps: 5, half: 17, are_side_by_side, kinds };
        all.push(case(&turned.workload().unwrap().to_string(), &[0, 100, 169], false));
    }
    let pool = "workload maxpool\ndata X: f32[2, 19, 19]\nstage P: f32[c: 2, h: 20, w: 20] = \
                select(0 <= h - 1 < 19 and 0 <= w - 1 < 19, X[c, h - 1, w - 1], -inf)\nstage Y: \
                f32[c: 2, p: 9, q: 9] = max(r: 3, s: 3) P[c, 2 * p + r, 2 * q + s]\noutput Y";
    all.push(case(pool, &[0, 180, 361, 721], true));
    for step in ["max(C[m, n] + R[m, n], 0)", "min(max(C[m, n] + R[m, n], -1), 1)"] {
        let text = format!(
            "workload matmul\ndata A: f32[5, 12]\nweight B: f32[12, 33]\ndata R: f32[5, \
             33]\nstage C: f32[m: 5, n: 33] = sum(k: 12) A[m, k] * B[k, n]\nstage Y: f32[m: 5, n: \
             33] = {step}\noutput Y"
        );
        all.push(case(&text, &[0, 80, 164], true));
    }
    all
}

/// Kernels for AVX2's and AVX-512's widths, and of some cases the reference and plain loops.
fn kernels(all: &[(Case, Vec<f64>)]) -> Vec<(usize, KernelSource)> {
    let targets = [Isa::X86_64V3, Isa::X86_64V4].map(at_level);
    let mut kernels = Vec::new();
    for (i, ((w, _), _)) in all.iter().enumerate() {
        if i % 4 == 0 {
            kernels.push((i, reference(w, &format!("c{i}_reference"))));
            let u = untuned(w, &targets[0]);
            let made = u.realize(&u.space().nth(0), &format!("c{i}_untuned"));
            kernels.push((i, made.expect("plain loops")));
        }
        let is_simple = matches!(&w.kind[..], "elementwise" | "reduce" | "w");
        for (t, target) in targets.iter().enumerate() {
            let all = sketches(w, target);
            for (si, s) in all.iter().enumerate().take(if is_simple { 1 } else { 3 }) {
                let mut rng = Xoshiro256PlusPlus::seed_from_u64(5 + si as u64);
                let c = s.space().sample(&mut rng);
                kernels.extend(s.realize(&c, &format!("c{i}_t{t}_s{si}")).ok().map(|k| (i, k)));
            }
        }
    }
    kernels
}

fn compare(what: &str, got: impl Iterator<Item = f64>, want: &[f64]) {
    for (i, (g, w)) in got.zip(want).enumerate() {
        let w = f64::from(*w as f32);
        let near = g == w || (g.is_nan() && w.is_nan()) || (g - w).abs() <= 2e-5 * w.abs().max(1.0);
        assert!(near, "{what}: element {i} is {g}, expected {w} of {want:?}");
    }
}

#[test]
fn compiled_kernels_keep_what_is_no_number() {
    let all = cases();
    let nans = all.iter().filter(|c| c.1.iter().any(|x| x.is_nan())).count();
    assert_eq!(nans, all.len(), "each case gives a NaN");
    let some = all.iter().filter(|c| c.1.iter().any(|x| x.is_finite())).count();
    assert!(some + 8 > all.len(), "and most give numbers, too");
    let (list, want): (Vec<Case>, Vec<Vec<f64>>) = all.into_iter().unzip();
    let all: Vec<_> = list.iter().cloned().zip(want.iter().cloned()).collect();
    let kernels = kernels(&all);
    let dir = tempfile::tempdir().unwrap();
    // In portable C the same comparisons are written out; a few kernels show that.
    let few: Vec<_> = kernels.iter().filter(|k| k.0 % 6 == 0).cloned().collect();
    for (machine, kernels) in Machine::both().iter().zip([&kernels, &few]) {
        given(&list, kernels, machine, dir.path(), &mut |i, symbol, bits| {
            let got = bits.iter().map(|b| f64::from(f32::from_bits(*b)));
            compare(&format!("{symbol}\n{}", list[i].0), got, &want[i]);
        });
    }
}

/// A GPU's programs by the interpreter, and by their text: `fmaxf` loses a NaN.
#[test]
fn programs_of_threads_keep_what_is_no_number() {
    for ((w, raw), want) in cases().iter().step_by(3) {
        let floats = |b: &Vec<u8>| -> Vec<f64> {
            let four = |b: &[u8]| f64::from(f32::from_ne_bytes([b[0], b[1], b[2], b[3]]));
            b.chunks_exact(4).map(four).collect()
        };
        let all: Vec<Vec<f64>> = raw.iter().map(floats).collect();
        let [data, weights] =
            [TensorKind::Data, TensorKind::Weight].map(|kind| of_kind(w, &all, kind));
        for s in sketches(w, &h200()).iter().take(2) {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
            let c = s.space().sample(&mut rng);
            let Ok(k) = s.realize(&c, "k") else { continue };
            assert!(!k.source.contains("fmaxf(") && !k.source.contains("fminf("), "{}", k.source);
            let named = (s.name(), &c.to_string()[..]);
            let text = squall_compiler::explain(w, &h200(), "nest", Some(named)).unwrap();
            let n = nest::parse(&text).unwrap();
            let got = nest::try_interpret(&n, &data, &weights).unwrap();
            compare(&format!("{named:?}\n{w}"), got.into_iter(), want);
        }
    }
}

/// A call of an operator with its results, each of its type.
fn call(
    op: &str,
    attributes: &[(&str, Attribute)],
    x: &[Constant],
    y: &[Constant],
) -> plain_cases::Case {
    let operand = |c: &Constant| {
        Some(CallOperand { dtype: c.dtype(), shape: c.shape().to_vec(), constant: None })
    };
    let call = OperatorCall {
        op: op.into(),
        domain: String::new(),
        opset: 20,
        attributes: attributes.iter().map(|(n, a)| (n.to_string(), a.clone())).collect(),
        inputs: x.iter().map(operand).collect(),
        outputs: y.iter().map(operand).collect(),
    };
    let want = y.iter().flat_map(plain_cases::values).collect();
    plain_cases::Case { call, operands: x.to_vec(), want }
}

/// As in NumPy, a NaN is both the largest and the smallest element, and is the result.
#[test]
fn plain_operators_keep_what_is_no_number() {
    use Attribute::{Int, Ints, String};
    let floats =
        |shape: &[i64], data: &[f32]| Constant::F32 { shape: shape.into(), data: data.into() };
    let row = |data: &[f32]| floats(&[1, data.len() as i64], data);
    let ints =
        |shape: &[i64], data: &[i64]| Constant::I64 { shape: shape.into(), data: data.into() };
    let mut all = Vec::new();
    let x = [NAN, -1.0, 0.25, INF, -INF];
    for (op, y) in [
        ("Relu", [NAN, 0.0, 0.25, INF, 0.0]),
        ("Sign", [NAN, -1.0, 1.0, 1.0, -1.0]),
        ("HardSigmoid", [NAN, 0.3, 0.55, 1.0, 0.0]),
        ("LeakyRelu", [NAN, -0.01, 0.25, INF, -INF]),
        ("Elu", [NAN, -0.632_120_55, 0.25, INF, -1.0]),
        ("HardSwish", [NAN, -0.333_333_33, 0.135_416_67, INF, NAN]),
        // These operators are defined by a comparison, which is false for a NaN.
        ("ThresholdedRelu", [0.0, 0.0, 0.0, INF, 0.0]),
        ("Shrink", [0.0, -1.0, 0.0, INF, -INF]),
    ] {
        all.push(call(op, &[], &[row(&x)], &[row(&y)]));
    }
    let one = |x: f32| floats(&[], &[x]);
    let clipped = [row(&x), one(-0.5), one(0.5)];
    all.push(call("Clip", &[], &clipped, &[row(&[NAN, -0.5, 0.25, 0.5, -0.5])]));
    for (v, largest, smallest) in [
        ([NAN, 1.0, 2.0], [NAN, 2.0, 1.0], [1.0, 2.0, NAN]),
        ([1.0, NAN, 2.0], [NAN, 2.0, 1.0], [1.0, 2.0, NAN]),
        ([2.0, 1.0, NAN], [NAN, 2.0, 1.0], [1.0, 2.0, NAN]),
    ] {
        let v4 = floats(&[1, 1, 1, 3], &v);
        let at = v.iter().position(|x| x.is_nan()).unwrap() as i64;
        let order = |first: &[f32]| -> Vec<i64> {
            let place = |y: &f32| v.iter().position(|x| x == y || (x.is_nan() && y.is_nan()));
            first.iter().map(|y| place(y).unwrap() as i64).collect()
        };
        let k = ints(&[1], &[3]);
        let sorted = |y: &[f32]| [row(y), ints(&[1, 3], &order(y))];
        all.push(call("TopK", &[], &[row(&v), k.clone()], &sorted(&largest)));
        all.push(call("TopK", &[("largest", Int(0))], &[row(&v), k], &sorted(&smallest)));
        for op in ["ArgMax", "ArgMin"] {
            all.push(call(op, &[("axis", Int(1))], &[row(&v)], &[ints(&[1, 1], &[at])]));
        }
        let hard: Vec<f32> = (0..3).map(|i| f32::from(u8::from(i == at))).collect();
        all.push(call("Hardmax", &[], &[row(&v)], &[row(&hard)]));
        all.push(call("Softmax", &[], &[row(&v)], &[row(&[NAN; 3])]));
        all.push(call(
            "GlobalMaxPool",
            &[],
            std::slice::from_ref(&v4),
            &[floats(&[1, 1, 1, 1], &[NAN])],
        ));
        let window = [("kernel_shape", Ints(vec![1, 3]))];
        all.push(call("MaxPool", &window, &[v4], &[floats(&[1, 1, 1, 1], &[NAN])]));
        for op in ["ReduceMax", "ReduceMin", "ReduceLogSumExp"] {
            all.push(call(op, &[], &[row(&v)], &[floats(&[1, 1], &[NAN])]));
        }
    }
    let by_max = [("axis", Int(1)), ("reduction", String("max".into()))];
    let scattered = [row(&[1.0, NAN, 2.0]), ints(&[1, 3], &[0, 1, 2]), row(&[NAN, 5.0, 3.0])];
    all.push(call("ScatterElements", &by_max, &scattered, &[row(&[NAN, NAN, 3.0])]));
    plain_cases::check(&all);
}
