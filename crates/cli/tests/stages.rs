//! Tests of the stages of a model that `squall explain` prints, and of an assignment (which
//! operators become which kernel) that a user edited and gave to `squall run` and `squall check`.

use crate::support;

use support::{Place, example};

#[test]
fn every_stage_of_a_model_is_shown() {
    let (p, model) = (Place::new(), example("small_net.onnx"));
    let shown = |stage: &str| p.squall(&["explain", &model, "--stage", stage]).ok().out;
    for (stage, part) in [
        ("model", "opset"),
        ("candidates", "| workload conv2d"),
        ("assignment", "kernel anchored"),
        ("plan", "input b0+0"),
    ] {
        assert!(shown(stage).contains(part), "{}", shown(stage));
    }
    let json = p.squall(&["explain", &model, "--stage", "assignment", "--json"]).ok().json();
    assert_eq!(json["text"].as_str().unwrap().trim_end(), shown("assignment").trim_end());
    let e = p.squall(&["explain", "matmul m=4 n=4 k=4", "--stage", "plan"]).fails().err;
    assert!(e.contains("it is no model"), "{e}");
}

#[test]
fn an_assignment_that_a_user_wrote_is_run() {
    let p = Place::new();
    let (model, x) = (example("small_net.onnx"), example("small_net_input.npy"));
    let y = example("small_net_output.npy");
    let first = ["explain", &model, "--stage", "assignment", "--channels", "first"];
    let text = p.squall(&first).ok().out;
    // The first kernel that ends in an activation leaves it to a kernel of its own.
    let fused = text.lines().find(|l| l.starts_with("kernel anchored") && l.contains("elu"));
    let fused = fused.unwrap_or_else(|| panic!("nothing is fused: {text}"));
    let (rest, last) = fused.rsplit_once(' ').unwrap();
    let edited = text.replace(fused, &format!("{rest}\nkernel elementwise {last}"));
    p.file("cut.txt", &edited);
    let kernels = |args: &[&str]| {
        let ran = p.squall(&[&["run", &model, "--input", &x, "--json"], args].concat()).ok().json();
        ran["kernels"].as_u64().unwrap()
    };
    let whole = kernels(&["--output", "whole.npy"]);
    let cut = kernels(&["--output", "cut.npy", "--assignment", "cut.txt"]);
    assert!(cut > whole, "{cut} kernels instead of {whole}");
    p.squall(&["check", &model, "--input", &x, "--expect", &y, "--assignment", "cut.txt"]).ok();
    let read =
        |name: &str| squall::arrays::read_array(&p.path().join(name)).unwrap().f32s().unwrap();
    for (a, b) in read("whole.npy").iter().zip(&read("cut.npy")) {
        assert!((a - b).abs() <= 1e-4 * b.abs().max(1.0), "{a} instead of {b}");
    }
    // An assignment that is no cover says what is missing.
    p.file("bad.txt", text.replace(&format!("{fused}\n"), ""));
    let bad = ["run", &model, "--input", &x, "--output", "y.npy", "--assignment", "bad.txt"];
    let e = p.squall(&bad).fails().err;
    assert!(e.contains("bad.txt") && e.contains("no step before it gives"), "{e}");
}
