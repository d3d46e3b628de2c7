//! Tests of plans (`src/plan`): running a plan block by block gives the same results as the
//! step-by-step execution of the same assignment, for all models at hand with stand-ins for
//! kernels, and for moves of data made by hand.

use prost::Message;
use squall_core::{TaskId, Workload};
use squall_frontend::onnx::proto::*;
use squall_frontend::{onnx, read_weights};
use squall_graph::Assignment;
use squall_graph::plan::{ALIGNMENT, Plan, PlanStep, ValueSource, Work};
use squall_graph::state::State;
use squall_graph::weights::complete;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

fn assignment(bytes: &[u8], name: &str) -> Assignment {
    Assignment::of(Arc::new(onnx::read(bytes, name, &[]).unwrap()), crate::net::alone).unwrap()
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

/// For each task the lengths of its inputs and of its output.
type Lengths = HashMap<TaskId, (Vec<usize>, usize)>;

fn lengths(graph: &Assignment) -> Lengths {
    let inputs =
        |w: &Workload| w.inputs.iter().map(|i| i.shape.iter().product::<i64>() as usize).collect();
    graph
        .tasks()
        .iter()
        .map(|t| (t.id, (inputs(&t.workload), t.workload.output().elements() as usize)))
        .collect()
}

/// Runs a plan with separate memory for each block.
fn execute(plan: &Plan, lengths: &Lengths, inputs: &[Vec<f32>]) -> Vec<Vec<f32>> {
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
                assert!(output.offset.is_multiple_of(ALIGNMENT));
                // A place inside a block does not say how much is read of it.
                let (each, made) = &lengths[task];
                let data: Vec<Vec<f32>> =
                    inputs.iter().zip(each).map(|(s, n)| read(s)[..*n].to_vec()).collect();
                let refs: Vec<&[f32]> = data.iter().map(Vec::as_slice).collect();
                let made = stand_in(*task, *made, &refs);
                memory[output.block][output.offset..output.offset + made.len()]
                    .copy_from_slice(&made);
            }
            Work::Copy { from, from_offset, to, axes } => {
                let data = read(from);
                let mut places = vec![(0usize, *from_offset as isize)];
                for a in axes {
                    places = places
                        .iter()
                        .flat_map(|(t, f)| {
                            (0..a.extent).map(move |i| (t + i * a.to, f + i as isize * a.from))
                        })
                        .collect();
                }
                places
                    .into_iter()
                    .for_each(|(t, f)| memory[to.block][to.offset + t] = data[f as usize]);
            }
            Work::Runs { from, to, runs } => {
                let data = read(from);
                runs.iter().for_each(|&[t, f, n]| {
                    memory[to.block][to.offset + t..to.offset + t + n]
                        .copy_from_slice(&data[f..f + n])
                });
            }
            Work::Fill { to, elements, value } => {
                memory[to.block][to.offset..to.offset + elements].fill(*value)
            }
            Work::Plain { .. } => panic!("`{}` is run by a plain operator", step.node),
        }
    }
    plan.outputs.iter().map(|p| memory[p.block][p.offset..].to_vec()).collect()
}

/// Plans and runs a model both ways; gives the plan.
fn agree(bytes: &[u8], name: &str) -> Plan {
    let graph = assignment(bytes, name);
    let lengths = lengths(&graph);
    // The step-by-step execution needs all weights in the model.
    let mut state = State { model: graph.model(), values: HashMap::new() };
    complete(
        read_weights(bytes, name, &mut |_| Ok(None)).unwrap(),
        &Default::default(),
        &mut state,
    );
    let values = state.values;
    let mut model = (**graph.model()).clone();
    values.into_iter().for_each(|(id, c)| model.values[id].constant = Some(Arc::new(c)));
    let whole = graph.with_model(Arc::new(model));
    let inputs: Vec<Vec<f32>> = (0..graph.inputs.len()).map(|i| graph.random_input(i)).collect();
    let want =
        whole.run(&inputs, &mut |task, feeds| Ok(stand_in(task, lengths[&task].1, feeds))).unwrap();
    let plan = graph.plan(read_weights(bytes, name, &mut |_| Ok(None)).unwrap()).unwrap();
    let got = execute(&plan, &lengths, &inputs);
    for (got, want) in got.iter().zip(&want) {
        assert_eq!(&got[..want.len()], &want[..], "{name}");
    }
    let text = plan.to_string();
    let read = Plan::parse(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!((&read, read.to_string()), (&plan, text), "{name}");
    plan
}

fn models(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path());
    let models = files.filter(|p| p.extension().is_some_and(|e| e == "onnx"));
    models
        .map(|p| {
            (p.file_stem().unwrap().to_string_lossy().into_owned(), std::fs::read(&p).unwrap())
        })
        .collect()
}

fn count(plan: &Plan, is: fn(&Work) -> bool) -> usize {
    plan.steps.iter().filter(|s| is(&s.work)).count()
}

#[test]
fn the_examples_run_as_step_by_step() {
    for (name, bytes) in models(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")) {
        let plan = agree(&bytes, &name);
        assert_eq!(count(&plan, |w| !matches!(w, Work::Kernel { .. })), 0, "{name}");
    }
}

#[test]
fn the_shared_models_run_as_step_by_step() {
    // The weights of the other models alone take a while.
    let Some(folder) = squall_testing::shared("models") else { return };
    for (name, bytes) in models(&folder) {
        match name.as_str() {
            "squeezenet1_1" | "densenet121" | "googlenet" => {
                let plan = agree(&bytes, &name);
                assert_eq!(
                    count(&plan, |w| !matches!(w, Work::Kernel { .. })),
                    0,
                    "{name}: no concatenation is copied"
                );
            }
            "shufflenet_v2_x1_0" | "mobilenet_v3_large" => _ = agree(&bytes, &name),
            _ => {}
        }
    }
}

/// A model of nodes that move `x` of a shape.
fn moving(
    shape: &[i64],
    nodes: Vec<NodeProto>,
    weights: Vec<TensorProto>,
    outputs: &[&str],
) -> Plan {
    agree(&model(shape, nodes, weights, outputs), "made")
}

fn model(
    shape: &[i64],
    nodes: Vec<NodeProto>,
    weights: Vec<TensorProto>,
    outputs: &[&str],
) -> Vec<u8> {
    let dim =
        shape.iter().map(|d| DimensionProto { dim_value: Some(*d), dim_param: None }).collect();
    let of = TensorTypeProto { elem_type: 1, shape: Some(TensorShapeProto { dim }) };
    let input =
        ValueInfoProto { name: "x".into(), r#type: Some(TypeProto { tensor_type: Some(of) }) };
    let output =
        outputs.iter().map(|o| ValueInfoProto { name: o.to_string(), r#type: None }).collect();
    let graph = GraphProto {
        node: nodes,
        initializer: weights,
        input: vec![input],
        output,
        ..Default::default()
    };
    let opset_import = vec![OperatorSetIdProto { domain: String::new(), version: 17 }];
    ModelProto { ir_version: 8, graph: Some(graph), opset_import, ..Default::default() }
        .encode_to_vec()
}

fn node(op: &str, inputs: &[&str], outputs: &[&str], attribute: Vec<AttributeProto>) -> NodeProto {
    let names = |list: &[&str]| list.iter().map(|s| s.to_string()).collect();
    NodeProto {
        input: names(inputs),
        output: names(outputs),
        op_type: op.into(),
        attribute,
        ..Default::default()
    }
}

fn int(name: &str, i: i64) -> AttributeProto {
    AttributeProto { name: name.into(), i: Some(i), r#type: attribute::INT, ..Default::default() }
}

fn ints(name: &str, v: &[i64]) -> AttributeProto {
    AttributeProto {
        name: name.into(),
        ints: v.to_vec(),
        r#type: attribute::INTS,
        ..Default::default()
    }
}

fn i64s(name: &str, data: &[i64]) -> TensorProto {
    TensorProto {
        name: name.into(),
        dims: vec![data.len() as i64],
        data_type: 7,
        int64_data: data.to_vec(),
        ..Default::default()
    }
}

fn f32s(name: &str, dims: &[i64], data: &[f32]) -> TensorProto {
    TensorProto {
        name: name.into(),
        dims: dims.to_vec(),
        data_type: 1,
        float_data: data.to_vec(),
        ..Default::default()
    }
}

#[test]
fn every_move_is_a_copy_of_few_axes() {
    let axes = |p: &Plan| {
        p.steps
            .iter()
            .map(|s| if let Work::Copy { axes, .. } = &s.work { axes.len() } else { 99 })
            .max()
    };
    let p = moving(
        &[3, 5, 7],
        vec![node("Transpose", &["x"], &["y"], vec![ints("perm", &[2, 0, 1])])],
        vec![],
        &["y"],
    );
    assert_eq!(axes(&p), Some(2));
    let cuts = [i64s("s", &[4, -1]), i64s("e", &[0, -8]), i64s("a", &[1, 2]), i64s("t", &[-2, -1])];
    let p = moving(
        &[3, 5, 7],
        vec![node("Slice", &["x", "s", "e", "a", "t"], &["y"], vec![])],
        cuts.to_vec(),
        &["y"],
    );
    assert_eq!(axes(&p), Some(3));
    let p = moving(
        &[3, 4],
        vec![node("Expand", &["x", "s"], &["y"], vec![])],
        vec![i64s("s", &[2, 3, 4])],
        &["y"],
    );
    assert_eq!(axes(&p), Some(2));
    let p = moving(
        &[3, 4],
        vec![node("Tile", &["x", "s"], &["y"], vec![])],
        vec![i64s("s", &[2, 3])],
        &["y"],
    );
    assert!(axes(&p) <= Some(4));
    let p = moving(
        &[2, 3],
        vec![node("Concat", &["x", "w"], &["y"], vec![int("axis", 1)])],
        vec![f32s("w", &[2, 1], &[8.0, 9.0])],
        &["y"],
    );
    assert_eq!((p.steps.len(), axes(&p)), (2, Some(2)));
}

#[test]
fn padding_fills_first() {
    let edges = || i64s("p", &[1, 0, 2, 1]);
    let p = moving(&[2, 3], vec![node("Pad", &["x", "p"], &["y"], vec![])], vec![edges()], &["y"]);
    assert!(matches!(p.steps[0].work, Work::Fill { value: 0.0, elements: 20, .. }));
    // A given number is one more operand, read without moving on; it goes around in runs or axes.
    moving(
        &[2, 3],
        vec![node("Pad", &["x", "p", "v"], &["y"], vec![])],
        vec![edges(), f32s("v", &[], &[1.5])],
        &["y"],
    );
    let mode = AttributeProto {
        name: "mode".into(),
        s: Some(b"reflect".to_vec()),
        r#type: attribute::STRING,
        ..Default::default()
    };
    moving(
        &[3, 4],
        vec![node("Pad", &["x", "p"], &["y"], vec![mode])],
        vec![i64s("p", &[1, 2, 2, 1])],
        &["y"],
    );
}

#[test]
fn odd_picks_are_runs() {
    let p = moving(
        &[6, 4],
        vec![node("Gather", &["x", "i"], &["y"], vec![])],
        vec![i64s("i", &[0, 1, 5, 3])],
        &["y"],
    );
    let [PlanStep { work: Work::Runs { runs, .. }, .. }] = &p.steps[..] else {
        panic!("{:?}", p.steps)
    };
    assert_eq!(runs, &[[0, 0, 8], [8, 20, 4], [12, 12, 4]]);
}

#[test]
fn what_lies_in_one_piece_is_not_copied() {
    // Halves are parts, and put together again they are the whole.
    let halves = || node("Split", &["x"], &["a", "b"], vec![int("axis", 0)]);
    let join = |a: &str, b: &str| node("Concat", &[a, b], &["y"], vec![int("axis", 0)]);
    let p = moving(&[2, 32], vec![halves(), join("a", "b")], vec![], &["a", "b", "y"]);
    assert_eq!((p.steps.len(), p.blocks.len()), (0, 1));
    // In another order they must be copied.
    let p = moving(&[2, 32], vec![halves(), join("b", "a")], vec![], &["y"]);
    assert_eq!(p.steps.len(), 2);
    // Kernels are never given places that are not aligned.
    let p = moving(&[2, 5], vec![halves(), node("Relu", &["b"], &["y"], vec![])], vec![], &["y"]);
    assert_eq!(p.steps.len(), 2);
}

#[test]
fn concatenations_of_concatenations_share_a_block() {
    let relu = |x: &str, y: &str| node("Relu", &[x], &[y], vec![]);
    let join = |parts: &[&str], y: &str| node("Concat", parts, &[y], vec![int("axis", 0)]);
    let nodes = vec![
        relu("x", "a"),
        node("Exp", &["a"], &["b"], vec![]),
        join(&["a", "b"], "ab"),
        node("Softmax", &["ab"], &["c"], vec![]),
        join(&["a", "b", "c"], "abc"),
        join(&["a", "a"], "aa"),
    ];
    let p = moving(&[1, 16], nodes, vec![], &["abc", "aa"]);
    // Input, `abc` with everything in it, and `aa`: two copies of what has its place already.
    assert_eq!(p.blocks.len(), 3);
    assert_eq!(count(&p, |w| matches!(w, Work::Copy { .. })), 2);
}

#[test]
fn lifetimes_hold_inputs_and_outputs() {
    let p = moving(
        &[1, 16],
        vec![node("Relu", &["x"], &["y"], vec![]), node("Softmax", &["x"], &["z"], vec![])],
        vec![],
        &["y", "z"],
    );
    assert_eq!(p.lifetimes(), [(0, 1), (0, 2), (1, 2)]);
}

#[test]
fn what_takes_open_lengths_is_one_step() {
    // How many elements there are is known only when it runs.
    let counts = node("NonZero", &["x"], &["y"], vec![]);
    let bytes = model(&[2, 2], vec![counts, node("Neg", &["y"], &["z"], vec![])], vec![], &["z"]);
    let plan = assignment(&bytes, "made").plan(HashMap::new()).unwrap();
    let steps: Vec<&str> = plan.steps.iter().map(|s| s.op.as_str()).collect();
    assert_eq!(steps, ["Region"]);
}

/// A sorting of which only the shape is used, and nodes that only it reads, have no step; a node
/// with one result that is read has a step.
#[test]
fn a_node_of_which_nothing_is_read_has_no_step() {
    use squall_testing::onnx::{Build, i64s};
    let build = Build::new(21)
        .input("x", &[3, 4])
        .input("y", &[3, 4])
        .init("k", i64s(&[1], &[2]))
        .init("axis", i64s(&[], &[1]))
        .node("CumSum", &["x", "axis"], &["sums"], &[])
        .node("TopK", &["sums", "k"], &["dead", "indices"], &[])
        .node("Shape", &["dead"], &["shape"], &[])
        .node("TopK", &["y", "k"], &["largest", "unread"], &[])
        .output("shape")
        .output("largest");
    let graph = Assignment::of(Arc::new(build.read().unwrap()), crate::net::alone).unwrap();
    let plan = graph.plan(HashMap::new()).unwrap();
    let ops: Vec<&str> = plan.steps.iter().map(|s| s.op.as_str()).collect();
    assert_eq!(ops.iter().filter(|o| **o == "TopK").count(), 1, "{ops:?}");
    assert!(!ops.contains(&"CumSum"), "{ops:?}");
}
