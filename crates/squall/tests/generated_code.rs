//! Test that generated kernels stay the same, byte for byte, unless a change means to change them.
//! It compares with `generated_code.txt` a digest of the sources of sampled configurations of every
//! sketch, for the workloads of `examples/workloads.ops`, `benches/narrow.ops`, `benches/gpu.ops`
//! and `kinds.ops`, and for the fused operators of `fused_tasks.rs`. `SQUALL_BLESS=1 cargo test -p
//! squall --test all generated_code` writes that file anew.

use crate::fused_tasks::{attentions, chunked, maps, pairs, separables};
use crate::machine;

use machine::h200;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use squall::Input;
use squall_compiler::{sketches, untuned};
use squall_core::{Bytes, Isa, KernelSource, Mapped, Target, Task, Tunable};
use std::fmt::Write as _;
use std::path::Path;

/// The number of sampled configurations of each sketch.
const SAMPLES: usize = 50;

fn cpu(vector_bytes: usize, vector_registers: usize) -> Target {
    let caches = [Bytes(32 << 10), Bytes(1 << 20), Bytes(32 << 20)];
    Target::cpu(vector_bytes, vector_registers, &caches)
}

/// The text of everything of a kernel that a compiler or a driver sees.
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
    list_of(target, on, input.tasks())
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
        + &list_of("h200", &h200(), &chunked())
        + &list("avx512", &cpu(64, 32), "crates/squall/tests/kinds.ops")
        + &list("v2", &Target::at_level(Isa::X86_64V2, &[]), "crates/squall/tests/kinds.ops")
        + &list("armv8.6", &Target::at_level(Isa::Armv86A, &[]), "crates/squall/tests/kinds.ops")
        + &list_of("avx512", &Target { threads: 2, ..cpu(64, 32) }, &attentions())
        + &list_of("avx2", &cpu(32, 16), &maps())
        + &list("h200", &h200(), "crates/squall/tests/kinds.ops")
        + &list_of("h200", &h200(), &attentions())
        + &list_of("h200", &h200(), &maps());
    if std::env::var_os("SQUALL_BLESS").is_some() {
        std::fs::write(&path, &now).expect("the file can be written");
    }
    let before = std::fs::read_to_string(&path).expect("generated_code.txt is there");
    let other: Vec<_> = before.lines().zip(now.lines()).filter(|(b, n)| b != n).take(10).collect();
    let why = "other code than before (then raise CODEGEN_VERSION), or another name";
    assert!(other.is_empty() && before.lines().count() == now.lines().count(), "{why}: {other:#?}");
}
