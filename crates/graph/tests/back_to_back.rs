//! Tests of the fusion rule `chain` (operators one behind the other as one kernel): candidates are
//! found where two operators share an axis, where a norm of rows feeds a product, and where GPUs
//! compute in chunks; they compute the same as the separate nodes; results that other nodes read
//! too, and devices without such kernels, exclude them. Models are built by hand (`net`).

use crate::net;

use net::{Net, assert_alike, cpus, gpus, ints};
use squall_core::graph::{Attribute, ValueId};
use squall_graph::Assignment;
use squall_graph::candidate::MakesChain;
use squall_graph::solvers::{CHEAPEST, solver};

/// Adds a pointwise convolution with a ReLU and 16 output channels.
fn expanded(n: &mut Net) -> ValueId {
    let x = n.input(&[1, 6, 7, 9]);
    let w = n.weight(&[16, 6, 1, 1]);
    let y = n.node("Conv", &[x, w], &[1, 16, 7, 9], &[]);
    n.node("Relu", &[y], &[1, 16, 7, 9], &[])
}

/// A model in which a depthwise convolution with a ReLU, a pooling, or a full convolution reads
/// these channels.
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
        let greedy = read_by(op).lower_for(cpus);
        assert_eq!(greedy.tasks().len(), 2, "{greedy:?}");
        let cheapest = greedy.solved(solver(CHEAPEST).unwrap(), &|_| None).unwrap();
        let [one] = cheapest.tasks() else { panic!("{op}: {:?}", cheapest.tasks()) };
        assert_eq!((one.workload.kind.as_str(), one.nodes.len()), ("back_to_back", nodes));
        let id = one.id;
        let dear =
            greedy.solved(solver(CHEAPEST).unwrap(), &|t| Some(if t == id { 9e9 } else { 1.0 }));
        assert_eq!(dear.unwrap().tasks().len(), 2, "{op}");
        assert_alike(&greedy, &cheapest, &[1, 6, 7, 9], 1e-5);
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
    for makes_chain in [cpus as MakesChain, gpus] {
        let greedy = n.lower_for(makes_chain);
        assert_eq!(greedy.tasks().len(), 2, "{greedy:?}");
        let cheapest = greedy.solved(solver(CHEAPEST).unwrap(), &|_| None).unwrap();
        let [one] = cheapest.tasks() else { panic!("{:?}", cheapest.tasks()) };
        assert_eq!((one.workload.kind.as_str(), one.nodes.len()), ("back_to_back", 3));
        assert_alike(&greedy, &cheapest, &[1, 8, 12], 1e-5);
    }
}

/// Chains that only GPUs have kernels for: a convolution of any window with its pooling, and two
/// products with elementwise steps between them, with a number of rows that no part divides.
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
    for (net, nodes, input) in [(pooled, 3, &[1, 3, 9, 11][..]), (hidden, 5, &[1, 7, 12])] {
        let greedy = net.lower_for(gpus);
        assert_eq!(greedy.tasks().len(), 2, "{greedy:?}");
        let list =
            |g: &Assignment| g.candidates().list.iter().filter(|c| c.rule == "chain").count();
        assert_eq!((list(&greedy) > 0, list(&net.lower())), (true, 0));
        let cheapest = greedy.solved(solver(CHEAPEST).unwrap(), &|_| None).unwrap();
        let [one] = cheapest.tasks() else { panic!("{:?}", cheapest.tasks()) };
        assert_eq!((one.workload.kind.as_str(), one.nodes.len()), ("back_to_back", nodes));
        assert_alike(&greedy, &cheapest, input, 1e-5);
    }
}

#[test]
fn a_device_without_such_kernels_has_no_such_candidates() {
    let net = read_by("pooling");
    let (alone, greedy) = (net.lower(), net.lower_for(cpus));
    assert!(alone.candidates().list.iter().all(|c| c.workload.kind != "back_to_back"));
    assert_eq!(alone.tasks(), greedy.tasks());
    let cheapest = alone.solved(solver(CHEAPEST).unwrap(), &|_| None).unwrap();
    assert_eq!(cheapest.tasks().len(), 2);
}

/// An assignment that names the former rules.
#[test]
fn a_text_of_an_older_build_names_the_same_kernels() {
    let net = read_by("depthwise");
    for (makes_chain, older) in [(cpus as MakesChain, "back_to_back"), (gpus, "separable")] {
        let greedy = net.lower_for(makes_chain);
        let cheapest = greedy.solved(solver(CHEAPEST).unwrap(), &|_| None).unwrap();
        let text = cheapest.to_string();
        let of_older = text.replace("kernel chain ", &format!("kernel {older} "));
        assert_ne!(text, of_older);
        let read = Assignment::parse(&of_older, greedy.candidates()).unwrap();
        assert_eq!(read.to_string(), text);
    }
}

#[test]
fn a_convolution_that_reads_all_channels_stays_apart() {
    for makes_chain in [cpus as MakesChain, gpus] {
        let greedy = read_by("dense").lower_for(makes_chain);
        let cheapest = greedy.solved(solver(CHEAPEST).unwrap(), &|_| None).unwrap();
        assert!(cheapest.tasks().iter().all(|t| t.workload.kind != "back_to_back"));
    }
}

#[test]
fn what_others_read_too_is_stored() {
    let mut n = Net::new();
    let x = expanded(&mut n);
    let kernel = [ints("kernel_shape", &[2, 2]), ints("strides", &[2, 2])];
    let y = n.node("MaxPool", &[x], &[1, 16, 3, 4], &kernel);
    n.0.outputs.extend([x, y]);
    let cheapest = n.lower_for(cpus).solved(solver(CHEAPEST).unwrap(), &|_| None).unwrap();
    assert!(cheapest.tasks().iter().all(|t| t.workload.kind != "back_to_back"));
}

#[test]
fn an_operator_of_another_domain_stays_apart() {
    let made = |domain: &str| {
        let mut n = Net::new();
        let (x, w, v) = (n.input(&[8, 12]), n.weight(&[12, 32]), n.weight(&[32, 16]));
        let y = n.node("MatMul", &[x, w], &[8, 32], &[]);
        let y = n.node("MatMul", &[y, v], &[8, 16], &[]);
        n.0.nodes[1].domain = domain.into();
        n.0.outputs.push(y);
        let greedy = n.lower_for(gpus);
        greedy.candidates().list.iter().filter(|c| c.rule == "chain").count()
    };
    assert_eq!((made(""), made("my.domain")), (1, 0));
}
