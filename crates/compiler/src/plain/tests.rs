//! Tests of the plain kernels' texts as such: operator names are unique and known to shape
//! inference, unknown attributes and types are refused by name, and every name that a text uses is
//! defined. Results are tested in `compiler/tests/plain.rs`.

use super::*;
use squall_core::DType;
use squall_core::graph::{Attribute, CallOperand};
use std::collections::BTreeMap;

fn operand(dtype: DType, shape: &[i64]) -> Option<CallOperand> {
    Some(CallOperand { dtype, shape: shape.to_vec(), constant: None })
}

fn call(op: &str, inputs: Vec<Option<CallOperand>>, out: (DType, &[i64])) -> OperatorCall {
    OperatorCall {
        op: op.into(),
        domain: String::new(),
        opset: 20,
        attributes: BTreeMap::new(),
        inputs,
        outputs: vec![operand(out.0, out.1)],
    }
}

#[test]
fn names_are_unique_and_their_shapes_are_known() {
    let mut names: Vec<&str> = operators().collect();
    names.sort_unstable();
    let all = names.len();
    names.dedup();
    assert_eq!(names.len(), all);
    let known: Vec<&str> =
        squall_core::operators::standard_operators().map(|row| row.name).collect();
    for name in names {
        assert!(known.contains(&name), "{name} has a plain kernel but no inference");
    }
}

#[test]
fn attributes_that_are_not_known_are_refused_by_name() {
    let mut c = call("Relu", vec![operand(DType::F32, &[4])], (DType::F32, &[4]));
    c.attributes.insert("slope".into(), Attribute::Float(0.5));
    let e = source(&c, "f").unwrap_err().to_string();
    assert_eq!(e, "operator `Relu`: attribute `slope` is not supported");
    let c = call("Relu", vec![operand(DType::F16, &[4])], (DType::F16, &[4]));
    assert!(source(&c, "f").unwrap_err().to_string().contains("type f16"));
    let mut c = call("Gelu", vec![operand(DType::F32, &[4])], (DType::F32, &[4]));
    c.attributes.insert("approximate".into(), Attribute::String("best".into()));
    assert!(source(&c, "f").unwrap_err().to_string().contains("`approximate` is `best`"));
    let c = call("Loop", vec![], (DType::F32, &[4]));
    assert!(source(&c, "f").is_err());
}

#[test]
fn the_text_depends_on_its_symbol_only_where_it_stands() {
    let c = call(
        "MatMul",
        vec![operand(DType::F32, &[3, 4]), operand(DType::F32, &[4, 5])],
        (DType::F32, &[3, 5]),
    );
    let (a, b) = (source(&c, "first_one").unwrap(), source(&c, "other").unwrap());
    assert_eq!(a.text.replace("first_one", "other"), b.text);
    assert!(a.scratch_bytes >= 16 * 4 * 4);
    for word in ["malloc", "printf", "stdio", "stdlib"] {
        assert!(!a.text.contains(word));
    }
}

#[test]
fn a_recurrence_on_a_gpu_is_a_launch_for_each_step_of_one_text() {
    let lstm = |steps: i64| {
        let inputs = [&[steps, 1, 8], &[1, 64, 8], &[1, 64, 16]];
        let inputs = inputs.iter().map(|shape| operand(DType::F32, *shape)).collect();
        call("LSTM", inputs, (DType::F32, &[steps, 1, 1, 16]))
    };
    let made = device_source(&lstm(100), "f").unwrap();
    let launches: Vec<(&str, Option<i32>)> =
        made.phases.iter().map(|p| (p.entry.as_str(), p.step)).collect();
    assert_eq!(launches[..3], [("f_0", Some(0)), ("f_1", Some(0)), ("f_1", Some(1))]);
    assert_eq!((launches.len(), launches[100]), (101, ("f_1", Some(99))));
    assert!(made.phases.iter().all(|p| p.in_warps && p.width % 32 == 0));
    let longer = device_source(&lstm(200), "f").unwrap();
    assert_eq!(made.text.replace("100L", "N"), longer.text.replace("200L", "N"));
    // Each function tests a condition once.
    assert_eq!(made.only_where(&[true]).text.matches("*when0_ != 0").count(), 2);
    let longest = device_source(&lstm(70_000), "f").unwrap();
    assert_eq!((longest.phases.len(), longest.phases[0].width), (1, 1));
}
