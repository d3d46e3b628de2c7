//! Tests of attention by tensor cores (`sketch/gpu/attention/tensor.rs` and `warpgroup.rs`):
//! sampled kernels of several shapes, layouts and masks are run by the interpreter, which finds
//! missing barriers and copies that were not awaited, and their results are compared with the
//! direct evaluation of the workload (a tensor expression). No GPU is needed.

use crate::cases;

use cases::{h200, inputs, split_inputs};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use squall_compiler::{GPU_FEATURES, explain, nest, sketches};
use squall_core::Workload;

const TENSOR: &str = "gpu_attention_tensor";
const WARPGROUP: &str = "gpu_attention_warpgroup";

/// An attention of two heads: its extents, its format and the order of its tensors' axes.
struct Shape {
    name: &'static str,
    rows: i64,
    keys: i64,
    depth: i64,
    columns: i64,
    format: &'static str,
    /// Whether keys lie as `[k, n]`, heads between rows and depth, and a mask is added.
    keys_turned: bool,
    heads_inside: bool,
    masked: bool,
}

const PLAIN: Shape = Shape {
    name: "plain",
    rows: 64,
    keys: 64,
    depth: 32,
    columns: 32,
    format: "bf16",
    keys_turned: false,
    heads_inside: false,
    masked: false,
};

const SHAPES: &[Shape] = &[
    PLAIN,
    Shape { name: "odd numbers of rows and keys", rows: 37, keys: 83, depth: 16, ..PLAIN },
    Shape { name: "keys lie across", keys: 40, keys_turned: true, format: "f16", ..PLAIN },
    Shape { name: "heads between others", rows: 50, keys: 50, heads_inside: true, ..PLAIN },
    Shape { name: "masked", rows: 33, keys: 49, masked: true, ..PLAIN },
    Shape { name: "turned and deep", keys_turned: true, depth: 64, keys: 70, ..PLAIN },
    Shape { name: "a depth of 24, 40 columns", depth: 24, columns: 40, rows: 32, ..PLAIN },
    Shape { name: "a depth of 5, 7 columns", depth: 5, columns: 7, keys: 21, rows: 18, ..PLAIN },
    Shape { name: "few keys", keys: 9, rows: 16, columns: 16, ..PLAIN },
];

/// Depths and columns of whole swizzled rows.
const WIDE_SHAPES: &[Shape] = &[
    Shape { name: "of 64", rows: 192, keys: 192, depth: 64, columns: 64, ..PLAIN },
    Shape {
        name: "odd numbers",
        rows: 83,
        keys: 97,
        depth: 64,
        columns: 64,
        masked: true,
        ..PLAIN
    },
    Shape {
        name: "of 128 between others",
        rows: 70,
        keys: 260,
        depth: 128,
        columns: 128,
        heads_inside: true,
        format: "f16",
        ..PLAIN
    },
];

impl Shape {
    fn workload(&self) -> Workload {
        let Shape { rows: m, keys: n, depth: k, columns: c, format: f, .. } = *self;
        let b = 2;
        let lies = |x: &str, y: &str, xs: i64, ys: i64| match self.heads_inside {
            true => (format!("[{x}, b, {y}]"), format!("[{xs}, {b}, {ys}]")),
            false => (format!("[b, {x}, {y}]"), format!("[{b}, {xs}, {ys}]")),
        };
        let (query, query_shape) = lies("m", "k", m, k);
        let (key, key_shape) =
            if self.keys_turned { lies("k", "n", k, n) } else { lies("n", "k", n, k) };
        let (value, value_shape) = lies("n", "c", n, c);
        let mask = if self.masked { " + R[m, n]" } else { "" };
        let mask_input =
            if self.masked { format!("data R: {f}[{m}, {n}]\n") } else { String::new() };
        let text = format!(
            "workload attention\ndata Q: {f}{query_shape}\ndata K: {f}{key_shape}\ndata V: \
             {f}{value_shape}\n{mask_input}stage A: f32[b: {b}, m: {m}, n: {n}] = sum(k: {k}) \
             Q{query} * K{key}\nstage S: f32[b: {b}, m: {m}, n: {n}] = A[b, m, n] * 0.25{mask}\n\
             stage X: f32[b: {b}, m: {m}] = max(n: {n}) S[b, m, n]\nstage E: f32[b: {b}, m: {m}, \
             n: {n}] = exp(S[b, m, n] - X[b, m])\nstage D: f32[b: {b}, m: {m}] = sum(n: {n}) E[b, \
             m, n]\nstage O: f32[b: {b}, m: {m}, c: {c}] = sum(n: {n}) E[b, m, n] * V{value}\n\
             stage Y: {f}[b: {b}, m: {m}, c: {c}] = O[b, m, c] / D[b, m]\noutput Y"
        );
        Workload::parse(&text).unwrap_or_else(|e| panic!("{}: {e}\n{text}", self.name))
    }
}

#[test]
fn attention_by_tensor_cores_means_what_the_workload_means() {
    let seen = check(TENSOR, SHAPES, 16);
    assert!(seen.len() >= 8, "few kinds of kernels among the samples: {seen:?}");
}

#[test]
fn attention_by_warpgroups_means_what_the_workload_means() {
    let seen = check(WARPGROUP, WIDE_SHAPES, 8);
    assert!(seen.len() >= 4, "few kinds of kernels among the samples: {seen:?}");
    let narrow = PLAIN.workload();
    assert!(sketches(&narrow, &h200()).iter().all(|s| s.name() != WARPGROUP));
}

/// The inputs with the first row of the mask, where there is one, at its least.
fn masked(shape: &Shape, mut all: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    if shape.masked {
        let least = if shape.format == "bf16" { -3.3895e38 } else { -65504.0 };
        all[3][..shape.keys as usize].fill(least);
    }
    all
}

/// Runs a number of configurations of a sketch on each shape, and returns which kinds of
/// configurations there were.
fn check(sketch: &str, shapes: &[Shape], samples: usize) -> std::collections::BTreeSet<String> {
    let mut seen = std::collections::BTreeSet::new();
    for shape in shapes {
        let w = shape.workload();
        let all: Vec<Vec<f64>> = inputs(&w, 1)
            .into_iter()
            .zip(&w.inputs)
            .map(|(x, i)| x.into_iter().map(|x| i.dtype.round(x)).collect())
            .collect();
        // A row whose keys all are masked, by the least number that a mask may have.
        let all = masked(shape, all);
        let (data, weights) = split_inputs(&w, &all);
        let want = w.evaluate(&all);
        // Powers are rounded to the format of the values.
        let tolerance = w.tolerance();
        assert!((1e-4..1e-2).contains(&tolerance), "{tolerance}");
        let scale = want.iter().fold(1e-30f64, |m, x| m.max(x.abs()));
        let list = sketches(&w, &h200());
        let s = list.iter().find(|s| s.name() == sketch).expect(shape.name);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(9);
        for _ in 0..samples {
            let c = s.space().sample(&mut rng);
            let what = format!("{} {c}", shape.name);
            let text = explain(&w, &h200(), "nest", Some((sketch, &c.to_string())))
                .unwrap_or_else(|e| panic!("{what}: {e}"));
            let n = nest::parse(&text).unwrap_or_else(|e| panic!("{what}: {e}\n{text}"));
            assert_eq!(n.to_string(), text, "{what}: the nest prints and parses back");
            let got = nest::try_interpret(&n, &data, &weights)
                .unwrap_or_else(|e| panic!("{what}: {e}\n{text}"));
            for (i, (g, w)) in got.iter().zip(&want).enumerate() {
                let last_place =
                    w.abs() * if shape.format == "bf16" { 2f64.powi(-8) } else { 2f64.powi(-11) };
                let is_close = (g - w).abs() <= tolerance * scale + last_place;
                assert!(is_close, "{what}: element {i} is {g}, expected {w}\n{text}");
            }
            assert_eq!(s.features(&c).len(), GPU_FEATURES.len(), "{what}");
            let source = s.realize(&c, "k").expect("realizes").source;
            assert!(source.contains("power_of_two(") && !source.contains("expf("), "{source}");
            let kind = ["stages", "m_i", "m_t"].map(|k| c.int(k));
            seen.insert(format!("{kind:?} {:?}", c.word("query")));
        }
    }
    seen
}

#[test]
fn floats_are_not_rounded_to_factors() {
    let w = Shape { format: "f32", ..PLAIN }.workload();
    let names = [TENSOR, WARPGROUP];
    assert!(sketches(&w, &h200()).iter().all(|s| !names.contains(&s.name())));
}

/// A warp that reads its elements of sums, changes them and makes factors of them.
fn elements(statement: &str) -> String {
    format!(
        "nest x\noutput Y: f32[16, 16]\nfragment C: f32[1, 16, 16]\nfragment P: bf16[1, 16, 16]\n\
         fragment T: tf32[1, 16, 8]\nlocal s: f32[3, 2, 2, 2]\nlocal m: f32[2]\nlocal n: f32[3, \
         8]\n{{\n  block b in 1 {{\n    thread t in 32 {{\n      local C\n      local P\n      \
         local T\n      local s\n      local m\n      local n\n      warp_zero C[0]\n      \
         warp_unpack s[2] = C[0]\n      unroll h in 2 {{\n        unroll r in 2 {{\n          \
         unroll p in 2 {{\n            s[2, h, r, p] = 1\n          }}\n        }}\n      \
         }}\n      warp_pack C[0] = s[2]\n{statement}      warp_store row i column j: Y[i, j] = \
         C[0]\n    }}\n  }}\n}}\n"
    )
}

#[test]
fn a_thread_has_elements_of_two_rows() {
    let text = elements("");
    let own = "let q = t over 4 mod 8\n      let e = t mod 4\n      warp_zero C[0]";
    let text = text
        .replace("warp_zero C[0]", own)
        .replace("nest x\n", "nest x\ndata X: f32[16, 16]\n")
        .replace("s[2, h, r, p] = 1", "s[2, h, r, p] = X[q + 8*r, 8*h + 2*e + p]");
    let data = vec![(0..256).map(f64::from).collect::<Vec<_>>()];
    let n = nest::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(nest::try_interpret(&n, &data, &[]), Ok(data[0].clone()));
}

#[test]
fn four_threads_agree_on_what_they_have() {
    let text = elements("");
    let own = "let e = t mod 4\n      warp_zero C[0]";
    let told = "unroll g in 2 {\n        m[g] = X[e]\n      }\n      \
                warp_reduce max of 4: m\n      unroll h in 2 {";
    let text = text
        .replace("warp_zero C[0]", own)
        .replace("nest x\n", "nest x\ndata X: f32[4]\n")
        .replacen("unroll h in 2 {", told, 1)
        .replace("s[2, h, r, p] = 1", "s[2, h, r, p] = m[r]");
    let n = nest::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let got = nest::try_interpret(&n, &[vec![3.0, 9.0, -1.0, 2.0]], &[]);
    assert_eq!(got, Ok(vec![9.0; 256]));
}

#[test]
fn what_threads_have_of_matrices_is_verified() {
    let base = elements("");
    nest::parse(&base).unwrap_or_else(|e| panic!("{e}\n{base}"));
    for (statement, what) in [
        ("warp_pack P[0] = s[1]", ""),
        ("warp_pack T[0] = s[1]", "16 rows of sums"),
        ("warp_unpack s[1] = P[0]", "16 rows of sums"),
        ("warp_unpack s[3] = C[0]", "s"),
        ("warp_unpack n[0] = C[0]", "[2, 2, 2]"),
        ("warp_unpack s[0] = s[1]", "no fragment"),
        ("warp_reduce sum of 3: m", "3 threads"),
        ("warp_reduce sum of 4: C", "no local buffer"),
        ("warp_reduce most of 4: m", "combines nothing"),
        ("warp_turn C[0] = s[1]", "no instruction `warp_turn`"),
    ] {
        let text = elements(&format!("      {statement}\n"));
        let done = nest::parse(&text).map_err(|e| e.to_string());
        match what {
            "" => assert!(done.is_ok(), "{statement}: {done:?}"),
            what => {
                let why = done.expect_err(statement);
                assert!(why.contains(what), "{statement}: {why}");
            }
        }
    }
}
