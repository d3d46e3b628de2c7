//! Tests of widening models of 16-bit floats (`halves.rs`): inputs and outputs keep their 16-bit
//! type, all values between are 32-bit floats, and conversions stand exactly where the file's type
//! is visible.

use squall_core::DType;
use squall_core::graph::{Constant, Model};
use squall_frontend::onnx::proto::TensorProto;
use squall_graph::Assignment;
use squall_graph::halves::{Halves, widened};
use squall_testing::onnx::{Build, int};
use std::sync::Arc;

const F16: i32 = 10;

fn halves(dims: &[i64], data: &[u16]) -> TensorProto {
    let int32_data = data.iter().map(|x| i32::from(*x)).collect();
    TensorProto { dims: dims.to_vec(), data_type: F16, int32_data, ..Default::default() }
}

fn wide(model: Model) -> (Model, Option<Halves>) {
    let (made, halves) = widened(model);
    made.verify().unwrap();
    // The widened model prints and parses back.
    assert_eq!(Model::parse(&made.to_string()).unwrap(), made);
    (made, halves)
}

fn dtype(m: &Model, name: &str) -> DType {
    m.values.iter().find(|v| v.name == name).and_then(|v| v.dtype).unwrap()
}

fn casts(m: &Model) -> usize {
    m.nodes.iter().filter(|n| n.op == "Cast" && !n.folded).count()
}

#[test]
fn ends_keep_their_types_and_all_between_is_wider() {
    let model = Build::new(18)
        .input_of("x", F16, &[2, 2])
        .init("w", halves(&[2, 2], &[0x3c00, 0, 0, 0x3c00]))
        .node("MatMul", &["x", "w"], &["c"], &[])
        .node("Relu", &["c"], &["y"], &[])
        .output("y");
    let (m, halves) = wide(model.read().unwrap());
    assert_eq!([dtype(&m, "x"), dtype(&m, "y")], [DType::F16; 2]);
    assert_eq!([dtype(&m, "w"), dtype(&m, "c")], [DType::F32; 2]);
    assert_eq!(m.values[m.outputs[0]].name, "y");
    assert_eq!(casts(&m), 2);
    let halves = halves.unwrap();
    assert_eq!(halves.format, DType::F16);
    assert!(halves.values.contains("c") && !halves.values.contains("x"), "{halves:?}");
    // Its kernels are those of 32-bit floats.
    let graph = Assignment::of(Arc::new(m), crate::net::alone).unwrap();
    assert!(graph.tasks().iter().all(|t| t.workload.inputs.iter().all(|i| i.dtype == DType::F32)));
    assert_eq!(graph.tasks().len(), 1);
}

#[test]
fn what_leaves_the_format_is_rounded_once() {
    let model = Build::new(18)
        .input_of("x", F16, &[4])
        .node("Mul", &["x", "x"], &["c"], &[])
        .node("Greater", &["c", "x"], &["g"], &[])
        .node("Cast", &["c"], &["i"], &[int("to", 7)])
        .node("Cast", &["x"], &["f"], &[int("to", 1)])
        .output("g")
        .output("i")
        .output("f");
    let (m, _) = wide(model.read().unwrap());
    // The input's, two that round the product for both of its readers, and that to integers; the
    // last hands on what the input was widened to.
    assert_eq!(casts(&m), 4, "{m}");
    assert!(m.nodes.iter().any(|n| n.folded && n.outputs == [m.outputs[2]]));
}

#[test]
fn models_of_floats_and_stored_weights_stay_as_they_are() {
    let plain = Build::new(18).input("x", &[4]).node("Relu", &["x"], &["y"], &[]).output("y");
    let plain = plain.read().unwrap();
    assert_eq!(widened(plain.clone()), (plain, None));
    let stored = Build::new(18)
        .input("x", &[2])
        .init("h", halves(&[2], &[0x3c00, 0x4000]))
        .node("Cast", &["h"], &["w"], &[int("to", 1)])
        .node("Mul", &["x", "w"], &["y"], &[])
        .output("y");
    let (m, halves) = wide(stored.read().unwrap());
    assert_eq!((casts(&m), halves), (0, None));
}

#[test]
fn known_results_are_numbers_of_their_format() {
    let model = Build::new(18)
        .input_of("x", F16, &[1])
        .init("a", halves(&[1], &[0x6bff]))
        .node("Add", &["a", "a"], &["b"], &[])
        .node("Mul", &["b", "b"], &["k"], &[])
        .node("Add", &["x", "k"], &["y"], &[])
        .output("y");
    let (m, _) = wide(model.read().unwrap());
    let k = m.values.iter().find(|v| v.name == "k").unwrap();
    let infinite = Constant::F32 { shape: vec![1], data: vec![f32::INFINITY] };
    assert_eq!(k.constant, Some(Arc::new(infinite)));
}
