//! The main test of CPU sketches: for small workloads of every kind (`cases`), sampled
//! configurations of every sketch (a kernel structure with open knobs) must compute the same as the
//! direct evaluation of the workload (a tensor expression), both when the scheduled nest is run by
//! the interpreter and when its C is compiled and run.

use crate::cases;
use crate::machines;

use cases::{BACK_TO_BACK, CASES, PARTS, STRIDED, inputs, split_inputs};
use machines::{Machine, at_level};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use squall_compiler::{nest, schedule, sketches, untuned};
use squall_core::operator::MatMul;
use squall_core::units::Bytes;
use squall_core::{Isa, Target, TensorKind, Workload};
use squall_testing::samples;

/// A target: one thread of a CPU with wide vectors and many registers, or two threads of a CPU with
/// narrow ones and few.
fn target(threads: usize) -> Target {
    let (bytes, registers) = if threads == 1 { (64, 32) } else { (32, 16) };
    Target { threads, ..Target::cpu(bytes, registers, &[Bytes(32 << 10), Bytes(1 << 20)]) }
}

fn close(name: &str, got: &[f64], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len(), "{name}: size");
    let scale = want.iter().fold(1e-30f64, |m, x| m.max(x.abs()));
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!((g - w).abs() <= tolerance * scale, "{name}: element {i} is {g}, expected {w}");
    }
}

#[test]
fn scheduled_nests_mean_what_the_workload_means() {
    let mut refused = 0;
    let mut run = 0;
    for (name, text) in CASES.iter().chain(STRIDED).chain(PARTS).chain(BACK_TO_BACK) {
        let w = Workload::parse(text).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(Workload::parse(&w.to_string()).expect("prints and parses back"), w);
        let all = inputs(&w, 1);
        let want = w.evaluate(&all);
        let (data, weights) = split_inputs(&w, &all);
        let plain = nest::lower(&w);
        close(name, &nest::interpret(&plain, &data, &weights), &want, 1e-6);
        for threads in [1, 2] {
            let all = sketches(&w, &target(threads));
            // Two operators have a sketch for each pair of their own.
            let (each, step) =
                if all.len() > 12 { (1, samples(12, 3)) } else { (samples(3, 12), 1) };
            for s in all.into_iter().step_by(step) {
                let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
                for _ in 0..each {
                    let c = s.space().sample(&mut rng);
                    let text = squall_compiler::explain(
                        &w,
                        &target(threads),
                        "nest",
                        Some((s.name(), &c.to_string())),
                    );
                    run += 1;
                    match text {
                        Ok(text) => {
                            let n = nest::parse(&text)
                                .unwrap_or_else(|e| panic!("{name} {} {c}: {e}\n{text}", s.name()));
                            assert_eq!(
                                n.to_string(),
                                text,
                                "{name}: the nest prints and parses back"
                            );
                            close(
                                &format!("{name} {} {c}", s.name()),
                                &nest::try_interpret(&n, &data, &weights).unwrap_or_else(|e| {
                                    panic!("{name} {} {c}: {e}\n{text}", s.name())
                                }),
                                &want,
                                1e-5,
                            );
                            assert_eq!(s.features(&c).len(), squall_compiler::FEATURES.len());
                            let sched = squall_compiler::explain(
                                &w,
                                &target(threads),
                                "schedule",
                                Some((s.name(), &c.to_string())),
                            )
                            .expect("schedule");
                            let parsed = schedule::parse(&sched).expect("a schedule parses back");
                            assert_eq!(
                                schedule::print(&parsed),
                                sched.lines().skip(1).map(|l| format!("{l}\n")).collect::<String>()
                            );
                        }
                        Err(why) => {
                            refused += 1;
                            assert!(!why.contains("bug"), "{name} {} {c}: {why}", s.name());
                            eprintln!("{name} {} {c}: {why}", s.name());
                        }
                    }
                }
            }
        }
    }
    assert!(refused * 20 <= run, "{refused} of {run} sampled configurations cannot be realized");
}

/// Two operators that share an axis are made in parts of it, and what a part gives is read
/// while it is near.
#[test]
fn operators_back_to_back_are_made_in_parts() {
    for (name, text) in BACK_TO_BACK {
        let w = Workload::parse(text).unwrap();
        let all = sketches(&w, &target(1));
        assert!(!all.is_empty(), "{name}");
        for s in &all {
            assert!(s.name().starts_with("b2b@"), "{name}: {}", s.name());
            let c = s.space().nth(0).to_string();
            let nest = squall_compiler::explain(&w, &target(1), "nest", Some((s.name(), &c)));
            let n = nest::parse(&nest.unwrap()).unwrap();
            let between = n.buffers.iter().find(|b| b.name == "E").unwrap();
            let whole = w.stages.iter().find(|s| s.name == "E").unwrap().elements();
            assert!(between.elements() as u64 * 2 <= whole, "{name}: {n}");
        }
    }
}

/// Few rows by a factor that comes with the call and leaves the second cache: its rows are read a
/// few at a time, through many columns, and the product is the same.
#[test]
fn few_rows_read_a_large_factor_a_few_rows_at_a_time() {
    let product = MatMul::plain(3, 200, 64, TensorKind::Data);
    let w = product.workload().expect("a product");
    let all = inputs(&w, 1);
    let want = w.evaluate(&all);
    let (data, weights) = split_inputs(&w, &all);
    let depths = |caches: [u64; 2]| {
        let t = Target { threads: 1, ..Target::cpu(64, 32, &caches.map(Bytes)) };
        let all = sketches(&w, &t);
        let s = all.iter().find(|s| s.name() == "tile@n,cut").expect("the sum is cut");
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
        let mut shallow = 0;
        for c in (0..40).map(|_| s.space().sample(&mut rng)) {
            if c.int("k1") > Some(8) {
                continue;
            }
            shallow += 1;
            let of = Some((s.name(), &c.to_string()[..]));
            let text = squall_compiler::explain(&w, &t, "nest", of).expect("it is realized");
            let n = nest::parse(&text).expect("the nest parses back");
            close(&c.to_string(), &nest::interpret(&n, &data, &weights), &want, 1e-5);
        }
        shallow
    };
    assert_eq!(depths([32 << 10, 1 << 20]), 0, "the factor stays in the second cache");
    assert!(depths([4 << 10, 32 << 10]) > 4, "rows of 800 bytes, 51 KB in all");
}

/// A padded copy that the first cache does not hold may be made for a tile of its rows, also where
/// tiles overlap, and the result is the same.
#[test]
fn padded_copies_are_made_for_a_tile_of_rows() {
    let t = Target { threads: 1, ..Target::cpu(32, 16, &[Bytes(256), Bytes(32 << 10)]) };
    let (mut seen, mut smaller) = (0, 0);
    for (name, text) in CASES.iter().chain(STRIDED).chain(PARTS) {
        let w = Workload::parse(text).expect("parses");
        let all = inputs(&w, 1);
        let want = w.evaluate(&all);
        let (data, weights) = split_inputs(&w, &all);
        for s in sketches(&w, &t).iter().filter(|s| s.name().contains("pad=near")) {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(9);
            for c in (0..20).map(|_| s.space().sample(&mut rng)) {
                if c.word("copy_at") != Some("tile") {
                    continue;
                }
                let of = |stage: &str, c: &str| {
                    squall_compiler::explain(&w, &t, stage, Some((s.name(), c)))
                };
                let what = format!("{name} {} {c}", s.name());
                let nest = of("nest", &c.to_string()).unwrap_or_else(|e| panic!("{what}: {e}"));
                let n = nest::parse(&nest).expect("the nest parses back");
                close(&what, &nest::interpret(&n, &data, &weights), &want, 1e-5);
                let outside = c.to_string().replace("copy_at=tile", "copy_at=outside");
                let outside = nest::parse(&of("nest", &outside).unwrap()).unwrap();
                let elements = |n: &nest::Nest| -> i64 {
                    let is_local = |b: &&nest::Buffer| b.scope == nest::Scope::Local;
                    n.buffers.iter().filter(is_local).map(nest::Buffer::elements).sum()
                };
                seen += 1;
                smaller += usize::from(elements(&n) < elements(&outside));
            }
        }
    }
    assert!(seen > 50 && smaller * 10 > seen * 9, "{smaller} of {seen}");
}

#[test]
fn sketches_are_what_the_rules_promise() {
    let mut lines = String::new();
    for (name, text) in CASES.iter().chain(STRIDED).chain(PARTS) {
        let w = Workload::parse(text).expect("parses");
        let names: Vec<String> =
            sketches(&w, &target(1)).iter().map(|s| s.name().to_string()).collect();
        lines += &format!("{name}: {}\n", names.join(" | "));
    }
    let want = include_str!("sketches.txt");
    assert_eq!(lines, want, "\nnow:\n{lines}");
}

#[test]
fn compiled_kernels_give_the_reference_output() {
    let cc = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    compiled(&cc, &["-march=native"], &[], &[target(1), Target { threads: 1, ..target(2) }]);
}

#[test]
fn compiled_kernels_of_arm_give_the_reference_output_under_an_emulator() {
    let Some(m) = Machine::arm(&["-march=armv8-a"]) else { return };
    compiled(&m.compiler, &m.flags, m.emulator.as_slice(), &[at_level(Isa::Armv8A)]);
}

/// Compiles sampled kernels of every case with a compiler and runs them, by a command before the
/// program if need be.
fn compiled(cc: &str, flags: &[&str], run: &[&str], targets: &[Target]) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let mut main = String::from(
        "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <math.h>\n\
         #include <stddef.h>\n",
    );
    let mut body = String::new();
    let mut files = Vec::new();
    let mut count = 0;
    for (name, text) in CASES.iter().chain(STRIDED).chain(PARTS).chain(BACK_TO_BACK) {
        let w = Workload::parse(text).expect("parses");
        let all = inputs(&w, 2);
        let want = w.evaluate(&all);
        let (data, weights) = split_inputs(&w, &all);
        let array =
            |v: &[f64]| v.iter().map(|x| format!("{:?}f", *x as f32)).collect::<Vec<_>>().join(",");
        let id = name.replace(['-', ' '], "_");
        for (kind, list) in [("d", &data), ("w", &weights)] {
            for (i, v) in list.iter().enumerate() {
                main += &format!(
                    "static float {id}_{kind}{i}[{}] __attribute__((aligned(64))) = {{{}}};\n",
                    v.len(),
                    array(v)
                );
            }
            let refs: Vec<String> = (0..list.len()).map(|i| format!("{id}_{kind}{i}")).collect();
            main += &format!(
                "static const void *{id}_{kind}[] = {{{}}};\n",
                if refs.is_empty() { "0".into() } else { refs.join(",") }
            );
        }
        main += &format!("static const float {id}_want[{}] = {{{}}};\n", want.len(), array(&want));
        let mut kernels = vec![
            squall_compiler::reference(&w, &format!("{id}_ref")),
            squall_compiler::reference_of(&w, &format!("{id}_side_by_side"), true),
        ];
        let u = untuned(&w, &target(1));
        kernels.push(u.realize(&u.space().nth(0), &format!("{id}_untuned")).expect("plain loops"));
        let all: Vec<_> = targets.iter().flat_map(|t| sketches(&w, t)).collect();
        let (each, step) = match all.len() > 12 * targets.len() {
            true => (1, samples(16, 3)),
            false => (samples(1, 3), samples(3, 1)),
        };
        for (si, s) in all.iter().enumerate().step_by(step) {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
            for ci in 0..each {
                if let Ok(k) = s.realize(&s.space().sample(&mut rng), &format!("{id}_s{si}_{ci}")) {
                    kernels.push(k);
                }
            }
        }
        for k in kernels {
            let path = dir.path().join(format!("{}.c", k.symbol));
            std::fs::write(&path, &k.source).expect("written");
            files.push(path);
            let s = &k.symbol;
            main +=
                &format!("int {s}(const void *const *, void *const *, const void *, void *);\n");
            let mut prepare = String::new();
            if k.prepared.0 > 0 {
                main += &format!("int {s}_prepare(const void *const *, void *);\n");
                prepare = format!("{s}_prepare({id}_w, prepared);");
            }
            body += &format!(
                "{{ float *y = out({n}); void *o[] = {{y}}; void *prepared = memory({p}), *work = \
                 memory({m}); {prepare} \
                 int r = {s}({id}_d, o, prepared, work); bad += check(\"{s}\", r, y, {id}_want, \
                 {n}); }}\n",
                n = want.len(),
                p = k.prepared.0,
                m = k.workspace.0
            );
            count += 1;
        }
    }
    main += "static void *memory(size_t n) { void *p = aligned_alloc(64, (n + 127) / 64 * 64); \
             memset(p, 0xff, n); return p; }\n\
        static float *out(size_t n) { return memory(4 * n); }\n\
        static int check(const char *name, int r, const float *y, const float *want, size_t n) {\n\
          float scale = 1e-30f; for (size_t i = 0; i < n; i++) scale = fmaxf(scale, \
          fabsf(want[i]));\n\
          if (r) { printf(\"%s returned %d\\n\", name, r); return 1; }\n\
          for (size_t i = 0; i < n; i++) if (!(fabsf(y[i] - want[i]) <= 2e-5f * scale)) { \
          printf(\"%s: element %zu is %g, expected %g\\n\", name, i, y[i], want[i]); return 1; }\n\
          return 0; }\n";
    main += &format!(
        "int main(void) {{ int bad = 0;\n{body}printf(\"%d bad\\n\", bad); return bad != 0; }}\n"
    );
    let main_c = dir.path().join("main.c");
    std::fs::write(&main_c, main).expect("written");
    let exe = dir.path().join("main");
    let mut c = std::process::Command::new(cc);
    c.args(["-O1", "-w"]).args(flags).arg("-o").arg(&exe).arg(&main_c).args(&files).arg("-lm");
    let o = c.output().unwrap_or_else(|e| panic!("{cc}: {e}"));
    assert!(
        o.status.success(),
        "{}",
        String::from_utf8_lossy(&o.stderr).lines().take(20).collect::<Vec<_>>().join("\n")
    );
    let words: Vec<std::ffi::OsString> =
        run.iter().map(|w| w.into()).chain([exe.into_os_string()]).collect();
    let o = std::process::Command::new(&words[0]).args(&words[1..]).output().expect("runs");
    assert!(o.status.success(), "{}{:?}", String::from_utf8_lossy(&o.stdout), o.status);
    assert!(count > 60, "{count} kernels");
}
