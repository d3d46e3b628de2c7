//! `--target`: what is said where there is no GPU, and a small tuning where there is one.

mod support;

use support::Place;

#[test]
fn a_gpu_is_tuned_for_or_its_absence_explained() {
    let p = Place::new();
    let ran = p.squall(&["tune", "softmax rows=8 cols=256", "--trials", "4", "--target", "cuda", "--json"]);
    if ran.code == Some(0) {
        assert_eq!(ran.json()["tasks"][0]["trials"], 4);
        return;
    }
    println!("skipped: {}", ran.err);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(ran.err.contains("CUDA cannot be used: ") && !ran.err.contains("panicked"), "{}", ran.err);
}

#[test]
fn a_target_that_is_none_is_refused() {
    let p = Place::new();
    let ran = p.squall(&["tune", "softmax rows=8 cols=256", "--trials", "4", "--target", "cuda:x"]);
    assert_eq!(ran.code, Some(2), "{}", ran.err);
    assert!(ran.err.contains("expected `cpu`, `cuda`, `cuda:N`"), "{}", ran.err);
}

#[test]
fn whole_models_are_refused_on_a_gpu() {
    let p = Place::new();
    let ran = p.squall(&["run", "model.onnx", "--input", "x.npy", "--output", "y.npy", "--target", "cuda"]);
    assert_eq!(ran.code, Some(2), "{}", ran.err);
    let ran = p.squall(&["check", "model.onnx", "--input", "x.npy", "--expect", "y.npy", "--target", "cuda"]);
    assert!(ran.err.contains("on the CPU only") && ran.err.contains("squall export"), "{}", ran.err);
}
