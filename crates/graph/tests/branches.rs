//! Tests of branches (`If`) that the run decides: the conditions under which each step of a plan
//! runs (`demand.rs`), and the step-by-step execution, which runs one branch only. The model is
//! read from ONNX that is built here.

use squall_graph::Assignment;
use squall_graph::plan::{Plan, PlanStep, ValueSource};
use squall_testing::onnx::*;
use std::sync::Arc;

/// A model with nested branches; in the branch that is not taken, `i` has an index out of range.
fn assignment() -> Assignment {
    let nested = [
        branch("then_branch", &[node("Gather", &["r", "i"], &["s"], &[])], "s"),
        branch("else_branch", &[node("Transpose", &["r"], &["t"], &[ints("perm", &[0, 1])])], "t"),
    ];
    let yes = [
        node("MatMul", &["x", "w"], &["r"], &[]),
        node("ReduceMax", &["r"], &["top"], &[int("keepdims", 0)]),
        node("Greater", &["top", "limit"], &["above"], &[]),
        node("If", &["above"], &["a"], &nested),
    ];
    let no = [node("Gather", &["x", "i"], &["b"], &[])];
    let branches = [branch("then_branch", &yes, "a"), branch("else_branch", &no, "b")];
    let model = Build::new(17)
        .input("x", &[2, 2])
        .init("w", f32s(&[2, 2], &[1.0, 0.0, 0.0, 1.0]))
        .init("i", i64s(&[2], &[0, 9]))
        .init("zero", f32s(&[], &[0.0]))
        .init("limit", f32s(&[], &[100.0]))
        .node("ReduceSum", &["x"], &["sum"], &[int("keepdims", 0)])
        .node("Greater", &["sum", "zero"], &["c"], &[])
        .node("If", &["c"], &["y"], &branches)
        .output("y");
    Assignment::of(Arc::new(model.read().unwrap()), crate::net::alone).unwrap()
}

#[test]
fn steps_run_under_the_conditions_of_what_reads_them() {
    let plan = assignment().plan(Default::default()).unwrap();
    let step = |op: &str, n: usize| -> &PlanStep {
        plan.steps
            .iter()
            .filter(|s| s.op == op)
            .nth(n)
            .unwrap_or_else(|| panic!("{op} {n}\n{plan}"))
    };
    let under = |s: &PlanStep| s.when.iter().map(|w| w.is).collect::<Vec<bool>>();
    assert!(step("ReduceSum", 0).when.is_empty());
    assert_eq!(under(step("MatMul", 0)), [true]);
    assert_eq!(under(step("Gather", 0)), [true, true]);
    assert_eq!(under(step("Gather", 1)), [false]);
    assert_eq!((under(step("Choose", 0)), under(step("Choose", 1))), (vec![true], vec![]));
    // The flag of the inner branches is computed before the steps that depend on it.
    let inner = step("Gather", 0).when.iter().map(|w| w.flag).collect::<Vec<_>>();
    let at = plan.steps.iter().position(|s| s.op == "Gather").unwrap();
    for flag in inner {
        let ValueSource::Block(p) = flag else { panic!("a constant") };
        let made = |s: &PlanStep| s.work.writes().iter().any(|w| w.block == p.block);
        assert!(plan.steps[..at].iter().any(made));
    }
    let text = plan.to_string();
    assert!(text.contains(" if b") && text.contains(" unless b"), "{text}");
    assert_eq!(Plan::parse(&text).unwrap(), plan);
    let wrong = text.replacen(" unless b", " unless c", 1);
    assert!(Plan::parse(&wrong).is_err());
}

#[test]
fn one_branch_is_executed() {
    let assignment = assignment();
    // Kernels stand in: a sum of all, a comparison with the second input, or the input itself.
    let mut kernel = |task, inputs: &[&[f32]]| {
        let task = assignment.tasks().iter().find(|t| t.id == task).unwrap();
        Ok(match task.workload.output().elements() {
            1 if inputs.len() == 1 => vec![inputs[0].iter().sum()],
            _ => inputs[0].to_vec(),
        })
    };
    let taken = assignment.run(&[vec![1.0, 2.0, 3.0, 4.0]], &mut kernel);
    let other = assignment.run(&[vec![-1.0, -2.0, -3.0, -4.0]], &mut kernel);
    let text = |r: Result<Vec<Vec<f32>>, String>| match r {
        Ok(y) => format!("{y:?}"),
        Err(e) => e,
    };
    let (taken, other) = (text(taken), text(other));
    assert!(taken.contains("[1.0, 2.0, 3.0, 4.0]"), "{taken}");
    assert!(other.contains("Gather") && other.contains('9'), "{other}");
}
