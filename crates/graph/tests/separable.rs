//! Tests of the fusion rule `chain` for separable convolutions (a depthwise convolution with the
//! pointwise ones beside it), which GPUs compute as one kernel: candidates are found, compute the
//! same as the separate nodes, and solvers take them by costs, known or estimated.

use crate::net;

use net::{Net, assert_alike, gpus};
use squall_core::graph::{Attribute, ValueId};
use squall_graph::solvers::{CHEAPEST, solver};

/// A pointwise convolution, with a ReLU where asked.
fn pointwise(n: &mut Net, x: ValueId, from: i64, to: i64, size: [i64; 2], relu: bool) -> ValueId {
    let w = n.weight(&[to, from, 1, 1]);
    let shape = [1, to, size[0], size[1]];
    let y = n.node("Conv", &[x, w], &shape, &[]);
    if relu { n.node("Relu", &[y], &shape, &[]) } else { y }
}

/// A model of an inverted residual: 6 channels, 16 between, 6 again, and the input added if asked.
fn inverted_residual(is_added: bool) -> Net {
    let mut n = Net::new();
    let x = n.input(&[1, 6, 7, 9]);
    let e = pointwise(&mut n, x, 6, 16, [7, 9], true);
    let w = n.weight(&[16, 1, 3, 3]);
    let around = [("pads", Attribute::Ints(vec![1, 1, 1, 1])), ("group", Attribute::Int(16))];
    let d = n.node("Conv", &[e, w], &[1, 16, 7, 9], &around);
    let d = n.node("Relu", &[d], &[1, 16, 7, 9], &[]);
    let mut y = pointwise(&mut n, d, 16, 6, [7, 9], false);
    if is_added {
        y = n.node("Add", &[y, x], &[1, 6, 7, 9], &[]);
    }
    n.0.outputs.push(y);
    n
}

#[test]
fn an_inverted_residual_may_be_one_kernel() {
    for is_added in [false, true] {
        let greedy = inverted_residual(is_added).lower_for(gpus);
        assert_eq!(greedy.tasks().len(), 3, "{greedy:?}");
        let found = greedy.candidates().list.iter().filter(|c| c.rule == "chain");
        // Candidates of the depthwise convolution with the pointwise one ahead, with the one
        // behind, and with both.
        let nodes: Vec<usize> = found.map(|c| c.nodes.len()).collect();
        let added = usize::from(is_added);
        assert!(nodes.contains(&4) && nodes.contains(&(3 + added)), "{nodes:?}");
        assert!(nodes.contains(&(5 + added)), "{nodes:?}");
        let cheapest = greedy.solved(solver(CHEAPEST).unwrap(), &|_| None).unwrap();
        let [one] = cheapest.tasks() else { panic!("{:?}", cheapest.tasks()) };
        assert_eq!(one.workload.kind, "separable_conv2d");
        let id = one.id;
        let dear =
            greedy.solved(solver(CHEAPEST).unwrap(), &|t| Some(if t == id { 9e9 } else { 1.0 }));
        assert!(dear.unwrap().tasks().len() > 1);
        assert_alike(&greedy, &cheapest, &[1, 6, 7, 9], 1e-4);
    }
}

#[test]
fn what_others_read_too_is_stored() {
    let mut n = inverted_residual(false);
    // The depthwise convolution's input is an output of the model, too.
    let relu = n.0.nodes.iter().find(|x| x.op == "Relu").unwrap().outputs[0];
    n.0.outputs.push(relu);
    let greedy = n.lower_for(gpus);
    let list = &greedy.candidates().list;
    let found: Vec<usize> =
        list.iter().filter(|c| c.rule == "chain").map(|c| c.nodes.len()).collect();
    // The depthwise convolution with the pointwise one behind it remains.
    assert!(!found.is_empty() && found.iter().all(|n| *n == 3), "{found:?}");
}
