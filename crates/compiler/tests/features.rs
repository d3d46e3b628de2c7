//! A regression test of kernel features, the numbers that the cost model sees: the features and the
//! cost formula's priors of configurations of every sketch (a kernel structure with open knobs)
//! must equal `features.txt`, number for number, because stores and predictors hold such numbers.
//! `SQUALL_BLESS=1 cargo test -p squall-compiler --test features` writes that file anew.

use crate::cases;

use cases::{CASES, h200};
use squall_compiler::{sketches, untuned};
use squall_core::{Bytes, Target, Workload};
use std::fmt::Write;
use std::path::Path;

const NAMES: &[&str] = &[
    "conv3x3",
    "conv1x1_s2_nhwc",
    "winograd_odd",
    "depthwise",
    "maxpool",
    "matmul_weight_odd",
    "batch_matmul",
    "softmax",
    "gelu",
    "global_average",
];

/// A product that tensor cores compute.
const HALVES: &str = "workload matmul
data A: f16[256, 192]
weight B: f16[128, 192]
stage Y: f16[m: 256, n: 128] = sum(k: 192) A[m, k] * B[n, k]
output Y";

fn cpu(vector_bytes: usize, vector_registers: usize) -> Target {
    let caches = [Bytes(32 << 10), Bytes(1 << 20), Bytes(32 << 20)];
    Target::cpu(vector_bytes, vector_registers, &caches)
}

/// The features of three configurations of each sketch, one configuration a line; a number's
/// shortest text stands for its bits. Sketches are numbered, because their names may change.
fn list(target: &str, on: &Target, name: &str, text: &str) -> String {
    let w: Workload = Workload::parse(text).expect("a workload");
    let mut s = String::new();
    for (i, t) in sketches(&w, on).iter().chain([&untuned(&w, on)]).enumerate() {
        let legal = t.space().len();
        for part in 0..3 {
            let at = legal / 7 * (2 * part);
            let features = t.features(&t.space().nth(at));
            let prior = t.prior(&features);
            let _ = write!(s, "{target} {name} {i} {at}: {prior:?};");
            features.iter().for_each(|x| _ = write!(s, " {x}"));
            s.push('\n');
        }
    }
    s
}

#[test]
fn features_and_priors_are_what_they_were() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/features.txt");
    let targets = [("avx2", cpu(32, 16)), ("avx512", cpu(64, 32)), ("h200", h200())];
    let mut now = String::new();
    for (target, on) in &targets {
        for (name, text) in CASES.iter().filter(|c| NAMES.contains(&c.0)) {
            now += &list(target, on, name, text);
        }
    }
    now += &list("h200", &targets[2].1, "halves", HALVES);
    if std::env::var_os("SQUALL_BLESS").is_some() {
        std::fs::write(&path, &now).expect("the file can be written");
    }
    let before = std::fs::read_to_string(&path).expect("features.txt is there");
    let other: Vec<_> = before.lines().zip(now.lines()).filter(|(b, n)| b != n).take(3).collect();
    assert!(
        other.is_empty() && before.lines().count() == now.lines().count(),
        "other features than before: records and predictors hold such numbers: {other:#?}"
    );
}
