//! Tests that every compilation rounds an element in one way: kernels write their fused
//! multiply-adds out, so that a compiler that may contract `a * b + c` finds nothing to contract.
//! Sampled kernels compiled with `-ffp-contract=off` and `fast` must give the same bits.
//! Overlapping tiles, and kernels built by another compiler, rely on it.

use crate::cases::{BACK_TO_BACK, CASES, PARTS, STRIDED, inputs};
use crate::machines::{Case, Machine, at_level, given, sampled_kernels};
use squall_core::{Isa, Workload};
use squall_testing::samples;
use std::collections::HashMap;

#[test]
fn kernels_have_nothing_left_to_contract() {
    let all = CASES.iter().chain(STRIDED).chain(PARTS).chain(BACK_TO_BACK);
    let bytes = |v: &Vec<f64>| v.iter().flat_map(|x| (*x as f32).to_ne_bytes()).collect();
    let cases: Vec<Case> = all
        .step_by(samples(9, 1))
        .map(|(name, text)| {
            let w = Workload::parse(text).unwrap_or_else(|e| panic!("{name}: {e}"));
            let raw = inputs(&w, 4).iter().map(bytes).collect();
            (w, raw)
        })
        .collect();
    let mut kernels = sampled_kernels(&cases, &[at_level(Isa::X86_64V3), at_level(Isa::Armv8A)]);
    // The reference computes with doubles, and rounds once at its end.
    kernels.retain(|(_, k)| !k.symbol.ends_with("_reference"));
    assert!(kernels.len() > 30, "{} kernels", kernels.len());
    let flags = [&["-ffp-contract=off"][..], &["-ffp-contract=fast", "-O2"]];
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut first: HashMap<String, Vec<u32>> = HashMap::new();
    for flags in flags {
        let machine = &Machine::here(&[&["-march=native"], flags].concat());
        given(&cases, &kernels, machine, folder.path(), &mut |_, name, bits| {
            let want = first.entry(name.into()).or_insert_with(|| bits.to_vec());
            assert_eq!(want, bits, "{name} is rounded otherwise by {:?}", machine.flags);
        });
    }
}
