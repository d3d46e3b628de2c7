//! Tests of whole models, which the test builds as ONNX files: several inputs, outputs and element
//! types, branches, batches, extents that only the run knows. They run through plain operators (C
//! generated for one node), moves of data and kernels, and are compared with expected values and
//! with ONNX's form of test data; the same tests run again on an emulated GPU.

mod nan;
mod packed;

use prost::Message;
use squall::arrays::NamedArray;
use squall::check::Tolerance;
use squall::network::LayerKind;
use squall::{
    Array, BenchRequest, BudgetRequest, CheckData, CheckRequest, Context, GuessRequest,
    InputRequest, NetworkRequest, Precision, Query, RunOffRequest, RunRequest, Store,
    TargetRequest, TuneRequest,
};
use squall_core::{DType, Measurement, Nanos, Outcome, Record, RecordKind};
use squall_frontend::npy;
use squall_frontend::onnx::proto::*;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;

use squall_testing::{FULL, emulator as emulated, samples};

const F32: i32 = 1;
const I64: i32 = 7;

fn value(name: &str, elem_type: i32, shape: &[&str]) -> ValueInfoProto {
    let dim = |d: &&str| DimensionProto {
        dim_value: d.parse().ok(),
        dim_param: d.parse::<i64>().is_err().then(|| d.to_string()),
    };
    let shape = Some(TensorShapeProto { dim: shape.iter().map(dim).collect() });
    let tensor_type = Some(TensorTypeProto { elem_type, shape });
    ValueInfoProto { name: name.into(), r#type: Some(TypeProto { tensor_type }) }
}

fn node(op: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    let names = |list: &[&str]| list.iter().map(|s| s.to_string()).collect();
    NodeProto {
        input: names(inputs),
        output: names(outputs),
        op_type: op.into(),
        ..Default::default()
    }
}

fn model(
    folder: &Path,
    nodes: Vec<NodeProto>,
    weights: Vec<TensorProto>,
    inputs: Vec<ValueInfoProto>,
    outputs: &[&str],
) -> NetworkRequest {
    let output = |o: &&str| ValueInfoProto { name: o.to_string(), r#type: None };
    let graph = GraphProto {
        node: nodes,
        initializer: weights,
        input: inputs,
        output: outputs.iter().map(output).collect(),
        ..Default::default()
    };
    let opset_import = vec![OperatorSetIdProto { domain: String::new(), version: 17 }];
    let model =
        ModelProto { ir_version: 8, graph: Some(graph), opset_import, ..Default::default() };
    let path = folder.join("model.onnx");
    std::fs::write(&path, model.encode_to_vec()).unwrap();
    NetworkRequest {
        input: InputRequest::new(path.display().to_string()),
        store: None,
        guess: GuessRequest::default(),
        target: target(),
        threads: 1,
        keep: None,
    }
}

/// This machine; what is compiled for one test serves the others.
fn context() -> Context {
    Context::with_cache(Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache")))
}

/// Says that the tests of this file run on a GPU.
const ON_GPU: &str = "SQUALL_TEST_ON_GPU";

/// What all models here run on.
fn target() -> TargetRequest {
    match std::env::var_os(ON_GPU) {
        Some(_) => TargetRequest::Cuda(0),
        None => TargetRequest::Cpu,
    }
}

/// All tests of this file once more, on a GPU that is emulated: streams do what they are given as
/// late as they may, and steps that do not depend on each other are done in either order.
#[test]
fn all_of_this_holds_on_an_emulated_gpu() {
    if std::env::var_os(ON_GPU).is_some() {
        return;
    }
    let Some(gpu) = emulated::emulator() else { return };
    // By the feature `full` in the other order, too, and those that tune.
    let rounds = [("last", "90"), ("first", "75")];
    let left: &[&str] = if FULL { &[] } else { &["--skip", "whole_networks_decide"] };
    for (order, capability) in rounds.into_iter().take(samples(1, 2)) {
        let ran = Command::new(std::env::current_exe().unwrap())
            .args(["networks::", "--skip", "all_of_this_holds", "--test-threads", "2"])
            .args(left)
            .envs(gpu.clone())
            .envs([("EMULATED_ORDER", order), ("EMULATED_CAPABILITY", capability), (ON_GPU, "1")])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success(), "{order}: {said}{}", String::from_utf8_lossy(&ran.stderr));
        assert!(said.contains("branches_meet_again ... ok"), "{said}");
    }
}

fn ints(shape: &[i64], data: &[i64]) -> Array {
    let bytes = data.iter().flat_map(|x| x.to_ne_bytes()).collect();
    Array { dtype: DType::I64, shape: shape.to_vec(), bytes }
}

fn weight(name: &str, array: &Array) -> TensorProto {
    TensorProto {
        name: name.into(),
        dims: array.shape.clone(),
        data_type: if array.dtype == DType::F32 { F32 } else { I64 },
        raw_data: array.bytes.clone(),
        ..Default::default()
    }
}

/// What a run gave, and what ran.
type Given = (Vec<NamedArray>, squall::Ran);

/// Runs a model on arrays, which go through files.
fn run(folder: &Path, network: &NetworkRequest, given: &[(&str, Array)]) -> Result<Given, String> {
    let file = |(name, array): &(&str, Array)| {
        let path = folder.join(format!("{name}.npy"));
        std::fs::write(&path, npy::write(array)).unwrap();
        squall::arrays::ArrayFile { name: Some((*name).into()), path }
    };
    let inputs = given.iter().map(file).collect();
    let request = RunRequest { network: network.clone(), inputs, outputs: Vec::new() };
    let ran = squall::run(&context(), &request, &mut |_| ()).map_err(|e| e.to_string())?;
    Ok((ran.outputs.clone(), ran))
}

/// Numbers between -1 and 1, other ones for each seed.
fn noise(shape: &[i64], seed: u32) -> Array {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        f64::from(state) / f64::from(u32::MAX) * 2.0 - 1.0
    };
    let count = shape.iter().product::<i64>();
    let data: Vec<f32> = (0..count).map(|_| next() as f32).collect();
    Array::floats(shape.to_vec(), &data)
}

fn with_ints(mut n: NodeProto, name: &str, ints: &[i64]) -> NodeProto {
    let r#type = attribute::INTS;
    n.attribute.push(AttributeProto {
        name: name.into(),
        ints: ints.into(),
        r#type,
        ..Default::default()
    });
    n
}

fn with_int(mut n: NodeProto, name: &str, i: i64) -> NodeProto {
    let r#type = attribute::INT;
    n.attribute.push(AttributeProto {
        name: name.into(),
        i: Some(i),
        r#type,
        ..Default::default()
    });
    n
}

/// Two branches with a kernel each, joined by a concatenation whose parts no kernel writes in
/// place, a residual around a convolution, a transposition and a slice.
fn branched(folder: &Path) -> NetworkRequest {
    let conv = |x: &str, w: &str, y: &str, pad: i64| {
        with_ints(node("Conv", &[x, w], &[y]), "pads", &[pad; 4])
    };
    let nodes = vec![
        conv("x", "w0", "c0", 1),
        node("Relu", &["c0"], &["a"]),
        conv("a", "w1", "c1", 0),
        node("Relu", &["c1"], &["left"]),
        conv("a", "w2", "c2", 1),
        node("Tanh", &["c2"], &["right"]),
        with_int(node("Concat", &["left", "right"], &["both"]), "axis", 1),
        conv("both", "w3", "c3", 1),
        node("Add", &["c3", "a"], &["sum"]),
        node("Relu", &["sum"], &["met"]),
        with_ints(node("Transpose", &["met"], &["turned"]), "perm", &[0, 2, 3, 1]),
        node("Slice", &["turned", "from", "to", "axes"], &["part"]),
        node("Neg", &["part"], &["y"]),
        with_ints(node("ReduceMean", &["both"], &["mean"]), "axes", &[2, 3]),
    ];
    let weights = vec![
        weight("w0", &noise(&[5, 3, 3, 3], 1)),
        weight("w1", &noise(&[3, 5, 1, 1], 2)),
        weight("w2", &noise(&[4, 5, 3, 3], 3)),
        weight("w3", &noise(&[5, 7, 3, 3], 4)),
        weight("from", &ints(&[1], &[1])),
        weight("to", &ints(&[1], &[6])),
        weight("axes", &ints(&[1], &[1])),
    ];
    let inputs = vec![value("x", F32, &["1", "3", "7", "7"])];
    model(folder, nodes, weights, inputs, &["y", "mean"])
}

#[test]
fn branches_meet_again() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let network = branched(f);
    let x = noise(&[1, 3, 7, 7], 9);
    let (out, ran) = run(f, &network, &[("x", x.clone())]).unwrap();
    assert_eq!(ran.network.is_on_gpu(), target() != TargetRequest::Cpu);
    assert!(ran.layers.iter().any(|l| l.kind == LayerKind::Move), "{:?}", ran.layers);
    let on_cpu = NetworkRequest { target: TargetRequest::Cpu, ..network };
    let (want, _) = run(f, &on_cpu, &[("x", x)]).unwrap();
    for ((name, got), (_, want)) in out.iter().zip(&want) {
        let (got, want) = (got.f32s().unwrap(), want.f32s().unwrap());
        let off = got.iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(off <= 1e-4, "{name}: {off}");
    }
    if ran.network.is_on_gpu() {
        let inputs = ran.network.random_inputs(&[]);
        let (_, times) = ran.network.time(&inputs, 0.01).unwrap();
        let host = times.host.unwrap();
        assert!(times.best_ns > 0 && host.best_ns > 0, "{times:?}");
    }
}

/// A dimension that the file leaves open is given its extent, and everything is made for that.
#[test]
fn batches_are_run_whole() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let conv = with_ints(node("Conv", &["x", "w"], &["c"]), "pads", &[1; 4]);
    let nodes = vec![conv, node("Relu", &["c"], &["y"])];
    let weights = vec![weight("w", &noise(&[4, 3, 3, 3], 1))];
    let inputs = vec![value("x", F32, &["N", "3", "6", "5"])];
    let mut network = model(f, nodes, weights, inputs, &["y"]);
    let x = noise(&[3, 3, 6, 5], 2);
    let one = |i: i64| {
        let floats = x.f32s().unwrap();
        let (from, to) = ((90 * i) as usize, (90 * (i + 1)) as usize);
        Array::floats(vec![1, 3, 6, 5], &floats[from..to])
    };
    let mut apart = Vec::new();
    for i in 0..3 {
        apart.extend(run(f, &network, &[("x", one(i))]).unwrap().0[0].1.f32s().unwrap());
    }
    network.input.dims = vec![("N".into(), 3)];
    let (out, _) = run(f, &network, &[("x", x.clone())]).unwrap();
    assert_eq!(out[0].1.shape, [3, 4, 6, 5]);
    let together = out[0].1.f32s().unwrap();
    let off = together.iter().zip(&apart).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(off < 1e-5 && together.len() == apart.len(), "{off}");
    let e = run(f, &network, &[("x", one(0))]).unwrap_err();
    assert!(e.contains('N') && e.contains('3'), "{e}");
}

/// Of 16 bits is all that lies between kernels: what is moved and what plain operators take is
/// converted where it must be, and the caller sees 32-bit floats.
#[test]
fn formats_of_16_bits_lie_between_kernels() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let network = branched(f);
    for (precision, least, most) in [(Precision::Bf16, 1e-4, 3e-2), (Precision::F16, 1e-5, 4e-3)] {
        let mut network = network.clone();
        network.input.precision = Some(precision);
        let request = CheckRequest {
            network,
            data: CheckData::Files { inputs: Vec::new(), expected: Vec::new() },
            tolerance: Some(Tolerance::Scaled(0.0)),
        };
        let checked = squall::check(&context(), &request, &mut |_| ());
        if target() == TargetRequest::Cpu && precision == Precision::F16 {
            let e = checked.unwrap_err().to_string();
            assert!(e.contains(precision.name()) && e.contains("on GPUs only"), "{e}");
            continue;
        }
        let loss = checked.unwrap().loss.unwrap();
        assert!(loss.relative > least && loss.relative < most, "{precision:?}: {loss:?}");
        assert_eq!(loss.elements, 5 * 5 * 7 + 7, "{loss:?}");
    }
}

#[test]
fn several_inputs_and_outputs_of_several_types_run() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let table = Array::floats(vec![4, 2], &[0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5]);
    let network = model(
        f,
        vec![
            node("Gather", &["table", "ids"], &["rows"]),
            node("Identity", &["ids"], &["same"]),
            node("Add", &["ids", "ids"], &["twice"]),
            node("Equal", &["ids", "one"], &["is_one"]),
        ],
        vec![weight("table", &table), weight("one", &ints(&[1], &[1]))],
        // `unused` is read by no node; `N` is bound by the array.
        vec![value("ids", I64, &["N", "2"]), value("unused", F32, &["3"])],
        &["rows", "same", "twice", "is_one", "one"],
    );
    let unused = ("unused", Array::floats(vec![3], &[0.0; 3]));
    let ids = ints(&[1, 2], &[3, 1]);
    let (out, ran) = run(f, &network, &[("ids", ids.clone()), unused.clone()]).unwrap();
    let names: Vec<&str> = out.iter().map(|(n, _)| n.as_str()).collect();
    assert_eq!(names, ["rows", "same", "twice", "is_one", "one"]);
    assert_eq!(out[0].1.shape, [1, 2, 2]);
    assert_eq!(out[0].1.f32s().unwrap(), [3.0, 3.5, 1.0, 1.5]);
    assert_eq!(out[1].1, ids);
    assert_eq!(out[2].1, ints(&[1, 2], &[6, 2]));
    assert_eq!((out[3].1.dtype, &out[3].1.bytes[..]), (DType::Bool, &[0, 1][..]));
    assert_eq!(out[4].1, ints(&[1], &[1]));
    assert!(ran.layers.iter().any(|l| l.kind == LayerKind::Plain && l.name == "Gather"));
    // An index out of range ends the run with the node's name.
    let wild = ("ids", ints(&[1, 2], &[3, 4]));
    let e = run(f, &network, &[wild, unused.clone()]).unwrap_err();
    assert!(e.contains("Gather"), "{e}");
    let e = run(f, &network, &[("ids", ids), ("unused", ints(&[3], &[0; 3]))]).unwrap_err();
    assert!(e.contains("input `unused` is of f32"), "{e}");
    let e = run(f, &network, &[unused]).unwrap_err();
    assert!(e.contains('N'), "{e}");
}

/// Calls of which the generated C is the same are told apart by what they read.
#[test]
fn operators_that_differ_in_an_unread_operand_are_apart() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let network = model(
        f,
        vec![node("CastLike", &["x", "one"], &["a"]), node("CastLike", &["x", "many"], &["b"])],
        Vec::new(),
        vec![value("x", I64, &["2"]), value("one", F32, &["1"]), value("many", F32, &["5"])],
        &["a", "b"],
    );
    let given = [
        ("x", ints(&[2], &[3, -4])),
        ("one", Array::floats(vec![1], &[0.0])),
        ("many", Array::floats(vec![5], &[0.0; 5])),
    ];
    let (out, _) = run(f, &network, &given).unwrap();
    assert_eq!(out[0].1.f32s().unwrap(), [3.0, -4.0]);
    assert_eq!(out[1].1, out[0].1);
}

#[test]
fn values_that_decide_shapes_become_constants() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let network = model(
        f,
        vec![node("Reshape", &["x", "to"], &["y"])],
        Vec::new(),
        vec![value("x", I64, &["6"]), value("to", I64, &["2"])],
        &["y"],
    );
    let x = ints(&[6], &[1, 2, 3, 4, 5, 6]);
    let (out, ran) = run(f, &network, &[("x", x.clone()), ("to", ints(&[2], &[3, -1]))]).unwrap();
    assert_eq!((&out[0].1.shape[..], &out[0].1.bytes), (&[3, 2][..], &x.bytes));
    // The network is for this value only.
    let other = [("x".to_string(), x.clone()), ("to".to_string(), ints(&[2], &[2, 3]))];
    let e = ran.network.run(&other).unwrap_err().to_string();
    assert!(e.contains("another value of `to`"), "{e}");
    let e = run(f, &network, &[("x", x)]).unwrap_err();
    assert!(e.contains("depend on the values of its input to"), "{e}");
}

/// The axis of CumSum decides no shape, yet its plain operator is made for one axis.
#[test]
fn values_that_operators_are_made_for_become_constants() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let inputs = vec![value("x", I64, &["2", "2"]), value("axis", I64, &[])];
    let network =
        model(f, vec![node("CumSum", &["x", "axis"], &["y"])], Vec::new(), inputs, &["y"]);
    let x = ints(&[2, 2], &[1, 2, 3, 4]);
    for (axis, want) in [(0, [1, 2, 4, 6]), (1, [1, 3, 3, 7])] {
        let (out, _) = run(f, &network, &[("x", x.clone()), ("axis", ints(&[], &[axis]))]).unwrap();
        assert_eq!(out[0].1, ints(&[2, 2], &want));
    }
}

#[test]
fn extents_that_only_the_run_knows_reach_outputs() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let inputs = || vec![value("x", I64, &["2", "3"])];
    let nodes = vec![node("NonZero", &["x"], &["where"])];
    let network = model(f, nodes.clone(), Vec::new(), inputs(), &["where"]);
    let (out, _) = run(f, &network, &[("x", ints(&[2, 3], &[0, 7, 0, 0, 0, 1]))]).unwrap();
    assert_eq!(out[0].1, ints(&[2, 2], &[0, 1, 1, 2]));
    let (out, _) = run(f, &network, &[("x", ints(&[2, 3], &[0; 6]))]).unwrap();
    assert_eq!(out[0].1, ints(&[2, 0], &[]));
    let more = [nodes, vec![node("Add", &["where", "where"], &["y"])]].concat();
    let network = model(f, more, Vec::new(), inputs(), &["y"]);
    let given = [("x", ints(&[2, 3], &[0, 7, 0, 0, 0, 1]))];
    if target() == TargetRequest::Cpu {
        let (out, _) = run(f, &network, &given).unwrap();
        assert_eq!(out[0].1, ints(&[2, 2], &[0, 2, 2, 4]));
    } else {
        let e = run(f, &network, &given).unwrap_err();
        assert!(e.contains("`NonZero_0`") && e.contains("are for CPUs"), "{e}");
    }
}

#[test]
fn models_of_nothing_run() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let inputs = vec![value("x", F32, &["0", "2"]), value("s", I64, &[])];
    let nodes = vec![node("Neg", &["x"], &["y"])];
    let network = model(f, nodes, Vec::new(), inputs, &["y", "x", "s"]);
    let empty = Array::floats(vec![0, 2], &[]);
    let (out, _) = run(f, &network, &[("x", empty.clone()), ("s", ints(&[], &[5]))]).unwrap();
    assert_eq!((&out[0].1, &out[1].1), (&empty, &empty));
    assert_eq!(out[2].1, ints(&[], &[5]));
}

#[test]
fn test_data_of_onnx_is_read_and_compared() {
    let folder = tempfile::tempdir().unwrap();
    let f = folder.path();
    let network = model(
        f,
        vec![node("Add", &["a", "b"], &["sum"]), node("Identity", &["sum"], &["y"])],
        Vec::new(),
        vec![value("a", I64, &["2"]), value("b", I64, &["2"])],
        &["sum"],
    );
    let set = f.join("test_data_set_0");
    std::fs::create_dir(&set).unwrap();
    let put = |file: &str, data: &[i64]| {
        let bytes = weight("", &ints(&[2], data)).encode_to_vec();
        std::fs::write(set.join(file), bytes).unwrap();
    };
    put("input_0.pb", &[1, 2]);
    put("input_1.pb", &[10, 20]);
    put("output_0.pb", &[11, 22]);
    let check = || {
        let request = CheckRequest {
            network: network.clone(),
            data: CheckData::Folder(f.into()),
            tolerance: Some(Tolerance::Scaled(0.0)),
        };
        squall::check(&context(), &request, &mut |_| ())
    };
    let right = check().unwrap();
    assert!(right.is_right() && right.elements == 2, "{right:?}");
    put("output_0.pb", &[11, 23]);
    let wrong = check().unwrap();
    assert!(!wrong.is_right() && wrong.wrong == 1, "{wrong:?}");
    std::fs::remove_file(set.join("input_1.pb")).unwrap();
    let e = check().unwrap_err().to_string();
    assert!(e.contains("1 files input_N.pb"), "{e}");
}

/// A kernel that is really slow and holds its task by records that cannot know better loses it in
/// the whole network to the one that is close to it by these records.
#[test]
fn whole_networks_decide_between_close_kernels() {
    let folder = tempfile::tempdir().unwrap();
    let w = noise(&[96, 96], 1);
    let nodes = vec![
        node("MatMul", &["x", "w"], &["m"]),
        node("Relu", &["m"], &["r"]),
        node("MatMul", &["r", "w"], &["y"]),
    ];
    let inputs = vec![value("x", F32, &["64", "96"])];
    let network = model(folder.path(), nodes, vec![weight("w", &w)], inputs, &["y"]);
    let path = folder.path().join("s.squall");
    let budget = BudgetRequest { trials_per_task: Some(16), ..BudgetRequest::default() };
    let request = TuneRequest {
        target: target(),
        roof: false,
        inference: None,
        // Neither a predictor nor a cost model: some candidates shall be slow.
        transfer: false,
        strategy: Some("random".into()),
        ..TuneRequest::new(network.input.clone(), &path, budget)
    };
    let stop = AtomicBool::new(false);
    squall::tune(&context(), &request, &stop, &mut |_| ()).unwrap();

    let store = Store::open(&path).unwrap();
    let all = store.query(&Query::default()).unwrap();
    let mut trials = all.clone();
    trials.retain(|r| r.kind == RecordKind::Trial && r.outcome.time().is_some());
    let time = |r: &Record| r.outcome.time().unwrap().0;
    trials.sort_by(|a, b| time(a).total_cmp(&time(b)));
    let fast = trials[0].clone();
    let slow = trials.iter().rev().find(|r| r.task == fast.task).unwrap().clone();
    assert_ne!(slow.configuration, fast.configuration);
    // All others are known to be far from it.
    let is_other =
        |r: &&Record| ![&fast.configuration, &slow.configuration].contains(&&r.configuration);
    let others = all.iter().filter(|r| r.task == fast.task && r.outcome.time().is_some());
    let others = others.filter(is_other).map(|r| (r, 1.5));
    for (r, factor) in others.chain([(&fast, 1.01), (&slow, 1.0)]) {
        let Outcome::Measured(m) = &fast.outcome else { unreachable!() };
        let samples = m.samples.iter().map(|s| Nanos(s.0 * factor)).collect();
        let outcome = Outcome::Measured(Measurement { samples, ..m.clone() });
        let kind = RecordKind::Rematch;
        store.append_latest(Record { kind, outcome, ..r.clone() }).unwrap();
    }
    let holder = || {
        let best = store.best(&Query::task(fast.task)).unwrap();
        (best[0].tunable.clone(), best[0].configuration.clone())
    };
    assert_eq!(holder(), (slow.tunable.clone(), slow.configuration.clone()));

    let network = NetworkRequest { store: Some(path.clone()), ..network };
    // An emulated GPU is slow, and what it takes for a call means nothing.
    let is_emulated = target() != TargetRequest::Cpu;
    let asked = RunOffRequest { network, seconds: if is_emulated { 3.0 } else { 300.0 } };
    let settled = squall::run_off(&context(), &asked, &stop, &mut |_| ()).unwrap().unwrap();
    if is_emulated {
        // Its replays have a clock between steps.
        let network = asked.network.clone();
        let bench = BenchRequest { network, inputs: Vec::new(), seconds: 0.01, beside: Vec::new() };
        let done = squall::bench(&context(), &bench, &mut |_| ()).unwrap();
        let is_timed = |l: &squall::network::Layer| l.best_ns > 0 && l.in_place_ns > 0;
        assert!(done.times.layers.iter().all(is_timed), "{:?}", done.times.layers);
        let kept = store.query(&Query { kind: Some(RecordKind::Network), ..Query::default() });
        assert_eq!(kept.unwrap().len(), 2 * settled.met, "what is not decided stays as it is");
        return;
    }
    // Which of them is faster is the machine's to say; what was taken was faster in its meeting,
    // and
    // the task is held by the last that was taken.
    assert!(settled.met >= 1 && settled.taken.iter().all(|t| t.1 < 1.0), "{settled:?}");
    let is_taken = settled.taken.iter().any(|(name, _)| *name == fast.name);
    let is_slow = holder() == (slow.tunable.clone(), slow.configuration.clone());
    assert!(is_taken || is_slow, "{:?}, {settled:?}", holder());
    let kept = store.query(&Query { kind: Some(RecordKind::Network), ..Query::task(fast.task) });
    assert!(kept.unwrap().len() >= 2);
    // What a network decided is not asked again.
    let count = || {
        let of_task = Query { kind: Some(RecordKind::Network), ..Query::task(fast.task) };
        let all = store.query(&of_task).unwrap();
        let is_pair =
            |r: &&Record| [&fast, &slow].iter().any(|c| c.configuration == r.configuration);
        all.iter().filter(is_pair).count()
    };
    let before = count();
    squall::run_off(&context(), &asked, &stop, &mut |_| ()).unwrap();
    assert_eq!(count(), before);
}
