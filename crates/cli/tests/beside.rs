//! Tests of `--beside`, which times other libraries (ONNX Runtime) next to Squall: times where a
//! Python has the library, a clear message where none has.

use crate::support;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::{Place, example};

/// A Python with onnxruntime, if there is one beside the repository or on the path.
fn python() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../peers-venv/bin/python");
    let more = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../peers-venv/bin/python");
    let has = |p: &PathBuf| {
        let mut command = Command::new(p);
        command.args(["-c", "import onnxruntime"]).stderr(Stdio::null());
        command.status().is_ok_and(|s| s.success())
    };
    let found = [beside, more, "python3".into()].into_iter().find(has);
    if found.is_none() {
        println!("skipped: no Python has onnxruntime");
    }
    found
}

#[test]
fn a_library_runs_the_same_model_in_turns() {
    let Some(python) = python() else { return };
    let p = Place::new();
    let model = example("small_net.onnx");
    let mut command =
        p.command(&["bench", &model, "--beside", "onnxruntime", "--seconds", "0.2", "--json"]);
    let ran = support::Ran::from(command.env("SQUALL_PYTHON", &python).output().unwrap()).ok();
    let peer = &ran.json()["beside"][0];
    assert_eq!(peer["library"], "onnxruntime", "{peer}");
    assert!(peer["best_ns"].as_u64().unwrap() > 0 && peer["ratio"].as_f64().unwrap() > 0.0);
    assert!(peer["error"].as_f64().unwrap() < 1e-4, "{peer}");
    assert!(ran.err.contains("beside onnxruntime"), "{}", ran.err);
    let mut command = p.command(&[
        "tune",
        &model,
        "--trials",
        "2",
        "--beside",
        "onnxruntime",
        "--report",
        "r.html",
    ]);
    let ran = support::Ran::from(command.env("SQUALL_PYTHON", &python).output().unwrap()).ok();
    assert!(ran.out.contains("one inference"), "{}", ran.out);
    assert!(ran.out.contains("beside onnxruntime 1."), "{}", ran.out);
    // The budget was too small for all of its tasks, and that is said.
    assert!(ran.err.contains("too few") || ran.out.contains("too small"), "{}", ran.err);
    let page = std::fs::read_to_string(p.path().join("r.html")).unwrap();
    assert!(page.contains("as fast as onnxruntime") && page.contains("one inference"));
}

#[test]
fn a_library_gets_the_weights_that_the_file_does_not_hold() {
    let Some(python) = python() else { return };
    let p = Place::new();
    // Every weight of this file is absent, and lies at the first byte of one file, it says.
    let model = example("resnet18.onnx");
    let mut command =
        p.command(&["bench", &model, "--beside", "onnxruntime", "--seconds", "0.2", "--json"]);
    let ran = support::Ran::from(command.env("SQUALL_PYTHON", &python).output().unwrap()).ok();
    let peer = &ran.json()["beside"][0];
    assert!(peer["error"].as_f64().unwrap() < 1e-4, "{peer}");
}

#[test]
fn an_absent_library_is_said_and_ours_is_timed_all_the_same() {
    let p = Place::new();
    let model = example("small_net.onnx");
    let args = ["bench", &model, "--beside", "openvino", "--seconds", "0.1", "--json"];
    let mut command = p.command(&args);
    let ran = support::Ran::from(command.env("SQUALL_PYTHON", "/bin/false").output().unwrap());
    let said = ran.ok().json();
    assert!(said["best_ns"].as_u64().unwrap() > 0);
    let why = said["beside"][0]["failed"].as_str().unwrap().to_string();
    assert!(why.contains("/bin/false") && why.contains("pip install"), "{why}");
    let ran = p.squall(&["bench", &model, "--beside", "tvm"]);
    assert_eq!(ran.code, Some(2), "{}", ran.err);
    assert!(ran.err.contains("onnxruntime"), "{}", ran.err);
}
