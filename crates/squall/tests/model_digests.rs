//! Test that the front half (model to tasks and plan) makes of each model what it made before,
//! unless a change means to change it. For every model in `examples/` and in the shared folder it
//! compares with `model_digests.txt` digests of the tasks (ids, names, counts, nodes) with channels
//! first and last, of the untuned operators with reasons, and of the plan. `SQUALL_BLESS=1 cargo
//! test -p squall --test all model_digests` writes that file anew where the shared folder is
//! present.

use squall::{Channels, Input, TargetRequest};
use squall_frontend::read_weights;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

fn digest(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex()[..16].into()
}

fn tasks(input: &Input) -> String {
    let mut s = String::new();
    for t in input.tasks() {
        let _ = writeln!(s, "{} {} {} {:?}", t.id, t.name, t.count, t.nodes);
    }
    digest(&s)
}

/// The plan's digest; of its constants it has the lengths and a sample of the numbers.
fn plan(input: &Input, path: &Path) -> String {
    let Some(graph) = input.graph() else { return "none".into() };
    let elements = |shape: &Vec<i64>| shape.iter().product::<i64>();
    let weights = graph.model().values.iter().filter(|v| v.weight);
    // The random weights of larger models take seconds each, and their plans are of the same kinds.
    if weights.filter_map(|v| v.shape.as_ref().map(elements)).sum::<i64>() > 15_000_000 {
        return "left out".into();
    }
    let bytes = std::fs::read(path).unwrap();
    let weights = read_weights(&bytes, input.name(), &mut |_| Ok(None)).unwrap();
    let plan = match graph.plan(weights) {
        Ok(plan) => plan,
        Err(e) => return format!("none: {}", digest(&e)),
    };
    let mut s = String::new();
    for c in &plan.constants {
        let every = (c.len() / 16).max(1);
        let words: Vec<u32> =
            c.data.chunks_exact(4).map(|b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]])).collect();
        let sample: Vec<u32> = words.iter().copied().step_by(every).collect();
        let _ = writeln!(s, "{} {sample:?}", c.len());
    }
    for step in &plan.steps {
        let _ = writeln!(s, "{} {} {:?}", step.node, step.op, step.work);
    }
    let blocks: Vec<usize> = plan.blocks.iter().map(|b| b.elements).collect();
    let _ = writeln!(s, "{blocks:?} {:?} {:?}", plan.inputs, plan.outputs);
    let _ = writeln!(s, "{:?} {:?}", plan.input_elements, plan.output_elements);
    digest(&s)
}

/// The file's line for a model.
fn line(path: &Path) -> String {
    let load = || Input::load(&path.to_string_lossy(), &[]).unwrap();
    let first = load();
    let untuned: Vec<String> =
        first.untuned().iter().map(|u| format!("{} {} {}", u.node, u.op, u.reason)).collect();
    // As on a GPU: on a CPU values lie in the memory of others, which `copies.rs` looks at.
    let last = load().with_channels(Channels::Last, TargetRequest::Cuda(0));
    format!(
        "{} tasks, first {}, last {}, untuned {}, plan first {}, last {}",
        first.tasks().len(),
        tasks(&first),
        tasks(&last),
        digest(&untuned.join("\n")),
        plan(&first, path),
        plan(&last, path),
    )
}

fn models(folder: &Path, prefix: &str) -> BTreeMap<String, PathBuf> {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path());
    files
        .filter(|p| p.extension().is_some_and(|e| e == "onnx"))
        .map(|p| (format!("{prefix}{}", p.file_stem().unwrap().to_string_lossy()), p))
        .collect()
}

#[test]
fn models_become_what_they_became() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let shared = squall_testing::shared("models");
    let mut all = models(&here.join("../../examples"), "examples/");
    all.extend(models(&here.join("../frontend/tests/operators"), "operators/"));
    assert!(all.len() >= 4, "{all:?}");
    if let Some(folder) = &shared {
        all.extend(models(folder, ""));
    }
    let file = here.join("tests/model_digests.txt");
    let lines: BTreeMap<String, String> =
        all.iter().map(|(name, path)| (name.clone(), line(path))).collect();
    if std::env::var_os("SQUALL_BLESS").is_some() && shared.is_some() {
        let text: String = lines.iter().map(|(n, l)| format!("{n}: {l}\n")).collect();
        std::fs::write(&file, text).unwrap();
    }
    let known = std::fs::read_to_string(&file).unwrap();
    let known: BTreeMap<&str, &str> = known.lines().filter_map(|l| l.split_once(": ")).collect();
    for (name, line) in &lines {
        assert_eq!(known.get(name.as_str()), Some(&line.as_str()), "{name}");
    }
}
