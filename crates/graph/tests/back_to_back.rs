//! Two operators as one kernel, made in parts: found where they share an axis, computed alike,
//! chosen by costs alone.

use crate::net;

use net::{Net, assert_alike, ints};
use squall_core::graph::{Attribute, ValueId};
use squall_graph::rules::{CPU_RULES, GPU_RULES};
use squall_graph::solvers::{CHEAPEST, solver};

/// A pointwise convolution with a ReLU that gives 16 channels.
fn expanded(n: &mut Net) -> ValueId {
    let x = n.input(&[1, 6, 7, 9]);
    let w = n.weight(&[16, 6, 1, 1]);
    let y = n.node("Conv", &[x, w], &[1, 16, 7, 9], &[]);
    n.node("Relu", &[y], &[1, 16, 7, 9], &[])
}

/// What reads them: a depthwise convolution with a ReLU, a pooling, or a convolution that reads all
/// channels.
fn read_by(op: &str) -> Net {
    let mut n = Net::new();
    let x = expanded(&mut n);
    let around = [ints("pads", &[1, 1, 1, 1]), ints("strides", &[2, 2])];
    let y = match op {
        "depthwise" => {
            let w = n.weight(&[16, 1, 3, 3]);
            let group = ("group", Attribute::Int(16));
            let y = n.node("Conv", &[x, w], &[1, 16, 4, 5], &[&around[..], &[group]].concat());
            n.node("Relu", &[y], &[1, 16, 4, 5], &[])
        }
        "pooling" => {
            let kernel = [ints("kernel_shape", &[2, 2]), ints("strides", &[2, 2])];
            n.node("MaxPool", &[x], &[1, 16, 3, 4], &kernel)
        }
        _ => {
            let w = n.weight(&[8, 16, 3, 3]);
            n.node("Conv", &[x, w], &[1, 8, 4, 5], &around)
        }
    };
    n.0.outputs.push(y);
    n
}

#[test]
fn operators_that_share_an_axis_may_be_one_kernel() {
    for (op, nodes) in [("depthwise", 4), ("pooling", 3)] {
        // As for a device that has no other kernels of both.
        let greedy = read_by(op).lower().without(GPU_RULES).unwrap();
        assert_eq!(greedy.tasks().len(), 2, "{greedy:?}");
        let cheapest = greedy.solved(solver(CHEAPEST).unwrap(), &|_| None).unwrap();
        let [one] = cheapest.tasks() else { panic!("{op}: {:?}", cheapest.tasks()) };
        assert_eq!((one.workload.kind.as_str(), one.nodes.len()), ("back_to_back", nodes));
        let id = one.id;
        let dear =
            greedy.solved(solver(CHEAPEST).unwrap(), &|t| Some(if t == id { 9e9 } else { 1.0 }));
        assert_eq!(dear.unwrap().tasks().len(), 2, "{op}");
        assert_alike((&greedy, &cheapest), &[1, 6, 7, 9], 1e-5);
    }
}

#[test]
fn a_norm_of_rows_and_the_product_behind_it_may_be_one_kernel() {
    let mut n = Net::new();
    let x = n.input(&[1, 8, 12]);
    let (g, b, w) = (n.weight(&[12]), n.weight(&[12]), n.weight(&[12, 16]));
    let y = n.node("LayerNormalization", &[x, g, b], &[1, 8, 12], &[]);
    let y = n.node("MatMul", &[y, w], &[1, 8, 16], &[]);
    let y = n.node("Relu", &[y], &[1, 8, 16], &[]);
    n.0.outputs.push(y);
    for others in [GPU_RULES, CPU_RULES] {
        let greedy = n.lower().without(others).unwrap();
        assert_eq!(greedy.tasks().len(), 2, "{greedy:?}");
        let cheapest = greedy.solved(solver(CHEAPEST).unwrap(), &|_| None).unwrap();
        let [one] = cheapest.tasks() else { panic!("{:?}", cheapest.tasks()) };
        assert_eq!((one.workload.kind.as_str(), one.nodes.len()), ("back_to_back", 3));
        assert_alike((&greedy, &cheapest), &[1, 8, 12], 1e-5);
    }
}

/// What only GPUs have a kernel for: a convolution of any window with its pooling, and two products
/// with what is made between them, of as many rows as no part divides.
#[test]
fn operators_made_in_chunks_may_be_one_kernel() {
    let mut pooled = Net::new();
    let (x, w) = (pooled.input(&[1, 3, 9, 11]), pooled.weight(&[8, 3, 3, 3]));
    let around = [ints("pads", &[1, 1, 1, 1]), ints("strides", &[2, 2])];
    let y = pooled.node("Conv", &[x, w], &[1, 8, 5, 6], &around);
    let y = pooled.node("Relu", &[y], &[1, 8, 5, 6], &[]);
    let window = [&around[..], &[ints("kernel_shape", &[3, 3])]].concat();
    let y = pooled.node("MaxPool", &[y], &[1, 8, 3, 3], &window);
    pooled.0.outputs.push(y);
    let mut hidden = Net::new();
    let (x, w) = (hidden.input(&[1, 7, 12]), hidden.weight(&[12, 32]));
    let (b, v) = (hidden.weight(&[32]), hidden.weight(&[32, 12]));
    let y = hidden.node("MatMul", &[x, w], &[1, 7, 32], &[]);
    let y = hidden.node("Add", &[y, b], &[1, 7, 32], &[]);
    let y = hidden.node("Erf", &[y], &[1, 7, 32], &[]);
    let y = hidden.node("MatMul", &[y, v], &[1, 7, 12], &[]);
    let y = hidden.node("Add", &[y, x], &[1, 7, 12], &[]);
    hidden.0.outputs.push(y);
    for (net, rule, nodes, input) in
        [(pooled, "pooled", 3, &[1, 3, 9, 11][..]), (hidden, "products", 5, &[1, 7, 12])]
    {
        let greedy = net.lower().without(CPU_RULES).unwrap();
        assert_eq!(greedy.tasks().len(), 2, "{greedy:?}");
        let found = greedy.candidates().list.iter().filter(|c| c.rule == rule);
        assert!(found.count() > 0, "{rule}");
        let cheapest = greedy.solved(solver(CHEAPEST).unwrap(), &|_| None).unwrap();
        let [one] = cheapest.tasks() else { panic!("{rule}: {:?}", cheapest.tasks()) };
        assert_eq!((one.workload.kind.as_str(), one.nodes.len()), ("back_to_back", nodes));
        assert_alike((&greedy, &cheapest), input, 1e-5);
    }
}

/// As for a device that has no such kernels.
#[test]
fn the_rule_can_be_left_out() {
    let greedy = read_by("pooling").lower();
    let without = greedy.without(CPU_RULES).unwrap().without(GPU_RULES).unwrap();
    assert!(without.candidates().list.iter().all(|c| c.workload.kind != "back_to_back"));
    assert_eq!(without.tasks(), greedy.tasks());
    let cheapest = without.solved(solver(CHEAPEST).unwrap(), &|_| None).unwrap();
    assert_eq!(cheapest.tasks().len(), 2);
    assert!(cheapest.without(&["anchored"]).is_err());
}

#[test]
fn a_convolution_that_reads_all_channels_stays_apart() {
    let cheapest = read_by("dense").lower().solved(solver(CHEAPEST).unwrap(), &|_| None).unwrap();
    assert!(cheapest.tasks().iter().all(|t| t.workload.kind != "back_to_back"));
}

#[test]
fn what_others_read_too_is_stored() {
    let mut n = Net::new();
    let x = expanded(&mut n);
    let kernel = [ints("kernel_shape", &[2, 2]), ints("strides", &[2, 2])];
    let y = n.node("MaxPool", &[x], &[1, 16, 3, 4], &kernel);
    n.0.outputs.extend([x, y]);
    let cheapest = n.lower().solved(solver(CHEAPEST).unwrap(), &|_| None).unwrap();
    assert!(cheapest.tasks().iter().all(|t| t.workload.kind != "back_to_back"));
}
