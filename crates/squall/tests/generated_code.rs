//! Generated kernels stay as they are, byte for byte, unless a change means to change them: a
//! digest of the sources of sampled configurations of every sketch, for the workloads of
//! `examples/workloads.ops`, `benches/narrow.ops` and `benches/gpu.ops`, and for operators that no
//! operator line says, compared with `generated_code.txt`.
//! `SQUALL_BLESS=1 cargo test -p squall --test generated_code` writes that file anew.

use crate::machine;

use machine::h200;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use squall::Input;
use squall_compiler::{sketches, untuned};
use squall_core::operator::{
    Conv, LayerNorm, MatMul, Pool, PoolKind, back_to_back, made_in_chunks, normed, separable,
};
use squall_core::{Bytes, Isa, KernelSource, Mapped, Target, Task, TensorKind, Tunable, Workload};
use std::fmt::Write as _;
use std::path::Path;

/// Sampled configurations of each sketch.
const SAMPLES: usize = 50;

fn cpu(vector_bytes: usize, vector_registers: usize) -> Target {
    let caches = [Bytes(32 << 10), Bytes(1 << 20), Bytes(32 << 20)];
    Target::cpu(vector_bytes, vector_registers, &caches)
}

/// Everything of a kernel that a compiler or a driver sees, as text.
fn text(k: &KernelSource) -> String {
    let mut s = format!(
        "{}\n{} {} {} {} {:?}\n",
        k.source, k.prepared.0, k.workspace.0, k.openmp, k.full_optimisation, k.flags
    );
    for l in &k.launches {
        let arguments = l.arguments.as_ref().map(Vec::len);
        let _ = write!(s, "{} {:?} {:?} {}", l.entry, l.blocks, l.threads, l.shared);
        let _ = writeln!(s, " {arguments:?} {}", l.phase as u8);
        for m in &l.maps {
            let memory = match m.memory {
                Mapped::Data(n) => (0, u64::from(n)),
                Mapped::Prepared(n) => (1, n),
                Mapped::Workspace(n) => (2, n),
            };
            let (extents, strides) = (&m.extents, &m.strides);
            let _ = writeln!(s, "{memory:?} {extents:?} {strides:?} {:?} {:?}", m.spanned, m.steps);
        }
    }
    s
}

/// A digest of sampled configurations: what each prints, or that it is refused.
fn digest(tunable: &dyn Tunable) -> String {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(22);
    let mut hasher = blake3::Hasher::new();
    let mut refused = 0;
    for _ in 0..SAMPLES {
        let configuration = tunable.space().sample(&mut rng);
        match tunable.realize(&configuration, "squall_kernel") {
            Ok(kernel) => hasher.update(text(&kernel).as_bytes()),
            Err(_) => {
                refused += 1;
                hasher.update(b"refused")
            }
        };
    }
    assert!(refused < SAMPLES, "{}: all samples are refused", tunable.name());
    hasher.finalize().to_hex()[..16].to_string()
}

fn list(target: &str, on: &Target, operators: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let input = Input::load(&root.join(operators).display().to_string(), &[]).expect("a list");
    list_of(target, on, &input.tasks)
}

/// A convolution of an image of 28 x 28.
fn conv(c: i64, k: i64, r: i64, groups: i64) -> Workload {
    let conv = Conv {
        n: 1,
        c,
        h: 28,
        w: 28,
        k,
        r,
        s: r,
        stride: [1; 2],
        pads: [r / 2; 4],
        dilation: [1; 2],
        groups,
    };
    conv.workload().expect("a convolution")
}

/// An inverted residual, and what remains of it without its last and its first convolution.
fn separables() -> Vec<Task> {
    let [a, b, c] = [conv(32, 192, 1, 1), conv(192, 192, 3, 192), conv(192, 32, 1, 1)];
    let named = [
        ("inverted_residual", separable(a.clone(), &[&b, &c])),
        ("expand_and_windows", separable(a, &[&b])),
        ("windows_and_project", separable(b.clone(), &[&c])),
    ];
    named.map(|(name, w)| Task::new(name, w.expect("separable"))).to_vec()
}

/// Two operators back to back, which no operator line says.
fn pairs() -> Vec<Task> {
    let expanded = back_to_back(conv(32, 192, 1, 1), &conv(192, 192, 3, 192));
    let product = |n, k| MatMul::plain(64, n, k, TensorKind::Weight).workload().expect("a product");
    let products = back_to_back(product(96, 48), &product(32, 96));
    let named = [("expand_and_depthwise", expanded), ("two_products", products)];
    named.map(|(name, w)| Task::new(name, w.expect("a pair"))).to_vec()
}

/// What GPUs alone make of two operators: a convolution with its pooling, two products, a norm and
/// its product.
fn chunked() -> Vec<Task> {
    let pool = Pool {
        kind: PoolKind::Max,
        n: 1,
        c: 64,
        h: 28,
        w: 28,
        r: 3,
        s: 3,
        stride: [2; 2],
        pads: [1; 4],
        dilation: [1; 2],
        positions: None,
    };
    let product = |n, k| MatMul::plain(77, n, k, TensorKind::Weight).workload().expect("a product");
    let (gain, bias) = (TensorKind::Weight, Some(TensorKind::Weight));
    let norm = LayerNorm { rows: 77, cols: 96, eps: 1e-5, gain, bias };
    let (pool, norm) = (pool.workload().expect("a pooling"), norm.workload().expect("a norm"));
    let named = [
        ("pooled", made_in_chunks(conv(3, 64, 3, 1), &pool)),
        ("hidden_layer", made_in_chunks(product(96, 48), &product(32, 96))),
        ("norm_and_product", normed(norm, &product(64, 96))),
    ];
    named.map(|(name, w)| Task::new(name, w.expect("a pair"))).to_vec()
}

fn list_of(target: &str, on: &Target, tasks: &[Task]) -> String {
    let lines = |task: &Task| {
        let all = sketches(&task.workload, on);
        let plain = untuned(&task.workload, on);
        let mut s = String::new();
        for tunable in all.iter().chain([&plain]) {
            let (name, legal) = (tunable.name(), tunable.space().len());
            let _ = writeln!(s, "{target} {} {name} {legal} {}", task.name, digest(&**tunable));
        }
        s
    };
    std::thread::scope(|scope| {
        let half = tasks.len() / 2;
        let (a, b) = tasks.split_at(half);
        let first = scope.spawn(|| a.iter().map(lines).collect::<String>());
        let second: String = b.iter().map(lines).collect();
        first.join().expect("no panic") + &second
    })
}

#[test]
fn generated_kernels_are_what_they_were() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/generated_code.txt");
    let now = list("avx2", &cpu(32, 16), "examples/workloads.ops")
        + &list("avx512", &cpu(64, 32), "examples/workloads.ops")
        + &list_of("avx2", &cpu(32, 16), &pairs())
        + &list_of("avx512", &Target { threads: 2, ..cpu(64, 32) }, &pairs())
        + &list("avx512", &cpu(64, 32), "benches/narrow.ops")
        + &list("amx", &Target::at_level(Isa::X86_64V4Amx, &[]), "benches/narrow.ops")
        + &list("avx512", &cpu(64, 32), "crates/squall/tests/range.workload")
        + &list("h200", &h200(), "examples/workloads.ops")
        + &list("h200", &h200(), "benches/gpu.ops")
        + &list_of("h200", &h200(), &separables())
        + &list_of("h200", &h200(), &chunked());
    if std::env::var_os("SQUALL_BLESS").is_some() {
        std::fs::write(&path, &now).expect("the file can be written");
    }
    let before = std::fs::read_to_string(&path).expect("generated_code.txt is there");
    let other: Vec<_> = before.lines().zip(now.lines()).filter(|(b, n)| b != n).take(10).collect();
    let why = "other code than before (then raise CODEGEN_VERSION), or another name";
    assert!(other.is_empty() && before.lines().count() == now.lines().count(), "{why}: {other:#?}");
}
