//! Tests of CPU kernels that test an image's border at each read (sketches named `..,pad=guard`)
//! with vectors along rows: the inside has code without tests (loop versions), and vectors that
//! reach into the border load some of their lanes. Sampled kernels are compiled for each level of
//! instructions of this machine and for an emulated ARM, run, and compared with the direct
//! evaluation of the workload (a tensor expression); an address sanitiser checks that nothing
//! outside of an image is read.

use crate::cases;
use crate::machines;

use cases::{CASES, inputs};
use machines::{Machine, at_level, given, of_kind};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use squall_compiler::emit::{Options, emit};
use squall_compiler::{nest, sketches};
use squall_core::operator::Conv;
use squall_core::{Isa, KernelSource, TensorKind, Workload};

/// The names of cases in `cases/mod.rs`: sums, means, maxima, and reads of every second element.
const NAMES: [&str; 5] = ["depthwise", "depthwise_s2", "maxpool", "average_border", "conv_grouped"];

/// A workload, the bytes of its inputs, and its expected output.
type Bordered = (Workload, Vec<Vec<u8>>, Vec<f64>);

fn all_cases() -> Vec<Bordered> {
    let one = |name: &&str| {
        let text = CASES.iter().find(|c| c.0 == *name).expect("a case").1;
        let w = Workload::parse(text).expect("parses");
        let all = inputs(&w, 4);
        let bytes = |v: &Vec<f64>| v.iter().flat_map(|x| (*x as f32).to_le_bytes()).collect();
        let want = w.evaluate(&all);
        assert!(!of_kind(&w, &all, TensorKind::Data).is_empty());
        (w, all.iter().map(bytes).collect(), want)
    };
    NAMES.iter().map(one).collect()
}

/// Kernels of a level with such borders, each with the number of its case.
fn kernels(isa: Isa, all: &[Bordered]) -> Vec<(usize, KernelSource)> {
    let (target, mut out) = (at_level(isa), Vec::new());
    for (i, (w, ..)) in all.iter().enumerate() {
        for s in sketches(w, &target).iter().filter(|s| s.name() == "tile@q,pad=guard") {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(11);
            for k in 0..8 {
                let c = s.space().sample(&mut rng);
                let made = s.realize(&c, &format!("border{i}_{k}"));
                out.push((i, made.unwrap_or_else(|e| panic!("{}: {c}: {e}", NAMES[i]))));
            }
        }
    }
    assert!(out.len() >= 32, "{} kernels", out.len());
    out
}

/// Holds the kernels of a level to their workloads on a machine.
fn check(isa: Isa, machine: &Machine) {
    let all = all_cases();
    let kernels = kernels(isa, &all);
    let has = |word: &str| kernels.iter().filter(|(_, k)| k.source.contains(word)).count();
    let [masked, versions] = [" = masked_", "else {"].map(has);
    assert!(masked * 2 > kernels.len() && versions > 0, "{masked}, {versions}");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let inputs: Vec<_> = all.iter().map(|(w, bytes, _)| (w.clone(), bytes.clone())).collect();
    given(&inputs, &kernels, machine, folder.path(), &mut |case, symbol, bits| {
        let want = &all[case].2;
        let scale = want.iter().fold(1e-30f64, |m, x| m.max(x.abs()));
        for (i, (g, w)) in bits.iter().zip(want).enumerate() {
            let g = f64::from(f32::from_bits(*g));
            let what = format!("{isa:?} {} {symbol}: element {i}", NAMES[case]);
            assert!((g - w).abs() <= 2e-5 * scale, "{what} is {g}, expected {w}");
        }
    });
}

#[test]
#[cfg(target_arch = "x86_64")]
fn borders_are_right_on_this_machine() {
    check(Isa::X86_64V2, &Machine::here(&["-march=x86-64-v2"]));
    if std::is_x86_feature_detected!("avx2") {
        check(Isa::X86_64V3, &Machine::here(&["-march=x86-64-v3"]));
    }
    if std::is_x86_feature_detected!("avx512vl") {
        check(Isa::X86_64V4, &Machine::here(&["-march=x86-64-v4"]));
    }
}

/// Loads of some lanes are element by element here, so that the sanitiser sees each.
#[test]
#[cfg(target_arch = "x86_64")]
fn nothing_outside_of_an_image_is_read() {
    let flags = ["-march=x86-64-v2", "-fsanitize=address", "-fno-sanitize-recover"];
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (source, out) = (folder.path().join("a.c"), folder.path().join("a"));
    std::fs::write(&source, "int main(void) { return 0; }").expect("written");
    let machine = Machine::here(&flags);
    let mut c = std::process::Command::new(&machine.compiler);
    let built = c.args(flags).arg("-o").arg(&out).arg(&source).output();
    if !built.is_ok_and(|o| o.status.success()) {
        return println!("skipped: the compiler has no address sanitiser");
    }
    // The program gives no memory back.
    let header = folder.path().join("options.h");
    let options = "__attribute__((weak)) const char *__asan_default_options(void) \
                   { return \"detect_leaks=0\"; }\n";
    std::fs::write(&header, options).expect("written");
    let header: &'static str = header.to_string_lossy().into_owned().leak();
    let machine = Machine { flags: [&flags[..], &["-include", header]].concat(), ..machine };
    check(Isa::X86_64V2, &machine);
}

#[test]
fn borders_are_right_on_an_emulated_arm() {
    let Some(machine) = Machine::arm(&["-march=armv8-a"]) else { return };
    check(Isa::Armv8A, &machine);
}

/// Versions in versions would double the text with each.
#[test]
fn versions_are_not_made_of_versions() {
    let (w, ..) = all_cases().swap_remove(0);
    let mut n = nest::lower(&w);
    fn deeper(stmts: &mut Vec<nest::Stmt>) {
        for s in stmts.iter_mut() {
            if let nest::Stmt::Loop(l) = s {
                deeper(&mut l.body);
            }
        }
        stmts.insert(0, nest::Stmt::Version);
    }
    deeper(&mut n.body);
    assert_eq!(nest::parse(&n.to_string()).expect("parses back"), n);
    let options = Options { threads: 1, double: false, full_optimisation: false };
    let text = emit(&n, "f", options).source;
    assert!(text.matches("else {").count() < 4, "{text}");
}

/// In rows of 14 both vectors of 8 reach into the border (the second begins at 6), so there is no
/// inside to write out. In rows of 24 one of three vectors does not.
#[test]
fn only_what_has_an_inside_is_written_out_twice() {
    let target = at_level(Isa::X86_64V3);
    let versions = |w: i64| {
        let (c, h) = (4, 14);
        let conv = Conv {
            n: 1,
            c,
            h,
            w,
            k: c,
            r: 3,
            s: 3,
            stride: [1, 1],
            pads: [1; 4],
            dilation: [1, 1],
            groups: c,
        };
        let w = conv.workload().expect("a depthwise convolution");
        let all = sketches(&w, &target);
        let s = all.iter().find(|s| s.name() == "tile@q,pad=guard").expect("it has one");
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(2);
        let (mut with, mut seen) = (0, 0);
        for c in (0..200).map(|_| s.space().sample(&mut rng)) {
            if c.int("lanes") != Some(8) || c.int("q3") != Some(1) || c.int("p3") > Some(4) {
                continue;
            }
            let of = Some((s.name(), &c.to_string()[..]));
            let nest = squall_compiler::explain(&w, &target, "nest", of).expect("it is realized");
            seen += 1;
            with += usize::from(nest.contains("version"));
        }
        assert!(seen > 3, "{seen}");
        (with, seen)
    };
    assert_eq!(versions(14).0, 0);
    let (with, seen) = versions(24);
    assert_eq!(with, seen);
}
