//! Tests of layouts (channels first or last): a network computes the same under every choice of
//! layouts, and the solver's layouts follow the known times of kernels and avoid kernels without a
//! time. The network is built by hand (`net`) from the usual parts of image classifiers.

use crate::net;

use net::{Net, run, some_numbers};
use squall_core::graph::{Attribute, ValueId};
use squall_core::{Task, TaskId, Workload};
use squall_graph::solvers::{
    CHANNELS_LAST, CoverCosting, FASTEST_LAYOUTS, Unknown, cheapest_cover, solver,
};
use squall_graph::{Assignment, Choice, Layout};
use std::collections::HashMap;

/// The images whose channels may lie last, in order.
fn images(graph: &Assignment) -> Vec<ValueId> {
    let last = graph.solved(solver(CHANNELS_LAST).unwrap(), &|_| None).unwrap();
    last.choice().layouts.keys().copied().collect()
}

/// The same kernels with the channels of some images last.
fn lay_out(graph: &Assignment, last: &[bool]) -> Assignment {
    let chosen = images(graph).into_iter().zip(last).filter(|(_, l)| **l);
    let layouts = chosen.map(|(v, _)| (v, Layout::ChannelsLast)).collect();
    let choice = Choice { layouts, ..graph.choice().clone() };
    Assignment::new(graph.candidates().clone(), choice).unwrap()
}

/// Which images have their channels last in the solver's choice for these times.
fn cheapest(graph: &Assignment, time: &dyn Fn(TaskId) -> Option<f64>) -> Vec<bool> {
    let chosen = graph.solved(solver(FASTEST_LAYOUTS).unwrap(), time).unwrap();
    images(graph).iter().map(|v| chosen.choice().layouts.contains_key(v)).collect()
}

/// A network of a stem, a block with a residual, a block that halves the image, depthwise filters,
/// pooling and a classifier, with two values that must keep their order: the concatenation's and
/// the output.
fn network() -> (Net, Vec<f32>) {
    let mut n = Net::new();
    let shape = [1, 4, 5, 6];
    let ints = |list: &[i64]| Attribute::Ints(list.to_vec());
    let x = n.input(&[1, 3, 5, 6]);
    let a = n.conv(x, 3, 4);
    let a = n.node("Relu", &[a], &shape, &[]);
    let b = n.conv(a, 4, 4);
    let b = n.norm(b, 4, &shape);
    let b = n.node("Add", &[b, a], &shape, &[]);
    let b = n.node("Relu", &[b], &shape, &[]);
    let w = n.weight(&[4, 1, 3, 3]);
    let d =
        n.node("Conv", &[b, w], &shape, &[("pads", ints(&[1; 4])), ("group", Attribute::Int(4))]);
    let w = n.weight(&[6, 4, 1, 1]);
    let s = n.node("Conv", &[d, w], &[1, 6, 3, 3], &[("strides", ints(&[2, 2]))]);
    let p = n.node(
        "AveragePool",
        &[s],
        &[1, 6, 3, 3],
        &[("kernel_shape", ints(&[3, 3])), ("pads", ints(&[1; 4]))],
    );
    let both = n.node("Concat", &[p, s], &[1, 12, 3, 3], &[("axis", Attribute::Int(1))]);
    let m = n.node("MaxPool", &[both], &[1, 12, 2, 2], &[("kernel_shape", ints(&[2, 2]))]);
    let w = n.weight(&[4, 6, 2, 2]);
    let g = n.node("Conv", &[m, w], &[1, 4, 1, 1], &[("group", Attribute::Int(2))]);
    let mean = n.node("GlobalAveragePool", &[m], &[1, 12, 1, 1], &[]);
    n.0.outputs.extend([g, mean]);
    (n, some_numbers(&[1, 3, 5, 6]))
}

#[test]
fn every_choice_of_layouts_computes_the_same() {
    let (net, x) = network();
    let import = net.lower();
    let want = run(&import, std::slice::from_ref(&x)).unwrap();
    // The stem, the block's sum, the depthwise result and the pooled image.
    assert_eq!(images(&import).len(), 4);
    let mut ids = std::collections::HashSet::new();
    for bits in 0..16u32 {
        let last: Vec<bool> = (0..4).map(|i| bits >> i & 1 == 1).collect();
        let graph = lay_out(&import, &last);
        let tasks = graph.tasks();
        ids.extend(tasks.iter().map(|t| t.id));
        for t in tasks {
            assert_eq!(
                Workload::parse(&t.workload.to_string()).as_ref(),
                Ok(&t.workload),
                "{}",
                t.name
            );
        }
        let got = run(&graph, std::slice::from_ref(&x)).unwrap();
        assert_eq!(got, want, "{last:?}");
    }
    assert!(ids.len() > 16, "{}", ids.len());
    let same = lay_out(&import, &[]);
    assert_eq!((same.choice(), same.tasks()), (import.choice(), import.tasks()));
    let last = lay_out(&import, &[true; 4]);
    let tasks = last.tasks();
    let names: Vec<&str> = tasks.iter().map(|t| t.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "conv2d_3x5x6_k4_3x3_relu_to_nhwc",
            "conv2d_4x5x6_k4_3x3_bias_add_relu_nhwc",
            "depthwise_4x5x6_3x3_nhwc",
            "conv2d_4x5x6_k6_1x1_s2_from_nhwc",
            "avgpool_6x3x3_3x3",
            "maxpool_12x3x3_2x2_to_nhwc",
            "conv2d_12x2x2_k4_2x2_g2_nhwc",
            "mean_12x4_nhwc",
        ]
    );
    // The workload's text says the order of each tensor.
    let block = tasks[1].workload.to_string();
    assert!(
        block.contains("data X: f32[1, 5, 6, 4]") && block.contains("data R: f32[1, 5, 6, 4]"),
        "{block}"
    );
    assert!(
        block.contains("stage P: f32[n: 1, h: 7, w: 8, c: 4]")
            && block.contains("P[n, p + r, q + s, c] * W[k, c, r, s]"),
        "{block}"
    );
    assert!(block.contains("stage Y: f32[n: 1, p: 5, q: 6, k: 4]"), "{block}");
}

#[test]
fn the_cheapest_choice_follows_the_times() {
    let (net, _) = network();
    let import = net.lower();
    let known = |last: &[bool], ns: f64| {
        let ids = |t: &Task| (t.id, ns);
        lay_out(&import, last).tasks().iter().map(ids).collect::<Vec<_>>()
    };
    // No time is known: layouts stay as in the model.
    assert_eq!(cheapest(&import, &|_| None), [false; 4]);
    // Both layouts are timed: the faster one is chosen; a kernel without a time is avoided.
    for (first, last, want) in [(2.0, 1.0, true), (1.0, 2.0, false)] {
        let times: HashMap<TaskId, f64> =
            known(&[true; 4], last).into_iter().chain(known(&[false; 4], first)).collect();
        assert_eq!(cheapest(&import, &|id| times.get(&id).copied()), [want; 4]);
    }
    let only: HashMap<TaskId, f64> = known(&[true, true, false, false], 1.0).into_iter().collect();
    assert_eq!(cheapest(&import, &|id| only.get(&id).copied()), [true, true, false, false]);
}

#[test]
fn one_unknown_kernel_does_not_blur_the_others() {
    let (net, _) = network();
    let import = net.lower();
    // The block was never timed with channels first, the stem never with channels last: one of the
    // two has to be unknown, and a nanosecond decides which.
    let (first, last) = (lay_out(&import, &[]), lay_out(&import, &[true, true, true, false]));
    let first =
        first.tasks().iter().enumerate().filter(|(i, _)| *i != 1).map(|(_, t)| (t.id, 1000.0));
    let times: HashMap<TaskId, f64> =
        first.chain(last.tasks()[1..4].iter().map(|t| (t.id, 999.0))).collect();
    assert_eq!(cheapest(&import, &|id| times.get(&id).copied()), [true, true, true, false]);
}

#[test]
fn heads_of_attention_are_no_images() {
    let mut n = Net::new();
    let (a, b, c) = (n.input(&[1, 3, 5, 6]), n.input(&[1, 3, 6, 5]), n.input(&[1, 3, 5, 4]));
    let p = n.node("MatMul", &[a, b], &[1, 3, 5, 5], &[]);
    let y = n.node("MatMul", &[p, c], &[1, 3, 5, 4], &[]);
    n.0.outputs.push(y);
    let import = n.lower();
    assert_eq!(images(&import).len(), 0);
}

/// Two convolutions, each with a normalisation and a ReLU ahead; the ReLU of the second could as
/// well follow the first.
#[test]
fn a_prologue_is_hoped_to_be_free_in_the_layout_that_is_known() {
    let mut n = Net::new();
    let x = n.input(&[1, 8, 6, 6]);
    let ahead = |n: &mut Net, x| {
        let normal = n.norm(x, 8, &[1, 8, 6, 6]);
        n.node("Relu", &[normal], &[1, 8, 6, 6], &[])
    };
    let first = ahead(&mut n, x);
    let w = n.weight(&[8, 8, 1, 1]);
    let c = n.node("Conv", &[first, w], &[1, 8, 6, 6], &[]);
    let second = ahead(&mut n, c);
    let w = n.weight(&[8, 8, 3, 3]);
    let pads = [("pads", Attribute::Ints(vec![1; 4]))];
    let y = n.node("Conv", &[second, w], &[1, 8, 6, 6], &pads);
    n.0.outputs.push(y);
    let greedy = n.lower();
    let times: Vec<(TaskId, f64)> = greedy
        .tasks()
        .iter()
        .map(|t| (t.id, if t.workload.kind == "conv2d" { 100.0 } else { 30.0 }))
        .collect();
    assert_eq!(times.len(), 3, "{:?}", greedy.tasks());
    let known = |id: TaskId| times.iter().find(|t| t.0 == id).map(|t| t.1);
    let costs = CoverCosting::of(&known, Unknown::AtLeast(&|_| 1.0));
    let cover = cheapest_cover(greedy.candidates(), &costs).unwrap();
    let made = Assignment::new(greedy.candidates().clone(), cover.choice).unwrap();
    let names: Vec<&str> = made.tasks().iter().map(|t| t.name.as_str()).collect();
    assert_eq!(
        names,
        ["conv2d_8x6x6_k8_1x1_bias_relu_after_bn_relu", "conv2d_8x6x6_k8_3x3"],
        "{}",
        cover.time
    );
    assert!((200.0..=201.0).contains(&cover.time), "{}", cover.time);
}
