//! Tests of the fusion rule `attention` (product, softmax, product as one kernel): it finds the
//! pattern with scale and mask and refuses a softmax along another axis, its candidates compute the
//! same as the separate nodes, solvers take them by costs, and values that attention alone reads
//! lie in the memory of others. Models are built by hand (`net`).

use crate::net;

use net::{Net, run, some_numbers};
use squall_core::TaskId;
use squall_core::graph::Attribute;
use squall_graph::Assignment;
use squall_graph::solvers::{
    ATTENTION_IN_PLACE, CHEAPEST, CoverCosting, SOLVERS, Unknown, cheapest_cover, solver,
};

/// A model of two heads with 7 queries and 9 keys, scaled, with a mask where `masked`; the softmax
/// is along `axis`.
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

/// The same heads in the middle of a network: one product makes queries, keys and values side by
/// side, another reads the heads' results.
fn in_a_network() -> Net {
    let mut n = Net::new();
    let (x, w, u) = (n.input(&[7, 4]), n.weight(&[4, 96]), n.weight(&[32, 4]));
    let perm = |p: &[i64]| ("perm", Attribute::Ints(p.to_vec()));
    let all = n.node("MatMul", &[x, w], &[7, 96], &[]);
    let shape = n.list(&[7, 3, 2, 16]);
    let all = n.node("Reshape", &[all, shape], &[7, 3, 2, 16], &[]);
    let all = n.node("Transpose", &[all], &[3, 2, 7, 16], &[perm(&[1, 2, 0, 3])]);
    let [q, k, v] = [0, 1, 2].map(|i| {
        let at = n.list(&[i]);
        let axis = ("axis", Attribute::Int(0));
        let one = n.node("Gather", &[all, at], &[1, 2, 7, 16], &[axis]);
        let shape = n.list(&[2, 7, 16]);
        n.node("Reshape", &[one, shape], &[2, 7, 16], &[])
    });
    let k = n.node("Transpose", &[k], &[2, 16, 7], &[perm(&[0, 2, 1])]);
    let scores = n.node("MatMul", &[q, k], &[2, 7, 7], &[]);
    let weights = n.node("Softmax", &[scores], &[2, 7, 7], &[("axis", Attribute::Int(-1))]);
    let y = n.node("MatMul", &[weights, v], &[2, 7, 16], &[]);
    let y = n.node("Transpose", &[y], &[7, 2, 16], &[perm(&[1, 0, 2])]);
    let shape = n.list(&[7, 32]);
    let y = n.node("Reshape", &[y, shape], &[7, 32], &[]);
    let y = n.node("MatMul", &[y, u], &[7, 4], &[]);
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
        // The three separate kernels together take less than this: the fused one loses.
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

#[test]
fn a_kernel_without_a_time_is_chosen_where_it_could_be_cheaper() {
    let greedy = heads(false, -1).lower();
    let all = greedy.candidates();
    let ids: Vec<TaskId> = greedy.tasks().iter().map(|t| t.id).collect();
    let cover = |softmax: f64, unknown: Unknown<'_>| {
        let known = |id: TaskId| {
            let at = ids.iter().position(|i| *i == id)?;
            Some([100.0, softmax, 100.0][at])
        };
        let made = cheapest_cover(all, &CoverCosting::of(&known, unknown)).unwrap();
        let kernels = Assignment::new(all.clone(), made.choice).unwrap().tasks().len();
        (kernels, made.time)
    };
    assert_eq!(cover(10.0, Unknown::Avoided), (3, 210.0));
    // It takes no less than the slower of the two products, nor than its bound.
    assert_eq!(cover(10.0, Unknown::AtLeast(&|_| 1.0)), (1, 100.0));
    assert_eq!(cover(10.0, Unknown::AtLeast(&|_| 205.0)), (1, 205.0));
    assert_eq!(cover(10.0, Unknown::AtLeast(&|_| 211.0)), (3, 210.0));
}

/// As on a GPU: values of other kernels lie densely, attention reads its operands where these
/// kernels store them, and the saved copies count.
#[test]
fn attention_alone_lies_in_place_and_saves_copies() {
    let n = in_a_network();
    let greedy = n.lower();
    let all = greedy.candidates();
    let in_place = solver(ATTENTION_IN_PLACE).unwrap();
    // Without attention nothing that a kernel touches lies elsewhere.
    assert_eq!(greedy.solved(in_place, &|_| None).unwrap().tasks(), greedy.tasks());
    let cheapest = greedy.solved(solver(CHEAPEST).unwrap(), &|_| None).unwrap();
    let one = cheapest.solved(in_place, &|_| None).unwrap();
    let attention = one.tasks().iter().find(|t| t.workload.kind == "attention").unwrap();
    assert!(!attention.workload.rooms.is_empty());
    assert!(one.tasks().iter().all(|t| t.id == attention.id || t.workload.rooms.is_empty()));
    let inputs = [some_numbers(&[7, 4])];
    let (want, got) = (run(&greedy, &inputs).unwrap(), run(&one, &inputs).unwrap());
    for (a, b) in got[0].iter().zip(&want[0]) {
        assert!((a - b).abs() <= 1e-5, "{a} instead of {b}");
    }
    let kernels = |copy: f64| {
        let known = |id: TaskId| Some(if id == attention.id { 330.0 } else { 100.0 });
        let costs = CoverCosting { time: &known, unknown: Unknown::Avoided, copy };
        let made = cheapest_cover(all, &costs).unwrap();
        Assignment::new(all.clone(), made.choice).unwrap().tasks().len()
    };
    assert_eq!(kernels(0.0), greedy.tasks().len());
    assert_eq!(kernels(10.0), one.tasks().len());
}

#[test]
fn a_cover_is_a_line_that_reads_back() {
    let greedy = heads(true, -1).lower();
    for way in SOLVERS {
        let made = greedy.solved(way, &|_| None).unwrap();
        let read = greedy.covered_by(&made.cover_line()).unwrap();
        assert_eq!(read.choice().steps, made.choice().steps, "{}", way.name);
    }
    for (line, why) in [
        ("", "`` is no number of a node"),
        ("4x", "`4x` is no number of a node"),
        ("99", "no kernel covers just the nodes 99"),
        ("-99", "`-99` is no node of the model"),
        ("-0+1", "`-0+1` is no node of the model"),
    ] {
        assert_eq!(greedy.covered_by(line).unwrap_err(), why);
    }
    let cut = greedy.cover_line().rsplit_once(',').unwrap().0.to_string();
    assert!(greedy.covered_by(&cut).is_err(), "a model that is covered in part is none");
}
