//! Tests of kernels whose tensors lie inside larger ones (`of [1, 6, 5, 24]` in the text of a
//! workload, which is a tensor expression), and of kernels that compute an elementwise prologue
//! where they read. Sampled configurations of each sketch must compute the workload's result and
//! write nothing outside of their part.

use crate::cases;

use cases::{h200, inputs, split_inputs};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use squall_compiler::{explain, nest, reference, sketches};
use squall_core::units::Bytes;
use squall_core::{Target, TensorKind, UNTUNED, Workload};
use squall_testing::samples;

/// Cases: a description, the sketches that must exist, and the workload.
const PLACED: &[(&str, &[&str], &str)] = &[
    (
        "a part of a concatenation, from a part of another",
        &["tile@k"],
        "workload conv2d
data X: f32[1, 6, 5, 16] of [1, 6, 5, 24]
weight W: f32[32, 16, 1, 1]
weight B: f32[32]
stage C: f32[n: 1, p: 6, q: 5, k: 32] = sum(c: 16, r: 1, s: 1) X[n, p + r, q + s, c] * W[k, c, r, s]
stage Y: f32[n: 1, p: 6, q: 5, k: 32] = max(C[n, p, q, k] + B[k], 0)
output Y of [1, 6, 5, 48]
",
    ),
    (
        "a padded part",
        &["tile@k,pad=copy", "winograd"],
        "workload conv2d
data X: f32[1, 7, 7, 8] of [1, 7, 7, 20]
weight W: f32[16, 8, 3, 3]
stage P: f32[n: 1, h: 9, w: 9, c: 8] = select(0 <= h - 1 < 7 and 0 <= w - 1 < 7, \
X[n, h - 1, w - 1, c], 0)
stage Y: f32[n: 1, p: 7, q: 7, k: 16] = sum(c: 8, r: 3, s: 3) P[n, p + r, q + s, c] * W[k, c, r, s]
output Y of [1, 7, 7, 40]
",
    ),
    (
        "two operators, to and from parts",
        &["b2b@8+tile@k+tile@q,pad=near", "b2b@8,last+tile@k+tile@k,pad=guard"],
        "workload back_to_back
data X: f32[1, 6, 7, 9] of [1, 10, 7, 9]
weight W: f32[24, 6, 1, 1]
weight D: f32[24, 1, 3, 3]
stage E: f32[n: 1, k: 24, p: 7, q: 9] = sum(c: 6, r: 1, s: 1) X[n, c, p + r, q + s] * W[k, c, r, s]
stage P: f32[n: 1, c: 24, h: 9, w: 11] = select(0 <= h - 1 < 7 and 0 <= w - 1 < 9, E[n, c, h - 1, \
w - 1], 0)
stage Y: f32[n: 1, k: 24, p: 4, q: 5] = sum(r: 3, s: 3) P[n, k, 2*p + r, 2*q + s] * D[k, 0, r, s]
output Y of [1, 30, 4, 5]
",
    ),
    (
        "heads that lie between others",
        &["tile@n"],
        "workload batch_matmul
data A: f32[2, 9, 11]
data B: f32[11, 2, 16] of [11, 6, 16]
stage Y: f32[m: 9, b: 2, n: 16] = sum(k: 11) A[b, m, k] * B[k, b, n]
output Y of [9, 3, 16]
",
    ),
    (
        "attention of heads that lie between others",
        &["attention"],
        "workload attention
data Q: f32[9, 2, 16] of [9, 6, 16]
data K: f32[11, 2, 16] of [11, 6, 16]
data V: f32[11, 2, 16] of [11, 6, 16]
stage S: f32[b: 2, m: 9, n: 11] = sum(k: 16) Q[m, b, k] * K[n, b, k]
stage X: f32[b: 2, m: 9] = max(n: 11) S[b, m, n]
stage E: f32[b: 2, m: 9, n: 11] = exp(S[b, m, n] - X[b, m])
stage D: f32[b: 2, m: 9] = sum(n: 11) E[b, m, n]
stage O: f32[m: 9, b: 2, c: 16] = sum(n: 11) E[b, m, n] * V[n, b, c]
stage Y: f32[m: 9, b: 2, c: 16] = O[m, b, c] / D[b, m]
output Y of [9, 3, 16]
",
    ),
    (
        "elements of one head",
        &["map"],
        "workload elementwise
data X: f32[9, 2, 16] of [9, 6, 16]
stage Y: f32[i0: 2, i1: 16, i2: 9] = X[i2, i0, i1] * 0.5
output Y
",
    ),
    (
        "rows of a wider matrix",
        &["rows"],
        "workload softmax
data X: f32[5, 21] of [5, 32]
stage M: f32[i: 5] = max(j: 21) X[i, j]
stage E: f32[i: 5, j: 21] = exp(X[i, j] - M[i])
stage S: f32[i: 5] = sum(j: 21) E[i, j]
stage Y: f32[i: 5, j: 21] = E[i, j] / S[i]
output Y of [5, 40]
",
    ),
    (
        "a normalisation ahead of a convolution",
        &["tile@k,pad=copy", "tile@k,pad=near", "tile@k,pad=guard"],
        "workload conv2d
data X: f32[1, 6, 5, 16] of [1, 6, 5, 24]
weight S: f32[16]
weight T: f32[16]
weight W: f32[32, 16, 1, 1]
stage N: f32[n: 1, h: 6, w: 5, c: 16] = max(X[n, h, w, c] * S[c] + T[c], 0)
stage Y: f32[n: 1, p: 6, q: 5, k: 32] = sum(c: 16, r: 1, s: 1) N[n, p + r, q + s, c] * W[k, c, r, s]
output Y
",
    ),
    (
        "the same with channels first",
        &["tile@k,pad=copy", "tile@k,pad=guard"],
        "workload conv2d
data X: f32[1, 16, 6, 5]
weight S: f32[16]
weight T: f32[16]
weight W: f32[32, 16, 1, 1]
stage N: f32[n: 1, c: 16, h: 6, w: 5] = max(X[n, c, h, w] * S[c] + T[c], 0)
stage Y: f32[n: 1, k: 32, p: 6, q: 5] = sum(c: 16, r: 1, s: 1) N[n, c, p + r, q + s] * W[k, c, r, s]
output Y
",
    ),
    (
        "ahead of a padded one",
        &["tile@k,pad=copy", "tile@k,pad=guard"],
        "workload conv2d
data X: f32[1, 6, 5, 8]
data G: f32[8]
weight W: f32[16, 8, 3, 3]
stage P: f32[n: 1, h: 8, w: 7, c: 8] = select(0 <= h - 1 < 6 and 0 <= w - 1 < 5, \
max(X[n, h - 1, w - 1, c] * G[c], 0), 0)
stage Y: f32[n: 1, p: 6, q: 5, k: 16] = sum(c: 8, r: 3, s: 3) P[n, p + r, q + s, c] * W[k, c, r, s]
output Y
",
    ),
    (
        "a factor ahead of a product",
        &["tile@n,pad=copy", "tile@n,pad=near"],
        "workload batch_matmul
data A: f32[2, 9, 11]
data B: f32[2, 11, 16]
stage N: f32[b: 2, m: 9, k: 11] = A[b, m, k] * 0.125
stage Y: f32[b: 2, m: 9, n: 16] = sum(k: 11) N[b, m, k] * B[b, k, n]
output Y
",
    ),
];

fn target(threads: usize) -> Target {
    let (bytes, registers) = if threads == 1 { (64, 32) } else { (32, 16) };
    Target { threads, ..Target::cpu(bytes, registers, &[Bytes(32 << 10), Bytes(1 << 20)]) }
}

/// The places of a tensor's elements in memory.
fn places(w: &Workload, name: &str, shape: &[i64]) -> Vec<usize> {
    let room = w.memory(name, shape);
    let mut stride = 1;
    let mut dims = Vec::new();
    for (&extent, memory) in shape.iter().zip(&room).rev() {
        dims.push((extent, stride));
        stride *= memory;
    }
    dims.iter().rev().fold(vec![0], |all, &(extent, stride)| {
        all.iter().flat_map(|p| (0..extent).map(move |i| p + (i * stride) as usize)).collect()
    })
}

/// The memory of the output after a nest ran; memory between its elements must be untouched.
fn meaning(w: &Workload, n: &nest::Nest, all: &[Vec<f64>]) -> Vec<f64> {
    let spread: Vec<Vec<f64>> = w
        .inputs
        .iter()
        .zip(all)
        .map(|(i, x)| {
            if i.kind == TensorKind::Weight {
                return x.clone();
            }
            let size = w.memory(&i.name, &i.shape).iter().product::<i64>() as usize;
            let mut memory = vec![f64::NAN; size];
            let to = places(w, &i.name, &i.shape);
            to.into_iter().zip(x).for_each(|(p, x)| memory[p] = *x);
            memory
        })
        .collect();
    let (data, weights) = split_inputs(w, &spread);
    let memory = nest::interpret(n, &data, &weights);
    let at = places(w, &w.output().name, &w.output().shape());
    let written = memory.iter().filter(|x| !x.is_nan()).count();
    assert_eq!(written, at.len(), "something is written between the elements:\n{n}");
    at.into_iter().map(|p| memory[p]).collect()
}

fn close(name: &str, got: &[f64], want: &[f64]) {
    let scale = want.iter().fold(1e-30f64, |m, x| m.max(x.abs()));
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!((g - w).abs() <= 1e-5 * scale, "{name}: element {i} is {g}, expected {w}");
    }
}

#[test]
fn kernels_of_parts_mean_what_the_workload_means() {
    for (name, needed, text) in PLACED {
        let w = Workload::parse(text).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(w.to_string(), *text, "{name}");
        let all = inputs(&w, 1);
        let want = w.evaluate(&all);
        close(name, &meaning(&w, &nest::lower(&w), &all), &want);
        for target in [target(1), target(2)] {
            let list = sketches(&w, &target);
            let names: Vec<&str> = list.iter().map(|s| s.name()).collect();
            for n in *needed {
                assert!(names.contains(n), "{name}: {n} is not among {names:?}");
            }
            for s in list {
                let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
                for _ in 0..samples(3, 12) {
                    let c = s.space().sample(&mut rng);
                    let one = (s.name(), &c.to_string()[..]);
                    match explain(&w, &target, "nest", Some(one)) {
                        Ok(text) => {
                            let n = nest::parse(&text).unwrap_or_else(|e| panic!("{e} in\n{text}"));
                            close(
                                &format!("{name} {} {c}", s.name()),
                                &meaning(&w, &n, &all),
                                &want,
                            );
                        }
                        Err(why) => assert!(!why.contains("bug"), "{name} {} {c}: {why}", s.name()),
                    }
                }
            }
        }
        let source = reference(&w, "k").source;
        assert!(source.contains("double"), "{name}");
    }
}

#[test]
fn on_a_gpu_attention_alone_goes_over_parts_of_larger_boxes() {
    for (name, _, text) in PLACED {
        let w = Workload::parse(text).unwrap();
        let all = inputs(&w, 1);
        for s in sketches(&w, &h200()) {
            if !w.rooms.is_empty() {
                let known = if w.kind == "attention" { "gpu_attention" } else { UNTUNED };
                assert_eq!(s.name(), known, "{name}");
            }
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
            for _ in 0..10 {
                let c = s.space().sample(&mut rng);
                let one = (s.name(), &c.to_string()[..]);
                let Ok(text) = explain(&w, &h200(), "nest", Some(one)) else { continue };
                let n = nest::parse(&text).unwrap_or_else(|e| panic!("{e} in\n{text}"));
                close(name, &meaning(&w, &n, &all), &w.evaluate(&all));
            }
        }
    }
}
