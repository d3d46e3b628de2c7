//! Attention as one kernel: found where it is, computed alike, chosen by costs alone.

mod net;

use net::{Net, run, some_numbers};
use squall_core::graph::Attribute;
use squall_graph::solvers::{CHEAPEST, solver};

/// Two heads of 7 tokens that look at 9, scaled, with a mask where `masked`; the softmax is along
/// `axis`.
fn heads(masked: bool, axis: i64) -> Net {
    let mut n = Net::new();
    let (q, k, v) = (n.input(&[1, 2, 7, 4]), n.input(&[1, 2, 4, 9]), n.input(&[1, 2, 9, 4]));
    let scores = n.node("MatMul", &[q, k], &[1, 2, 7, 9], &[]);
    let half = n.number(0.5);
    let mut scores = n.node("Mul", &[scores, half], &[1, 2, 7, 9], &[]);
    if masked {
        let mask = n.input(&[1, 1, 7, 9]);
        scores = n.node("Add", &[scores, mask], &[1, 2, 7, 9], &[]);
    }
    let weights = n.node("Softmax", &[scores], &[1, 2, 7, 9], &[("axis", Attribute::Int(axis))]);
    let y = n.node("MatMul", &[weights, v], &[1, 2, 7, 4], &[]);
    n.0.outputs.push(y);
    n
}

#[test]
fn attention_is_one_kernel_where_costs_say_so() {
    for masked in [false, true] {
        let n = heads(masked, -1);
        let greedy = n.lower();
        assert_eq!(greedy.tasks().len(), 3, "{greedy:?}");
        let cheapest = greedy.solved(solver(CHEAPEST).unwrap(), &|_| None).unwrap();
        let kinds: Vec<&str> = cheapest.tasks().iter().map(|t| t.workload.kind.as_str()).collect();
        assert_eq!(kinds, ["attention"]);
        assert_eq!(cheapest.tasks()[0].nodes.len(), if masked { 5 } else { 4 });
        // What the three take together is less than this: it loses.
        let one = cheapest.tasks()[0].id;
        let dear =
            greedy.solved(solver(CHEAPEST).unwrap(), &|id| Some(if id == one { 1e6 } else { 1e3 }));
        assert_eq!(dear.unwrap().tasks().len(), 3);
        let inputs: Vec<Vec<f32>> =
            n.0.inputs
                .iter()
                .map(|&i| some_numbers(n.0.values[i].shape.as_ref().unwrap()))
                .collect();
        let (want, got) = (run(&greedy, &inputs).unwrap(), run(&cheapest, &inputs).unwrap());
        assert_eq!(want[0].len(), 56);
        for (a, b) in got[0].iter().zip(&want[0]) {
            assert!((a - b).abs() <= 1e-5, "{a} instead of {b}");
        }
    }
}

#[test]
fn a_softmax_along_another_axis_is_none() {
    let n = heads(false, 2);
    let cheapest = n.lower().solved(solver(CHEAPEST).unwrap(), &|_| None).unwrap();
    assert!(cheapest.tasks().iter().all(|t| t.workload.kind != "attention"));
}
