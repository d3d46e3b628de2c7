//! Test that the ids of tasks stay the same, because stored records are found by them. It compares
//! with `identities.txt` the ids of all operator lines of the repository, of the fused tasks of
//! `fused_tasks.rs`, and, as one digest a model, of all candidate kernels of each model in
//! `examples/` on CPUs and GPUs. `SQUALL_BLESS=1 cargo test -p squall --test all identities` writes
//! that file anew; users' records of each task that changed are then no longer found.

use crate::fused_tasks::{attentions, chunked, maps, pairs, separables};

use squall::{Input, InputRequest, TargetRequest};
use squall_core::{Objective, Task, TaskId};
use std::fmt::Write as _;
use std::path::Path;

const LISTS: [&str; 6] = [
    "examples/workloads.ops",
    "examples/kernels.ops",
    "benches/narrow.ops",
    "benches/gpu.ops",
    "benches/direct.ops",
    "crates/squall/tests/kinds.ops",
];

fn lines(place: &str, tasks: &[Task]) -> String {
    tasks.iter().fold(String::new(), |mut s, t| {
        let _ = writeln!(s, "{place} {} {}", t.name, t.id);
        s
    })
}

/// How many candidates a model has for a target, and a digest of their identities and names.
fn candidates(model: &str, name: &str, target: TargetRequest) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let request = InputRequest::new(root.join(model).display().to_string());
    let input = request.load(target).expect("a model");
    let list = &input.graph().expect("a graph").candidates().list;
    let mut hasher = blake3::Hasher::new();
    for c in list {
        hasher.update(TaskId::of(&c.workload, Objective::Time).to_string().as_bytes());
        hasher.update(c.name.as_bytes());
    }
    format!("{model} {name} {} {}\n", list.len(), &hasher.finalize().to_hex()[..16])
}

#[test]
fn tasks_are_known_by_the_identities_that_they_had() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut now = String::new();
    for list in LISTS {
        let input = Input::load(&root.join(list).display().to_string(), &[]).expect("a list");
        now += &lines(list, input.tasks());
    }
    for tasks in [separables(), pairs(), chunked(), attentions(), maps()] {
        now += &lines("fused_tasks.rs", &tasks);
    }
    for model in ["examples/small_net.onnx", "examples/resnet18.onnx"] {
        for (name, target) in [("cpu", TargetRequest::Cpu), ("gpu", TargetRequest::Cuda(0))] {
            now += &candidates(model, name, target);
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/identities.txt");
    if std::env::var_os("SQUALL_BLESS").is_some() {
        std::fs::write(&path, &now).expect("a file");
    }
    let before = std::fs::read_to_string(&path).unwrap_or_default();
    let changed: Vec<_> = now.lines().zip(before.lines()).filter(|(a, b)| a != b).collect();
    assert!(now == before, "{changed:#?}");
}
