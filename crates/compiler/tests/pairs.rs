//! Products of bf16 by pairs: the rewritten workload means what the given one means, and so does
//! every sketch's sampled configuration, by the interpreter and by compiled C.

mod machines;

use machines::Machine;
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use squall_compiler::{by_pairs, nest, sketches, untuned};
use squall_core::operator::{Conv, MatMul, in_half};
use squall_core::units::Bytes;
use squall_core::{DType, Isa, KernelSource, Target, TensorKind, Workload};
use std::fmt::Write;

/// A convolution with its channels last, and a border.
const CONV: &str = "workload conv2d
data X: bf16[1, 7, 9, 8]
weight W: bf16[20, 8, 3, 3]
weight B: bf16[20]
stage P: bf16[n: 1, h: 9, w: 11, c: 8] = select(0 <= h - 1 < 7 and 0 <= w - 1 < 9, \
 X[n, h - 1, w - 1, c], 0)
stage C: f32[n: 1, p: 7, q: 9, k: 20] = sum(c: 8, r: 3, s: 3) P[n, p + r, q + s, c] * W[k, c, r, s]
stage Y: bf16[n: 1, p: 7, q: 9, k: 20] = max(C[n, p, q, k] + B[k], 0)
output Y
";

/// The same without a border, in two groups, whose first channels are even.
const GROUPS: &str = "workload conv2d
data X: bf16[1, 5, 6, 8]
weight W: bf16[2, 16, 4, 3, 3]
stage C: f32[n: 1, p: 3, q: 4, g: 2, k: 16] = sum(c: 4, r: 3, s: 3) \
 X[n, p + r, q + s, 4*g + c] * W[g, k, c, r, s]
stage Y: bf16[n: 1, p: 3, q: 4, g: 2, k: 16] = C[n, p, q, g, k]
output Y
";

/// Scores of attention: both factors are data, of which rows lie in a larger tensor.
const SCORES: &str = "workload batch_matmul
data A: bf16[18, 3, 16] of [18, 9, 16]
data B: bf16[18, 3, 16] of [18, 9, 16]
stage T: f32[b: 3, m: 18, n: 18] = sum(k: 16) A[m, b, k] * B[n, b, k]
stage Y: bf16[b: 3, m: 18, n: 18] = T[b, m, n] * 0.25
output Y
";

/// A first layer: channels first, both strides two, a window and an image of odd width.
const FIRST: &str = "workload conv2d
data X: bf16[1, 3, 9, 11]
weight W: bf16[20, 3, 3, 3]
weight B: bf16[20]
stage P: bf16[n: 1, c: 3, h: 11, w: 14] = select(0 <= h - 1 < 9 and 0 <= w - 1 < 11, \
 X[n, c, h - 1, w - 1], 0)
stage C: f32[n: 1, p: 5, q: 6, k: 20] = sum(c: 3, r: 3, s: 3) P[n, c, 2*p + r, 2*q + s] * \
 W[k, c, r, s]
stage Y: bf16[n: 1, p: 5, q: 6, k: 20] = max(C[n, p, q, k] + B[k], 0)
output Y
";

fn parsed(text: &str) -> Workload {
    Workload::parse(text).expect("a workload")
}

fn product(m: i64, n: i64, k: i64, b: TensorKind) -> Workload {
    let w = MatMul::plain(m, n, k, b).workload().expect("a product");
    in_half(w, DType::Bf16, DType::Bf16).expect("in bf16")
}

fn cases() -> Vec<(&'static str, Workload)> {
    vec![
        ("product", product(7, 19, 36, TensorKind::Weight)),
        ("row", product(1, 40, 128, TensorKind::Weight)),
        ("product of data", product(20, 24, 36, TensorKind::Data)),
        ("conv", parsed(CONV)),
        ("groups", parsed(GROUPS)),
        ("scores", parsed(SCORES)),
        ("first", parsed(FIRST)),
    ]
}

/// Workloads of bf16 that have no pairs: a first layer, a depthwise convolution, rows and sums of
/// two tensors.
fn others() -> Vec<Workload> {
    let conv = |c, k, groups| {
        let (stride, pads) = ([2, 1], [1; 4]);
        let conv =
            Conv { n: 1, c, h: 9, w: 11, k, r: 3, s: 3, stride, pads, dilation: [1, 1], groups };
        let w = conv.workload().expect("a convolution");
        in_half(w, DType::Bf16, DType::Bf16).expect("in bf16")
    };
    let rows = "workload softmax
data X: bf16[5, 40]
stage M: f32[i: 5] = max(j: 40) X[i, j]
stage E: f32[i: 5, j: 40] = exp(X[i, j] - M[i])
stage S: f32[i: 5] = sum(j: 40) E[i, j]
stage Y: bf16[i: 5, j: 40] = E[i, j] / S[i]
output Y
";
    let sum = "workload elementwise
data X: bf16[6, 50]
data R: bf16[6, 50]
stage Y: bf16[i: 6, j: 50] = max(X[i, j] + R[i, j], 0)
output Y
";
    vec![conv(4, 20, 1), conv(20, 20, 20), parsed(rows), parsed(sum)]
}

/// Inputs as numbers of bf16, over the memory that they lie in.
fn numbers(w: &Workload, seed: u64) -> Vec<Vec<f64>> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let count = |n: usize| w.input_span(n) as usize;
    let one = |_| DType::Bf16.round(f64::from(rng.random_range(-1.0f32..1.0)));
    let mut one = one;
    (0..w.inputs.len()).map(|n| (0..count(n)).map(&mut one).collect()).collect()
}

fn bits(x: f64) -> u32 {
    u32::from(DType::Bf16.half_bits(x as f32).expect("a format of 16 bits"))
}

/// What the inputs of a workload by pairs hold.
fn in_pairs(by: &Workload, given: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let pair = |x: &[f64; 2]| f64::from(bits(x[0]) | bits(x[1]) << 16);
    let of = |(i, v): (&squall_core::workload::Input, &Vec<f64>)| match i.dtype {
        DType::Bf16x2 => v.as_chunks::<2>().0.iter().map(pair).collect(),
        _ => v.clone(),
    };
    by.inputs.iter().zip(given).map(of).collect()
}

/// Dense inputs of what lies in larger boxes, for the evaluator.
fn dense(w: &Workload, all: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let one = |(i, v): (&squall_core::workload::Input, &Vec<f64>)| {
        let Some(room) = w.rooms.get(&i.name) else { return v.clone() };
        let mut out = Vec::new();
        for e in 0..i.shape.iter().product::<i64>() {
            let (mut rest, mut place, mut stride) = (e, 0, 1);
            for (&n, &r) in i.shape.iter().zip(room).rev() {
                place += rest % n * stride;
                rest /= n;
                stride *= r;
            }
            out.push(v[place as usize]);
        }
        out
    };
    w.inputs.iter().zip(all).map(one).collect()
}

/// Results are rounded to 8 bits, and sums in another order may go to the neighbour.
fn agree(name: &str, got: &[f64], want: &[f64]) {
    assert_eq!(got.len(), want.len(), "{name}");
    let most = want.iter().fold(0.0f64, |m, x| m.max(x.abs()));
    let wrong =
        got.iter().zip(want).position(|(g, w)| (g - w).abs() > w.abs() / 128.0 + 1e-5 * most);
    assert!(wrong.is_none(), "{name}: element {wrong:?} of {} is wrong", want.len());
}

#[test]
fn a_workload_by_pairs_means_the_same() {
    for (name, w) in cases() {
        let by = by_pairs(&w).unwrap_or_else(|| panic!("{name} is not by pairs"));
        assert_eq!(parsed(&by.to_string()), by, "{name}");
        assert!(by.flop() == w.flop() || name == "first", "{name}");
        let all = dense(&w, &numbers(&w, 1));
        let want = w.evaluate(&all);
        assert!(want.iter().any(|x| x.abs() > 0.1), "{name}: nothing is far from 0");
        agree(name, &by.evaluate(&in_pairs(&by, &all)), &want);
    }
}

#[test]
fn what_has_no_pairs_side_by_side_stays_as_it_is() {
    let float = MatMul::plain(4, 8, 6, TensorKind::Weight).workload().expect("a product");
    for (why, w) in [
        ("an odd reduction", product(4, 8, 7, TensorKind::Weight)),
        ("few rows by data whose columns lie apart", product(4, 8, 6, TensorKind::Data)),
        ("floats of 32 bits", float),
        ("channels first", others().swap_remove(0)),
        ("a group that begins odd", parsed(&GROUPS.replace("4*g + c", "3*g + c"))),
        ("another format", parsed(&SCORES.replace("bf16", "f16"))),
    ] {
        assert_eq!(by_pairs(&w), None, "{why}");
    }
}

fn targets() -> [Target; 2] {
    [Isa::X86_64V3, Isa::X86_64V4Bf16]
        .map(|isa| Target::at_level(isa, &[Bytes(32 << 10), Bytes(1 << 20)]))
}

#[test]
fn scheduled_nests_by_pairs_mean_what_the_workload_means() {
    for (name, w) in cases() {
        let by = by_pairs(&w).expect("by pairs");
        let all = numbers(&w, 2);
        let want = w.evaluate(&dense(&w, &all));
        let paired = in_pairs(&by, &all);
        let pick = |kind| {
            let of = w.inputs.iter().zip(&paired).filter(|(i, _)| i.kind == kind);
            of.map(|(_, v)| v.clone()).collect::<Vec<_>>()
        };
        let (data, weights) = (pick(TensorKind::Data), pick(TensorKind::Weight));
        let mut count = 0;
        for t in targets() {
            for s in sketches(&w, &t).iter().filter(|s| s.name().contains(",pairs")) {
                let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
                for _ in 0..8 {
                    let c = s.space().sample(&mut rng).to_string();
                    let candidate = Some((s.name(), c.as_str()));
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

/// Calls every kernel of every case and prints the bits of what it gives, a line each.
fn program(kernels: &[(usize, KernelSource)], raw: &[Vec<Vec<f64>>], cases: &[Workload]) -> String {
    let mut main = String::from("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n");
    for (c, (w, raw)) in cases.iter().zip(raw).enumerate() {
        for (i, values) in raw.iter().enumerate() {
            let list = values.iter().map(|x| bits(*x).to_string()).collect::<Vec<_>>().join(",");
            let _ = writeln!(
                main,
                "static unsigned short c{c}_{i}[] __attribute__((aligned(64))) = {{{list}}};"
            );
        }
        for (kind, letter) in [(TensorKind::Data, 'd'), (TensorKind::Weight, 'w')] {
            let of = w.inputs.iter().enumerate().filter(|(_, i)| i.kind == kind);
            let list = of.map(|(i, _)| format!("c{c}_{i}")).chain(["0".into()]);
            let list = list.collect::<Vec<_>>().join(",");
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
            "{{ unsigned short *y = memory({n} * 2); void *o[] = {{y}}; void *prepared = \
             memory({p}); {prepare} {s}(c{c}_d, o, prepared, memory({m})); printf(\"{c} {s}\"); \
             for (int i = 0; i < {n}; i++) printf(\" %d\", y[i]); puts(\"\"); }}"
        );
    }
    format!("{main}int main(void) {{\n{body}return 0; }}\n")
}

/// Sampled kernels of every case for some targets, on some machines; of the last target the
/// instruction that multiplies is in the code of a machine that has it.
fn compiled(targets: &[Target], machines: &[Machine], (best, instruction): (&Machine, &str)) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let cases: Vec<Workload> = cases().into_iter().map(|(_, w)| w).chain(others()).collect();
    let raw: Vec<_> = cases.iter().map(|w| numbers(w, 4)).collect();
    let mut kernels = Vec::new();
    for (c, w) in cases.iter().enumerate() {
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
            let number = |w: &str| f32::from_bits(w.parse::<u32>().expect("bits") << 16);
            let got: Vec<f64> = words.map(|w| f64::from(number(w))).collect();
            agree(symbol, &got, &cases[case].evaluate(&dense(&cases[case], &raw[case])));
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
fn compiled_kernels_of_bf16_give_the_reference_output() {
    // Once with all that this machine has, once in portable C.
    let machines = [&["-march=native"][..], &[]].map(Machine::here);
    let flags: Vec<&str> = Isa::X86_64V4Bf16.level().flags().collect();
    compiled(&targets(), &machines, (&Machine::here(&flags), "vdpbf16ps"));
}

#[test]
fn emulated_kernels_of_bf16_give_the_reference_output() {
    let of = |flag| Machine::arm(&[flag]);
    let all = ["-march=armv8-a", "-march=armv8.2-a+dotprod", "-march=armv8.6-a"].map(of);
    let machines: Vec<Machine> = all.into_iter().flatten().collect();
    let Some(best) = machines.last() else { return };
    let neon = Target::at_level(Isa::Armv86A, &[Bytes(32 << 10), Bytes(1 << 20)]);
    compiled(&[neon], &machines, (best, "bfdot"));
}
