//! Tests of values placed in the memory of others (`solvers/in_place.rs`): results stay the same
//! and the expected copies disappear. Plans are compared with the step-by-step execution of the
//! same assignment, with stand-ins for kernels, and real workloads with greedy fusion.

use crate::net;

use net::{Net, alone, models, run, some_numbers};
use squall_core::TaskId;
use squall_core::graph::{Attribute, ValueId};
use squall_core::workload::{Input, Workload};
use squall_frontend::{onnx, read_weights};
use squall_graph::Assignment;
use squall_graph::plan::{Plan, ValueSource, Work};
use squall_graph::solvers::{CHANNELS_LAST_IN_PLACE, CHEAPEST, FASTEST_IN_PLACE, IN_PLACE, solver};
use squall_graph::state::State;
use squall_graph::weights::complete;
use std::collections::HashMap;
use std::sync::Arc;

const SOLVERS: [&str; 4] = [IN_PLACE, CHANNELS_LAST_IN_PLACE, FASTEST_IN_PLACE, CHEAPEST];

fn solved(graph: &Assignment, name: &str) -> Assignment {
    let made = graph.solved(solver(name).unwrap(), &|_| None).unwrap();
    let text = made.to_string();
    let read = Assignment::parse(&text, graph.candidates());
    assert_eq!(read.unwrap_or_else(|e| panic!("{e} in\n{text}")).choice(), made.choice());
    made
}

/// A stand-in for a kernel: cheap, and with different results for other inputs, orders and tasks.
fn stand_in(task: TaskId, elements: usize, inputs: &[&[f32]]) -> Vec<f32> {
    let salt = task.to_string().bytes().map(f32::from).sum::<f32>() / 1e4;
    let one = |i: usize| {
        inputs.iter().enumerate().map(|(j, x)| x[(i + j) % x.len()] * (1.0 + j as f32)).sum::<f32>()
            * 0.25
            + salt
    };
    (0..elements).map(one).collect()
}

/// The places of a tensor's elements in memory, from its first on.
fn places(w: &Workload, name: &str, shape: &[i64]) -> Vec<usize> {
    let mut stride = 1;
    let mut dims: Vec<(i64, i64)> = Vec::new();
    for (&extent, memory) in shape.iter().zip(w.memory(name, shape)).rev() {
        dims.push((extent, stride));
        stride *= memory;
    }
    dims.iter().rev().fold(vec![0], |all, &(extent, stride)| {
        all.iter().flat_map(|p| (0..extent).map(move |i| p + (i * stride) as usize)).collect()
    })
}

type Kernel<'a> = dyn Fn(TaskId, &Workload, &[&[f32]]) -> Vec<f32> + 'a;

/// Runs a plan, each block of memory by itself.
fn execute(
    plan: &Plan,
    graph: &Assignment,
    inputs: &[Vec<f32>],
    kernel: &Kernel<'_>,
) -> Vec<Vec<f32>> {
    let tasks: HashMap<TaskId, &Workload> =
        graph.tasks().iter().map(|t| (t.id, &t.workload)).collect();
    let mut memory: Vec<Vec<f32>> =
        plan.blocks.iter().map(|b| vec![f32::NAN; b.elements]).collect();
    for (p, x) in plan.inputs.iter().zip(inputs) {
        memory[p.block][p.offset..p.offset + x.len()].copy_from_slice(x);
    }
    for step in &plan.steps {
        let read = |s: &ValueSource| match s {
            ValueSource::Constant(c) => {
                let word = |b: &[u8]| f32::from_ne_bytes([b[0], b[1], b[2], b[3]]);
                plan.constants[*c].data.chunks_exact(4).map(word).collect()
            }
            ValueSource::Block(p) => memory[p.block][p.offset..].to_vec(),
        };
        match &step.work {
            Work::Kernel { task, inputs, output } => {
                let w = tasks[task];
                let one = |(s, i): (&ValueSource, &Input)| {
                    let from: Vec<f32> = read(s);
                    places(w, &i.name, &i.shape).into_iter().map(|p| from[p]).collect()
                };
                let data: Vec<Vec<f32>> = inputs.iter().zip(&w.inputs).map(one).collect();
                let refs: Vec<&[f32]> = data.iter().map(Vec::as_slice).collect();
                let made = kernel(*task, w, &refs);
                let to = places(w, &w.output().name, &w.output().shape());
                assert_eq!(to.len(), made.len());
                for (p, x) in to.into_iter().zip(made) {
                    memory[output.block][output.offset + p] = x;
                }
            }
            Work::Copy { from, from_offset, to, axes } => {
                let data = read(from);
                let mut at = vec![(0usize, *from_offset as isize)];
                for a in axes {
                    let along = |(t, f): &(usize, isize)| {
                        let (t, f) = (*t, *f);
                        (0..a.extent).map(move |i| (t + i * a.to, f + i as isize * a.from))
                    };
                    at = at.iter().flat_map(along).collect();
                }
                at.into_iter()
                    .for_each(|(t, f)| memory[to.block][to.offset + t] = data[f as usize]);
            }
            Work::Runs { from, to, runs } => {
                let data = read(from);
                for &[t, f, n] in runs {
                    memory[to.block][to.offset + t..][..n].copy_from_slice(&data[f..f + n]);
                }
            }
            Work::Fill { to, elements, value } => {
                memory[to.block][to.offset..to.offset + elements].fill(*value);
            }
            Work::Plain { .. } => panic!("`{}` is run by a plain operator", step.node),
        }
    }
    plan.outputs.iter().map(|p| memory[p.block][p.offset..].to_vec()).collect()
}

fn copies(plan: &Plan) -> usize {
    plan.steps.iter().filter(|s| matches!(s.work, Work::Copy { .. } | Work::Runs { .. })).count()
}

/// A net solved by all solvers gives what greedy fusion gives, step by step and as a plan. Gives
/// the copies that remain with each solver.
fn same_everywhere(net: &Net) -> Vec<usize> {
    let greedy = net.lower();
    let shape = |v: &ValueId| net.0.values[*v].shape.clone().unwrap();
    let inputs: Vec<Vec<f32>> = net.0.inputs.iter().map(|v| some_numbers(&shape(v))).collect();
    let want = run(&greedy, &inputs).unwrap();
    let real = |_: TaskId, w: &Workload, feeds: &[&[f32]]| {
        let feeds: Vec<Vec<f64>> =
            feeds.iter().map(|f| f.iter().map(|x| f64::from(*x)).collect()).collect();
        w.evaluate(&feeds).into_iter().map(|x| x as f32).collect()
    };
    let one = |name: &&str| {
        let graph = solved(&greedy, name);
        let got = run(&graph, &inputs).unwrap();
        let plan = graph.plan(Default::default()).unwrap();
        let planned = execute(&plan, &graph, &inputs, &real);
        for (got, want) in got.iter().chain(&planned).zip(want.iter().chain(&want)) {
            for (a, b) in got.iter().zip(want) {
                assert!((a - b).abs() <= 1e-4 * b.abs().max(1.0), "{name}: {a}, not {b}\n{graph}");
            }
        }
        copies(&plan)
    };
    SOLVERS.iter().map(one).collect()
}

fn ints(list: &[i64]) -> Attribute {
    Attribute::Ints(list.to_vec())
}

#[test]
fn parts_of_concatenations_are_stored_where_the_whole_has_them() {
    let mut n = Net::new();
    let x = n.input(&[1, 3, 5, 6]);
    let a = n.conv(x, 3, 16);
    let b = n.conv(a, 16, 32);
    let first = n.node("Concat", &[a, b], &[1, 48, 5, 6], &[("axis", Attribute::Int(1))]);
    let c = n.conv(first, 48, 16);
    let c = n.node("Relu", &[c], &[1, 16, 5, 6], &[]);
    let all = n.node("Concat", &[a, b, c], &[1, 64, 5, 6], &[("axis", Attribute::Int(1))]);
    let norm = n.norm(all, 64, &[1, 64, 5, 6]);
    let y = n.conv(norm, 64, 8);
    n.0.outputs.push(y);
    let copies = same_everywhere(&n);
    assert_eq!(copies, [0, 0, 0, 0]);
    let last = solved(&n.lower(), CHANNELS_LAST_IN_PLACE);
    // Both parts and the smaller concatenation lie in the larger one.
    let sites = &last.choice().sites;
    assert_eq!(sites.keys().copied().collect::<Vec<_>>(), [a, b, first, c]);
    assert!(sites.values().all(|s| s.host == all));
    assert_eq!((sites[&b].offset, sites[&c].offset), (16, 48));
    assert!(
        last.tasks().iter().any(|t| t.workload.to_string().contains("output Y of [1, 5, 6, 64]"))
    );
}

#[test]
fn shuffled_channels_are_read_where_they_are() {
    let shape = [1, 64, 5, 6];
    let mut n = Net::new();
    let x = n.input(&[1, 3, 5, 6]);
    let a = n.conv(x, 3, 32);
    let b = n.conv(a, 32, 32);
    let all = n.node("Concat", &[a, b], &shape, &[("axis", Attribute::Int(1))]);
    let list = n.list(&[1, 2, 32, 5, 6]);
    let r = n.node("Reshape", &[all, list], &[1, 2, 32, 5, 6], &[]);
    let turn = [("perm", ints(&[0, 2, 1, 3, 4]))];
    let t = n.node("Transpose", &[r], &[1, 32, 2, 5, 6], &turn);
    let list = n.list(&shape);
    let s = n.node("Reshape", &[t, list], &shape, &[]);
    let half = |n: &mut Net, at: i64| {
        let (starts, ends, axes) = (n.list(&[at]), n.list(&[at + 32]), n.list(&[1]));
        n.node("Slice", &[s, starts, ends, axes], &[1, 32, 5, 6], &[])
    };
    let (kept, read) = (half(&mut n, 0), half(&mut n, 32));
    let c = n.conv(read, 32, 32);
    let both = n.node("Concat", &[kept, c], &shape, &[("axis", Attribute::Int(1))]);
    let y = n.conv(both, 64, 8);
    n.0.outputs.push(y);
    let copies = same_everywhere(&n);
    // Channels that pass through unchanged are copied; channels that the convolution reads and
    // writes are not.
    assert_eq!(copies[1..], [1, 1, 1]);
    let last = solved(&n.lower(), CHANNELS_LAST_IN_PLACE);
    let sites = &last.choice().sites;
    assert_eq!((sites[&read].host, sites[&read].offset, sites[&c].host), (all, 16, both));
}

#[test]
fn heads_of_attention_are_read_and_stored_where_they_are() {
    // Queries, keys and values of one product, two heads of 16, over 5 tokens.
    let (tokens, heads, wide) = (5i64, 2i64, 16i64);
    let all = heads * wide;
    let mut n = Net::new();
    let x = n.input(&[tokens, all]);
    let w = n.weight(&[all, 3 * all]);
    let p = n.node("MatMul", &[x, w], &[tokens, 3 * all], &[]);
    let part = |n: &mut Net, at: i64| {
        let (starts, ends) = (n.list(&[at * all]), n.list(&[(at + 1) * all]));
        let axes = n.list(&[1]);
        let s = n.node("Slice", &[p, starts, ends, axes], &[tokens, all], &[]);
        let shape = n.list(&[tokens, heads, wide]);
        let r = n.node("Reshape", &[s, shape], &[tokens, heads, wide], &[]);
        n.node("Transpose", &[r], &[heads, tokens, wide], &[("perm", ints(&[1, 0, 2]))])
    };
    let (q, k, v) = (part(&mut n, 0), part(&mut n, 1), part(&mut n, 2));
    let half = n.number(0.5);
    let q = n.node("Mul", &[q, half], &[heads, tokens, wide], &[]);
    let k = n.node("Transpose", &[k], &[heads, wide, tokens], &[("perm", ints(&[0, 2, 1]))]);
    let k = n.node("Mul", &[k, half], &[heads, wide, tokens], &[]);
    let scores = n.node("MatMul", &[q, k], &[heads, tokens, tokens], &[]);
    let scores = n.node("Softmax", &[scores], &[heads, tokens, tokens], &[]);
    let o = n.node("MatMul", &[scores, v], &[heads, tokens, wide], &[]);
    let o = n.node("Transpose", &[o], &[tokens, heads, wide], &[("perm", ints(&[1, 0, 2]))]);
    let shape = n.list(&[tokens, all]);
    let o = n.node("Reshape", &[o, shape], &[tokens, all], &[]);
    let w = n.weight(&[all, 4]);
    let y = n.node("MatMul", &[o, w], &[tokens, 4], &[]);
    n.0.outputs.push(y);
    assert_eq!(same_everywhere(&n), [0, 0, 0, 0]);
}

#[test]
fn what_comes_ahead_of_convolutions_is_computed_by_them() {
    let mut n = Net::new();
    let x = n.input(&[1, 3, 5, 6]);
    let a = n.conv(x, 3, 16);
    let w = n.weight(&[8, 16, 1, 1]);
    let norm = n.norm(a, 16, &[1, 16, 5, 6]);
    let relu = n.node("Relu", &[norm], &[1, 16, 5, 6], &[]);
    let b = n.node("Conv", &[relu, w], &[1, 8, 5, 6], &[]);
    let norm = n.norm(b, 8, &[1, 8, 5, 6]);
    let relu = n.node("Relu", &[norm], &[1, 8, 5, 6], &[]);
    let slope = n.number(0.1);
    let gate = n.node("Mul", &[relu, slope], &[1, 8, 5, 6], &[]);
    let c = n.conv(gate, 8, 4);
    // A second reader of what comes ahead keeps it apart.
    let d = n.node("Relu", &[c], &[1, 4, 5, 6], &[]);
    let e = n.conv(d, 4, 4);
    let y = n.node("Add", &[e, d], &[1, 4, 5, 6], &[]);
    // A second reader of what steps are ahead of has them follow nothing.
    let other = n.conv(a, 16, 4);
    let y = n.node("Add", &[y, other], &[1, 4, 5, 6], &[]);
    n.0.outputs.push(y);
    same_everywhere(&n);
    let candidates = n.lower().candidates().clone();
    let ahead = candidates.list.iter().filter(|c| c.rule == "prologue").count();
    assert!(ahead > 0);
    let cheapest = solved(&n.lower(), CHEAPEST);
    let names: Vec<&str> = cheapest.tasks().iter().map(|t| t.name.as_str()).collect();
    assert!(names.iter().any(|n| n.contains("_after_")), "{names:?}");
}

#[test]
fn sites_that_no_move_makes_are_refused() {
    let mut n = Net::new();
    let x = n.input(&[1, 3, 5, 6]);
    let a = n.conv(x, 3, 16);
    let b = n.conv(a, 16, 16);
    let all = n.node("Concat", &[a, b], &[1, 32, 5, 6], &[("axis", Attribute::Int(1))]);
    let y = n.conv(all, 32, 4);
    n.0.outputs.push(y);
    let greedy = n.lower();
    let text = solved(&greedy, CHANNELS_LAST_IN_PLACE).to_string();
    let parse = |text: &str| Assignment::parse(text, greedy.candidates()).map(|_| ());
    assert_eq!(parse(&text), Ok(()));
    let line = text.lines().find(|l| l.starts_with("site")).unwrap();
    for (from, to, why) in [
        ("at 0", "at 16", "no move makes the two one"),
        ("at 0", "at 100000", "does not fit there"),
        ("at 0", "at -1", "larger than any memory"),
        ("16*1", "16*2", ""),
        ("16*1", "8*1", "does not fit there"),
        ("16*1", "x*1", "expected factors"),
        ("16*1", "16*9223372036854775807", "expected factors"),
        (" 16*1", "", "does not fit there"),
    ] {
        let wrong = line.replacen(from, to, 1);
        assert_ne!(wrong, line, "{line}");
        let e = parse(&text.replacen(line, &wrong, 1)).unwrap_err();
        assert!(e.to_string().contains(why), "{wrong}: {e}");
    }
}

/// Large models: another model has the same moves and fewer weights, or, for ViT,
/// `heads_of_attention_are_read_and_stored_where_they_are` has all moves.
const LARGE: &[&str] = &[
    "alexnet",
    "densenet161",
    "inception",
    "resnet101",
    "resnet152",
    "resnet34",
    "squeezenet1_0",
    "vgg",
    "vit",
];

/// Models without copies.
const COPY_FREE: &[&str] =
    &["densenet", "squeezenet", "googlenet", "resnet", "resnext", "mobilenet", "mnasnet"];

/// All models at hand with stand-ins for their kernels, and the copies that are left in some.
#[test]
fn plans_of_all_models_agree_with_their_steps() {
    let small = |n: &str| !LARGE.iter().any(|l| n.starts_with(l));
    for (name, bytes) in models().into_iter().filter(|(name, _)| small(name)) {
        let Ok(model) = onnx::read(&bytes, &name, &[]) else { continue };
        let greedy = Assignment::of(Arc::new(model), alone).unwrap();
        let weights = || read_weights(&bytes, &name, &mut |_| Ok(None)).unwrap();
        let known = |p: &Plan| !p.steps.iter().any(|s| matches!(s.work, Work::Plain { .. }));
        if !greedy.plan(weights()).is_ok_and(|p| known(&p)) {
            continue;
        }
        let mut state = State { model: greedy.model(), values: HashMap::new() };
        complete(weights(), &Default::default(), &mut state);
        let mut model = (**greedy.model()).clone();
        state.values.into_iter().for_each(|(id, c)| model.values[id].constant = Some(Arc::new(c)));
        let model = Arc::new(model);
        for way in [CHANNELS_LAST_IN_PLACE, CHEAPEST] {
            let graph = solved(&greedy, way);
            let inputs: Vec<Vec<f32>> =
                (0..graph.inputs.len()).map(|i| graph.random_input(i)).collect();
            let sizes: HashMap<TaskId, usize> = graph
                .tasks()
                .iter()
                .map(|t| (t.id, t.workload.output().elements() as usize))
                .collect();
            let mut call = |t: TaskId, feeds: &[&[f32]]| Ok(stand_in(t, sizes[&t], feeds));
            let want = graph.with_model(model.clone()).run(&inputs, &mut call).unwrap();
            let plan = graph.plan(weights()).unwrap_or_else(|e| panic!("{name}, {way}: {e}"));
            let kernel = |t: TaskId, _: &Workload, feeds: &[&[f32]]| stand_in(t, sizes[&t], feeds);
            let got = execute(&plan, &graph, &inputs, &kernel);
            for (got, want) in got.iter().zip(&want) {
                assert_eq!(&got[..want.len()], &want[..], "{name}, {way}");
            }
            let most = match name.as_str() {
                // The copies of channels that pass through a shuffle unchanged.
                "shufflenet_v2_x1_0" => 15,
                n if COPY_FREE.iter().any(|f| n.starts_with(f)) => 0,
                _ => usize::MAX,
            };
            let left = copies(&plan);
            println!("{name}, {way}: {left} copies, {} tasks", graph.tasks().len());
            assert!(left <= most, "{name}, {way}: {left} copies are left");
        }
    }
}
