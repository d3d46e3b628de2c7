//! A test that a store and its lines load for ever as version 2 of the schema wrote them
//! (`records/src/schema/v2.rs`): trials on a CPU and on a GPU, beside a pacemaker, and examples of
//! another tool.

use squall_core::forecast::{Example, Problem};
use squall_core::*;
use squall_records::{Query, Store, wire};
use std::path::{Path, PathBuf};

fn kept() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/v2")
}

#[test]
fn a_store_of_version_2_loads_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    std::fs::copy(kept().join("store.squall"), &path).unwrap();
    let store = Store::open(&path).unwrap();
    let lines = std::fs::read_to_string(kept().join("records.jsonl")).unwrap();
    let expected: Vec<Record> = lines.lines().map(|l| wire::decode(l).unwrap()).collect();
    assert_eq!(store.query(&Query::default()).unwrap(), expected);
    assert_eq!(expected, records());
    // The lines are written again as they were, and their identity is what it was.
    assert!(expected.iter().zip(lines.lines()).all(|(r, l)| wire::encode(r).unwrap() == l));
    assert_eq!(store.import(&mut lines.as_bytes()).unwrap().counts(), (0, expected.len() as u64));
    assert_eq!(store.examples(None, None).unwrap(), [example()]);
    assert_eq!(store.add_examples(&[example()]).unwrap(), (0, 1));
}

fn records() -> Vec<Record> {
    let text = "workload relu\ndata X: f32[4]\nstage Y: f32[i: 4] = max(X[i], 0)\noutput Y\n";
    let w = Workload::parse(text).unwrap();
    let record = |kind, tunable: &str, configuration: &str, outcome, time| Record {
        kind,
        task: TaskId::of(&w, Objective::Time),
        name: "relu_4".into(),
        workload: w.to_string(),
        device: "cpu".into(),
        toolchain: "squall 0.1.0 gcc 13.2 -O3".into(),
        tunable: tunable.into(),
        configuration: configuration.into(),
        outcome,
        cost: CpuCost { build: 0.1, measure: 0.2, search: 0.3 },
        seed: 7,
        time,
    };
    let measured = |ns: &[f64], gpu, pace| {
        let samples = ns.iter().map(|&x| Nanos(x)).collect();
        Outcome::Measured(Measurement { samples, calls: 3, error: 1e-7, gpu, pace })
    };
    let gpu = GpuState { device: 1, sm_mhz: 1980, memory_mhz: 2619, throttle: 4 };
    let failed = Outcome::Failed { stage: FailStage::WrongAnswer, detail: "too far off".into() };
    vec![
        record(RecordKind::Untuned, "untuned", "", measured(&[99.5], None, None), 1000.0),
        record(
            RecordKind::Trial,
            "map",
            "lanes=8",
            measured(&[12.5, 12.75], None, Some(1.25)),
            1001.0,
        ),
        record(RecordKind::Trial, "map", "lanes=16", failed, 1002.0),
        record(
            RecordKind::Trial,
            "gpu_map",
            "threads=64",
            measured(&[4.5], Some(gpu), None),
            1003.0,
        ),
        record(RecordKind::Rematch, "map", "lanes=8", measured(&[11.25], None, None), 1004.0),
    ]
}

fn example() -> Example {
    let problem = Problem {
        solver: "ConvAsm1x1U".into(),
        device: "gfx900_56".into(),
        words: vec![("direction".into(), "F".into())],
        numbers: vec![("a".into(), 64)],
        key: "64-28-28-1x1-64-28-28-1-0x0-1x1-1x1-0-NCHW-FP32-F".into(),
        layer: "64-28-28-64".into(),
    };
    Example { problem, values: vec![1, 16, 2, 64] }
}

/// Writes `tests/v2`; it was run once: `cargo test -p squall-records -- --ignored keep_v2`.
#[test]
#[ignore = "writes the fixture that must never change again"]
fn keep_v2() {
    assert!(!kept().join("store.squall").exists(), "version 2 is kept already");
    std::fs::create_dir_all(kept()).unwrap();
    let store = Store::open(kept().join("store.squall")).unwrap();
    store.append_all(records().into_iter().map(Ok)).unwrap();
    store.add_examples(&[example()]).unwrap();
    let mut lines = std::fs::File::create(kept().join("records.jsonl")).unwrap();
    store.export(&Query::default(), &mut lines).unwrap();
}
