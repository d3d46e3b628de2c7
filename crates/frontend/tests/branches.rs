//! Tests of the ONNX reader (`onnx::read`) on models built in memory: `If` nodes whose branch only
//! the run decides, which become `Choose` nodes, and operators of opsets before 7, which broadcast
//! by an axis.

use squall_core::DType;
use squall_core::graph::Model;
use squall_core::graph::infer::is_choice;
use squall_testing::onnx::*;

fn ops(m: &Model) -> Vec<&str> {
    m.nodes.iter().filter(|n| !n.folded).map(|n| n.op.as_str()).collect()
}

#[test]
fn illegal_elements_of_a_branch_are_the_runs_affair() {
    let taken = branch("then_branch", &[node("Neg", &["x"], &["a"], &[])], "a");
    let reads = branch("else_branch", &[node("Gather", &["w", "i"], &["b"], &[])], "b");
    let made = |attributes: &[_]| {
        Build::new(17)
            .input_of("c", BOOL, &[])
            .input("x", &[2])
            .init("w", f32s(&[2], &[1.0, 2.0]))
            .init("i", i64s(&[2], &[0, 9]))
            .node("If", &["c"], &["y"], attributes)
            .output("y")
            .read()
            .unwrap()
    };
    let m = made(&[taken.clone(), reads.clone()]);
    assert_eq!(ops(&m), ["Neg", "Gather", "Choose"]);
    assert!(m.nodes.iter().all(|n| n.problem.is_none()) && m.nodes.iter().any(is_choice));
    // Outside of branches the same is said when the model is read.
    let outside = Build::new(17)
        .init("w", f32s(&[2], &[1.0, 2.0]))
        .init("i", i64s(&[2], &[0, 9]))
        .node("Gather", &["w", "i"], &["y"], &[])
        .output("y");
    assert!(outside.problem().contains('9'), "{}", outside.problem());
}

#[test]
fn old_operators_broadcast_from_an_axis() {
    let aligned = |op: &str, b: &[i64], attributes: &[_]| {
        Build::new(6)
            .input("x", &[2, 3, 4, 5])
            .input("b", b)
            .node(op, &["x", "b"], &["y"], attributes)
            .output("y")
    };
    let from = |axis: i64| [int("broadcast", 1), int("axis", axis)];
    for op in ["Add", "Sub", "Mul", "Div", "Pow"] {
        for (b, axis) in [(&[3][..], 1), (&[3, 4], 1), (&[2], 0), (&[3], -3), (&[5], 3)] {
            let built = aligned(op, b, &from(axis));
            assert_eq!(built.typed("y"), (Some(DType::F32), vec![2, 3, 4, 5]), "{op} {b:?}");
            let m = built.read().unwrap();
            let node = m.nodes.last().unwrap();
            assert!(node.op == op && node.attributes.is_empty(), "{node:?}");
            let to = m.values[node.inputs[1].unwrap()].shape.clone().unwrap();
            let first = axis.rem_euclid(4) as usize;
            assert_eq!(to.len(), 4 - first, "{op} {b:?} from {axis}");
            assert_eq!(&to[..b.len()], b);
        }
    }
    let equal = Build::new(6)
        .input_of("a", BOOL, &[2, 3])
        .input_of("b", BOOL, &[2])
        .node("And", &["a", "b"], &["y"], &from(0))
        .output("y");
    assert_eq!(equal.typed("y"), (Some(DType::Bool), vec![2, 3]));
    // Without `broadcast` the axis means nothing.
    assert_eq!(aligned("Add", &[2, 3, 4, 5], &[int("axis", 1)]).shape("y"), [2, 3, 4, 5]);
    let wrong = aligned("Add", &[3, 4], &from(3)).problem();
    assert!(wrong.contains("`axis` is 3"), "{wrong}");
    let far = aligned("Add", &[3], &from(i64::MIN)).problem();
    assert!(far.contains("`axis`"), "{far}");
}

#[test]
fn an_old_slope_runs_along_the_channels() {
    let build = Build::new(6)
        .input("x", &[2, 3, 4, 5])
        .input("s", &[3])
        .node("PRelu", &["x", "s"], &["y"], &[])
        .output("y");
    let m = build.read().unwrap();
    let slope = m.nodes.last().unwrap().inputs[1].unwrap();
    assert_eq!(m.values[slope].shape.as_deref(), Some(&[3, 1, 1][..]));
}

/// `Unique` is not evaluated when a model is read: of constants, too, the run finds its length.
#[test]
fn lengths_that_constants_decide_are_open() {
    let model = Build::new(17)
        .input("x", &[1])
        .init("list", f32s(&[4], &[3.0, 1.0, 3.0, 2.0]))
        .node("Unique", &["list"], &["few"], &[])
        .node("Add", &["few", "x"], &["y"], &[])
        .output("y")
        .read()
        .unwrap();
    assert!(model.nodes.iter().any(|n| n.op == "Region"), "{:?}", model.nodes);
}
