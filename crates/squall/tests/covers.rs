//! Test of run-offs of covers (a cover says which operators of a model become one kernel): tuning
//! measures whole networks with different covers, stores the winner, and later runs of the model
//! use it.

use prost::Message;
use squall::{
    BenchRequest, BudgetRequest, Context, Event, GuessRequest, InferenceRequest, InputRequest,
    NetworkRequest, Precision, Query, Store, TargetRequest, TuneRequest,
};
use squall_core::{Measurement, Nanos, Outcome, Record, RecordKind};
use squall_frontend::onnx::proto::*;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

/// An attention of two heads, 48 tokens, 16 wide: two products around a softmax, which become one
/// kernel only where costs favour it.
fn attention(folder: &Path) -> PathBuf {
    let value = |name: &str, shape: [i64; 4]| {
        let dim = |d: i64| DimensionProto { dim_value: Some(d), dim_param: None };
        let shape = Some(TensorShapeProto { dim: shape.map(dim).to_vec() });
        let tensor_type = Some(TensorTypeProto { elem_type: 1, shape });
        ValueInfoProto { name: name.into(), r#type: Some(TypeProto { tensor_type }) }
    };
    let node = |op: &str, inputs: &[&str], output: &str| NodeProto {
        input: inputs.iter().map(|s| s.to_string()).collect(),
        output: vec![output.into()],
        name: output.into(),
        op_type: op.into(),
        ..Default::default()
    };
    let graph = GraphProto {
        node: vec![
            node("MatMul", &["q", "k"], "scores"),
            node("Softmax", &["scores"], "weights"),
            node("MatMul", &["weights", "v"], "y"),
        ],
        input: vec![
            value("q", [1, 2, 48, 16]),
            value("k", [1, 2, 16, 48]),
            value("v", [1, 2, 48, 16]),
        ],
        output: vec![ValueInfoProto { name: "y".into(), r#type: None }],
        ..Default::default()
    };
    let opset_import = vec![OperatorSetIdProto { domain: String::new(), version: 17 }];
    let made = ModelProto { ir_version: 8, graph: Some(graph), opset_import, ..Default::default() };
    let path = folder.join("attention.onnx");
    std::fs::write(&path, made.encode_to_vec()).unwrap();
    path
}

/// The same record of another time.
fn after(r: &Record, kind: RecordKind, nanos: f64) -> Record {
    let measured =
        Measurement { samples: vec![Nanos(nanos); 3], calls: 1, error: 0.0, gpu: None, pace: None };
    Record { kind, outcome: Outcome::Measured(measured), ..r.clone() }
}

#[test]
fn the_cover_that_won_in_whole_networks_is_what_a_model_runs_by() {
    if squall_testing::is_left_to_full(
        "covers::the_cover_that_won_in_whole_networks_is_what_a_model_runs_by",
    ) {
        return;
    }
    covers_meet(Precision::F32, 1e-5);
}

/// Kernels of 16 bits have times of their own.
#[test]
fn covers_meet_in_16_bits() {
    if squall_testing::is_left_to_full("covers::covers_meet_in_16_bits") {
        return;
    }
    covers_meet(Precision::Bf16, 2e-2);
}

fn covers_meet(precision: Precision, tolerance: f32) {
    let folder = tempfile::tempdir().unwrap();
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
    let context = Context::with_cache(Some(cache));
    let source = attention(folder.path()).display().to_string();
    let input = InputRequest { precision: Some(precision), ..InputRequest::new(source) };
    let path = folder.path().join("s.squall");
    let budget = BudgetRequest { trials_per_task: Some(4), ..BudgetRequest::default() };
    let request = TuneRequest { inference: None, ..TuneRequest::new(input.clone(), &path, budget) };
    let stop = AtomicBool::new(false);
    let report = squall::tune(&context, &request, &stop, &mut |_| ()).unwrap();
    assert_eq!(report.tasks.len(), 3, "no whole network is timed, so that none decides");

    let network = NetworkRequest {
        input,
        store: Some(path.clone()),
        guess: GuessRequest::default(),
        target: TargetRequest::Cpu,
        threads: 1,
        keep: None,
    };
    let run = || {
        let network = network.clone();
        let asked = BenchRequest { network, inputs: vec![], seconds: 0.01, beside: vec![] };
        let ran = squall::bench(&context, &asked, &mut |_| ()).unwrap();
        (ran.network.kernels().len(), ran.outputs[0].1.clone())
    };
    let (kernels, three) = run();
    assert_eq!(kernels, 3);

    // One kernel for all three gets trials. Whether it is faster alone, this machine says.
    let request = TuneRequest { inference: Some(InferenceRequest::default()), ..request };
    let mut notes = Vec::new();
    let mut tune = || {
        squall::tune(&context, &request, &stop, &mut |e| {
            if let Event::Note(text) = e {
                notes.push(text);
            }
        })
        .unwrap()
    };
    let report = tune();
    let tuned = report.tasks.iter().find(|t| t.kind == "attention").expect("it has trials");
    assert!(tuned.trials >= 4 && tuned.best.is_some(), "{tuned:?}");
    let store = Store::open(&path).unwrap();
    // Were it as fast as this, it would be: the networks meet, if they have not met yet.
    let fused = store.best(&Query::task(tuned.id)).unwrap().remove(0);
    let time = fused.outcome.time().unwrap().0;
    store.append_latest(after(&fused, RecordKind::Rematch, 0.3 * time)).unwrap();
    let report = tune();
    assert!(notes.iter().any(|n| n.contains("1 kernel could take the place of several")));
    assert!(notes.iter().any(|n| n.contains("1 kernel in the place of 3")), "{notes:?}");
    let covers: Vec<Record> = store.query(&Query::default()).unwrap();
    let covers: Vec<&Record> = covers.iter().filter(|r| r.tunable == "cover").collect();
    assert_eq!(covers.len(), 2, "{covers:?}");
    let is_named = |r: &&Record| r.workload.ends_with(" in bf16");
    assert_eq!(covers.iter().all(is_named), precision == Precision::Bf16);
    let one = covers.iter().find(|r| r.configuration == "kernels=0+1+2").expect("one kernel");
    let all = covers.iter().find(|r| r.configuration == "kernels=0,1,2").expect("three");
    // What runs, and what the report counts, is the cover that was kept last.
    let won = covers.last().unwrap().configuration.matches(',').count() + 1;
    assert_eq!(run().0, won);
    let called = report.tasks.iter().filter(|t| t.count > 0).count();
    assert_eq!(called, won, "{:?}", report.tasks);
    for (record, kernels) in [(one, 1), (all, 3), (one, 1)] {
        store.append_latest(after(record, RecordKind::Rematch, 1e3)).unwrap();
        let (ran, y) = run();
        assert_eq!(ran, kernels);
        let floats = |a: &squall::Array| -> Vec<f32> {
            a.bytes.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
        };
        for (a, b) in floats(&y).iter().zip(floats(&three)) {
            assert!((a - b).abs() <= tolerance, "{a} instead of {b}");
        }
    }
    // Covers that met are not run again.
    squall::tune(&context, &request, &stop, &mut |_| ()).unwrap();
    let kept = store.query(&Query::default()).unwrap();
    assert_eq!(kept.iter().filter(|r| r.tunable == "cover").count(), 5);
    // Kernels that are known, but in no network met, meet without a trial, and what runs is told.
    let again = folder.path().join("again.squall");
    let other = Store::open(&again).unwrap();
    for r in kept.iter().filter(|r| r.tunable != "cover") {
        other.append_latest(r.clone()).unwrap();
    }
    let afresh = TuneRequest { store: again.clone(), ..request };
    let report = squall::tune(&context, &afresh, &stop, &mut |_| ()).unwrap();
    let runs = NetworkRequest { store: Some(again), ..network.clone() };
    let asked = BenchRequest { network: runs, inputs: vec![], seconds: 0.01, beside: vec![] };
    let ran = squall::bench(&context, &asked, &mut |_| ()).unwrap().network.kernels().len();
    let called = report.tasks.iter().filter(|t| t.count > 0 && t.best.is_some()).count();
    assert_eq!(called, ran, "{:?}", report.tasks);
    // A line of another model is no cover of this one.
    let strange = Record { configuration: "kernels=0+1,7".into(), ..(*one).clone() };
    store.append_latest(after(&strange, RecordKind::Rematch, 1.0)).unwrap();
    assert_eq!(run().0, 3);
}
