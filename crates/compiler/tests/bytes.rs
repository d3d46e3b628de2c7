//! Kernels of bytes: every sketch's sampled configurations mean what the workload means, by the
//! interpreter and by compiled C, also where sums of two products do not fit 16 bits.

mod machines;

use machines::Machine;
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use squall_compiler::{nest, reference, sketches, untuned};
use squall_core::operator::{ByteResult, Conv, MatMul};
use squall_core::units::Bytes;
use squall_core::{DType, Isa, KernelSource, Target, TensorKind, Workload};
use std::fmt::Write;

fn conv(c: i64, k: i64, size: [i64; 2], groups: i64, pad: i64) -> Conv {
    let [h, w] = size;
    let (stride, pads) = ([1 + pad, 1], [pad; 4]);
    Conv { n: 1, c, h, w, k, r: 3, s: 3, stride, pads, dilation: [1, 1], groups }
}

fn cases() -> Vec<(&'static str, Workload)> {
    let product = |m, n, k| MatMul::plain(m, n, k, TensorKind::Weight).in_bytes(ByteResult::ANY);
    let all = [
        ("product", product(7, 19, 36)),
        ("row", product(1, 40, 128)),
        ("conv", conv(8, 20, [9, 11], 1, 1).in_bytes(131, ByteResult::ANY)),
        ("conv_unpadded", conv(4, 16, [6, 7], 1, 0).in_bytes(0, ByteResult::ANY)),
        ("depthwise", conv(20, 20, [8, 9], 20, 1).in_bytes(5, ByteResult::ANY)),
    ];
    all.into_iter().map(|(name, w)| (name, w.expect("legal"))).collect()
}

/// Inputs as bytes in memory, and as the evaluator sees them. Extremes are frequent.
fn inputs(w: &Workload, seed: u64) -> (Vec<Vec<u8>>, Vec<Vec<f64>>) {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut byte = |extremes: [u8; 2]| match rng.random_range(0..4) {
        0 => extremes[0],
        1 => extremes[1],
        _ => rng.random_range(0..=255u8),
    };
    let mut raw = Vec::new();
    let mut seen = Vec::new();
    for (n, i) in w.inputs.iter().enumerate() {
        let count = i.shape.iter().product::<i64>() as usize;
        let extremes = if i.dtype == DType::I8x4 { [127, 0x80] } else { [255, 0] };
        let bytes: Vec<u8> = match i.dtype {
            DType::F32 => {
                let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed + n as u64);
                let one = |_| rng.random_range(-1.0f32..1.0).to_ne_bytes();
                (0..count).flat_map(one).collect()
            }
            d => (0..count * d.bytes() as usize).map(|_| byte(extremes)).collect(),
        };
        seen.push(match i.dtype {
            DType::F32 => floats(&bytes),
            DType::U8 => bytes.iter().map(|b| f64::from(*b)).collect(),
            _ => fours(&bytes),
        });
        raw.push(bytes);
    }
    (raw, seen)
}

fn floats(bytes: &[u8]) -> Vec<f64> {
    bytes.as_chunks::<4>().0.iter().map(|b| f64::from(f32::from_ne_bytes(*b))).collect()
}

fn fours(bytes: &[u8]) -> Vec<f64> {
    bytes.as_chunks::<4>().0.iter().map(|b| f64::from(u32::from_le_bytes(*b))).collect()
}

fn targets() -> [Target; 2] {
    [Isa::X86_64V3, Isa::X86_64V4Vnni]
        .map(|isa| Target::at_level(isa, &[Bytes(32 << 10), Bytes(1 << 20)]))
}

/// Results are bytes: those of sums that lie halfway between two may go either way.
fn agree(name: &str, got: &[f64], want: &[f64]) {
    assert_eq!(got.len(), want.len(), "{name}");
    let apart = got.iter().zip(want).filter(|(g, w)| g != w).count();
    let wrong = got.iter().zip(want).position(|(g, w)| (g - w).abs() > 1.0);
    assert!(wrong.is_none(), "{name}: element {wrong:?} of {} is wrong", want.len());
    assert!(apart * 50 <= want.len(), "{name}: {apart} of {} differ", want.len());
}

#[test]
fn scheduled_nests_of_bytes_mean_what_the_workload_means() {
    for (name, w) in cases() {
        assert_eq!(Workload::parse(&w.to_string()).expect("parses back"), w);
        let (_, all) = inputs(&w, 1);
        let want = w.evaluate(&all);
        assert!(want.iter().any(|x| *x > 0.0 && *x < 255.0), "{name}: all is saturated");
        let pick = |kind| {
            let of = w.inputs.iter().zip(&all).filter(|(i, _)| i.kind == kind);
            of.map(|(_, v)| v.clone()).collect::<Vec<_>>()
        };
        let (data, weights) = (pick(TensorKind::Data), pick(TensorKind::Weight));
        let mut count = 0;
        for t in targets() {
            for s in sketches(&w, &t) {
                let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
                for _ in 0..8 {
                    let c = s.space().sample(&mut rng);
                    let candidate = Some((s.name(), c.to_string()));
                    let candidate = candidate.as_ref().map(|(s, c)| (*s, c.as_str()));
                    let Ok(text) = squall_compiler::explain(&w, &t, "nest", candidate) else {
                        continue;
                    };
                    let n = nest::parse(&text).expect("parses back");
                    agree(name, &nest::interpret(&n, &data, &weights), &want);
                    count += 1;
                }
            }
        }
        assert!(count > 10, "{name}: {count} configurations");
    }
}

/// Calls every kernel of every case and prints its bytes, a line each.
fn program(kernels: &[(usize, KernelSource)], raw: &[Vec<Vec<u8>>], cases: &[Workload]) -> String {
    let mut main = String::from(
        "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <stddef.h>\n",
    );
    for (c, (w, raw)) in cases.iter().zip(raw).enumerate() {
        for (i, bytes) in raw.iter().enumerate() {
            let list = bytes.iter().map(u8::to_string).collect::<Vec<_>>().join(",");
            let _ = writeln!(
                main,
                "static unsigned char c{c}_{i}[] __attribute__((aligned(64))) = {{{list}}};"
            );
        }
        for (kind, letter) in [(TensorKind::Data, 'd'), (TensorKind::Weight, 'w')] {
            let of = w.inputs.iter().enumerate().filter(|(_, i)| i.kind == kind);
            let list = of.map(|(i, _)| format!("c{c}_{i}")).collect::<Vec<_>>().join(",");
            let _ = writeln!(main, "static const void *c{c}_{letter}[] = {{{list}}};");
        }
    }
    main += "static void *memory(size_t n) { void *p = aligned_alloc(64, (n + 127) / 64 * 64);\n  \
             memset(p, 0xff, n); return p; }\n";
    let mut body = String::new();
    for (c, k) in kernels {
        let (s, n) = (&k.symbol, cases[*c].output().elements());
        let _ = writeln!(
            main,
            "int {s}(const void *const *, void *const *, const void *, void *);\nint {s}_prepare(\
             const void *const *, void *);"
        );
        let (p, m) = (k.prepared.0, k.workspace.0);
        let prepare = if p > 0 { format!("{s}_prepare(c{c}_w, prepared);") } else { String::new() };
        let _ = writeln!(
            body,
            "{{ unsigned char *y = memory({n}); void *o[] = {{y}}; void *prepared = memory({p}); \
             {prepare} {s}(c{c}_d, o, prepared, memory({m})); printf(\"{c} {s}\"); for (int i = 0; \
             i < {n}; i++) printf(\" %d\", y[i]); puts(\"\"); }}"
        );
    }
    format!("{main}int main(void) {{\n{body}return 0; }}\n")
}

/// Sampled kernels of every case for some targets, on some machines; of the last target the
/// instruction that multiplies is in the code of a machine that has it.
fn compiled(targets: &[Target], machines: &[Machine], (best, instruction): (&Machine, &str)) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let named = cases();
    let cases: Vec<Workload> = named.iter().map(|(_, w)| w.clone()).collect();
    let (raw, seen): (Vec<_>, Vec<_>) = cases.iter().map(|w| inputs(w, 2)).unzip();
    let mut kernels = Vec::new();
    for (c, w) in cases.iter().enumerate() {
        kernels.push((c, reference(w, &format!("c{c}_reference"))));
        let u = untuned(w, &targets[0]);
        let plain = u.realize(&u.space().nth(0), &format!("c{c}_untuned"));
        kernels.push((c, plain.expect("plain loops")));
        for (t, target) in targets.iter().enumerate() {
            for (si, s) in sketches(w, target).iter().enumerate() {
                let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
                for ci in 0..3 {
                    let symbol = format!("c{c}_t{t}_s{si}_{ci}");
                    let made = s.realize(&s.space().sample(&mut rng), &symbol);
                    kernels.extend(made.ok().map(|k| (c, k)));
                }
            }
        }
    }
    let mut files = Vec::new();
    for (_, k) in &kernels {
        let path = dir.path().join(format!("{}.c", k.symbol));
        std::fs::write(&path, &k.source).expect("written");
        files.push(path);
    }
    let main = dir.path().join("main.c");
    std::fs::write(&main, program(&kernels, &raw, &cases)).expect("written");
    files.push(main);
    for machine in machines {
        let text = machine.output(&files, dir.path());
        assert_eq!(text.lines().count(), kernels.len());
        for line in text.lines() {
            let mut words = line.split(' ');
            let case: usize = words.next().and_then(|w| w.parse().ok()).expect("a case");
            let symbol = words.next().expect("a kernel");
            let got: Vec<f64> = words.map(|w| w.parse().expect("a byte")).collect();
            agree(symbol, &got, &cases[case].evaluate(&seen[case]));
        }
    }
    let last = format!("_t{}_", targets.len() - 1);
    let one = kernels.iter().find(|(c, k)| *c == 0 && k.symbol.contains(&last));
    let path = dir.path().join(format!("{}.c", one.expect("a kernel").1.symbol));
    match best.assembly(&path) {
        Some(text) => assert!(text.contains(instruction), "{text}"),
        None => println!("skipped: the compiler knows no {instruction}"),
    }
}

#[test]
fn compiled_kernels_of_bytes_give_the_reference_output() {
    // Once with all that this machine has, once in portable C.
    let machines = [&["-march=native"][..], &[]].map(Machine::here);
    let flags: Vec<&str> = Isa::X86_64V4Vnni.level().flags().collect();
    compiled(&targets(), &machines, (&Machine::here(&flags), "vpdpbusd"));
}

#[test]
fn emulated_kernels_of_bytes_give_the_reference_output() {
    let of = |flag| Machine::arm(&[flag]);
    let all = ["-march=armv8-a", "-march=armv8.2-a+dotprod", "-march=armv8.6-a"].map(of);
    let machines: Vec<Machine> = all.into_iter().flatten().collect();
    let Some(best) = machines.last() else { return };
    let neon = Target::at_level(Isa::Armv86A, &[Bytes(32 << 10), Bytes(1 << 20)]);
    compiled(&[neon], &machines, (best, "usdot"));
}
