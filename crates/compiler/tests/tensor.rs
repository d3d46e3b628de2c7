//! Tests of products and convolutions on tensor cores (`sketch/gpu/tensor`, `warpgroup`) without a
//! GPU: sampled configurations are run by the interpreter, which finds missing barriers and copies
//! that were not awaited, and their results, roundings included, are compared with the direct
//! evaluation of the workload (a tensor expression).

use crate::cases;

use cases::h200;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use squall_compiler::{GPU_FEATURES, explain, nest, sketches};
use squall_core::{Configuration, TensorKind, Workload};
use squall_testing::samples;

/// Names, workloads, and the largest error of results relative to the largest result.
const CASES: &[(&str, &str, f64)] = &[
    (
        "matmul",
        "workload m\ndata A: bf16[32, 64]\ndata B: bf16[64, 48]\nstage Y: f32[m: 32, n: 48] = \
         sum(k: 64) A[m, k] * B[k, n]\noutput Y",
        1e-6,
    ),
    (
        "odd matmul with a weight",
        "workload m\ndata A: f16[21, 40]\nweight B: f16[40, 35]\nstage Y: f32[m: 21, n: 35] = \
         sum(k: 40) A[m, k] * B[k, n]\noutput Y",
        1e-6,
    ),
    (
        "transposed matmul",
        "workload m\ndata A: bf16[32, 20]\ndata B: bf16[24, 32]\nstage Y: f32[m: 20, n: 24] = \
         sum(k: 32) A[k, m] * B[n, k]\noutput Y",
        1e-6,
    ),
    (
        "tf32 matmul",
        "workload m\ndata A: f32[32, 64]\ndata B: f32[64, 48]\nstage Y: f32[m: 32, n: 48] = \
         sum(k: 64) tf32(A[m, k]) * tf32(B[k, n])\noutput Y",
        1e-6,
    ),
    (
        "batched",
        "workload m\ndata A: bf16[3, 16, 32]\ndata B: bf16[3, 32, 24]\nstage Y: f32[b: 3, m: 16, \
         n: 24] = sum(k: 32) A[b, m, k] * B[b, k, n]\noutput Y",
        1e-6,
    ),
    (
        "convolution",
        "workload c\ndata X: bf16[2, 20, 9, 9]\nweight W: bf16[32, 20, 3, 3]\n\
         stage P: bf16[n: 2, c: 20, h: 11, w: 11] = select(0 <= h - 1 < 9 and 0 <= w - 1 < 9, \
         X[n, c, h - 1, w - 1], 0)\n\
         stage Y: f32[n: 2, k: 32, p: 9, q: 9] = sum(c: 20, r: 3, s: 3) P[n, c, p + r, q + s] * \
         W[k, c, r, s]\noutput Y",
        1e-6,
    ),
    (
        "strided tf32 convolution",
        "workload c\ndata X: f32[1, 3, 15, 15]\nweight W: f32[16, 3, 3, 3]\n\
         stage P: f32[n: 1, c: 3, h: 17, w: 17] = select(0 <= h - 1 < 15 and 0 <= w - 1 < 15, \
         X[n, c, h - 1, w - 1], 0)\n\
         stage Y: f32[n: 1, k: 16, p: 8, q: 8] = sum(c: 3, r: 3, s: 3) tf32(P[n, c, 2*p + r, 2*q \
         + s]) * tf32(W[k, c, r, s])\noutput Y",
        1e-6,
    ),
    (
        "tf32 convolution of three channels by its window",
        "workload c\ndata X: f32[1, 3, 19, 24]\nweight W: f32[16, 3, 7, 7]\n\
         stage P: f32[n: 1, c: 3, h: 25, w: 30] = select(0 <= h - 3 < 19 and 0 <= w - 3 < 24, \
         X[n, c, h - 3, w - 3], 0)\n\
         stage Y: f32[n: 1, k: 16, p: 10, q: 12] = sum(c: 3, r: 7, s: 7) tf32(P[n, c, 2*p + r, \
         2*q + s]) * tf32(W[k, c, r, s])\noutput Y",
        1e-6,
    ),
    (
        "convolution of one channel by its window, dilated, without a border",
        "workload c\ndata X: f32[2, 1, 9, 27]\nweight W: f32[20, 1, 2, 11]\n\
         stage Y: f32[n: 2, k: 20, p: 8, q: 7] = sum(c: 1, r: 2, s: 11) X[n, c, p + r, q + 2*s] * \
         W[k, c, r, s]\noutput Y",
        1e-6,
    ),
    (
        "convolution of three channels that lie last by its window",
        "workload c\ndata X: f32[1, 15, 16, 3]\nweight W: f32[16, 3, 5, 6]\n\
         stage Y: f32[n: 1, p: 11, q: 11, k: 16] = sum(c: 3, r: 5, s: 6) tf32(X[n, p + r, q + s, \
         c]) * tf32(W[k, c, r, s])\noutput Y",
        1e-6,
    ),
    (
        "1x1 convolution with an epilogue",
        "workload c\ndata X: bf16[2, 32, 8, 8]\nweight W: bf16[48, 32, 1, 1]\nweight B: bf16[48]\n\
         stage C: f32[n: 2, k: 48, p: 8, q: 8] = sum(c: 32, r: 1, s: 1) X[n, c, p + r, q + s] * \
         W[k, c, r, s]\n\
         stage Y: bf16[n: 2, k: 48, p: 8, q: 8] = (C[n, k, p, q] + B[k]) * sigmoid(C[n, k, p, q] \
         + B[k])\noutput Y",
        8e-3,
    ),
    (
        "groups",
        "workload c\ndata X: f16[1, 32, 6, 6]\nweight W: f16[2, 16, 16, 3, 3]\n\
         stage Y: f32[n: 1, g: 2, k: 16, p: 4, q: 4] = sum(c: 16, r: 3, s: 3) X[n, 16*g + c, p + \
         r, q + s] * W[g, k, c, r, s]\noutput Y",
        1e-6,
    ),
    (
        "tf32 convolution behind a normalisation, with a border",
        "workload c\ndata X: f32[1, 20, 9, 8]\nweight S: f32[20]\nweight W: f32[16, 20, 3, 3]\n\
         stage P: f32[n: 1, c: 20, h: 11, w: 10] = select(0 <= h - 1 < 9 and 0 <= w - 1 < 8, \
         max(X[n, c, h - 1, w - 1] * S[c], 0), 0)\n\
         stage Y: f32[n: 1, k: 16, p: 9, q: 8] = sum(c: 20, r: 3, s: 3) tf32(P[n, c, p + r, q + \
         s]) * tf32(W[k, c, r, s])\noutput Y",
        1e-6,
    ),
    (
        "product of sums, the first of two tensors, the second with a gate for each row",
        "workload m\ndata A: f32[24, 40]\ndata R: f32[24, 40]\ndata B: f32[40, 32]\n\
         data G: f32[40]\nstage Y: f32[m: 24, n: 32] = sum(k: 40) (A[m, k] + R[m, k]) * (B[k, n] \
         * G[k])\noutput Y",
        1e-5,
    ),
    (
        "groups behind a gate",
        "workload c\ndata X: f32[1, 32, 6, 6]\ndata G: f32[32]\nweight W: f32[2, 16, 16, 3, 3]\n\
         stage Y: f32[n: 1, g: 2, k: 16, p: 4, q: 4] = sum(c: 16, r: 3, s: 3) (X[n, 16*g + c, p + \
         r, q + s] * G[16*g + c]) * W[g, k, c, r, s]\noutput Y",
        1e-5,
    ),
    (
        "product whose first rows are left out",
        "workload m\ndata A: bf16[34, 32]\ndata B: bf16[32, 24]\nstage Y: f32[m: 32, n: 24] = \
         sum(k: 32) A[k + 2, m] * B[k, n]\noutput Y",
        1e-6,
    ),
    ("padded convolution of 32-bit floats", PADDED, 1e-6),
    (
        "padded convolution for groups of warps",
        "workload c\ndata X: bf16[2, 40, 7, 7]\nweight W: bf16[24, 40, 3, 3]\n\
         stage P: bf16[n: 2, c: 40, h: 9, w: 9] = select(0 <= h - 1 < 7 and 0 <= w - 1 < 7, X[n, \
         c, h - 1, w - 1], 0)\n\
         stage Y: bf16[n: 2, k: 24, p: 7, q: 7] = sum(c: 40, r: 3, s: 3) P[n, c, p + r, q + s] * \
         W[k, c, r, s]\noutput Y",
        8e-3,
    ),
    (
        "factors that lie across",
        "workload m\ndata A: bf16[96, 128]\ndata B: bf16[96, 128]\nstage Y: f32[m: 128, n: 128] = \
         sum(k: 96) A[k, m] * B[k, n]\noutput Y",
        1e-6,
    ),
    // One of 2^9 off where sums round the other way.
    (
        "matmul whose output has 16 bits",
        "workload m\ndata A: bf16[64, 96]\ndata B: bf16[96, 48]\nstage Y: bf16[m: 64, n: 48] = \
         sum(k: 96) A[m, k] * B[k, n]\noutput Y",
        4e-3,
    ),
    (
        "deep matmul with a weight",
        "workload m\ndata A: bf16[70, 200]\nweight B: bf16[200, 72]\nstage Y: f32[m: 70, n: 72] = \
         sum(k: 200) A[m, k] * B[k, n]\noutput Y",
        1e-6,
    ),
    (
        "gradient of filters",
        "workload c\ndata X: f32[2, 20, 6, 10]\ndata G: f32[2, 24, 6, 10]\n\
         stage P: f32[n: 2, h: 8, w: 12, c: 20] = select(0 <= h - 1 < 6 and 0 <= w - 1 < 10, X[n, \
         c, h - 1, w - 1], 0)\n\
         stage Y: f32[k: 24, c: 20, r: 3, s: 3] = sum(n: 2, p: 6, q: 10) G[n, k, p, q] * P[n, p + \
         r, q + s, c]\noutput Y",
        1e-6,
    ),
    (
        "gradient of filters that move by two, of one image",
        "workload c\ndata X: f32[1, 3, 15, 17]\ndata G: f32[1, 40, 8, 9]\n\
         stage P: f32[n: 1, h: 19, w: 21, c: 3] = select(0 <= h - 2 < 15 and 0 <= w - 2 < 17, X[n, \
         c, h - 2, w - 2], 0)\n\
         stage Y: f32[k: 40, c: 3, r: 5, s: 5] = sum(n: 1, p: 8, q: 9) G[n, k, p, q] * P[n, 2*p + \
         r, 2*q + s, c]\noutput Y",
        1e-6,
    ),
    (
        "gradient of 1x1 filters that move by two",
        "workload c\ndata X: f32[4, 24, 12, 14]\ndata G: f32[4, 40, 6, 7]\n\
         stage Y: f32[k: 40, c: 24, r: 1, s: 1] = sum(n: 4, p: 6, q: 7) G[n, k, p, q] * X[n, c, \
         2*p + r, 2*q + s]\noutput Y",
        1e-6,
    ),
    (
        "gradient of dilated filters of groups",
        "workload c\ndata X: f32[2, 16, 9, 11]\ndata G: f32[2, 40, 5, 7]\n\
         stage Y: f32[g: 2, k: 20, c: 8, r: 3, s: 3] = sum(n: 2, p: 5, q: 7) G[n, 20*g + k, p, q] \
         * X[n, 8*g + c, p + 2*r, q + 2*s]\noutput Y",
        1e-6,
    ),
    (
        "gradient of filters where channels lie last",
        "workload c\ndata X: f32[2, 7, 12, 16]\ndata G: f32[2, 5, 10, 24]\n\
         stage Y: f32[k: 24, r: 3, s: 3, c: 16] = sum(n: 2, p: 5, q: 10) G[n, p, q, k] * X[n, p + \
         r, q + s, c]\noutput Y",
        1e-6,
    ),
    (
        "gradient of filters of 16 bits",
        "workload c\ndata X: bf16[16, 8, 6, 16]\ndata G: bf16[16, 24, 4, 6]\n\
         stage Y: f32[k: 24, c: 8, r: 3, s: 3] = sum(n: 16, p: 4, q: 6) G[n, k, p, q] * X[n, c, p \
         + r, q + s]\noutput Y",
        1e-6,
    ),
];

/// A small layer of the kind of ResNet-18's last ones.
const PADDED: &str = "workload c\ndata X: f32[1, 32, 7, 7]\nweight W: f32[32, 32, 3, 3]\n\
     stage P: f32[n: 1, c: 32, h: 9, w: 9] = select(0 <= h - 1 < 7 and 0 <= w - 1 < 7, X[n, c, h \
     - 1, w - 1], 0)\n\
     stage Y: f32[n: 1, k: 32, p: 7, q: 7] = sum(c: 32, r: 3, s: 3) P[n, c, p + r, q + s] * W[k, \
     c, r, s]\noutput Y";

type Tensors = Vec<Vec<f64>>;

fn inputs(w: &Workload) -> (Tensors, Tensors, Tensors) {
    let mut state = 12345u64;
    let mut number = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        f64::from((state >> 33) as u32) / f64::from(1u32 << 30) - 1.0
    };
    let all: Vec<Vec<f64>> = w
        .inputs
        .iter()
        .map(|i| (0..i.shape.iter().product::<i64>()).map(|_| i.dtype.round(number())).collect())
        .collect();
    let of = |kind| {
        w.inputs.iter().zip(&all).filter(|(i, _)| i.kind == kind).map(|(_, x)| x.clone()).collect()
    };
    (of(TensorKind::Data), of(TensorKind::Weight), all)
}

#[test]
fn matrices_mean_what_the_workload_means() {
    let (mut refused, mut run, mut runs, mut clusters, mut pieces) = (0, 0, 0, 0, 0);
    let (mut across, mut direct, mut tiles, mut warpgroups) = (0, 0, 0, 0);
    for (name, text, tolerance) in CASES {
        let w = Workload::parse(text).unwrap_or_else(|e| panic!("{name}: {e}"));
        let (data, weights, all) = inputs(&w);
        let want = w.evaluate(&all);
        let list = sketches(&w, &h200());
        assert!(
            list.iter().any(|s| s.name().starts_with("gpu_tensor")),
            "{name} has a sketch for tensor cores"
        );
        for s in list {
            warpgroups += usize::from(s.name() == "gpu_warpgroup");
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
            let count = match s.name() {
                "gpu_tensor" => samples(6, 24),
                "gpu_tensor_split" => samples(4, 10),
                "gpu_warpgroup" => samples(3, 5),
                _ => samples(2, 4),
            };
            let mut list: Vec<Configuration> =
                (0..count).map(|_| s.space().sample(&mut rng)).collect();
            // Runs of neighbours are rare among samples.
            let several = |c: &Configuration| c.int("run").is_some_and(|r| r > 1);
            list.extend(
                (0..200).map(|_| s.space().sample(&mut rng)).filter(several).take(samples(2, 4)),
            );
            // So are matrices that outlive a step.
            let kept = |c: &Configuration| c.word("ahead") == Some("step");
            list.extend(
                (0..200).map(|_| s.space().sample(&mut rng)).filter(kept).take(samples(2, 4)),
            );
            // And TMA tiles.
            let tma = |c: &Configuration| c.word("copy") == Some("tma");
            list.extend(
                (0..1000).map(|_| s.space().sample(&mut rng)).filter(tma).take(samples(2, 8)),
            );
            if s.name() == "gpu_tensor_split" && *text == PADDED {
                let seen = "k_b=32,p_b=7,q_b=7,warps_rows=2,warps_columns=2,chunk=8,\
                            split_warps=1,split_blocks=2,stages=1,pad=0,turn=2,ahead=1,unroll=1,\
                            piecewise=0,run=1";
                list.push(
                    s.space()
                        .parse(seen)
                        .expect("the one that gave a wrong answer once, with fewer channels"),
                );
            }
            for c in list {
                run += 1;
                let text = match explain(&w, &h200(), "nest", Some((s.name(), &c.to_string()))) {
                    Ok(text) => text,
                    Err(why) => {
                        refused += 1;
                        assert!(
                            !why.contains("bug") && s.features(&c).is_empty(),
                            "{name} {} {c}: {why}",
                            s.name()
                        );
                        continue;
                    }
                };
                assert_eq!(s.features(&c).len(), GPU_FEATURES.len());
                runs += usize::from(several(&c));
                clusters += usize::from(c.int("split_blocks").is_some_and(|b| b > 1));
                pieces += usize::from(c.word("weights") == Some("pieces"));
                across += usize::from(kept(&c));
                tiles += usize::from(tma(&c));
                assert_eq!(text.contains("tma "), tma(&c), "{name} {} {c}\n{text}", s.name());
                let stores =
                    |l: &str| l.trim_start().starts_with("warp_store") && l.contains(": Y[");
                direct += usize::from(text.lines().any(stores));
                let n = nest::parse(&text)
                    .unwrap_or_else(|e| panic!("{name} {} {c}: {e}\n{text}", s.name()));
                assert_eq!(n.to_string(), text, "{name}: the nest prints and parses back");
                let got = nest::try_interpret(&n, &data, &weights)
                    .unwrap_or_else(|e| panic!("{name} {} {c}: {e}\n{text}", s.name()));
                let scale = want.iter().fold(1e-30f64, |m, x| m.max(x.abs()));
                for (i, (g, w)) in got.iter().zip(&want).enumerate() {
                    assert!(
                        (g - w).abs() <= tolerance * scale,
                        "{name} {} {c}: element {i} is {g}, expected {w}\n{text}",
                        s.name()
                    );
                }
                assert!(s.realize(&c, "k").expect("realizes").source.contains("__global__"));
            }
        }
    }
    assert!(
        runs >= samples(8, 15) && clusters >= samples(15, 50) && pieces >= samples(8, 25),
        "{runs} runs of neighbours, {clusters} clusters, {pieces} piecewise"
    );
    assert!(
        across >= samples(10, 20) && direct >= samples(2, 6),
        "{across} load across steps, {direct} store without shared memory"
    );
    assert!(tiles >= samples(8, 30), "tiles of {tiles} configurations arrive as TMA tiles");
    assert!(warpgroups >= 5, "warpgroups multiply {warpgroups} of the problems");
    assert!(refused * 2 <= run, "{refused} of {run} sampled configurations cannot be realized");
}

/// A copy of 32 elements through shared memory, with the statements between fetch and use.
fn copy(between: &str) -> String {
    format!(
        "nest copy\ndata X: f32[32]\noutput Y: f32[32]\nshared S: f32[32]\n{{\n  block b in 1 \
         {{\n    thread t in 32 {{\n      local S\n      \
         S[t] = X[t]\n      commit_copies\n{between}      Y[t] = S[31 - t]\n      barrier\n    \
         }}\n  }}\n}}\n"
    )
}

#[test]
fn a_copy_that_is_not_awaited_is_found() {
    let data = vec![(0..32).map(f64::from).collect::<Vec<_>>()];
    let good = nest::parse(&copy("      await_copies 0\n      barrier\n")).expect("parses");
    assert_eq!(nest::try_interpret(&good, &data, &[]), Ok((0..32).rev().map(f64::from).collect()));
    for (between, what) in [
        ("      barrier\n", "before its copy is awaited"),
        ("      await_copies 1\n      barrier\n", "before its copy is awaited"),
        // Others see it only after a barrier behind the wait.
        ("      barrier\n      await_copies 0\n", "without a barrier"),
    ] {
        let bad = nest::parse(&copy(between)).expect("parses");
        let why = nest::try_interpret(&bad, &data, &[]).expect_err("a race");
        assert!(why.contains(what), "{between}: {why}");
    }
}

#[test]
fn warps_stand_where_all_their_threads_come() {
    let text = |threads: u32, row: &str| {
        format!(
            "nest x\noutput Y: f32[16, 16]\nshared S: f32[48, 16]\nfragment C: f32[1, 16, 16]\n\
             {{\n  block b in 1 {{\n    thread w in 2 {{\n      \
             thread t in {threads} {{\n        local S\n        local C\n        warp_zero \
             C[0]\n        \
             warp_store row r column c: S[{row}, c] = C[0]\n        barrier\n      }}\n    }}\n  \
             }}\n}}\n"
        )
    };
    assert!(nest::parse(&text(32, "r + 16*w")).is_ok());
    let why = nest::parse(&text(16, "r + 16*w")).expect_err("half a warp").to_string();
    assert!(why.contains("its 32 threads"), "{why}");
    let why = nest::parse(&text(32, "r + t")).expect_err("a thread's own").to_string();
    assert!(why.contains("depends on `t`"), "{why}");
}

/// A copy of a TMA tile of 8 rows of 64 elements; behind row 10 of the source there are zeros.
fn tiled(loops: &str, source: &str, between: &str) -> String {
    format!(
        "nest copy\ndata X: bf16[10, 96]\noutput Y: bf16[8, 64]\nswizzled S: bf16[1, 8, 64]\n\
         {{\n  block b in 1 {{\n    thread t in 64 {{\n      local S\n      \
         {loops} {{\n          S[0, r, c] = {source}\n        }}\n      }}\n{between}      for i \
         in 8 {{\n        Y[i, t] = S[0, i, t]\n      }}\n      \
         barrier\n    }}\n  }}\n}}\n"
    )
}

#[test]
fn a_tma_tile_is_copied_whole_by_one_thread() {
    const LOOPS: &str = "tma r in 8 {\n        tma c in 64";
    const SOURCE: &str = "select(0 <= r + 4 < 10, X[r + 4, c + 16], 0)";
    const AWAITED: &str = "      commit_copies\n      await_copies 0\n      barrier\n";
    let data = vec![(0..960).map(|i| f64::from(i % 256)).collect::<Vec<_>>()];
    let good = nest::parse(&tiled(LOOPS, SOURCE, AWAITED)).expect("parses");
    let want = (0..512)
        .map(|i| if i / 64 < 6 { data[0][(i / 64 + 4) * 96 + i % 64 + 16] } else { 0.0 })
        .collect();
    assert_eq!(nest::try_interpret(&good, &data, &[]), Ok(want));
    // The words that nests were written with before.
    let former = tiled(LOOPS, SOURCE, AWAITED).replace("tma ", "box ");
    assert_eq!(nest::parse(&former).expect("parses").to_string(), good.to_string());
    assert!(former.contains("box r in 8") && good.to_string().contains("tma r in 8"));
    for (loops, source, between, what) in [
        ("tma r in 8 {\n        tma c in 32", SOURCE, AWAITED, "a TMA tile leaves gaps"),
        ("tma c in 64 {\n        tma r in 8", SOURCE, AWAITED, "a TMA tile leaves gaps"),
        (LOOPS, "select(0 <= c + t < 96, X[r, c + t], 0)", AWAITED, "the same for all threads"),
        (LOOPS, "X[r, c] * 2", AWAITED, "as it is"),
        (LOOPS, "X[r, r + c]", AWAITED, "two loops of a TMA tile"),
        (LOOPS, "select(0 <= r + c < 10, X[r, c], 0)", AWAITED, "what lies outside of the tensor"),
        (LOOPS, "X[0, c]", AWAITED, "along no dimension"),
        (LOOPS, "select(0 <= c < 10, X[c, c], 0)", AWAITED, "along no dimension"),
        (LOOPS, SOURCE, "      barrier\n", "in no batch"),
    ] {
        let why = nest::parse(&tiled(loops, source, between)).expect_err(what).to_string();
        assert!(why.contains(what), "{loops} {source}: {why}");
    }
    for (between, what) in [
        ("      commit_copies\n      barrier\n", "before its copy is awaited"),
        (
            "      commit_copies\n      commit_copies\n      await_copies 0\n      barrier\n",
            "2 batches of TMA tiles",
        ),
    ] {
        let bad = nest::parse(&tiled(LOOPS, SOURCE, between)).expect("parses");
        let why = nest::try_interpret(&bad, &data, &[]).expect_err(what);
        assert!(why.contains(what), "{between}: {why}");
    }
}
