//! Tests of products of bf16 by pairs (`sketch/pairs.rs`): the rewritten workload computes the same
//! as the given one, and so do sampled configurations of every sketch (a kernel structure with open
//! knobs), run by the interpreter and as compiled C. The workloads are the constants below.

use crate::machines;

use machines::{Case, Machine, at_level, of_kind, sampled_nests};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use squall_compiler::{by_pairs, nest, sketches};
use squall_core::operator::{Conv, MatMul, in_half};
use squall_core::{DType, Isa, Target, TensorKind, Workload};

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

/// A convolution without a border in two groups, whose first channels are even.
const GROUPS: &str = "workload conv2d
data X: bf16[1, 5, 6, 8]
weight W: bf16[2, 16, 4, 3, 3]
stage C: f32[n: 1, p: 3, q: 4, g: 2, k: 16] = sum(c: 4, r: 3, s: 3) \
 X[n, p + r, q + s, 4*g + c] * W[g, k, c, r, s]
stage Y: bf16[n: 1, p: 3, q: 4, g: 2, k: 16] = C[n, p, q, g, k]
output Y
";

/// Scores of attention: both factors are data, whose rows lie in a larger tensor.
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
        ("tall", product(37, 40, 96, TensorKind::Weight)),
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
    let mut one = |_| DType::Bf16.round(f64::from(rng.random_range(-1.0f32..1.0)));
    (0..w.inputs.len()).map(|n| (0..count(n)).map(&mut one).collect()).collect()
}

fn bits(x: f64) -> u32 {
    u32::from(DType::Bf16.half_bits(x as f32).expect("a format of 16 bits"))
}

/// The values of the inputs of a workload by pairs.
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

/// Tiles read the pairs of all channels of a window's row side by side.
#[test]
fn tiles_read_a_first_layer_with_its_channels_last() {
    let tiled = at_level(Isa::X86_64V4Amx);
    let all = sketches(&parsed(FIRST), &tiled);
    let names: Vec<&str> = all.iter().map(|s| s.name()).filter(|n| n.ends_with(",last")).collect();
    assert_eq!(names, ["amx@k,pad=copy,pairs,last"]);
    let space = sketches(&parsed(CONV), &tiled);
    assert!(!space.iter().any(|s| s.name().ends_with(",last")), "its pairs lie along the channels");
}

fn targets() -> [Target; 3] {
    [Isa::X86_64V4Amx, Isa::X86_64V3, Isa::X86_64V4Bf16].map(at_level)
}

#[test]
fn scheduled_nests_by_pairs_mean_what_the_workload_means() {
    for (name, w) in cases() {
        let by = by_pairs(&w).expect("by pairs");
        let all = numbers(&w, 2);
        let want = w.evaluate(&dense(&w, &all));
        let paired = in_pairs(&by, &all);
        let (data, weights) =
            (of_kind(&w, &paired, TensorKind::Data), of_kind(&w, &paired, TensorKind::Weight));
        let of_pairs = |name: &str| name.contains(",pairs");
        let count = sampled_nests(&w, &targets(), of_pairs, |n| {
            agree(name, &nest::interpret(n, &data, &weights), &want);
        });
        assert!(count > 10, "{name}: {count} configurations");
    }
}

/// Holds what kernels give to what their workloads mean.
fn compiled(targets: &[Target], machines: &[Machine], best: &Machine, instruction: &str) {
    let named = cases().into_iter().map(|(_, w)| w).chain(others());
    let (cases, seen): (Vec<Case>, Vec<_>) = named
        .map(|w| {
            let all = numbers(&w, 4);
            let bytes =
                |v: &Vec<f64>| v.iter().flat_map(|x| (bits(*x) as u16).to_le_bytes()).collect();
            ((w, all.iter().map(bytes).collect()), all)
        })
        .unzip();
    machines::compiled(&cases, targets, machines, best, instruction, |case, symbol, bits| {
        let w = &cases[case].0;
        let got: Vec<f64> = bits.iter().map(|b| f64::from(f32::from_bits(b << 16))).collect();
        agree(symbol, &got, &w.evaluate(&dense(w, &seen[case])));
    });
}

#[test]
fn compiled_kernels_of_bf16_give_the_reference_output() {
    let flags: Vec<&str> = Isa::X86_64V4Bf16.level().flags().collect();
    compiled(&targets(), &Machine::both(), &Machine::here(&flags), "vdpbf16ps");
}

#[test]
fn emulated_kernels_of_bf16_give_the_reference_output() {
    let machines = Machine::arms();
    let Some(best) = machines.last() else { return };
    compiled(&[at_level(Isa::Armv86A)], &machines, best, "bfdot");
}
