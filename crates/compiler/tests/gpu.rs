//! Tests of GPU kernels without a GPU: sampled configurations of every GPU sketch are printed as
//! nests, parsed back (which verifies them), run by the interpreter thread by thread, which finds
//! missing barriers and races, and compared with the direct evaluation of the workload (a tensor
//! expression). Tensor cores are tested in `tensor.rs`, `attention.rs` and `warpgroup.rs`.

use crate::cases;

use cases::{BACK_TO_BACK, CASES, PARTS, SEPARABLE, h200, inputs, split_inputs};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use squall_compiler::{GPU_FEATURES, explain, gpu_makes_chain, nest, sketches, untuned};
use squall_core::operator::{self, Conv, LayerNorm, MatMul, chain};
use squall_core::{LaunchPhase, TensorKind, Workload};
use squall_testing::samples;

fn close(name: &str, got: &[f64], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len(), "{name}: size");
    let scale = want.iter().fold(1e-30f64, |m, x| m.max(x.abs()));
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!((g - w).abs() <= tolerance * scale, "{name}: element {i} is {g}, expected {w}");
    }
}

/// The nest of a configuration, printed, parsed back (which verifies it) and run.
fn check(name: &str, w: &Workload, candidate: (&str, &str)) -> Result<(), String> {
    let all = inputs(w, 1);
    let (data, weights) = split_inputs(w, &all);
    let text = explain(w, &h200(), "nest", Some(candidate))?;
    let n = nest::parse(&text).unwrap_or_else(|e| panic!("{name} {candidate:?}: {e}\n{text}"));
    assert_eq!(n.to_string(), text, "{name}: the nest prints and parses back");
    let got = nest::try_interpret(&n, &data, &weights)
        .unwrap_or_else(|e| panic!("{name} {candidate:?}: {e}\n{text}"));
    close(&format!("{name} {candidate:?}"), &got, &w.evaluate(&all), 1e-5);
    Ok(())
}

#[test]
fn programs_mean_what_the_workload_means() {
    let (mut refused, mut run) = (0, 0);
    let mut names = std::collections::BTreeSet::new();
    for (name, text) in CASES.iter().chain(SEPARABLE).chain(BACK_TO_BACK).chain(PARTS) {
        let w = Workload::parse(text).unwrap_or_else(|e| panic!("{name}: {e}"));
        check(name, &w, ("untuned", "")).expect("plain loops are always possible");
        assert!(
            !untuned(&w, &h200())
                .realize(&untuned(&w, &h200()).space().nth(0), "k")
                .expect("plain")
                .launches
                .is_empty()
        );
        for s in sketches(&w, &h200()) {
            names.insert(s.name().to_string());
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
            for _ in 0..samples(2, 10) {
                let c = s.space().sample(&mut rng);
                run += 1;
                let features = s.features(&c);
                match check(name, &w, (s.name(), &c.to_string())) {
                    Ok(()) => assert_eq!(features.len(), GPU_FEATURES.len()),
                    Err(why) => {
                        refused += 1;
                        assert!(
                            !why.contains("bug") && features.is_empty(),
                            "{name} {} {c}: {why}",
                            s.name()
                        );
                    }
                }
            }
        }
    }
    assert!(refused * 3 <= run, "{refused} of {run} sampled configurations cannot be realized");
    assert!(
        [
            "gpu_tile",
            "gpu_rows",
            "gpu_columns",
            "gpu_map",
            "gpu_map,tiled",
            "gpu_winograd",
            "gpu_attention"
        ]
        .iter()
        .all(|n| names.contains(*n)),
        "{names:?}"
    );
}

#[test]
fn steps_ahead_of_a_contraction_are_computed_as_an_element_is_fetched() {
    let text = |name: &str| CASES.iter().chain(PARTS).find(|c| c.0 == name).expect("a case").1;
    for name in ["conv_after_norm", "conv_after_norm_padded", "conv_after_gate"] {
        let w = Workload::parse(text(name)).expect("parses");
        let all = sketches(&w, &h200());
        let s = all.iter().find(|s| s.name() == "gpu_tile").expect("tiles");
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
        let c = (0..50)
            .map(|_| s.space().sample(&mut rng))
            .find(|c| s.realize(c, "k").is_ok())
            .expect("a legal kernel");
        let text = explain(&w, &h200(), "nest", Some((s.name(), &c.to_string()))).expect("nest");
        let sums: Vec<&str> =
            text.lines().filter(|l| l.contains("+= ") && l.contains("Wp_tiles_s[")).collect();
        assert!(!sums.is_empty(), "{text}");
        for line in sums {
            assert_eq!(line.matches("_s[").count(), 2, "{name}: {line}\n{text}");
        }
        let fetched = text.lines().filter(|l| l.trim_start().starts_with("X_s["));
        assert!(fetched.clone().count() > 0, "{text}");
        let factor = if name == "conv_after_gate" { "G[" } else { "Sp[" };
        assert!(fetched.clone().all(|l| l.contains(factor)), "{name}\n{text}");
    }
}

/// A depthwise convolution with those beside it has one sketch, in which nothing between them
/// goes through device memory, in many chunks of channels and over several blocks of a cluster.
#[test]
fn separable_convolutions_are_one_launch() {
    for (name, text) in SEPARABLE {
        let w = Workload::parse(text).expect("parses");
        let all = sketches(&w, &h200());
        let [s] = &all[..] else { panic!("{name}: {} sketches", all.len()) };
        assert_eq!(s.name(), "gpu_separable", "{name}");
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
        let (mut clusters, mut chunks) = (0, 0);
        for _ in 0..40 {
            let c = s.space().sample(&mut rng);
            let split = c.int("split_blocks").unwrap_or(1);
            clusters += i32::from(split > 1);
            chunks += i32::from(split * c.int("channels").expect("a knob") < 12);
            check(name, &w, (s.name(), &c.to_string()))
                .unwrap_or_else(|e| panic!("{name} {c}: {e}"));
            let source = s.realize(&c, "k").expect("a kernel");
            let calls = source.launches.iter().filter(|l| l.phase == LaunchPhase::Call).count();
            assert_eq!((calls, source.workspace.0), (1, 0), "{name} {c}");
        }
        let has_cluster = name != &"expand_and_windows";
        assert!((clusters > 3) == has_cluster && chunks > 3, "{name}: {clusters}, {chunks}");
    }
}

/// Windows that are long or high, with steps, gaps and uneven borders, channels that nothing
/// divides, and a window whose places are too many to be written out.
#[test]
fn separable_convolutions_have_any_window() {
    let conv = |c: i64, k: i64, [h, w]: [i64; 2]| Conv {
        n: 2,
        c,
        h,
        w,
        k,
        r: 1,
        s: 1,
        stride: [1; 2],
        pads: [0; 4],
        dilation: [1; 2],
        groups: 1,
    };
    let windows = |r, s, stride, pads, dilation| Conv {
        r,
        s,
        stride,
        pads,
        dilation,
        groups: 13,
        ..conv(13, 13, [9, 8])
    };
    for depthwise in [
        windows(1, 5, [1, 2], [0, 2, 0, 1], [1; 2]),
        windows(4, 1, [3, 1], [1, 0, 2, 0], [2, 1]),
        windows(2, 3, [1, 3], [0, 0, 1, 2], [1, 2]),
        windows(9, 8, [1, 1], [0; 4], [1; 2]),
    ] {
        let [_, _, p, q] = depthwise.output();
        let of = |c: &Conv| c.workload().expect("a convolution");
        let list = [of(&conv(5, 13, [9, 8])), of(&depthwise), of(&conv(13, 6, [p, q]))];
        for (from, to) in [(0, 3), (0, 2), (1, 3)] {
            let behind: Vec<&Workload> = list[from + 1..to].iter().collect();
            let w = chain(operator::SEPARABLE, list[from].clone(), &behind).expect("separable");
            let all = sketches(&w, &h200());
            let [s] = &all[..] else { panic!("{} sketches of {w}", all.len()) };
            assert_eq!(s.name(), "gpu_separable", "{w}");
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(11);
            for _ in 0..6 {
                let c = s.space().sample(&mut rng).to_string();
                check("windows", &w, (s.name(), &c)).unwrap_or_else(|e| panic!("{w} {c}: {e}"));
            }
        }
    }
    let large = Conv { r: 13, s: 13, pads: [6; 4], ..windows(1, 1, [1; 2], [0; 4], [1; 2]) };
    let (first, large) = (conv(5, 13, [9, 8]).workload(), large.workload().expect("windows"));
    let w =
        chain(operator::SEPARABLE, first.expect("a convolution"), &[&large]).expect("separable");
    assert!(sketches(&w, &h200()).iter().all(|s| s.name() != "gpu_separable"));
}

/// A convolution with its pooling, two products, a norm and its product: each is one launch, and no
/// value between the operators goes through device memory.
#[test]
fn operators_back_to_back_are_one_launch() {
    let pooled = "workload back_to_back
data X: f32[2, 11, 13, 5]
weight W: f32[12, 5, 3, 3]
weight B: f32[12]
stage P: f32[n: 2, c: 5, h: 13, w: 15] = select(0 <= h - 1 < 11 and 0 <= w - 1 < 13, \
X[n, h - 1, w - 1, c], 0)
stage C: f32[n: 2, k: 12, p: 6, q: 7] = sum(c: 5, r: 3, s: 3) P[n, c, 2*p + r, 2*q + s] * \
W[k, c, r, s]
stage E: f32[n: 2, k: 12, p: 6, q: 7] = max(C[n, k, p, q] + B[k], 0)
stage M: f32[n: 2, c: 12, h: 8, w: 9] = select(0 <= h - 1 < 6 and 0 <= w - 1 < 7, \
E[n, c, h - 1, w - 1], -inf)
stage Y: f32[n: 2, p: 3, q: 4, c: 12] = max(r: 3, s: 3) M[n, c, 2*p + r, 2*q + s]
output Y";
    let hidden = "workload back_to_back
data A: f32[2, 11, 24]
weight B: f32[24, 32]
weight T: f32[32]
weight V: f32[32, 8]
data R: f32[2, 11, 8]
stage C: f32[b: 2, m: 11, n: 32] = sum(k: 24) A[b, m, k] * B[k, n]
stage E: f32[b: 2, m: 11, n: 32] = 0.5 * (C[b, m, n] + T[n]) * (1 + erf((C[b, m, n] + T[n]) * 0.7))
stage D: f32[b: 2, m: 11, n: 8] = sum(k: 32) E[b, m, k] * V[k, n]
stage Y: f32[b: 2, m: 11, n: 8] = D[b, m, n] + R[b, m, n]
output Y";
    let norm = "workload back_to_back
data X: f32[37, 48]
weight G: f32[48]
weight W: f32[48, 64]
stage S: f32[i: 37] = sum(j: 48) X[i, j]
stage D: f32[i: 37, j: 48] = X[i, j] - S[i] / 48
stage V: f32[i: 37] = sum(j: 48) D[i, j] * D[i, j]
stage E: f32[i: 37, j: 48] = D[i, j] / sqrt(V[i] / 48 + 1e-5) * G[j]
stage C: f32[m: 37, n: 64] = sum(k: 48) E[m, k] * W[k, n]
stage Y: f32[m: 37, n: 64] = max(C[m, n], 0)
output Y";
    let given = |name: &str| BACK_TO_BACK.iter().find(|c| c.0 == name).expect("a case").1;
    let chunks: &[&str] = &["gpu_separable"];
    let tiles: &[&str] = &["gpu_tensor_split", "gpu_tile"];
    for (text, names) in [
        (pooled, chunks),
        (hidden, chunks),
        (given("conv_and_pool"), chunks),
        (given("two_products"), chunks),
        (norm, tiles),
        (given("norm_and_product"), tiles),
        (given("softmax_and_product"), tiles),
    ] {
        let w = Workload::parse(text).expect("parses");
        let all = sketches(&w, &h200());
        let found: Vec<&str> = all.iter().map(|s| s.name()).collect();
        assert_eq!(found, names, "{w}");
        for s in &all {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(13);
            let mut run = 0;
            for _ in 0..30 {
                let c = s.space().sample(&mut rng);
                match check("back to back", &w, (s.name(), &c.to_string())) {
                    Ok(()) => run += 1,
                    Err(why) => assert!(!why.contains("bug"), "{w} {c}: {why}"),
                }
                let Ok(source) = s.realize(&c, "k") else { continue };
                let calls = source.launches.iter().filter(|l| l.phase == LaunchPhase::Call);
                assert_eq!((calls.count(), source.workspace.0), (1, 0), "{c} {w}");
            }
            assert!(run > 10, "{run} of {} {w}", s.name());
        }
    }
}

/// Codes of 4 bits lie side by side in a byte, and which of them is meant says a loop that no
/// element lies along.
#[test]
fn a_factor_with_a_test_of_another_loop_is_no_prologue() {
    let text = "workload matmul\ndata A: f32[3, 1, 8]\ndata W: u8[1, 1, 16, 4]\n\
                data S: f32[1, 1, 16]\nstage Y: f32[m: 3, t: 1, c: 16] = sum(b: 1, g: 1, h: 2, j: \
                4) A[m, b, 8*g + 4*h + j] * ((select(0 <= h < 1, W[t, b + g, c, j] - floor(W[t, b \
                + g, c, j] * 0.0625) * 16, floor(W[t, b + g, c, j] * 0.0625)) - 8) * S[t, b, \
                c])\noutput Y\n";
    let w = Workload::parse(text).expect("parses");
    let mut run = 0;
    for s in sketches(&w, &h200()) {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        for _ in 0..5 {
            let c = s.space().sample(&mut rng);
            match check("codes", &w, (s.name(), &c.to_string())) {
                Ok(()) => run += 1,
                Err(why) => assert!(!why.contains("bug"), "{} {c}: {why}", s.name()),
            }
        }
    }
    assert!(run > 0);
}

#[test]
fn a_forgotten_barrier_is_found() {
    let with = |barrier: &str| {
        format!(
            "nest reverse\ndata X: f32[8]\noutput Y: f32[8]\nshared S: f32[8]\n{{\n  block b in 1 \
             {{\n    thread t in 8 {{\n      local S\n      \
             S[t] = X[t]\n{barrier}      Y[t] = S[7 - t]\n      barrier\n    }}\n  }}\n}}\n"
        )
    };
    let data = vec![(0..8).map(f64::from).collect::<Vec<_>>()];
    let good = nest::parse(&with("      barrier\n")).expect("parses");
    assert_eq!(nest::try_interpret(&good, &data, &[]), Ok((0..8).rev().map(f64::from).collect()));
    let bad = nest::parse(&with("")).expect("parses");
    let why = nest::try_interpret(&bad, &data, &[]).expect_err("a race");
    assert!(why.contains("without a barrier"), "{why}");
}

#[test]
fn barriers_stand_where_all_threads_come() {
    let text = "nest x\noutput Y: f32[8]\n{\n  block b in 1 {\n    thread t in 8 {\n      share s \
                in 8 {\n        Y[s] = 0\n        barrier\n      }\n    }\n  }\n}\n";
    let why = nest::parse(text).expect_err("refused").to_string();
    assert!(why.contains("not all threads"), "{why}");
}

/// The interpreter's result for a program whose threads, 8 in each of `blocks`, run `body`.
fn fate(blocks: u32, buffers: &str, body: &[&str]) -> Result<Vec<f64>, String> {
    let lines: String = body.iter().map(|l| format!("        {l}\n")).collect();
    let text = format!(
        "nest x\ndata X: f32[{blocks}, 8]\noutput Y: f32[{blocks}, 8]\n{buffers}{{\n  block b in \
         1 {{\n    cluster r in {blocks} {{\n      \
         thread t in 8 {{\n{lines}      }}\n    }}\n  }}\n}}\n"
    );
    let data = vec![(0..8 * blocks).map(f64::from).collect()];
    nest::try_interpret(&nest::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}")), &data, &[])
}

#[test]
fn what_no_thread_wrote_may_not_be_read() {
    let shared = "shared S: f32[8]\n";
    let program = |written: &str| {
        let fetch = format!("share s in {written} {{");
        // A maximum would hide an undefined element.
        fate(
            1,
            shared,
            &[
                "local S",
                &fetch,
                "  S[s] = X[0, s]",
                "}",
                "barrier",
                "Y[0, t] = max(S[7 - t], -1)",
                "barrier",
            ],
        )
    };
    assert_eq!(program("8"), Ok((0..8).rev().map(f64::from).collect()));
    let why = program("7").expect_err("uninitialised");
    assert!(why.contains("element 7 of `S` is read by thread 0, and no thread wrote it"), "{why}");
}

#[test]
fn a_place_is_free_when_copies_to_it_have_arrived() {
    let program = |wait: &[&str]| {
        let fetch = ["for once in 1 {", "  local S", "  S[t] = X[0, t]", "  commit_copies"];
        let reuse =
            ["  barrier", "}", "local P", "P[t] = 2", "barrier", "Y[0, t] = P[7 - t]", "barrier"];
        fate(1, "shared S: f32[8]\nshared P: f32[8]\n", &[&fetch[..], wait, &reuse].concat())
    };
    assert_eq!(program(&["  await_copies 0"]), Ok(vec![2.0; 8]));
    let why = program(&[]).expect_err("a copy may still arrive");
    assert!(
        why.contains("copies to `S` are still on their way where its place becomes free"),
        "{why}"
    );
}

#[test]
fn another_blocks_memory_needs_a_cluster_barrier() {
    let buffers = "shared S: f32[8]\ndistributed P: f32[2, 8]\n";
    let give = [
        "local P",
        "P[1 - r, t] = X[r, t]",
        "barrier_cluster",
        "Y[r, t] = P[r, 7 - t]",
        "barrier_cluster",
    ];
    let turn = |end: &'static str| {
        [
            "for once in 1 {",
            "  local S",
            "  S[t] = X[r, t]",
            "  barrier",
            "  Y[r, t] = S[7 - t]",
            end,
            "}",
        ]
    };
    let swapped: Vec<f64> = (8..16).rev().chain((0..8).rev()).map(f64::from).collect();
    assert_eq!(fate(2, buffers, &[&["barrier_cluster"][..], &give].concat()), Ok(swapped.clone()));
    assert_eq!(
        fate(2, buffers, &[&turn("  barrier_cluster")[..], &give].concat()),
        Ok(swapped.clone())
    );
    // Elements that another block sent are read in the block's own memory, so no cluster barrier
    // has to follow.
    let brought = |from: &str| {
        let read = format!("Y[r, t] = P[{from}, 7 - t]");
        format!(
            "nest x\ndata X: f32[2, 8]\noutput Y: f32[2, 8]\n{buffers}{{\n  block b in 1 {{\n    \
             cluster r in 2 {{\n      thread t in 8 {{\n        \
             barrier_cluster\n        local P\n        P[1 - r, t] = X[r, t]\n        \
             barrier_cluster\n        {read}\n        barrier\n      \
             }}\n    }}\n  }}\n}}\n"
        )
    };
    let own = nest::parse(&brought("r"))
        .expect("blocks keep to their own behind the last barrier of the cluster");
    assert_eq!(nest::try_interpret(&own, &[(0..16).map(f64::from).collect()], &[]), Ok(swapped));
    let why =
        nest::parse(&brought("1 - r")).expect_err("the other block may have ended").to_string();
    assert!(why.contains("does not end with a barrier"), "{why}");
    let why = fate(2, buffers, &give).expect_err("the other block may not have begun");
    assert!(why.contains("may not have begun"), "{why}");
    // Its threads may still read the buffer that lay there before.
    let why = fate(2, buffers, &[&["barrier_cluster"][..], &turn("  barrier"), &give].concat())
        .expect_err("a race");
    assert!(why.contains("without a cluster barrier"), "{why}");
}

/// A sum behind a norm must be over the norm's rows: a mean of the rows themselves has no kernel
/// with the norm.
#[test]
fn a_norm_and_a_sum_along_its_rows_alone_are_one_kernel() {
    let (gain, bias) = (TensorKind::Weight, Some(TensorKind::Weight));
    let norm = LayerNorm { rows: 12, cols: 48, eps: 1e-5, gain, bias }.workload().expect("a norm");
    let product = MatMul::plain(12, 32, 48, TensorKind::Weight).workload().expect("a product");
    let summed = "workload reduce\ndata X: f32[12, 48]\nstage Y: f32[j: 48] = sum(i: 12) X[i, j]\n\
                  output Y";
    let summed = Workload::parse(summed).expect("a sum");
    for (second, is_made) in [(product, true), (summed, false)] {
        let both = chain(operator::BACK_TO_BACK, norm.clone(), &[&second]);
        assert_eq!(both.is_ok_and(|w| gpu_makes_chain(&w)), is_made, "{second}");
    }
}
