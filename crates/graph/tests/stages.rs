//! Tests of the stages' texts (model, candidates, assignment, plan): each prints and parses back,
//! faults are reported, hostile text never panics, and an assignment that a user wrote by hand
//! computes the same as the solver's.

use crate::net;

use net::{Net, alone, examples, models, run, some_numbers};
use squall_core::graph::{Attribute, Constant, Model, Value};
use squall_core::{DType, TaskId};
use squall_frontend::{npy, onnx};
use squall_graph::plan::Plan;
use squall_graph::solvers::{AssignmentSolver, SOLVERS, solver};
use squall_graph::{Assignment, Candidates, Choice, Step};
use std::collections::HashMap;
use std::sync::Arc;

/// A convolution with a bias, an activation and a residual, then a renaming and a product.
fn net() -> Net {
    let mut n = Net::new();
    let x = n.input(&[1, 3, 5, 6]);
    let a = n.conv(x, 3, 3);
    let a = n.norm(a, 3, &[1, 3, 5, 6]);
    let s = n.node("Add", &[a, x], &[1, 3, 5, 6], &[]);
    let r = n.node("Relu", &[s], &[1, 3, 5, 6], &[]);
    let c = n.conv(r, 3, 4);
    let f = n.node("Flatten", &[c], &[1, 120], &[]);
    let w = n.weight(&[120, 7]);
    let y = n.node("MatMul", &[f, w], &[1, 7], &[]);
    n.0.outputs.push(y);
    n
}

/// Prints and parses all four stages of a model.
fn stages_come_back(model: &Arc<Model>, name: &str) {
    let text = model.to_string();
    let read = Model::parse(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(read.to_string(), text, "{name}");
    // NaN equals nothing, not even itself.
    if !text.contains("NaN") {
        assert!(read == model.without_large_constants(), "{name}");
    }
    let candidates = Arc::new(Candidates::of(model.clone(), alone));
    let text = candidates.to_string();
    let read = Candidates::parse(&text, model).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert!(read == *candidates, "{name}");
    for s in SOLVERS {
        let made = Assignment::of(model.clone(), alone).unwrap().solved(s, &|_| None).unwrap();
        let text = made.to_string();
        let read = Assignment::parse(&text, &candidates).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!((read.choice(), read.tasks()), (made.choice(), made.tasks()), "{name}");
        assert_eq!(read.to_string(), text, "{name}");
    }
}

#[test]
fn the_stages_of_every_model_come_back() {
    stages_come_back(&Arc::new(net().0), "net");
    for (name, bytes) in models() {
        // Of networks that differ only in depth, one is enough.
        if !["resnet101", "resnet152", "vgg16", "vgg19", "densenet161"].contains(&name.as_str()) {
            stages_come_back(&Arc::new(onnx::read(&bytes, &name, &[]).unwrap()), &name);
        }
    }
}

#[test]
fn a_plan_comes_back() {
    let bytes = std::fs::read(examples().join("small_net.onnx")).unwrap();
    let model = Arc::new(onnx::read(&bytes, "small_net", &[]).unwrap());
    let plan = Assignment::of(model, alone).unwrap().plan(HashMap::new()).unwrap();
    let text = plan.to_string();
    assert_eq!(Plan::parse(&text).as_ref(), Ok(&plan));
    assert_eq!(Plan::parse(&text).unwrap().to_string(), text);
}

#[test]
fn tensors_of_all_types_are_in_a_models_text() {
    let mut n = Net::new();
    let ids = n.input(&[2, 3]);
    n.0.values[ids].dtype = Some(DType::I64);
    let mask = n.input(&[2, 3]);
    n.0.values[mask].dtype = Some(DType::Bool);
    for (i, &dtype) in DType::ALL.iter().enumerate() {
        let shape = vec![2];
        let constant = match dtype {
            DType::Bool => Constant::Bool { shape: shape.clone(), data: vec![true, false] },
            d if d.is_integer() => Constant::I64 { shape: shape.clone(), data: vec![-7, i64::MAX] },
            _ => Constant::F32 { shape: shape.clone(), data: vec![-1e-30, f32::INFINITY] },
        };
        let name = format!("a \"name\" # of\n{i}");
        let (constant, weight) = (Some(constant), true);
        let (shape, alias, dtype) = (Some(shape), None, Some(dtype));
        n.0.values.push(Value {
            name,
            dtype,
            shape,
            constant: constant.map(Arc::new),
            weight,
            alias,
        });
    }
    let a = ("alpha", Attribute::Float(0.1));
    let y = n.node("Frobnicate", &[ids, mask], &[2, 3], &[a, ("g", Attribute::Graph)]);
    let z = n.node("Identity", &[y], &[2, 3], &[("s", Attribute::String("\u{1}\\\"".into()))]);
    n.0.values[z].alias = Some(y);
    n.0.nodes[1].folded = true;
    n.0.nodes[0].problem = Some("operator `Frobnicate` is not known".into());
    n.0.nodes[0].domain = "com.example".into();
    // Several outputs, of which one is known under two names.
    n.0.outputs.extend([y, z]);
    let text = n.0.to_string();
    assert_eq!(Model::parse(&text).as_ref(), Ok(&n.0), "{text}");
    assert!(text.contains("input \"v0\" i64 [2,3]\ninput \"v1\" bool [2,3]"), "{text}");
    stages_come_back(&Arc::new(n.0), "types");
}

#[test]
fn another_partition_computes_the_same() {
    let n = net();
    let x = some_numbers(&[1, 3, 5, 6]);
    let whole = n.lower();
    let want = run(&whole, std::slice::from_ref(&x)).unwrap();
    let text = whole.to_string();
    assert_eq!(
        text,
        "assignment \"net\"\n\
         kernel anchored \"Conv0\" \"BatchNormalization1\" \"Add2\" \"Relu3\"\n\
         kernel anchored \"Conv4\"\n\
         node \"Flatten5\"\n\
         kernel anchored \"MatMul6\"\n"
    );
    // The epilogue is cut off, or the image between the convolutions is moved.
    let apart = "\nkernel elementwise \"Add2\" \"Relu3\"\n";
    let cut = text.replace(" \"Add2\" \"Relu3\"\n", apart);
    let moved = text.replace("node", "layout \"v9\" nhwc\nnode");
    let (first, second) = ("conv2d_3x5x6_k3_3x3_bias", "conv2d_3x5x6_k4_3x3");
    let (fused, crossing) = (format!("{first}_add_relu_to_nhwc"), format!("{second}_from_nhwc"));
    for (text, names) in [
        (cut, &[first, "add_relu_3x5x6", second, "matmul_1x120x7"][..]),
        (moved, &[fused.as_str(), crossing.as_str(), "matmul_1x120x7"]),
    ] {
        let other = Assignment::parse(&text, whole.candidates()).unwrap();
        assert_eq!(other.tasks().iter().map(|t| t.name.as_str()).collect::<Vec<_>>(), names);
        let got = run(&other, std::slice::from_ref(&x)).unwrap();
        for (a, b) in got[0].iter().zip(&want[0]) {
            assert!((a - b).abs() <= 1e-5 * b.abs().max(1.0), "{a} instead of {b}");
        }
    }
    // So do all solvers' assignments, of a real model too.
    let file = |suffix: &str| std::fs::read(examples().join(format!("small_net{suffix}"))).unwrap();
    let model = Arc::new(onnx::read(&file(".onnx"), "small_net", &[]).unwrap());
    let x = npy::read(&file("_input.npy")).unwrap().f32s().unwrap();
    let want = npy::read(&file("_output.npy")).unwrap().f32s().unwrap();
    for s in SOLVERS {
        let made = Assignment::of(model.clone(), alone).unwrap().solved(s, &|_| None).unwrap();
        let got = run(&made, std::slice::from_ref(&x)).unwrap().remove(0);
        assert!(got.iter().zip(&want).all(|(a, b)| (a - b).abs() < 1e-5), "{}", s.name);
    }
}

/// A second partition takes one solver: everything but convolutions stays apart.
const CONVOLUTIONS: AssignmentSolver = AssignmentSolver {
    name: "convolutions",
    about: "only convolutions take in what follows",
    solve: |all, before, cost| {
        let apart = (solver("unfused").unwrap().solve)(all, before.clone(), cost);
        let fused = (solver("greedy").unwrap().solve)(all, before, cost);
        let of_conv =
            |s: &&Step| matches!(s, Step::Kernel(i) if all.list[*i].workload.kind == "conv2d");
        let convs: Vec<Step> = fused.steps.iter().filter(of_conv).copied().collect();
        let nodes = |s: &Step| match *s {
            Step::Kernel(i) => all.list[i].nodes.clone(),
            Step::Node(n) => vec![n],
        };
        let covered: Vec<usize> = convs.iter().flat_map(nodes).collect();
        let mut steps: Vec<Step> =
            apart.steps.into_iter().filter(|s| !covered.contains(&nodes(s)[0])).collect();
        steps.extend(convs);
        steps.sort_by_key(|s| nodes(s)[0]);
        Choice { steps, ..Choice::default() }
    },
};

#[test]
fn a_solver_more_is_a_function_more() {
    let n = net();
    let x = some_numbers(&[1, 3, 5, 6]);
    let made = n.lower().solved(&CONVOLUTIONS, &|_| None).unwrap();
    assert_eq!(made.tasks().len(), 3);
    let want = run(&n.lower(), std::slice::from_ref(&x)).unwrap();
    assert_eq!(run(&made, &[x]).unwrap(), want);
}

#[test]
fn what_is_no_legal_cover_is_refused() {
    let whole = net().lower();
    let text = whole.to_string();
    let first = text.lines().nth(1).unwrap();
    let wrong = |from: &str, to: &str| {
        let text = text.replace(from, to);
        Assignment::parse(&text, whole.candidates()).unwrap_err().to_string()
    };
    let says = |e: String, part: &str| assert!(e.contains(part), "{e}\ninstead of {part}");
    says(wrong("node \"Flatten5\"\n", ""), "kernel `matmul_1x120x7` reads a value that no step");
    says(wrong("node \"Flatten5\"", "node \"MatMul6\""), "node `MatMul6` computes");
    says(wrong("kernel anchored \"MatMul6\"\n", ""), "no step gives the output `v14`");
    says(wrong(" \"Relu3\"", ""), "reads a value that no step before it gives, `v9`");
    says(wrong(" \"BatchNormalization1\"", ""), "line 2, column 1: no candidate of this rule");
    says(wrong("anchored \"Conv4\"", "anchored \"Conv9\""), "no node of this name");
    says(wrong("kernel anchored \"Conv4\"", first), "gives what another step gives");
    says(wrong("node", "layout \"v11\" upside_down\nnode"), "this layout is not known");
    says(wrong("node", "layout \"v0\" nhwc\nnode"), "no kernel and no move gives it");
    says(wrong("node", "layout \"v13\" nhwc\nnode"), "no kernel and no move gives it");
    says(wrong("node", "layout \"v12\" nhwc\nnode"), "the shapes of its values are not known");
    says(wrong("node", "layout \"v14\" nhwc\nnode"), "the model gives it to its caller");
    // A node that moves data reads its values wherever they lie, and copies elements that are
    // elsewhere.
    let moved = text.replacen("node", "layout \"v11\" nhwc\nnode", 1);
    assert_eq!(Assignment::parse(&moved, whole.candidates()).err(), None);
    says(wrong("\"net\"", "\"other\""), "of another model than `net`");
    says(wrong("assignment", "candidates"), "line 1, column 1: expected `assignment`");
}

#[test]
fn hostile_text_gives_errors() {
    let model = Arc::new(net().0);
    let made = Assignment::of(model.clone(), alone).unwrap();
    let plan = made.plan(HashMap::new()).unwrap();
    let candidates = made.candidates().clone();
    let texts = [model.to_string(), candidates.to_string(), made.to_string(), plan.to_string()];
    let mut state = 3u64;
    let mut random = move |n: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize % n
    };
    let splinters = ["9223372036854775807", "-1", "[", "\"", "b9+9", "c99", " ", "\n", "0", "?"];
    let mut read = 0;
    for _ in 0..1500 {
        for (stage, text) in texts.iter().enumerate() {
            let mut hostile: Vec<char> = text.chars().collect();
            for _ in 0..1 + random(3) {
                let at = random(hostile.len());
                match random(4) {
                    0 => _ = hostile.drain(at..(at + random(30)).min(hostile.len())),
                    1 => hostile[at] = char::from(random(128) as u8),
                    2 => {
                        let from = random(hostile.len());
                        let part = hostile[from..(from + random(30)).min(hostile.len())].to_vec();
                        hostile.splice(at..at, part);
                    }
                    _ => _ = hostile.splice(at..at, splinters[random(splinters.len())].chars()),
                }
            }
            let text: String = hostile.into_iter().collect();
            read += u32::from(match stage {
                0 => {
                    let read = Model::parse(&text);
                    // Whatever is read is good enough for all stages after it.
                    if let Ok(m) = &read
                        && let Ok(made) = Assignment::of(Arc::new(m.clone()), alone)
                    {
                        let _ = made.plan(HashMap::new());
                    }
                    read.is_ok()
                }
                1 => Candidates::parse(&text, &model).is_ok(),
                2 => Assignment::parse(&text, &candidates).is_ok(),
                _ => Plan::parse(&text).is_ok(),
            });
        }
    }
    assert!(read > 0, "no damage is harmless, so that nothing beyond the readers was tried");
}

#[test]
fn a_fused_value_is_read_by_its_kernel_alone() {
    // All ids of one model's candidates are distinct tasks or the same kernels.
    let candidates = Candidates::of(Arc::new(net().0), alone);
    let mut names: HashMap<TaskId, &str> = HashMap::new();
    for c in &candidates.list {
        let id = squall_core::Task::new("", c.workload.clone()).id;
        assert_eq!(*names.entry(id).or_insert(&c.name), c.name);
        for feed in c.feeds.iter().flat_map(|f| f.values()) {
            let made = c.nodes.iter().flat_map(|&n| &candidates.model.nodes[n].outputs);
            assert!(made.into_iter().all(|&v| v != feed), "{}", c.name);
        }
    }
}
