//! Tests of the ONNX reader (`onnx::read`) on the 22 real networks of the shared folder: every node
//! is known, every inferred shape is the one that the exporter states, and shape arithmetic folds
//! away. They are skipped where the folder is absent.

use prost::Message;
use squall_frontend::onnx::{self, proto::ModelProto};
use std::collections::HashMap;
use std::path::PathBuf;

/// The model files, or nothing, with the reason printed, where the shared folder is absent.
fn models() -> Vec<(String, Vec<u8>)> {
    let Some(folder) = squall_testing::shared("models") else { return Vec::new() };
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder)
        .expect("a folder")
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|x| x == "onnx"))
        .collect();
    files.sort();
    assert_eq!(files.len(), 22, "model files in {}", folder.display());
    files
        .iter()
        .map(|p| (p.file_stem().unwrap().to_string_lossy().into_owned(), std::fs::read(p).unwrap()))
        .collect()
}

#[test]
fn every_inferred_shape_is_the_declared_one() {
    let mut compared = 0;
    let models = models();
    for (name, bytes) in &models {
        let model = onnx::read(bytes, name, &[]).unwrap_or_else(|e| panic!("{e}"));
        for n in &model.nodes {
            assert_eq!(n.problem, None, "{name}: node {} ({})", n.name, n.op);
        }
        let by_name: HashMap<&str, _> = model.values.iter().map(|v| (v.name.as_str(), v)).collect();
        let graph = ModelProto::decode(&bytes[..]).unwrap().graph.unwrap();
        for info in graph.value_info.iter().chain(&graph.output) {
            let Some(t) = info.r#type.as_ref().and_then(|t| t.tensor_type.as_ref()) else {
                continue;
            };
            let Some(shape) = &t.shape else { continue };
            let Some(value) = by_name.get(info.name.as_str()) else { continue };
            let Some(inferred) = &value.shape else { panic!("{name}: {} has no shape", info.name) };
            assert_eq!(inferred.len(), shape.dim.len(), "{name}: rank of {}", info.name);
            // Where the exporter leaves a dimension open, the others are still compared.
            for (i, d) in shape.dim.iter().enumerate() {
                if let Some(d) = d.dim_value {
                    assert_eq!(inferred[i], d, "{name}: {} inferred as {inferred:?}", info.name);
                }
            }
            if shape.dim.iter().all(|d| d.dim_value.is_some()) {
                compared += 1;
            }
            assert_eq!(
                value.dtype,
                squall_core::graph::infer::onnx_type(i64::from(t.elem_type)),
                "{name}: type of {}",
                info.name
            );
        }
    }
    println!("{compared} shapes agree with the exporter's");
    assert!(models.is_empty() || compared > 5000, "only {compared} shapes were compared");
}

#[test]
fn shape_arithmetic_folds_away() {
    const ARITHMETIC: &[&str] = &[
        "Shape",
        "ConstantOfShape",
        "Where",
        "Expand",
        "Mod",
        "Equal",
        "Range",
        "Constant",
        "Cast",
    ];
    for (name, bytes) in models() {
        let model = onnx::read(&bytes, &name, &[]).unwrap();
        let left: Vec<_> = model
            .nodes
            .iter()
            .filter(|n| ARITHMETIC.contains(&n.op.as_str()) && !n.folded)
            .map(|n| &n.name)
            .collect();
        assert!(left.is_empty(), "{name}: {left:?}");
        for n in model.nodes.iter().filter(|n| n.op == "Identity") {
            let v = &model.values[n.outputs[0]];
            assert!(
                v.alias.is_some_and(
                    |a| model.values[a].alias.is_none() && model.values[a].shape == v.shape
                ),
                "{name}: {}",
                n.name
            );
        }
        // Activations are never folded: what computes on the input stays.
        let convs = model.nodes.iter().filter(|n| n.op == "Conv");
        assert!(convs.clone().count() > 0 && convs.clone().all(|n| !n.folded), "{name}");
        assert!(
            convs.clone().all(|n| n.inputs[1].is_some_and(|w| model.values[w].weight)),
            "{name}: filters"
        );
        assert!(model.outputs.iter().all(|o| !model.values[*o].weight), "{name}");
    }
}

#[test]
fn a_complete_model_has_its_weights() {
    for (name, bytes) in models() {
        let model = onnx::read(&bytes, &name, &[]).unwrap();
        let mut convs = model.nodes.iter().filter(|n| n.op == "Conv");
        let all = convs.all(|n| n.inputs[1].is_some_and(|w| model.values[w].constant.is_some()));
        assert_eq!(all, name == "tiny_residual", "{name}");
    }
}

#[test]
fn truncated_files_are_refused() {
    for (name, bytes) in models().into_iter().filter(|(_, b)| b.len() < 60_000) {
        for end in (0..bytes.len()).step_by(97) {
            let e = onnx::read(&bytes[..end], &name, &[])
                .expect_err("a truncated file was read")
                .to_string();
            assert!(e.starts_with(&format!("{name}: ")), "{e}");
        }
    }
}

#[test]
fn a_batch_with_a_name_gives_the_same_shapes() {
    for (name, bytes) in models() {
        let mut open = ModelProto::decode(&bytes[..]).unwrap();
        let graph = open.graph.as_mut().unwrap();
        graph.value_info.clear();
        let weights: Vec<String> = graph.initializer.iter().map(|t| t.name.clone()).collect();
        for input in graph.input.iter_mut().filter(|i| !weights.contains(&i.name)) {
            let shape = input
                .r#type
                .as_mut()
                .unwrap()
                .tensor_type
                .as_mut()
                .unwrap()
                .shape
                .as_mut()
                .unwrap();
            assert_eq!(shape.dim[0].dim_value, Some(1), "{name}");
            (shape.dim[0].dim_value, shape.dim[0].dim_param) = (None, Some("N".into()));
        }
        let open = open.encode_to_vec();
        let e = onnx::read(&open, &name, &[]).unwrap_err().to_string();
        assert_eq!(
            e,
            format!(
                "{name}: these dimensions have no value: `N`; give each one, as in `--dim N=1`"
            )
        );
        let (fixed, open) = (
            onnx::read(&bytes, &name, &[]).unwrap(),
            onnx::read(&open, &name, &[("N".into(), 1)]).unwrap(),
        );
        assert_eq!(fixed.nodes, open.nodes, "{name}");
        let shapes = |m: &squall_core::graph::Model| {
            m.values.iter().map(|v| v.shape.clone()).collect::<Vec<_>>()
        };
        assert_eq!(shapes(&fixed), shapes(&open), "{name}");
    }
}
