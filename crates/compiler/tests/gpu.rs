//! GPU programs: every sketch, many configurations. The interpreter runs blocks and threads, so
//! that structure, barriers and results are checked where there is no GPU.

mod cases;

use cases::{CASES, h200, inputs, split_inputs};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use squall_compiler::{GPU_FEATURES, explain, nest, sketches, untuned};
use squall_core::Workload;

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
    let got = nest::try_interpret(&n, &data, &weights).unwrap_or_else(|e| panic!("{name} {candidate:?}: {e}\n{text}"));
    close(&format!("{name} {candidate:?}"), &got, &w.evaluate(&all), 1e-5);
    Ok(())
}

#[test]
fn programs_mean_what_the_workload_means() {
    let (mut refused, mut run) = (0, 0);
    let mut names = std::collections::BTreeSet::new();
    for (name, text) in CASES {
        let w = Workload::parse(text).unwrap_or_else(|e| panic!("{name}: {e}"));
        check(name, &w, ("untuned", "")).expect("plain loops are always possible");
        assert!(!untuned(&w, &h200()).realize(&untuned(&w, &h200()).space().nth(0), "k").expect("plain").launches.is_empty());
        for s in sketches(&w, &h200()) {
            names.insert(s.name().to_string());
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
            for _ in 0..10 {
                let c = s.space().sample(&mut rng);
                run += 1;
                let features = s.features(&c);
                match check(name, &w, (s.name(), &c.to_string())) {
                    Ok(()) => assert_eq!(features.len(), GPU_FEATURES.len()),
                    Err(why) => {
                        refused += 1;
                        assert!(!why.contains("bug") && features.is_empty(), "{name} {} {c}: {why}", s.name());
                    }
                }
            }
        }
    }
    assert!(refused * 3 <= run, "{refused} of {run} sampled configurations cannot be realized");
    assert!(names.contains("gpu_tile") && names.contains("gpu_rows") && names.contains("gpu_map"), "{names:?}");
}

#[test]
fn a_forgotten_barrier_is_found() {
    let with = |barrier: &str| {
        format!(
            "nest reverse\ndata X: f32[8]\noutput Y: f32[8]\nshared S: f32[8]\n{{\n  block b in 1 {{\n    thread t in 8 {{\n      local S\n      \
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
    let text = "nest x\noutput Y: f32[8]\n{\n  block b in 1 {\n    thread t in 8 {\n      share s in 8 {\n        Y[s] = 0\n        barrier\n      }\n    }\n  }\n}\n";
    let why = nest::parse(text).expect_err("refused").to_string();
    assert!(why.contains("not all threads"), "{why}");
}
