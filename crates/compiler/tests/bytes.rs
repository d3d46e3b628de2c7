//! Tests of kernels of bytes (quantised convolutions and products): sampled configurations of every
//! sketch (a kernel structure with open knobs) are run by the interpreter and as compiled C, and
//! compared with the direct evaluation of the workload (a tensor expression). Cases include sums of
//! two products that do not fit 16 bits, where some instructions would saturate.

use crate::machines;

use machines::{Case, Machine, at_level, of_kind, sampled_nests};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use squall_compiler::nest::Scope;
use squall_compiler::{nest, sketches};
use squall_core::expr::{Affine, Binary, Expr, Source, Var};
use squall_core::operator::{
    ByteResult, Conv, Epilogue, MatMul, Reduce, ReduceOp, placeholder, range_of, rounded_behind,
    rounded_to_bytes,
};
use squall_core::{DType, Isa, Target, TensorKind, Workload};

fn conv(c: i64, k: i64, size: [i64; 2], groups: i64, pad: i64) -> Conv {
    let [h, w] = size;
    let (stride, pads) = ([1 + pad, 1], [pad; 4]);
    Conv { n: 1, c, h, w, k, r: 3, s: 3, stride, pads, dilation: [1, 1], groups }
}

fn stride_one(c: i64, k: i64, size: [i64; 2]) -> Conv {
    Conv { stride: [1, 1], ..conv(c, k, size, 1, 1) }
}

/// A convolution's result with its channels last, by a factor that brings it near the range of a
/// byte.
fn dynamic(w: Result<Workload, String>, factor: f64) -> Workload {
    let mut w = w.expect("legal");
    let (inputs, end) = (w.inputs.len(), w.stages.len() - 1);
    if let [n, k, p, q] = &w.stages[end].axes[..] {
        let axes = [n, p, q, k].map(Clone::clone).to_vec();
        // The sum has four axes, too, and loops of its own behind them.
        let to = [0, 3, 1, 2].map(|d| Affine::var(Var(d)));
        let sum = Source((inputs + end - 1) as u32);
        for s in &mut w.stages[end - 1..] {
            s.axes = axes.clone();
            let moved = |v: Var| to.get(v.0 as usize).cloned().unwrap_or(Affine::var(v));
            s.body = s.body.map_vars(moved).rewrite(&mut Affine::clone, &mut |e| match e {
                Expr::Load { source, index } if source == sum => {
                    let index = [0, 2, 3, 1].map(|d: usize| index[d].clone()).to_vec();
                    Expr::Load { source, index }
                }
                e => e,
            });
        }
    }
    let last = &mut w.stages[end];
    last.body = Expr::binary(Binary::Mul, last.body.clone(), Expr::Const(factor));
    w
}

/// The largest element of what a workload gives, and what follows from it.
fn range(w: Workload) -> Result<Workload, String> {
    let count = w.output().shape().iter().product();
    let largest = Reduce { op: ReduceOp::Max, axes: vec![(count, true)] }.workload()?;
    let one = |op, x, c| Expr::binary(op, x, Expr::Const(c));
    let steps = Epilogue {
        body: one(Binary::Max, one(Binary::Div, placeholder(0), 255.0), 1e-30),
        ..Epilogue::none()
    };
    range_of(w, &steps.attach(largest, &[])?)
}

/// The workload with its result rounded to bytes.
fn rounded(w: Workload) -> Result<Workload, String> {
    let shape = w.output().shape();
    let channels = *shape.last().expect("a dimension");
    let places = shape.iter().product::<i64>() / channels;
    rounded_behind(w, &rounded_to_bytes([1, channels, places], true)?)
}

fn cases() -> Vec<(&'static str, Workload)> {
    let product = |m, n, k| MatMul::plain(m, n, k, TensorKind::Weight).in_bytes(ByteResult::ANY);
    let of_dynamic = |m, n, k| MatMul::plain(m, n, k, TensorKind::Weight).of_dynamic_bytes();
    let pointwise = Conv { r: 1, s: 1, ..stride_one(16, 24, [9, 11]) };
    let pointwise = Conv { pads: [0; 4], ..pointwise };
    let depthwise = conv(20, 20, [8, 9], 20, 1);
    let all = [
        ("product", product(7, 19, 36)),
        ("row", product(1, 40, 128)),
        ("tall", product(37, 40, 160)),
        ("conv", conv(8, 20, [9, 11], 1, 1).in_bytes(131, ByteResult::ANY)),
        ("conv_of_stride_one", stride_one(12, 20, [8, 9]).in_bytes(131, ByteResult::ANY)),
        ("conv_unpadded", conv(4, 16, [6, 7], 1, 0).in_bytes(0, ByteResult::ANY)),
        ("grouped", conv(16, 16, [7, 9], 4, 1).in_bytes(7, ByteResult::ANY)),
        ("grouped_eights", conv(16, 12, [7, 9], 2, 0).in_bytes(7, ByteResult::ANY)),
        ("dynamic_conv", conv(8, 20, [9, 11], 1, 1).of_dynamic_bytes()),
        ("dynamic_grouped", conv(16, 16, [9, 11], 4, 1).of_dynamic_bytes()),
        ("dynamic_depthwise", conv(20, 20, [8, 9], 20, 1).of_dynamic_bytes()),
        ("range_product", range(dynamic(of_dynamic(9, 40, 32), 1e-5))),
        ("range_conv", range(dynamic(conv(8, 20, [9, 11], 1, 1).of_dynamic_bytes(), 1e-5))),
        ("range_pointwise", range(dynamic(pointwise.of_dynamic_bytes(), 1e-5))),
        ("range_depthwise", range(dynamic(depthwise.of_dynamic_bytes(), 1e-3))),
        ("rounded_pointwise", rounded(dynamic(pointwise.of_dynamic_bytes(), 1e-5))),
        ("rounded_depthwise", rounded(dynamic(depthwise.of_dynamic_bytes(), 1e-3))),
        ("rounded", rounded_to_bytes([2, 20, 30], true)),
        ("rounded_rows", rounded_to_bytes([1, 1, 70], true)),
        ("rounded_from_zero", rounded_to_bytes([2, 20, 30], false)),
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

/// The values of a nest's inputs of a kind; some inputs have single bytes as elements.
fn as_read(n: &nest::Nest, all: &[Vec<f64>], kind: fn(usize) -> Scope) -> Vec<Vec<f64>> {
    let one = |(i, values): (usize, &Vec<f64>)| {
        let buffer = n.buffers.iter().find(|b| b.scope == kind(i));
        let dtype = buffer.filter(|b| b.elements() as usize == 4 * values.len()).map(|b| b.dtype);
        let bytes = || values.iter().flat_map(|v| (*v as u32).to_le_bytes());
        match dtype {
            Some(DType::U8) => bytes().map(f64::from).collect(),
            Some(DType::I8) => bytes().map(|b| f64::from(b as i8)).collect(),
            _ => values.clone(),
        }
    };
    all.iter().enumerate().map(one).collect()
}

fn targets() -> [Target; 3] {
    [Isa::X86_64V4Amx, Isa::X86_64V3, Isa::X86_64V4Vnni].map(at_level)
}

/// Results are bytes; where a sum lies halfway between two, either is right.
fn agree(name: &str, got: &[f64], want: &[f64]) {
    assert_eq!(got.len(), want.len(), "{name}");
    // Sums less a zero point's share are floats.
    if want.iter().any(|w| w.fract() != 0.0) {
        let most = want.iter().fold(0.0, |m: f64, w| m.max(w.abs()));
        let wrong = got.iter().zip(want).position(|(g, w)| (g - w).abs() > 1e-6 * most);
        assert!(wrong.is_none(), "{name}: element {wrong:?} of {} is wrong", want.len());
        return;
    }
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
        let is_float = w.output().dtype == DType::F32;
        let inner = want.iter().any(|x| *x > 0.0 && *x < 255.0);
        assert!(is_float || inner, "{name}: all is saturated");
        let (data, weights) =
            (of_kind(&w, &all, TensorKind::Data), of_kind(&w, &all, TensorKind::Weight));
        let count = sampled_nests(
            &w,
            &targets(),
            |_| true,
            |n| {
                let data = as_read(n, &data, Scope::Data);
                let weights = as_read(n, &weights, Scope::Weight);
                agree(name, &nest::interpret(n, &data, &weights), &want);
            },
        );
        assert!(count > 10, "{name}: {count} configurations");
    }
}

/// Where a CPU multiplies words and no bytes, products whose data is read often enough are offered
/// by words; depthwise convolutions and sums that floats are added to have none.
#[test]
fn products_are_by_words_where_bytes_are_multiplied_so() {
    let by_words = |isa: Isa, w: &Workload| {
        let all = sketches(w, &at_level(isa));
        let name = |s: &str| s.trim_end_matches(",range").ends_with(",words");
        all.iter().filter(|s| name(s.name())).count()
    };
    for (name, w) in cases() {
        for isa in [Isa::X86_64V4Vnni, Isa::X86_64V3Vnni, Isa::X86_64V4Amx, Isa::Armv8A] {
            assert_eq!(by_words(isa, &w), 0, "{name} at {isa}");
        }
        let product = w.stages.iter().any(|s| matches!(s.body, Expr::Binary(Binary::Dot, ..)));
        // Six sums read each byte of this one, and no copy has a border.
        let often = name != "grouped_eights";
        for isa in [Isa::X86_64V2, Isa::X86_64V3, Isa::X86_64V4] {
            assert_eq!(by_words(isa, &w) > 0, product && often, "{name} at {isa}");
        }
    }
}

/// Holds what kernels give to what their workloads mean.
fn compiled(targets: &[Target], machines: &[Machine], best: &Machine, instruction: &str) {
    let (cases, seen): (Vec<Case>, Vec<_>) = cases()
        .into_iter()
        .map(|(_, w)| {
            let (raw, seen) = inputs(&w, 2);
            ((w, raw), seen)
        })
        .unzip();
    machines::compiled(&cases, targets, machines, best, instruction, |case, symbol, bits| {
        let is_float = cases[case].0.output().dtype == DType::F32;
        let number = |b: &u32| match is_float {
            true => f64::from(f32::from_bits(*b)),
            false => f64::from(*b),
        };
        let got: Vec<f64> = bits.iter().map(number).collect();
        agree(symbol, &got, &cases[case].0.evaluate(&seen[case]));
    });
}

#[test]
fn compiled_kernels_of_bytes_give_the_reference_output() {
    let flags: Vec<&str> = Isa::X86_64V4Vnni.level().flags().collect();
    compiled(&targets(), &Machine::both(), &Machine::here(&flags), "vpdpbusd");
}

#[test]
fn emulated_kernels_of_bytes_give_the_reference_output() {
    let machines = Machine::arms();
    let Some(best) = machines.last() else { return };
    compiled(&[at_level(Isa::Armv86A)], &machines, best, "usdot");
}
