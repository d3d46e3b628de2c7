//! Tests of the builders of workloads in this folder: the canonical texts of convolutions, matrix
//! products, pools and normalisations, and that the texts, evaluated, compute the same numbers as
//! plain loops over the definition.

use super::functions::{add, hard_swish, mul, relu};
use super::*;

fn conv(c: i64, k: i64, groups: i64) -> Conv {
    Conv {
        n: 1,
        c,
        h: 6,
        w: 5,
        k,
        r: 3,
        s: 3,
        stride: [2, 1],
        pads: [1, 0, 1, 0],
        dilation: [1, 1],
        groups,
    }
}

fn with(mut e: Epilogue, f: impl FnOnce(&mut Epilogue, Expr) -> Expr) -> Epilogue {
    let body = e.body.clone();
    e.body = f(&mut e, body);
    e
}

fn bias_add_relu(channels: i64, shape: &[i64]) -> Epilogue {
    let e = with(Epilogue::none(), |e, x| {
        add(x, e.operand("B", TensorKind::Weight, vec![channels, 1, 1]))
    });
    let e = with(e, |e, x| add(x, e.operand("R", TensorKind::Data, shape.to_vec())));
    with(e, |_, x| relu(x))
}

#[test]
fn convolutions_have_these_texts() {
    let c = conv(4, 6, 1);
    assert_eq!(c.output(), [1, 6, 3, 3]);
    let w = bias_add_relu(6, &c.output()).attach(c.workload().unwrap(), &c.output()).unwrap();
    assert_eq!(
        w.to_string(),
        "workload conv2d
data X: f32[1, 4, 6, 5]
weight W: f32[6, 4, 3, 3]
weight B: f32[6]
data R: f32[1, 6, 3, 3]
stage P: f32[n: 1, c: 4, h: 8, w: 5] = select(0 <= h - 1 < 6, X[n, c, h - 1, w], 0)
stage C: f32[n: 1, k: 6, p: 3, q: 3] = sum(c: 4, r: 3, s: 3) P[n, c, 2*p + r, q + s] * W[k, c, r, s]
stage Y: f32[n: 1, k: 6, p: 3, q: 3] = max(C[n, k, p, q] + B[k] + R[n, k, p, q], 0)
output Y
"
    );
    let c = conv(4, 6, 2);
    let w = bias_add_relu(6, &c.output())
        .attach(c.workload().unwrap(), &c.output())
        .unwrap()
        .to_string();
    assert!(
        w.contains("weight W: f32[2, 3, 2, 3, 3]\nweight B: f32[2, 3]\ndata R: f32[1, 2, 3, 3, 3]"),
        "{w}"
    );
    assert!(
        w.contains("sum(c: 2, r: 3, s: 3) P[n, c + 2*g, 2*p + r, q + s] * W[g, k, c, r, s]"),
        "{w}"
    );
    assert!(w.contains("max(C[n, g, k, p, q] + B[g, k] + R[n, g, k, p, q], 0)"), "{w}");
    let w = conv(4, 4, 4).workload().unwrap().to_string();
    assert!(
        w.starts_with(
            "workload depthwise_conv2d\ndata X: f32[1, 4, 6, 5]\nweight W: f32[4, 3, 3]\n"
        ),
        "{w}"
    );
    assert!(
        w.contains(
            "stage Y: f32[n: 1, c: 4, p: 3, q: 3] = sum(r: 3, s: 3) P[n, c, 2*p + r, q \
                        + s] * W[c, r, s]"
        ),
        "{w}"
    );
    let w = conv(4, 8, 4).workload().unwrap().to_string();
    assert!(
        w.contains("stage Y: f32[n: 1, c: 4, m: 2, p: 3, q: 3]") && w.contains("W[c, m, r, s]"),
        "{w}"
    );
}

/// A convolution by seven loops over NCHW and OIHW.
fn conv_by_loops(c: &Conv, x: &[f64], f: &[f64]) -> Vec<f64> {
    let [n, k, p, q] = c.output();
    let (cg, kg) = (c.c / c.groups, c.k / c.groups);
    let mut y = Vec::new();
    for (n, k) in (0..n).flat_map(|n| (0..k).map(move |k| (n, k))) {
        for (p, q) in (0..p).flat_map(|p| (0..q).map(move |q| (p, q))) {
            let mut sum = 0.0;
            for ci in 0..cg {
                for (r, s) in (0..c.r).flat_map(|r| (0..c.s).map(move |s| (r, s))) {
                    let row = c.stride[0] * p + c.dilation[0] * r - c.pads[0];
                    let column = c.stride[1] * q + c.dilation[1] * s - c.pads[1];
                    if (0..c.h).contains(&row) && (0..c.w).contains(&column) {
                        let channel = k / kg * cg + ci;
                        let at = ((n * c.c + channel) * c.h + row) * c.w + column;
                        sum += x[at as usize] * f[(((k * cg + ci) * c.r + r) * c.s + s) as usize];
                    }
                }
            }
            y.push(sum);
        }
    }
    y
}

/// Small whole numbers, so that sums are exact.
fn numbers(n: i64, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % 17) as f64 - 8.0
    };
    (0..n).map(|_| next()).collect()
}

#[test]
fn convolutions_compute_what_loops_compute() {
    for (k, groups, dilation, pads) in [
        (6, 1, 1, [1, 0, 1, 0]),
        (6, 2, 2, [2, 1, 0, 1]),
        (4, 4, 1, [0, 2, 1, 0]),
        (8, 4, 1, [1; 4]),
    ] {
        let c = Conv { n: 2, dilation: [1, dilation], pads, ..conv(4, k, groups) };
        let (x, f) = (numbers(2 * 4 * 30, 1), numbers(k * 4 / groups * 9, 2));
        assert_eq!(
            c.workload().unwrap().evaluate(&[x.clone(), f.clone()]),
            conv_by_loops(&c, &x, &f),
            "{c:?}"
        );
    }
}

#[test]
fn products_have_these_texts() {
    let p = MatMul::plain(1, 5, 7, TensorKind::Weight);
    let e = with(Epilogue::none(), |e, x| add(x, e.operand("C", TensorKind::Weight, vec![5])));
    assert_eq!(
        e.attach(p.workload().unwrap(), &[1, 5]).unwrap().to_string(),
        "workload matmul
data A: f32[1, 7]
weight B: f32[7, 5]
weight C: f32[5]
stage T: f32[m: 1, n: 5] = sum(k: 7) A[m, k] * B[k, n]
stage Y: f32[m: 1, n: 5] = T[m, n] + C[n]
output Y
"
    );
    let flat = MatMul {
        batch: vec![(2, true, false), (3, true, false)],
        ..MatMul::plain(4, 5, 7, TensorKind::Weight)
    };
    assert_eq!(flat.workload(), MatMul::plain(24, 5, 7, TensorKind::Weight).workload());
    assert_eq!(flat.name(), "matmul_24x7x5");
    let both = MatMul {
        batch: vec![(1, true, true), (12, true, true)],
        b_transposed: true,
        ..MatMul::plain(4, 5, 7, TensorKind::Data)
    };
    let text = both.workload().unwrap().to_string();
    assert!(
        text.contains(
            "data B: f32[12, 5, 7]\nstage Y: f32[b: 12, m: 4, n: 5] = sum(k: 7) \
                           A[b, m, k] * B[b, n, k]"
        ),
        "{text}"
    );
    let mixed = MatMul {
        batch: vec![(2, true, false), (3, false, true)],
        ..MatMul::plain(4, 5, 7, TensorKind::Data)
    };
    let text = mixed.workload().unwrap().to_string();
    assert!(
        text.contains("f32[b: 2, b2: 3, m: 4, n: 5] = sum(k: 7) A[b, m, k] * B[b2, k, n]"),
        "{text}"
    );
}

#[test]
fn averages_count_what_is_inside() {
    let p = Pool {
        kind: PoolKind::Average { count_padding: false },
        n: 1,
        c: 1,
        h: 4,
        w: 4,
        r: 3,
        s: 3,
        stride: [2, 2],
        pads: [1; 4],
        dilation: [1, 1],
        positions: None,
    };
    // Of ones, the mean of what is inside is one everywhere; with padding it is a share of nine.
    let ones = vec![vec![1.0; 16]];
    assert_eq!(p.workload().unwrap().evaluate(&ones), [1.0; 4]);
    let padded = Pool { kind: PoolKind::Average { count_padding: true }, ..p.clone() };
    let shares: Vec<f64> =
        [4.0, 6.0, 6.0, 9.0].iter().map(|n| f64::from((n / 9.0) as f32)).collect();
    assert_eq!(padded.workload().unwrap().evaluate(&ones), shares);
    // Rounded up, the last window leaves the padding: what is outside of that never counts.
    let up = Pool { positions: Some([3, 3]), ..padded.clone() };
    let y = up.workload().unwrap().evaluate(&ones);
    assert_eq!((y.len(), y[8]), (9, 0.25), "{y:?}");
    let unpadded =
        Pool { pads: [0; 4], kind: PoolKind::Average { count_padding: false }, ..p.clone() };
    assert!(unpadded.workload().unwrap().to_string().ends_with("= S[n, c, p, q] / 9\noutput Y\n"));
    let max = Pool { kind: PoolKind::Max, ..p };
    let minus = vec![(1..17).map(|i| -f64::from(i)).collect()];
    assert_eq!(max.workload().unwrap().evaluate(&minus), [-1.0, -2.0, -5.0, -6.0]);
}

#[test]
fn rows_compute_what_they_are_called() {
    let close = |a: &[f64], b: &[f64]| {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5)
    };
    let x = vec![1.0, 2.0, 3.0, 0.0, 0.0, 0.0];
    let e: Vec<f64> = [-2.0f64, -1.0, 0.0].iter().map(|x| x.exp()).collect();
    let total: f64 = e.iter().sum();
    let want = [e[0] / total, e[1] / total, e[2] / total, 1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0];
    let s = Softmax { before: 2, extent: 3, after: 1, log: false };
    assert!(close(&s.workload().unwrap().evaluate(std::slice::from_ref(&x)), &want));
    let logs: Vec<f64> = want.iter().map(|p| p.ln()).collect();
    assert!(close(
        &Softmax { log: true, ..s.clone() }.workload().unwrap().evaluate(std::slice::from_ref(&x)),
        &logs
    ));
    let columns = Softmax { before: 1, extent: 2, after: 3, log: false };
    let y = columns.workload().unwrap().evaluate(std::slice::from_ref(&x));
    assert!(
        (y[0] + y[3] - 1.0).abs() < 1e-6 && (y[0] - 1.0 / (1.0 + (-1.0f64).exp())).abs() < 1e-6,
        "{y:?}"
    );
    let norm = LayerNorm {
        rows: 2,
        cols: 3,
        eps: 0.0,
        gain: TensorKind::Weight,
        bias: Some(TensorKind::Weight),
    };
    let y = norm.workload().unwrap().evaluate(&[
        vec![1.0, 2.0, 3.0, 2.0, 4.0, 6.0],
        vec![2.0; 3],
        vec![1.0; 3],
    ]);
    let d = 2.0 * 1.5f64.sqrt();
    assert!(close(&y, &[1.0 - d, 1.0, 1.0 + d, 1.0 - d, 1.0, 1.0 + d]), "{y:?}");
    let cases: &[(ReduceOp, [f64; 2])] = &[
        (ReduceOp::Sum, [5.0, -3.0]),
        (ReduceOp::Mean, [2.5, -1.5]),
        (ReduceOp::Max, [4.0, -1.0]),
        (ReduceOp::Min, [1.0, -2.0]),
        (ReduceOp::Prod, [4.0, 2.0]),
        (ReduceOp::L1, [5.0, 3.0]),
        (ReduceOp::L2, [17f64.sqrt(), 5f64.sqrt()]),
        (ReduceOp::SumSquare, [17.0, 5.0]),
        (ReduceOp::LogSumExp, [4.0 + (-3f64).exp().ln_1p(), -1.0 + (-1f64).exp().ln_1p()]),
    ];
    for (op, want) in cases {
        let r = Reduce { op: *op, axes: vec![(2, false), (2, true)] };
        assert!(
            close(&r.workload().unwrap().evaluate(&[vec![1.0, 4.0, -1.0, -2.0]]), want),
            "{op:?}"
        );
    }
    // Infinities are no faults of a sum of powers, and neither is a NaN.
    let [high, low, none] = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
    let r = Reduce { op: ReduceOp::LogSumExp, axes: vec![(4, false), (2, true)] };
    let y = r.workload().unwrap().evaluate(&[vec![high, 1.0, low, low, low, 2.0, none, 1.0]]);
    assert!(y[..3] == [high, low, 2.0] && y[3].is_nan(), "{y:?}");
    for (p, norms) in [(1, [5.0, 3.0]), (2, [17f64.sqrt(), 5f64.sqrt()])] {
        let n = LpNorm { rows: 3, cols: 2, p };
        let y = n.workload().unwrap().evaluate(&[vec![1.0, 4.0, -1.0, -2.0, 0.0, 0.0]]);
        let [a, b] = norms;
        assert!(close(&y, &[1.0 / a, 4.0 / a, -1.0 / b, -2.0 / b, 0.0, 0.0]), "{y:?}");
    }
    assert!(LpNorm { rows: 3, cols: 2, p: 3 }.workload().is_err());
    let middle = Reduce {
        op: ReduceOp::Sum,
        axes: vec![(1, false), (2, false), (2, true), (1, true), (2, false)],
    };
    let y = middle.workload().unwrap().evaluate(&[(0..8).map(f64::from).collect()]);
    assert_eq!(y, [2.0, 4.0, 10.0, 12.0]);
}

#[test]
fn rotary_embeddings_turn_pairs() {
    // One head of two pairs in two steps: by a quarter turn, and by none.
    let x = vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
    let (cos, sin) = (vec![0.0, 0.0, 1.0, 1.0], vec![1.0, 1.0, 0.0, 0.0]);
    let mut of = Rotary {
        batch: 1,
        heads: 1,
        steps: 2,
        half: 2,
        are_side_by_side: false,
        kinds: [TensorKind::Weight; 2],
    };
    let y = of.workload().unwrap().evaluate(&[x.clone(), cos.clone(), sin.clone()]);
    assert_eq!(y, [-3.0, -4.0, 1.0, 2.0, 5.0, 6.0, 7.0, 8.0]);
    // Two heads side by side in one step.
    (of.heads, of.steps, of.are_side_by_side) = (2, 1, true);
    let y = of.workload().unwrap().evaluate(&[x, cos[..2].to_vec(), sin[..2].to_vec()]);
    assert_eq!(y, [-3.0, -4.0, 1.0, 2.0, -7.0, -8.0, 5.0, 6.0]);
    of.half = 0;
    assert!(of.workload().is_err());
}

#[test]
fn equal_maps_are_one() {
    let relu_of = |shape: &[i64]| {
        let e =
            with(Epilogue::none(), |e, _| relu(e.operand("R", TensorKind::Data, shape.to_vec())));
        elementwise(&e, shape).unwrap().to_string()
    };
    let text = "workload elementwise\ndata X: f32[200704]\nstage Y: f32[i: 200704] = max(X[i], \
                0)\noutput Y\n";
    assert_eq!(relu_of(&[1, 64, 56, 56]), text);
    assert_eq!(relu_of(&[200_704]), text);
    // A channel's factor keeps channels apart from pixels.
    let e = with(Epilogue::none(), |e, _| {
        let x = e.operand("R", TensorKind::Data, vec![1, 4, 6, 6]);
        mul(e.operand("R", TensorKind::Data, vec![4, 1, 1]), x)
    });
    assert_eq!(
        elementwise(&e, &[1, 4, 6, 6]).unwrap().to_string(),
        "workload elementwise\ndata X: f32[4, 36]\ndata R: f32[4]\nstage Y: f32[i: 4, j: 36] = \
         R[i] * X[i, j]\noutput Y\n"
    );
}

#[test]
fn steps_fit_where_axes_agree() {
    let flat =
        MatMul { batch: vec![(2, true, false)], ..MatMul::plain(3, 4, 5, TensorKind::Weight) }
            .workload()
            .unwrap();
    let operand = |shape: &[i64]| {
        with(Epilogue::none(), |e, x| add(x, e.operand("R", TensorKind::Data, shape.to_vec())))
    };
    for (shape, fits) in [
        (vec![4], true),
        (vec![2, 3, 4], true),
        (vec![2, 3, 1], true),
        (vec![3, 4], false),
        (vec![5], false),
    ] {
        assert_eq!(operand(&shape).fits(&flat, &[2, 3, 4]), fits, "{shape:?}");
        assert_eq!(operand(&shape).attach(flat.clone(), &[2, 3, 4]).is_ok(), fits, "{shape:?}");
    }
    // A mean is divided in its last stage: hard swish would divide twice.
    let mean = Reduce { op: ReduceOp::Mean, axes: vec![(6, false), (4, true)] }.workload().unwrap();
    let swish = with(Epilogue::none(), |_, x| hard_swish(x));
    assert!(!swish.fits(&mean, &[6]));
    let clipped = with(Epilogue::none(), |_, x| relu(x)).attach(mean, &[6]).unwrap().to_string();
    assert!(clipped.contains("stage Y: f32[i: 6] = max(S[i] / 4, 0)"), "{clipped}");
}

#[test]
fn impossible_problems_have_messages() {
    for (c, what) in [
        (Conv { r: 9, ..conv(4, 4, 1) }, "a window of 9 does not fit into a height of 8"),
        (conv(4, 6, 3), "do not divide into 3 groups"),
        (Conv { stride: [0, 1], ..conv(4, 4, 1) }, "the stride along the height is 0"),
        (Conv { pads: [0, -1, 0, 0], ..conv(4, 4, 1) }, "the padding along the width is -1"),
        (Conv { k: 0, ..conv(4, 4, 1) }, "positive sizes"),
        (Conv { n: 1 << 24, h: 1 << 24, w: 1 << 24, ..conv(4, 4, 1) }, "too large"),
    ] {
        let e = c.workload().unwrap_err();
        assert!(e.contains(what), "{e}");
    }
}

/// Formats of 16 bits are those of tensors alone, so that they can be taken back.
#[test]
fn workloads_of_16_bits_come_back_to_floats() {
    let c = conv(4, 6, 2);
    let (output, shape) = (c.output(), [1, 2, 6, 5]);
    let max = Pool {
        kind: PoolKind::Max,
        n: shape[0],
        c: shape[1],
        h: shape[2],
        w: shape[3],
        r: 2,
        s: 3,
        stride: [2, 1],
        pads: [1, 1, 0, 1],
        dilation: [1, 1],
        positions: None,
    };
    let average = Pool { kind: PoolKind::Average { count_padding: false }, ..max.clone() };
    let softmax = Softmax { before: 2, extent: 3, after: 1, log: false };
    let sum = Reduce { op: ReduceOp::Sum, axes: vec![(2, false), (2, true)] };
    let all = [
        bias_add_relu(6, &output).attach(c.workload().unwrap(), &output),
        MatMul::plain(3, 5, 4, TensorKind::Data).workload(),
        max.workload(),
        average.workload(),
        softmax.workload(),
        sum.workload(),
    ];
    for w in all.map(Result::unwrap) {
        assert_eq!(of_floats(&w, DType::Bf16), None);
        for (format, other) in [(DType::Bf16, DType::F16), (DType::F16, DType::Bf16)] {
            for output in [format, DType::F32] {
                let made = in_half(w.clone(), format, output).unwrap();
                assert_eq!(of_floats(&made, format).as_ref(), Some(&w), "{made}");
                assert_eq!(of_floats(&made, other), None);
            }
        }
    }
}
