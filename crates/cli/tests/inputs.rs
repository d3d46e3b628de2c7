//! Tests of reading inputs, good and broken (operator lines, models, workloads), by the commands
//! that only look at them: `tasks`, `explain`, `doctor`.

use crate::support;

use support::{Place, SMALL};

#[test]
fn tasks_as_json_have_exactly_the_agreed_keys() {
    let p = Place::new();
    let v = p.squall(&["tasks", SMALL, "--json"]).ok().json();
    assert_eq!(
        v.as_object().unwrap().keys().map(String::as_str).collect::<Vec<_>>(),
        ["tasks", "untuned"]
    );
    let task = v["tasks"][0].as_object().unwrap();
    let mut keys: Vec<&str> = task.keys().map(String::as_str).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["bytes", "count", "flop", "id", "kind", "name", "nodes"]);
    assert_eq!(task["flop"], 65536);
    assert_eq!(task["bytes"], 3 * 32 * 32 * 4);
    let again = p.squall(&["tasks", SMALL, "--json"]).ok().json();
    assert_eq!(v, again, "ids are stable");
}

#[test]
fn tasks_as_text_is_a_table_with_bounds() {
    let p = Place::new();
    let out = p.squall(&["tasks", SMALL]).ok().out;
    for word in ["matmul", "FLOP/byte", "bound", "GFLOP/s"] {
        assert!(out.contains(word), "no {word} in {out}");
    }
    let plain = p.squall(&["tasks", SMALL, "--no-roof"]).ok().out;
    assert!(plain.contains("matmul"));
}

#[test]
fn bad_models_are_errors_that_name_the_file() {
    let p = Place::new();
    let pages: [(&str, &[u8]); 4] = [
        ("empty.onnx", b""),
        ("garbage.onnx", b"\xff\xfe\xfd this is no protobuf at all \x00\x01"),
        ("text.onnx", b"hello"),
        ("zeros.onnx", &[0; 100]),
    ];
    for (name, bytes) in pages {
        p.file(name, bytes);
        for command in [&["tasks", name][..], &["tune", name, "--trials", "2"]] {
            let ran = p.squall(command).fails();
            assert!(ran.err.contains(name), "{}", ran.err);
        }
    }
    assert!(p.squall(&["tasks", "missing.onnx"]).fails().err.contains("missing.onnx"));
}

#[test]
fn truncated_models_never_panic() {
    let ours = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/small_net.onnx");
    let model = std::fs::read(ours).expect("an example");
    let p = Place::new();
    for k in 1..12 {
        p.file("cut.onnx", &model[..model.len() * k / 12]);
        let ran = p.squall(&["tasks", "cut.onnx", "--json"]);
        assert!(matches!(ran.code, Some(0 | 1)) && !ran.err.contains("panicked"), "{}", ran.err);
        if ran.code == Some(1) {
            assert!(ran.err.contains("cut.onnx"), "{}", ran.err);
        }
    }
}

#[test]
fn bad_operator_lines_say_what_is_wrong() {
    let p = Place::new();
    for line in [
        "frobnicate m=1 n=2",
        "matmul m=0 n=4 k=4",
        "matmul m=4 n=4",
        "matmul m=99999999999999999999 n=4 k=4",
    ] {
        p.squall(&["tasks", line]).fails();
    }
    p.file("bad.ops", "matmul m=4 n=4 k=4\nmatmul m=4 n=x k=4\n");
    assert!(p.squall(&["tasks", "bad.ops"]).fails().err.contains("bad.ops"));
    p.file("a.xyz", "?");
    assert!(p.squall(&["tasks", "a.xyz"]).fails().err.contains("xyz"));
    assert!(p.squall(&["tasks", "no such thing"]).fails().err.contains("hint: "));
    p.file(
        "bad.workload",
        "workload relu\ndata X: f32[4]\nstage Y: f32[i: 4] = max(X[i+1], 0)\noutput Y\n",
    );
    assert!(p.squall(&["tasks", "bad.workload"]).fails().err.contains("bad.workload"));
    std::fs::create_dir(p.path().join("folder.onnx")).unwrap();
    p.squall(&["tasks", "folder.onnx"]).fails();
}

#[test]
fn a_workload_explains_itself_and_comes_back() {
    let p = Place::new();
    let text = p.squall(&["explain", SMALL, "--stage", "expression"]).ok().out;
    p.file("again.workload", &text);
    let ids =
        |input: &str| p.squall(&["tasks", input, "--json"]).ok().json()["tasks"][0]["id"].clone();
    assert_eq!(ids(SMALL), ids("again.workload"));
}

#[test]
fn every_stage_is_explained() {
    let p = Place::new();
    for (stage, word) in [
        ("expression", "sum("),
        ("sketches", "sketch "),
        ("space", "legal"),
        ("schedule", ""),
        ("nest", ""),
        ("source", "int "),
    ] {
        let out = p.squall(&["explain", SMALL, "--stage", stage]).ok().out;
        assert!(out.len() > 20 && out.contains(word), "{stage}: {out}");
    }
    let json = p.squall(&["explain", SMALL, "--stage", "space", "--json"]).ok().json();
    assert!(json["text"].as_str().unwrap().contains("legal"));
    let e = p.squall(&["explain", SMALL, "--stage", "nest", "--tunable", "nonsense"]).fails();
    assert!(e.err.contains("nonsense"), "{}", e.err);
}

#[test]
fn a_closed_pipe_is_no_error() {
    let p = Place::new();
    let bin = env!("CARGO_BIN_EXE_squall");
    let script = format!(
        "'{bin}' explain '{SMALL}' --stage source | head -c 1 > /dev/null; echo ${{PIPESTATUS[0]}}"
    );
    let out = std::process::Command::new("bash")
        .args(["-c", &script])
        .current_dir(p.path())
        .output()
        .unwrap();
    assert!(!String::from_utf8_lossy(&out.stderr).contains("panic"));
    assert_eq!(String::from_utf8_lossy(&out.stdout).trim(), "0");
}

#[test]
fn doctor_measures_the_machine() {
    let p = Place::that_compiles_all();
    let v = p.squall(&["doctor", "--json"]).ok().json();
    assert_eq!(v["can_tune"], true);
    assert!(v["roof"]["peak_gflops"].as_f64().unwrap() > 0.1);
    assert!(v["roof"]["memory_gbs"].as_f64().unwrap() > 0.1);
    assert!(v["device"]["vector_bytes"].as_u64().unwrap() >= 16);
    assert!(v["model"]["units"]["cpu"]["fma_ports"].as_f64().unwrap() >= 1.0);
    let model: squall::MachineModel = v["model"].to_string().parse().unwrap();
    assert_eq!(model.vectors.bytes as u64, v["device"]["vector_bytes"].as_u64().unwrap());
    assert!(v["compiler"]["version"].as_str().is_some());
    assert!(p.path().read_dir().unwrap().next().is_none(), "a doctor leaves nothing behind");
    p.file("tuned.squall", "not a store at all");
    let ran = p.squall(&["doctor"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.out.contains("not a Squall store") && ran.out.contains("mend: "), "{}", ran.out);
}
