//! Tests of kernels of bytes (quantised convolutions and products, and products with weights of few
//! bits) over random shapes, scales and zero points, extremes included, at each instruction level
//! that multiplies bytes in its own way. Each result must be within one step of the exact
//! reference, and 999 of 1,000 must equal it.
//!
//! `SQUALL_SHAPES=10000 cargo test --release -p squall-compiler --test byte_shapes` tries that
//! number of shapes (`SQUALL_SEED` begins another series); without it a few are tried.

use crate::machines;

use machines::{Case, Machine, at_level};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus as Random;
use rand_xoshiro::rand_core::SeedableRng;
use squall_compiler::sketches;
use squall_core::expr::{Expr, Unary};
use squall_core::operator::{
    ByteRange, ByteResult, ByteSum, Conv, FewBits, FewBitsZero, MatMul, rounded_to_bytes,
};
use squall_core::workload::Reducer;
use squall_core::{DType, Isa, KernelSource, TensorKind, Workload};

/// Shapes that one program tries.
const TOGETHER: usize = 64;
/// Shapes that are tried unless more are asked for.
const FEW: usize = 48;

fn asked(name: &str, usual: usize) -> usize {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(usual)
}

/// A random form of result: all bytes, a narrower range, or a sum with another tensor.
fn result(r: &mut Random) -> ByteResult {
    let range = |r: &mut Random| match r.random_range(0..3) {
        0 => ByteRange { low: r.random_range(0..128), high: r.random_range(128..=255) },
        _ => ByteRange::ALL,
    };
    let sum = r.random_range(0..3) == 0;
    let sum = sum.then(|| ByteSum { addends: r.random_range(1..=2), range: range(r) });
    ByteResult { range: range(r), sum }
}

fn product(r: &mut Random) -> Result<Workload, String> {
    let (m, n) = (r.random_range(1..=40), r.random_range(1..=70));
    let k = 4 * if r.random() { r.random_range(1..=24) } else { 16 * r.random_range(1..=4) };
    let product = MatMul::plain(m, n, k, TensorKind::Weight);
    match r.random_range(0..4) {
        0 => product.of_dynamic_bytes(),
        _ => product.in_bytes(result(r)),
    }
}

/// A dense, grouped or depthwise convolution; nothing where windows do not fit.
fn convolution(r: &mut Random) -> Result<Workload, String> {
    let mut small = |most: i64| r.random_range(1..=most);
    let groups = match small(4) {
        1 => small(4),
        2 => 4 * small(6),
        _ => 1,
    };
    let depthwise = groups > 4;
    let fours = |x: i64| if depthwise { 1 } else { 4 * x };
    let (c, k) = (groups * fours(small(8)), groups * fours(small(10)));
    let (h, w, rows, columns) = (small(14), small(18), small(5), small(5));
    let (stride, dilation) = ([small(2), small(2)], [small(4), small(4)].map(|d| (d / 4) + 1));
    let pads = [(); 4].map(|()| small(3) - 1);
    let n = if small(5) == 1 { 2 } else { 1 };
    let conv = Conv { n, c, h, w, k, r: rows, s: columns, stride, pads, dilation, groups };
    match r.random_range(0..4) {
        0 => conv.of_dynamic_bytes(),
        _ => conv.in_bytes(r.random(), result(r)),
    }
}

fn workload(r: &mut Random) -> Workload {
    loop {
        let made = match r.random_range(0..12) {
            0 => rounded_to_bytes(
                [r.random_range(1..=2), r.random_range(1..=40), r.random_range(1..=90)],
                r.random(),
            ),
            1..5 => product(r),
            _ => convolution(r),
        };
        if let Ok(w) = made {
            return w;
        }
    }
}

/// A convolution that Winograd's filtering takes.
fn winograd(r: &mut Random) -> Workload {
    loop {
        let mut small = |most: i64| r.random_range(1..=most);
        let (c, k, h, w) = (4 * small(32), 4 * small(10), 2 + small(12), 2 + small(16));
        let pads = [(); 4].map(|()| small(2) - 1);
        let (stride, dilation) = ([small(2); 2], [1, 1]);
        let conv = Conv { n: 1, c, h, w, k, r: 3, s: 3, stride, pads, dilation, groups: 1 };
        if let Ok(w) = conv.in_bytes(r.random(), result(r))
            && let list = sketches(&w, &at_level(Isa::X86_64V3))
            && list.iter().any(|s| s.name().starts_with("winograd"))
        {
            return w;
        }
    }
}

/// A product with weights of few bits.
fn few_bits(r: &mut Random) -> Workload {
    let zeros = [
        FewBitsZero::Same(0),
        FewBitsZero::Same(8),
        FewBitsZero::Same(128),
        FewBitsZero::Bytes,
        FewBitsZero::Floats,
    ];
    let bits = [4, 8][r.random_range(0..2)];
    let zero = loop {
        let zero = zeros[r.random_range(0..zeros.len())];
        if !matches!(zero, FewBitsZero::Same(z) if z != 0 && z != 1 << (bits - 1)) {
            break zero;
        }
    };
    let block = [8, 16, 24, 32, 64, 128, 256][r.random_range(0..7)];
    let m = [1, 1, 2, 3, 5, 8, 33, 64, 80][r.random_range(0..9)];
    let (k, n) = (block * r.random_range(1..=(512 / block)), 16 * r.random_range(1..=4));
    let p = FewBits { m, k, n, bits, block, whole: r.random(), zero, bias: r.random() };
    p.workload().expect("legal")
}

/// A kind of random case: workloads, and the start of the names of the sketches to try.
struct Drawn {
    workload: fn(&mut Random) -> Workload,
    sketches: &'static str,
    /// How many are tried unless more are asked for.
    few: usize,
}

/// Products with weights of few bits.
const FEW_BITS: Drawn = Drawn { workload: few_bits, sketches: "", few: 12 };

/// All workloads of bytes, by any sketch.
const ANY: Drawn = Drawn { workload, sketches: "", few: FEW };

/// Inputs as bytes in memory, and as the evaluator sees them; extremes are frequent, among scales
/// and offsets 0 and such that saturate everything.
fn inputs(r: &mut Random, w: &Workload) -> (Vec<Vec<u8>>, Vec<Vec<f64>>) {
    let extreme = r.random_range(0..4) == 0;
    let mut one = |i: &squall_core::workload::Input| -> (Vec<u8>, Vec<f64>) {
        let count = i.shape.iter().product::<i64>() as usize;
        let ends = if i.dtype == DType::I8x4 { [127, 0x80] } else { [255, 0] };
        if i.dtype == DType::F32 {
            let number = |r: &mut Random| match r.random_range(0..16) {
                0 => 0.0,
                1 if extreme => 1000.0f32,
                _ => r.random_range(-1.0f32..1.0),
            };
            let list: Vec<f32> = (0..count).map(|_| number(r)).collect();
            let bytes = list.iter().flat_map(|x| x.to_ne_bytes()).collect();
            return (bytes, list.iter().map(|x| f64::from(*x)).collect());
        }
        let mut byte = || match r.random_range(0..if extreme { 2 } else { 8 }) {
            0 => ends[r.random_range(0..2)],
            1 if extreme => ends[0],
            _ => r.random_range(0..=255u8),
        };
        let bytes: Vec<u8> = (0..count * i.dtype.bytes() as usize).map(|_| byte()).collect();
        let seen = match i.dtype {
            DType::U8 => bytes.iter().map(|b| f64::from(*b)).collect(),
            _ => {
                bytes.as_chunks::<4>().0.iter().map(|b| f64::from(u32::from_le_bytes(*b))).collect()
            }
        };
        (bytes, seen)
    };
    w.inputs.iter().map(&mut one).unzip()
}

/// The expected results of a workload, and for each the sum of the sizes of its summands: floats
/// are rounded by a share of that sum, however much of it cancels.
struct Wanted {
    values: Vec<f64>,
    sizes: Vec<f64>,
}

impl Wanted {
    fn of(w: &Workload, inputs: &[Vec<f64>]) -> Wanted {
        let values = w.evaluate(inputs);
        let Some(product) = FewBits::of(w) else {
            let sizes = values.iter().map(|v| v.abs()).collect();
            return Wanted { values, sizes };
        };
        let mut sized = w.clone();
        for s in &mut sized.stages {
            if s.reduction.as_ref().is_some_and(|r| r.op == Reducer::Sum) {
                s.body = Expr::unary(Unary::Abs, s.body.clone());
            }
        }
        // Kernels sum products of codes and products of zero points separately; the latter are
        // added to the size.
        let mut inputs = inputs.to_vec();
        if !matches!(product.zero, FewBitsZero::Same(_)) {
            inputs[3].iter_mut().for_each(|z| *z = -z.abs());
        }
        Wanted { values, sizes: sized.evaluate(&inputs).iter().map(|v| v.abs()).collect() }
    }
}

/// How many results were compared, and how many of bytes were a step away.
#[derive(Default)]
struct Compared {
    results: usize,
    apart: usize,
}

impl Compared {
    fn compare(&mut self, what: &str, w: &Workload, bits: &[u32], want: &Wanted) {
        let Wanted { values: want, sizes } = want;
        assert_eq!(bits.len(), want.len(), "{what}");
        if w.output().dtype == DType::F32 {
            let largest = |list: &[f64]| list.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
            // Sums of products of floats are rounded; sums of products of bytes are exact.
            let most = match FewBits::of(w) {
                Some(p) => {
                    let exact =
                        FewBits { whole: false, ..p }.workload().expect("legal").tolerance();
                    let steps = w.tolerance() - exact;
                    exact * largest(sizes) + steps * largest(want)
                }
                None => 1e-6 * largest(want),
            };
            let wrong = bits
                .iter()
                .zip(want)
                .position(|(b, w)| (f64::from(f32::from_bits(*b)) - w).abs() > most);
            assert!(wrong.is_none(), "{what}: element {wrong:?} of {} is wrong\n{w}", want.len());
            return;
        }
        let far = bits.iter().zip(want).position(|(b, w)| (f64::from(*b) - w).abs() > 1.0);
        assert!(far.is_none(), "{what}: element {far:?} of {} is wrong\n{w}", want.len());
        self.results += want.len();
        self.apart += bits.iter().zip(want).filter(|(b, w)| f64::from(**b) != **w).count();
    }
}

/// A kernel of a random configuration of a random sketch for a level.
fn kernel(r: &mut Random, w: &Workload, isa: Isa, names: &str, symbol: &str) -> KernelSource {
    let mut all = sketches(w, &at_level(isa));
    all.retain(|s| s.name().starts_with(names));
    let s = &all[r.random_range(0..all.len())];
    assert!(!s.features(&s.space().sample(r)).is_empty() || !s.name().ends_with("few_bits"), "{w}");
    for _ in 0..20 {
        if let Ok(k) = s.realize(&s.space().sample(r), symbol) {
            return k;
        }
    }
    squall_compiler::reference(w, symbol)
}

/// Tries kernels of a level on a machine.
fn try_shapes(isa: Isa, machine: &Machine, drawn: &Drawn) {
    let (shapes, seed) = (asked("SQUALL_SHAPES", drawn.few), asked("SQUALL_SEED", 0));
    let mut compared = Compared::default();
    for first in (0..shapes).step_by(TOGETHER) {
        let mut r = Random::seed_from_u64((seed + first) as u64);
        let folder = tempfile::tempdir().expect("a folder");
        let (mut cases, mut wants, mut kernels): (Vec<Case>, Vec<_>, Vec<_>) = Default::default();
        for i in 0..TOGETHER.min(shapes - first) {
            let w = (drawn.workload)(&mut r);
            let (raw, seen) = inputs(&mut r, &w);
            kernels.push((i, kernel(&mut r, &w, isa, drawn.sketches, &format!("k{i}"))));
            wants.push(Wanted::of(&w, &seen));
            cases.push((w, raw));
        }
        machines::given(&cases, &kernels, machine, folder.path(), &mut |case, _, bits| {
            let what = format!("{isa}, shape {}", first + case);
            compared.compare(&what, &cases[case].0, bits, &wants[case]);
        });
        if shapes > FEW {
            println!(
                "{isa}: {} shapes, {} of {} results a step away",
                first + cases.len(),
                compared.apart,
                compared.results
            );
        }
    }
    assert!(
        compared.apart * 1000 <= compared.results,
        "{} of {}",
        compared.apart,
        compared.results
    );
}

/// A level on this machine, where it has it.
fn here(isa: Isa, drawn: &Drawn) {
    let has = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags: Vec<&str> = has
        .lines()
        .find(|l| l.starts_with("flags"))
        .map_or(Vec::new(), |l| l.split_whitespace().collect());
    let needed = match isa {
        Isa::X86_64V3 => "avx2",
        Isa::X86_64V4Vnni => "avx512_vnni",
        _ => "amx_int8",
    };
    match flags.contains(&needed) {
        true => {
            try_shapes(isa, &Machine::here(&isa.level().flags().collect::<Vec<_>>()), drawn);
        }
        false => println!("skipped: this machine has no {needed}"),
    }
}

/// The highest level of ARM, under an emulator.
fn on_arm(drawn: &Drawn) {
    let flags: Vec<&str> = Isa::Armv86A.level().flags().collect();
    if let Some(machine) = Machine::arm(&flags) {
        try_shapes(Isa::Armv86A, &machine, drawn);
    }
}

#[test]
fn random_shapes_of_bytes_by_avx2() {
    here(Isa::X86_64V3, &ANY);
}

#[test]
fn random_shapes_of_bytes_by_avx512() {
    here(Isa::X86_64V4Vnni, &ANY);
}

#[test]
fn random_shapes_of_bytes_by_amx() {
    here(Isa::X86_64V4Amx, &ANY);
}

#[test]
fn random_shapes_of_bytes_by_an_emulated_arm() {
    on_arm(&ANY);
}

#[test]
fn random_products_of_few_bits_by_avx2() {
    here(Isa::X86_64V3, &FEW_BITS);
}

#[test]
fn random_products_of_few_bits_by_avx512() {
    here(Isa::X86_64V4Vnni, &FEW_BITS);
}

#[test]
fn random_products_of_few_bits_by_amx() {
    here(Isa::X86_64V4Amx, &FEW_BITS);
}

#[test]
fn random_products_of_few_bits_by_an_emulated_arm() {
    on_arm(&FEW_BITS);
}

/// Sums of floats are not exact, and are rounded to the same step but for one in a thousand.
#[test]
fn random_shapes_of_bytes_by_winograd_in_floats() {
    here(Isa::X86_64V3, &Drawn { workload: winograd, sketches: "winograd", few: FEW });
}
