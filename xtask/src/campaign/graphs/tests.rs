//! Tests of the campaign of graphs: its table covers all operators of docs/operators.md, rows draw
//! graphs that the reader takes, a seed draws the same graph again, differences are seen, and
//! failing graphs are made smaller.

use super::bounds::bounds;
use super::case::{Case, Refused, Without};
use super::compare::{Arrays, difference};
use super::graph::{Call, Effect, Fill, Graph};
use super::rows::{self, WITHOUT_ROW};
use super::shrink::shrunk;
use prost::Message as _;
use squall_core::DType;
use squall_frontend::npy::Array;
use squall_fuzz::Draw;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// docs/operators.md is made of the code's own tables.
fn known() -> BTreeSet<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operators.md");
    let text = std::fs::read_to_string(page).unwrap();
    let rows = text.lines().filter_map(|l| l.strip_prefix("| "));
    let rows = rows.filter(|l| !l.contains("not supported") && !l.starts_with("operator"));
    rows.filter_map(|l| l.split(' ').next()).map(String::from).collect()
}

#[test]
fn every_operator_has_a_row_or_a_reason() {
    let standard = rows::all().into_iter().map(|r| r.op).filter(|op| !op.contains('.'));
    let rows: BTreeSet<String> = standard.map(String::from).collect();
    let reasons: BTreeSet<String> = WITHOUT_ROW.iter().map(|r| r.0.to_string()).collect();
    let both: BTreeSet<String> = rows.union(&reasons).cloned().collect();
    assert_eq!(both, known());
    assert_eq!(rows.intersection(&reasons).count(), 0);
}

#[test]
fn every_row_makes_what_the_reader_takes() {
    let mut made: BTreeMap<&str, (usize, String)> = BTreeMap::new();
    for row in rows::all() {
        for seed in 0..40 {
            let mut draw = Draw::of_seed(seed);
            let mut g = Graph::new(&mut draw, 28, "g0_");
            let entry = made.entry(row.op).or_default();
            let Some(call) = row.call(&mut g) else { continue };
            match g.add(row.op, call, row.effect) {
                Ok(()) => entry.0 += 1,
                Err(e) => entry.1 = e,
            }
        }
    }
    let few: Vec<_> = made.iter().filter(|m| m.1.0 < 8).collect();
    assert!(few.is_empty(), "{few:?}");
}

#[test]
fn the_same_seed_draws_the_same_graph() {
    let draw = |seed| {
        let without = Without::default();
        Case::draw(seed, 20, "g0_", &without, &mut Refused::new())
    };
    for seed in 0..20 {
        let (a, b) = (draw(seed), draw(seed));
        assert_eq!(a.model(&a.outputs).encode_to_vec(), b.model(&b.outputs).encode_to_vec());
        assert!(a.inputs == b.inputs || a.inputs.iter().any(|i| i.1.dtype.is_float()));
    }
    let (a, b) = (draw(1), draw(2));
    assert_ne!(a.model(&a.outputs), b.model(&b.outputs));
}

/// A graph of three operators over a matrix.
fn three() -> (Case, Arrays) {
    let mut draw = Draw::of_seed(3);
    let mut g = Graph::new(&mut draw, 20, "g0_");
    let x = g.tensor(DType::F32, &[5, 7], Fill::Tame, false);
    for op in ["Relu", "Neg", "Exp"] {
        let last = g.values.len() - 1;
        g.add(op, Call::of(&[if op == "Relu" { x } else { last }]), Effect::Rounds).unwrap();
    }
    let outputs = vec!["g0_v3".to_string()];
    let case = Case {
        seed: 0,
        opset: 20,
        nodes: g.nodes.clone(),
        inputs: g.inputs.clone(),
        constants: Vec::new(),
        outputs,
        exact: Default::default(),
    };
    let values = ["g0_v1", "g0_v2", "g0_v3"].map(|n| (n.to_string(), case.inputs[0].1.clone()));
    (case, values.into_iter().collect())
}

#[test]
fn what_differs_is_seen() {
    let (mut case, want) = three();
    let mut got = want.clone();
    let compared = |case: &Case, got: &Arrays| {
        difference(case, got, &want, &bounds(case, &want, &Arrays::new()))
    };
    assert_eq!(compared(&case, &got), None);
    let put = |got: &mut Arrays, x: f32| {
        got.get_mut("g0_v3").unwrap().bytes[8..12].copy_from_slice(&x.to_ne_bytes());
    };
    let here = want["g0_v3"].number(2).unwrap() as f32;
    put(&mut got, here * (1.0 + f32::EPSILON));
    assert_eq!(compared(&case, &got), None);
    case.exact.insert("g0_v3".into());
    assert!(compared(&case, &got).is_some());
    case.exact.clear();
    for wrong in [here + 0.01, f32::NAN, f32::INFINITY] {
        put(&mut got, wrong);
        let said = compared(&case, &got).unwrap();
        assert!(said.contains("element 2 of [5, 7]"), "{said}");
    }
    got.remove("g0_v3");
    assert!(compared(&case, &got).unwrap().contains("missing"));
}

/// `MatMul(x, w) + 1` with a row of huge numbers and one of small ones.
#[test]
fn a_small_element_beside_large_ones_is_compared_by_its_own_size() {
    let x = Array::floats(vec![2, 2], &[1e30, -1e30, 1e-3, 2e-3]);
    let w = Array::floats(vec![2, 1], &[1.0, 1.0]);
    let node = |op: &str, input: [&str; 2], output: &str| {
        squall_testing::onnx::node(op, &input, &[output], &[])
    };
    let case = Case {
        seed: 0,
        opset: 20,
        nodes: vec![node("MatMul", ["x", "w"], "p"), node("Add", ["p", "w1"], "y")],
        inputs: vec![
            ("x".into(), x),
            ("w".into(), w),
            ("w1".into(), Array::floats(vec![1], &[0.5])),
        ],
        constants: Vec::new(),
        outputs: vec!["p".into(), "y".into()],
        exact: Default::default(),
    };
    let arrays = |p: [f32; 2], y: [f32; 2], name: [&str; 2]| -> Arrays {
        let all = [p, y].map(|d| Array::floats(vec![2, 1], &d));
        name.map(String::from).into_iter().zip(all).collect()
    };
    let want = arrays([0.0, 3e-3], [0.5, 0.503], ["p", "y"]);
    let sizes = arrays([2e30, 3e-3], [0.0, 0.0], ["p", "unused"]);
    let bounds = bounds(&case, &want, &sizes);
    let compared =
        |p: [f32; 2], y: [f32; 2]| difference(&case, &arrays(p, y, ["p", "y"]), &want, &bounds);
    // The terms of the first row are huge, and so may be what is lost of them.
    assert_eq!(compared([1e22, 3e-3], [1e22, 0.503]), None);
    assert!(compared([0.0, 3.001e-3], [0.5, 0.503]).is_some());
    assert!(compared([0.0, 3e-3], [0.5, 0.5031]).is_some());
}

#[test]
fn what_fails_is_made_smaller() {
    let (case, values) = three();
    let mut fails = |c: &Case| {
        let is_wide = c.inputs.iter().any(|i| i.1.shape.last().is_some_and(|e| *e >= 3));
        (is_wide && c.nodes.iter().any(|n| n.op_type == "Neg")).then(|| "wrong".to_string())
    };
    let small = shrunk(&case, &mut fails, &mut |_| Some(values.clone()));
    assert_eq!(small.operators(), "Neg");
    assert_eq!(small.inputs.len(), 1);
    assert!(small.inputs[0].1.shape.iter().product::<i64>() <= 12, "{:?}", small.inputs[0].1.shape);
}
