//! Tests of the sketches (kernel structures with open knobs) for AMX (a Xeon's matrix unit,
//! `sketch/tile/amx.rs`): which workloads have such sketches, and which instructions the C text of
//! sampled kernels contains. That the kernels compute the right results is tested in `bytes.rs` and
//! `pairs.rs`, together with all other kernels of bytes and of bf16.

use crate::machines;

use machines::{Machine, at_level};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use squall_compiler::{explain, sketches};
use squall_core::operator::{ByteResult, Conv, MatMul, in_half};
use squall_core::{DType, Isa, KernelSource, Target, TensorKind, Workload};

fn conv(c: i64, k: i64, w: i64) -> Workload {
    let conv = Conv {
        n: 1,
        c,
        h: 9,
        w,
        k,
        r: 3,
        s: 3,
        stride: [1, 1],
        pads: [1; 4],
        dilation: [1, 1],
        groups: 1,
    };
    conv.in_bytes(131, ByteResult::ANY).expect("a convolution")
}

fn product(m: i64, n: i64, k: i64) -> MatMul {
    MatMul::plain(m, n, k, TensorKind::Weight)
}

fn halves(m: i64, n: i64, k: i64) -> Workload {
    let w = product(m, n, k).workload().expect("a product");
    in_half(w, DType::Bf16, DType::Bf16).expect("in bf16")
}

fn names(w: &Workload, t: &Target) -> Vec<String> {
    sketches(w, t).iter().map(|s| s.name().to_string()).filter(|n| n.starts_with("amx")).collect()
}

/// Sampled AMX kernels of a workload.
fn kernels(w: &Workload, t: &Target) -> Vec<KernelSource> {
    let mut all = Vec::new();
    for s in sketches(w, t).iter().filter(|s| s.name().starts_with("amx")) {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
        for _ in 0..20 {
            let c = s.space().sample(&mut rng);
            let made = s.realize(&c, "k").unwrap_or_else(|e| panic!("{} {c}: {e}", s.name()));
            all.push(made);
        }
    }
    all
}

#[test]
fn sums_of_bytes_and_of_pairs_have_tiles_where_the_machine_has() {
    let tiled = at_level(Isa::X86_64V4Amx);
    assert_eq!(names(&conv(64, 32, 30), &tiled), ["amx@k,pad=copy"]);
    let bytes = |m, n, k| product(m, n, k).in_bytes(ByteResult::ANY).expect("a product");
    assert_eq!(names(&bytes(40, 24, 64), &tiled), ["amx@n"]);
    assert_eq!(names(&halves(40, 24, 64), &tiled), ["amx@n,pairs"]);
    for (why, w) in [
        ("one row", bytes(1, 64, 64)),
        ("few columns", bytes(40, 8, 64)),
        ("a short reduction", bytes(40, 24, 8)),
        ("floats", product(40, 24, 64).workload().expect("a product")),
    ] {
        assert!(names(&w, &tiled).is_empty(), "{why}");
    }
    assert!(names(&conv(64, 32, 30), &at_level(Isa::X86_64V4Bf16)).is_empty());
}

#[test]
fn every_configuration_multiplies_by_instructions_on_tiles() {
    let tiled = at_level(Isa::X86_64V4Amx);
    let flags: Vec<&str> = Isa::X86_64V4Amx.level().flags().collect();
    for (w, instruction) in [(conv(64, 32, 30), "tdpbusd"), (halves(40, 24, 64), "tdpbf16ps")] {
        let all = kernels(&w, &tiled);
        assert!(!all.is_empty());
        assert!(all.iter().all(|k| k.source.contains("TILES_BEGIN(shapes)\n")));
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("k.c");
        std::fs::write(&path, &all[0].source).expect("written");
        match Machine::here(&flags).assembly(&path) {
            Some(text) => assert!(text.contains(instruction), "{text}"),
            None => println!("skipped: the compiler knows no {instruction}"),
        }
    }
}

#[test]
fn each_thread_sets_its_registers_up() {
    let shared = Target { threads: 2, ..at_level(Isa::X86_64V4Amx) };
    // One loop that threads share copies the image, another one multiplies, where it has several
    // steps.
    let all = kernels(&conv(64, 32, 30), &shared);
    let multiply = |k: &&KernelSource| k.source.matches("#pragma omp").count() == 2;
    let shared: Vec<&KernelSource> = all.iter().filter(multiply).collect();
    assert!(shared.len() > 3);
    for k in shared {
        let find = |text: &str| k.source.rfind(text).expect(text);
        let (set_up, end) = (find("TILES_BEGIN(shapes)\n"), find("TILES_END()\n"));
        let first = k.source.find("TILE_ZERO(0)").expect("sums");
        assert!(find("#pragma omp") < set_up && set_up < first && first < end, "{}", k.source);
    }
}

#[test]
fn tiles_stand_in_the_nest_as_loops() {
    let t = at_level(Isa::X86_64V4Amx);
    let w = halves(40, 24, 64);
    let s = sketches(&w, &t);
    let s = s.iter().find(|s| s.name().starts_with("amx")).expect("a sketch of tiles");
    let c = s.space().nth(0).to_string();
    let text = explain(&w, &t, "nest", Some((s.name(), &c))).expect("a nest");
    for line in ["amx rows in", "amx depth in 16", "amx v in 16"] {
        assert!(text.contains(line), "{text}");
    }
}
