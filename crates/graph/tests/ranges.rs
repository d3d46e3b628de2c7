//! Tests of channel shuffles without copies (`src/ranges.rs`): rewritten ShuffleNetV2 units give
//! the same results as the originals, without a copy of the shuffle, and a shuffle with other
//! readers than convolutions stays.

use crate::net;

use net::{Net, alone, assert_alike, ints, moves, run, some_numbers};
use squall_core::graph::{Attribute, ValueId};
use squall_graph::ranges::in_ranges;
use squall_graph::solvers::{CHANNELS_LAST_IN_PLACE, CHEAPEST, solver};
use squall_graph::{Assignment, Step};
use std::collections::HashMap;
use std::sync::Arc;

const IMAGE: [i64; 2] = [6, 8];

/// Adds a convolution with a bias and the given groups.
fn conv(n: &mut Net, x: ValueId, [c, k, r, stride]: [i64; 4], groups: i64) -> ValueId {
    let [w, b] = [n.weight(&[k, c / groups, r, r]), n.weight(&[k])];
    let of = |v: ValueId| n.0.values[v].shape.clone().unwrap();
    let [h, q] = [of(x)[2], of(x)[3]].map(|e| (e + stride - 1) / stride);
    let around = [ints("pads", &[r / 2; 4]), ints("strides", &[stride; 2])];
    let all = [&around[..], &[("group", Attribute::Int(groups))]].concat();
    n.node("Conv", &[x, w, b], &[1, k, h, q], &all)
}

/// Adds the concatenation of two values with their channels interleaved (a channel shuffle).
fn shuffled(n: &mut Net, parts: [ValueId; 2], c: i64) -> ValueId {
    let shape = n.0.values[parts[0]].shape.clone().unwrap();
    let (h, w) = (shape[2], shape[3]);
    let x = n.node("Concat", &parts, &[1, 2 * c, h, w], &[("axis", Attribute::Int(1))]);
    let to = n.list(&[1, 2, c, h, w]);
    let x = n.node("Reshape", &[x, to], &[1, 2, c, h, w], &[]);
    let x = n.node("Transpose", &[x], &[1, c, 2, h, w], &[ints("perm", &[0, 2, 1, 3, 4])]);
    let to = n.list(&[1, 2 * c, h, w]);
    n.node("Reshape", &[x, to], &[1, 2 * c, h, w], &[])
}

fn slice(n: &mut Net, x: ValueId, [from, to]: [i64; 2]) -> ValueId {
    let shape = n.0.values[x].shape.clone().unwrap();
    let [a, b, c] = [n.list(&[from]), n.list(&[to]), n.list(&[1])];
    n.node("Slice", &[x, a, b, c], &[1, to - from, shape[2], shape[3]], &[])
}

/// A model of ShuffleNetV2 units with halves of `half` channels, a unit with a stride behind them,
/// and the shuffle that ends the last unit.
fn units(count: usize, half: i64) -> (Net, ValueId) {
    // Places are turned with the channels, or a part of a batch is taken.
    let mut n = Net::new();
    let x = n.input(&[1, 3, IMAGE[0], IMAGE[1]]);
    let x = conv(&mut n, x, [3, 6, 1, 1], 1);
    let to = n.list(&[1, 2, 3, IMAGE[0], IMAGE[1]]);
    let x = n.node("Reshape", &[x, to], &[1, 2, 3, IMAGE[0], IMAGE[1]], &[]);
    let turned = ints("perm", &[0, 2, 1, 3, 4]);
    let x = n.node("Transpose", &[x], &[1, 3, 2, IMAGE[0], IMAGE[1]], &[turned]);
    let to = n.list(&[1, 6, IMAGE[1], IMAGE[0]]);
    let x = n.node("Reshape", &[x, to], &[1, 6, IMAGE[1], IMAGE[0]], &[]);
    let y = conv(&mut n, x, [6, 5, 3, 1], 1);
    n.0.outputs.push(y);
    assert!(in_ranges(&n.0).is_none());
    let mut n = Net::new();
    let x = n.input(&[1, 3, IMAGE[0], IMAGE[1]]);
    let made = [0, 1].map(|_| conv(&mut n, x, [3, half, 1, 1], 1));
    let mut x = shuffled(&mut n, made, half);
    for _ in 0..count {
        let [left, right] = [[0, half], [half, 2 * half]].map(|r| slice(&mut n, x, r));
        let y = conv(&mut n, right, [half, half, 1, 1], 1);
        let y = n.node("Relu", &[y], &[1, half, IMAGE[0], IMAGE[1]], &[]);
        let y = conv(&mut n, y, [half, half, 3, 1], half);
        let y = conv(&mut n, y, [half, half, 1, 1], 1);
        x = shuffled(&mut n, [left, y], half);
    }
    let all = 2 * half;
    let left = conv(&mut n, x, [all, all, 3, 2], all);
    let left = conv(&mut n, left, [all, all, 1, 1], 1);
    let right = conv(&mut n, x, [all, all, 1, 1], 1);
    let right = conv(&mut n, right, [all, all, 3, 2], all);
    let right = conv(&mut n, right, [all, all, 1, 1], 1);
    let x = shuffled(&mut n, [left, right], all);
    (n, x)
}

#[test]
fn shuffles_are_read_where_their_channels_are() {
    for (count, half) in [(1, 6), (3, 7), (4, 10)] {
        let (mut n, x) = units(count, half);
        let y = conv(&mut n, x, [4 * half, 5, 1, 1], 1);
        n.0.outputs.push(y);
        let before = n.lower();
        let model = in_ranges(&n.0).expect("shuffles of channels");
        assert!(model.nodes.iter().all(|n| n.op != "Transpose" && n.op != "Reshape"));
        let ranged = Assignment::of(Arc::new(model), alone).unwrap();
        let is_move =
            |s: &Step| matches!(*s, Step::Node(i) if ranged.model().nodes[i].op == "Concat");
        assert!(!ranged.choice().steps.iter().any(is_move));
        let input = [1, 3, IMAGE[0], IMAGE[1]];
        for way in [CHANNELS_LAST_IN_PLACE, CHEAPEST] {
            let made = ranged.solved(solver(way).unwrap(), &|_| None).unwrap();
            assert_eq!(moves(&made.plan(HashMap::new()).unwrap()), 0, "{count} units, {way}");
        }
        let want = run(&before, &[some_numbers(&input)]).unwrap();
        let most = want[0].iter().fold(0f32, |m, x| m.max(x.abs()));
        assert_alike(&before, &ranged, &input, 1e-5 * most);
    }
}

#[test]
fn what_others_read_stays_shuffled() {
    // An output, an elementwise operator, and a model without a shuffle.
    let turns = |n: &Net| {
        let made = in_ranges(&n.0).expect("the shuffles ahead of it");
        made.nodes.iter().filter(|n| n.op == "Transpose").count()
    };
    let (mut n, x) = units(2, 6);
    n.0.outputs.push(x);
    assert_eq!(turns(&n), 1);
    let (mut n, x) = units(2, 6);
    let shape = n.0.values[x].shape.clone().unwrap();
    let y = n.node("Relu", &[x], &shape, &[]);
    let y = conv(&mut n, y, [24, 5, 1, 1], 1);
    n.0.outputs.push(y);
    assert_eq!(turns(&n), 1);
    let graph = Assignment::of(Arc::new(in_ranges(&n.0).unwrap()), alone).unwrap();
    let input = [1, 3, IMAGE[0], IMAGE[1]];
    let want = run(&n.lower(), &[some_numbers(&input)]).unwrap();
    let most = want[0].iter().fold(0f32, |m, x| m.max(x.abs()));
    assert_alike(&n.lower(), &graph, &input, 1e-5 * most);
    let mut n = Net::new();
    let x = n.input(&[1, 3, IMAGE[0], IMAGE[1]]);
    let made = [0, 1].map(|_| conv(&mut n, x, [3, 6, 1, 1], 1));
    let x = n.node("Concat", &made, &[1, 12, IMAGE[0], IMAGE[1]], &[("axis", Attribute::Int(1))]);
    let y = conv(&mut n, x, [12, 5, 1, 1], 1);
    n.0.outputs.push(y);
    assert!(in_ranges(&n.0).is_none());
}
