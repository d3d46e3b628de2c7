//! Tests on whole ONNX files: torchvision's networks in the shared folder, if it is there, and the
//! examples of this repository. Every node is in exactly one task, listed as untuned, or folded;
//! counted operations agree with the file; kernels run in order give the model's output; damaged
//! files never panic.

use crate::net;

use net::{alone, examples, models, run};
use prost::Message;
use squall_core::Workload;
use squall_frontend::onnx::proto::{AttributeProto, GraphProto, ModelProto, NodeProto};
use squall_frontend::{npy, onnx};
use squall_graph::Assignment;
use squall_graph::candidates::moves_data;
use squall_graph::solvers::{CHANNELS_LAST, solver};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

fn assignment(bytes: &[u8], name: &str) -> Assignment {
    Assignment::of(Arc::new(onnx::read(bytes, name, &[]).unwrap()), alone).unwrap()
}

#[test]
fn every_node_is_accounted_for_once() {
    let models = models();
    assert!(models.len() >= 2, "the examples are missing");
    assert!(
        squall_testing::shared("models").is_none() || models.len() >= 24,
        "{} models",
        models.len()
    );
    let mut images = HashMap::new();
    for (name, bytes) in models {
        let import = assignment(&bytes, &name);
        let model = import.model();
        model.verify().unwrap();
        let mut seen: HashMap<String, u32> = HashMap::new();
        let in_tasks = import.tasks().iter().flat_map(|t| t.nodes.clone());
        let folded = model.nodes.iter().filter(|n| n.folded).map(|n| n.name.clone());
        for node in in_tasks.chain(import.untuned().into_iter().map(|u| u.node)).chain(folded) {
            *seen.entry(node).or_default() += 1;
        }
        for node in &model.nodes {
            assert_eq!(
                seen.remove(node.name.as_str()),
                Some(1),
                "{name}: {} ({})",
                node.name,
                node.op
            );
        }
        assert!(seen.is_empty(), "{name}: {seen:?}");
        for t in import.tasks() {
            t.workload.check().unwrap();
            assert_eq!(
                Workload::parse(&t.workload.to_string()).as_ref(),
                Ok(&t.workload),
                "{name}: {}",
                t.name
            );
            assert!(t.count >= 1 && t.nodes.len() as u64 >= t.count, "{name}: {}", t.name);
        }
        // With channels last it is the same work, in other loops.
        let last = import.solved(solver(CHANNELS_LAST).unwrap(), &|_| None).unwrap();
        let sums = |tasks: &[squall_core::Task]| {
            tasks.iter().fold((0, 0, 0), |(c, n, f), t| {
                (c + t.count, n + t.nodes.len(), f + t.count * t.workload.flop())
            })
        };
        assert_eq!(sums(last.tasks()), sums(import.tasks()), "{name}");
        images.insert(name.clone(), last.choice().layouts.len());
        // Whatever computes with floats is tuned.
        for u in &import.untuned() {
            assert!(moves_data(u.op.as_str()), "{name}: {} ({}): {}", u.node, u.op, u.reason);
        }
    }
    // The results of its convolutions and its pool; not the input, and not the result of the global
    // pool.
    assert_eq!(images["resnet18"], 21);
}

/// A file's own shapes, and what its convolutions and pools make of images.
struct Shapes<'a> {
    graph: &'a GraphProto,
    known: HashMap<&'a str, Vec<i64>>,
}

fn attribute<'a>(n: &'a NodeProto, name: &str) -> Option<&'a AttributeProto> {
    n.attribute.iter().find(|a| a.name == name)
}

impl<'a> Shapes<'a> {
    fn new(graph: &'a GraphProto) -> Shapes<'a> {
        let mut known: HashMap<&str, Vec<i64>> =
            graph.initializer.iter().map(|t| (t.name.as_str(), t.dims.clone())).collect();
        for v in graph.value_info.iter().chain(&graph.input).chain(&graph.output) {
            let shape = v
                .r#type
                .as_ref()
                .and_then(|t| t.tensor_type.as_ref())
                .and_then(|t| t.shape.as_ref());
            let extents: Option<Vec<i64>> =
                shape.and_then(|s| s.dim.iter().map(|d| d.dim_value).collect());
            known.extend(extents.map(|e| (v.name.as_str(), e)));
        }
        Shapes { graph, known }
    }

    fn of(&self, name: &str) -> &[i64] {
        self.known.get(name).unwrap_or_else(|| panic!("the shape of {name} is not in the file"))
    }

    /// Pixels of an image, or the extents where there are none; where the file does not say, by
    /// the rule of what made it.
    fn image(&self, name: &str) -> Vec<i64> {
        if let Some(shape) = self.known.get(name) {
            return shape[2..].to_vec();
        }
        let n = self.graph.node.iter().find(|n| n.output[0] == name).unwrap();
        let x = self.image(&n.input[0]);
        let list = |name: &str, default: i64| {
            attribute(n, name).map_or(vec![default; 2 * x.len()], |a| a.ints.clone())
        };
        match n.op_type.as_str() {
            "Conv" | "MaxPool" => {
                let kernel = if n.op_type == "Conv" {
                    self.of(&n.input[1])[2..].to_vec()
                } else {
                    list("kernel_shape", 1)
                };
                let (pads, strides) = (list("pads", 0), list("strides", 1));
                (0..x.len())
                    .map(|i| (x[i] + pads[i] + pads[i + x.len()] - kernel[i]) / strides[i] + 1)
                    .collect()
            }
            // Everything else that convolutions read keeps pixels; channels are the filters'
            // affair.
            "Relu" | "Clip" | "HardSwish" | "Slice" | "Add" | "Concat" | "Identity" => x,
            op => panic!("{op}"),
        }
    }
}

/// Multiplications and additions of a file's convolutions and products, from the file alone.
fn flop_by_formula(graph: &GraphProto) -> u64 {
    let shapes = Shapes::new(graph);
    let product = |s: &[i64]| s.iter().product::<i64>();
    let mut total = 0;
    for n in &graph.node {
        total += match n.op_type.as_str() {
            // All models have batch 1.
            "Conv" => 2 * product(&shapes.image(&n.output[0])) * product(shapes.of(&n.input[1])),
            "MatMul" => {
                2 * product(shapes.of(&n.output[0])) * shapes.of(&n.input[0]).last().unwrap()
            }
            "Gemm" => {
                assert!(attribute(n, "transA").is_none_or(|a| a.i != Some(1)));
                2 * shapes.known.get(n.input[0].as_str()).map_or(1, |a| a[0])
                    * product(shapes.of(&n.input[1]))
            }
            _ => 0,
        };
    }
    total as u64
}

#[test]
fn operations_agree_with_a_count_from_the_file() {
    let mut compared = 0;
    for (name, bytes) in models() {
        let file = ModelProto::decode(bytes.as_slice()).unwrap();
        let graph = file.graph.unwrap();
        compared += 1;
        let mut ours = 0;
        for t in assignment(&bytes, &name).tasks() {
            if matches!(
                t.workload.kind.as_str(),
                "conv2d" | "depthwise_conv2d" | "matmul" | "batch_matmul"
            ) {
                let main = t.workload.stages.iter().find(|s| s.reduction.is_some()).unwrap();
                ours += 2 * main.points() * t.count;
            }
        }
        assert_eq!(ours, flop_by_formula(&graph), "{name}");
    }
    assert!(squall_testing::shared("models").is_none() || compared >= 24, "{compared}");
}

/// Runs a model by the meaning of its kernels and compares with known output.
fn agrees(model: PathBuf, within: f32) {
    let of = |suffix: &str| {
        model.with_file_name(format!("{}{suffix}", model.file_stem().unwrap().to_string_lossy()))
    };
    let array = |suffix: &str| npy::read(&std::fs::read(of(suffix)).unwrap()).unwrap();
    let graph = assignment(&std::fs::read(&model).unwrap(), "model");
    let (input, want) = (array("_input.npy"), array("_output.npy"));
    assert_eq!((&graph.inputs[0].1, &graph.outputs[0].1), (&input.shape, &want.shape));
    let want = want.f32s().unwrap();
    let got = run(&graph, &[input.f32s().unwrap()]).unwrap().remove(0);
    assert_eq!(got.len(), want.len());
    for (a, b) in got.iter().zip(&want) {
        assert!((a - b).abs() <= within, "{got:?} instead of {want:?}");
    }
}

#[test]
fn kernels_in_order_give_the_models_output() {
    agrees(examples().join("small_net.onnx"), 1e-6);
    if let Some(tiny) = squall_testing::shared("models/tiny_residual.onnx") {
        agrees(tiny, 1e-5);
    }
}

#[test]
fn resnet18_has_these_kernels() {
    let bytes = std::fs::read(examples().join("resnet18.onnx")).unwrap();
    let import = assignment(&bytes, "resnet18");
    let seen: Vec<(&str, u64)> =
        import.tasks().iter().map(|t| (t.name.as_str(), t.count)).collect();
    assert_eq!(
        seen,
        [
            ("conv2d_3x224x224_k64_7x7_s2_bias_relu", 1),
            ("maxpool_64x112x112_3x3_s2", 1),
            ("conv2d_64x56x56_k64_3x3_bias_relu", 2),
            ("conv2d_64x56x56_k64_3x3_bias_add_relu", 2),
            ("conv2d_64x56x56_k128_3x3_s2_bias_relu", 1),
            ("conv2d_128x28x28_k128_3x3_bias", 1),
            ("conv2d_64x56x56_k128_1x1_s2_bias_add_relu", 1),
            ("conv2d_128x28x28_k128_3x3_bias_relu", 1),
            ("conv2d_128x28x28_k128_3x3_bias_add_relu", 1),
            ("conv2d_128x28x28_k256_3x3_s2_bias_relu", 1),
            ("conv2d_256x14x14_k256_3x3_bias", 1),
            ("conv2d_128x28x28_k256_1x1_s2_bias_add_relu", 1),
            ("conv2d_256x14x14_k256_3x3_bias_relu", 1),
            ("conv2d_256x14x14_k256_3x3_bias_add_relu", 1),
            ("conv2d_256x14x14_k512_3x3_s2_bias_relu", 1),
            ("conv2d_512x7x7_k512_3x3_bias", 1),
            ("conv2d_256x14x14_k512_1x1_s2_bias_add_relu", 1),
            ("conv2d_512x7x7_k512_3x3_bias_relu", 1),
            ("conv2d_512x7x7_k512_3x3_bias_add_relu", 1),
            ("mean_512x49", 1),
            ("matmul_1x512x1000_bias", 1),
        ]
    );
    assert_eq!(import.untuned().len(), 1);
    // torchvision's export is the same network: the same kernels.
    if let Some(path) = squall_testing::shared("models/resnet18.onnx") {
        let bytes = std::fs::read(path).unwrap();
        let theirs = assignment(&bytes, "resnet18");
        assert_eq!(
            theirs.tasks().iter().map(|t| (t.id, t.count)).collect::<Vec<_>>(),
            import.tasks().iter().map(|t| (t.id, t.count)).collect::<Vec<_>>()
        );
    }
}

/// Every form of every operator against onnx's own reference; `tests/operators/make.py` writes
/// the files.
#[test]
fn operators_compute_what_the_reference_computes() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../frontend/tests/operators");
    for opset in ["opset9", "opset17"] {
        let file = |suffix: &str| std::fs::read(folder.join(format!("{opset}{suffix}"))).unwrap();
        let (input, want) =
            (npy::read(&file("_input.npy")).unwrap(), npy::read(&file("_output.npy")).unwrap());
        let import = assignment(&file(".onnx"), opset);
        for u in &import.untuned() {
            assert!(moves_data(u.op.as_str()), "{} ({}): {}", u.node, u.op, u.reason);
        }
        let names: Vec<String> = import.outputs.iter().map(|o| o.0.clone()).collect();
        let want = want.f32s().unwrap();
        let mut want = want.as_slice();
        for (name, got) in names.iter().zip(run(&import, &[input.f32s().unwrap()]).unwrap()) {
            let (these, rest) = want.split_at(got.len());
            for (i, (a, b)) in got.iter().zip(these).enumerate() {
                assert!(
                    (a - b).abs() <= 2e-5 * b.abs().max(1.0),
                    "{opset} {name}[{i}]: {a} instead of {b}"
                );
            }
            want = rest;
        }
        assert!(want.is_empty());
    }
}

#[test]
fn damaged_files_never_panic() {
    let mut state = 1u64;
    let mut random = move |n: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % n
    };
    let mut imported = 0;
    for (name, bytes) in models().into_iter().filter(|(n, _)| n == "resnet18" || n == "small_net") {
        for _ in 0..600 {
            let mut damaged = bytes.clone();
            for _ in 0..1 + random(3) {
                // Small numbers stand for extents and lengths more often than for text.
                let at = random(damaged.len().min(8000));
                damaged[at] = if random(2) == 0 {
                    random(256) as u8
                } else {
                    [0, 1, 2, 0x7f, 0x80, 0xff][random(6)]
                };
            }
            if random(8) == 0 {
                damaged.truncate(random(damaged.len()));
            }
            if let Ok(model) = onnx::read(&damaged, &name, &[]) {
                Assignment::of(Arc::new(model), alone).unwrap();
                imported += 1;
            }
        }
    }
    assert!(imported > 0, "no damage is harmless, so that nothing beyond the reader was tried");
}
