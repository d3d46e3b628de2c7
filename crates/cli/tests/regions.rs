//! Lengths that only the run knows, and loops, in whole models.

use crate::support::Place;
use squall_testing::onnx::{
    BOOL, Build, F32, I64, TensorProto, body, f32s, i64s, int, ints, node, stored, truth,
};

/// Runs a model on floats; it has to give these tensors.
fn gives(model: &Build, x: (&[i64], &[f32]), outputs: &[TensorProto]) {
    let p = Place::new();
    p.file("m.onnx", model.bytes());
    std::fs::create_dir(p.path().join("d")).unwrap();
    p.file("d/input_0.pb", stored("x", &f32s(x.0, x.1)));
    for (i, t) in outputs.iter().enumerate() {
        p.file(&format!("d/output_{i}.pb"), stored(&model.output_name(i), t));
    }
    p.squall(&["check", "m.onnx", "--test-data", "d"]).ok();
}

#[test]
fn operators_run_over_the_length_that_the_run_finds() {
    let model = Build::new(17)
        .input("x", &[3, 4])
        .init("zero", f32s(&[], &[0.0]))
        .init("w", f32s(&[1, 2], &[1.0, 10.0]))
        .init("one", i64s(&[1], &[1]))
        .node("Greater", &["x", "zero"], &["c"], &[])
        .node("NonZero", &["c"], &["i"], &[])
        .node("Transpose", &["i"], &["places"], &[ints("perm", &[1, 0])])
        .node("GatherND", &["x", "places"], &["found"], &[])
        .node("Unsqueeze", &["found", "one"], &["column"], &[])
        .node("MatMul", &["column", "w"], &["y"], &[])
        .node("ReduceSum", &["found"], &["sum"], &[int("keepdims", 0)])
        .node("Shape", &["found"], &["count"], &[])
        .output("y")
        .output("sum")
        .output("count");
    let x = [1.0, -1.0, 0.0, 2.0, -3.0, 4.0, -1.0, -1.0, -1.0, -1.0, 0.5, -2.0];
    let y = f32s(&[4, 2], &[1.0, 10.0, 2.0, 20.0, 4.0, 40.0, 0.5, 5.0]);
    gives(&model, (&[3, 4], &x), &[y, f32s(&[], &[7.5]), i64s(&[1], &[4])]);
    let none = [f32s(&[0, 2], &[]), f32s(&[], &[0.0]), i64s(&[1], &[0])];
    gives(&model, (&[3, 4], &[-1.0; 12]), &none);
}

#[test]
fn a_loop_ends_when_the_data_says_so_and_its_results_grow() {
    let inner = body(
        vec![
            node("Concat", &["a", "x"], &["longer"], &[int("axis", 0)]),
            node("ReduceSum", &["longer"], &["sum"], &[int("keepdims", 0)]),
            node("Less", &["sum", "limit"], &["goes_on"], &[]),
        ],
        &[("i", I64, &[]), ("c", BOOL, &[]), ("a", F32, &[3])],
        &["goes_on", "longer", "sum"],
    );
    let model = Build::new(17)
        .input("x", &[3])
        .init("limit", f32s(&[], &[5.0]))
        .init("true", truth())
        .node("Loop", &["", "true", "x"], &["y", "sums"], &[inner])
        .output("y")
        .output("sums");
    let x = [1.0, 2.0, -1.0];
    let y = [x, x, x].concat();
    gives(&model, (&[3], &x), &[f32s(&[9], &y), f32s(&[2], &[4.0, 6.0])]);
}

#[test]
fn thousands_of_turns_stay_a_loop() {
    let inner = body(
        vec![node("Add", &["h", "u"], &["sum"], &[]), node("Neg", &["sum"], &["o"], &[])],
        &[("h", F32, &[2]), ("u", F32, &[2])],
        &["sum", "o"],
    );
    let turns = 5000;
    let model = Build::new(17)
        .input("x", &[turns, 2])
        .init("h", f32s(&[2], &[0.0, 1.0]))
        .node("Scan", &["h", "x"], &["last", "all"], &[inner, int("num_scan_inputs", 1)])
        .output("last")
        .output("all");
    // Sums of ones and twos are exact.
    let x: Vec<f32> = (0..turns).flat_map(|_| [1.0, 2.0]).collect();
    let all: Vec<f32> = (1..=turns).flat_map(|i| [-(i as f32), -(2.0 * i as f32 + 1.0)]).collect();
    let last = f32s(&[2], &[5000.0, 10001.0]);
    gives(&model, (&[turns, 2], &x), &[last, f32s(&[turns, 2], &all)]);
}

#[test]
fn what_is_refused_names_the_value_whose_length_is_not_known() {
    let model = Build::new(17)
        .input("x", &[12])
        .node("NonZero", &["x"], &["i"], &[])
        .node("Cast", &["i"], &["f"], &[int("to", 1)])
        .node("DFT", &["f"], &["y"], &[])
        .output("y");
    let p = Place::new();
    p.file("m.onnx", model.bytes());
    let said = p.squall(&["run", "m.onnx"]).fails().err;
    assert!(said.contains("`f`") && said.contains("only the run knows"), "{said}");
}
