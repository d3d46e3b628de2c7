//! Tests of fusion on small graphs made by hand (`net`): which nodes become one kernel under greedy
//! fusion, by the kernels' names such as `conv2d_2x5x6_k3_3x3_bias_relu`, and that fused models
//! compute the same as their nodes.

use crate::net;
use std::sync::Arc;

use net::{Net, run, some_numbers};
use squall_core::DType;
use squall_core::graph::{Attribute, ValueId};
use squall_graph::simplify::simplify;

#[test]
fn bias_normalisation_and_activation_join_a_convolution() {
    let mut n = Net::new();
    let x = n.input(&[1, 2, 5, 6]);
    let c = n.conv(x, 2, 3);
    let b = n.norm(c, 3, &[1, 3, 5, 6]);
    let y = n.node("Relu", &[b], &[1, 3, 5, 6], &[]);
    n.0.outputs.push(y);
    assert_eq!(n.fused(), ["conv2d_2x5x6_k3_3x3_bias_relu"]);
    assert_eq!(n.lower().tasks()[0].nodes, ["Conv0", "BatchNormalization1", "Relu2"]);
    // The same kernel as a convolution with a bias of its own.
    let id = n.lower().tasks()[0].id;
    let mut n = Net::new();
    let x = n.input(&[1, 2, 5, 6]);
    let (w, b) = (n.weight(&[3, 2, 3, 3]), n.weight(&[3]));
    let c = n.node("Conv", &[x, w, b], &[1, 3, 5, 6], &[("pads", Attribute::Ints(vec![1; 4]))]);
    let y = n.norm(c, 3, &[1, 3, 5, 6]);
    let y = n.node("Clip", &[y, n.0.values.len()], &[1, 3, 5, 6], &[]);
    n.0.nodes[2].inputs[1] = Some(n.number(0.0));
    n.0.outputs.push(y);
    assert_eq!(n.fused(), ["conv2d_2x5x6_k3_3x3_bias_relu"]);
    assert_eq!(n.lower().tasks()[0].id, id);
}

#[test]
fn transposed_convolutions_and_those_of_volumes_take_steps_in() {
    let ints = |list: &[i64]| Attribute::Ints(list.to_vec());
    let mut n = Net::new();
    let x = n.input(&[1, 4, 3, 5]);
    let (w, b) = (n.weight(&[4, 3, 4, 2]), n.weight(&[6]));
    let attributes =
        [("strides", ints(&[2, 2])), ("pads", ints(&[1, 0, 1, 0])), ("group", Attribute::Int(2))];
    let up = n.node("ConvTranspose", &[x, w, b], &[1, 6, 6, 10], &attributes);
    let y = n.node("Relu", &[up], &[1, 6, 6, 10], &[]);
    n.0.outputs.push(y);
    assert_eq!(n.fused(), ["conv2d_transposed_6x6x10_k4_4x2_s2_g2_bias_relu"]);
    let got = run(&n.lower(), &[some_numbers(&[1, 4, 3, 5])]).unwrap();
    // Each element of the input adds its channel's filters, scaled, to the result.
    let floats = |id: ValueId| match n.0.values[id].constant.as_deref() {
        Some(squall_core::graph::Constant::F32 { data, .. }) => data.clone(),
        _ => panic!("a weight has floats"),
    };
    let (x, w, b) = (some_numbers(&[1, 4, 3, 5]), floats(w), floats(b));
    let mut want: Vec<f32> = (0..360).map(|i| b[i / 60]).collect();
    for (i, x) in x.iter().enumerate() {
        let (c, h, v) = (i / 15, i / 5 % 3, i % 5);
        for (j, f) in w[c * 24..][..24].iter().enumerate() {
            let (k, r, s) = (c / 2 * 3 + j / 8, j / 2 % 4, j % 2);
            if let Some(p) = (2 * h + r).checked_sub(1).filter(|p| *p < 6) {
                want[(k * 6 + p) * 10 + 2 * v + s] += x * f;
            }
        }
    }
    for (g, w) in got[0].iter().zip(&want) {
        assert!((g - w.max(0.0)).abs() < 1e-4, "{got:?} {want:?}");
    }
    let mut n = Net::new();
    let x = n.input(&[1, 2, 3, 4, 5]);
    let w = n.weight(&[3, 2, 3, 1, 3]);
    let attributes = [("pads", ints(&[1, 0, 1, 1, 0, 1]))];
    let c = n.node("Conv", &[x, w], &[1, 3, 3, 4, 5], &attributes);
    let y = n.node("Relu", &[c], &[1, 3, 3, 4, 5], &[]);
    n.0.outputs.push(y);
    assert_eq!(n.fused(), ["conv3d_2x3x4x5_k3_3x1x3_relu"]);
    // A result that is no multiple of the stride is computed by a plain operator.
    let mut n = Net::new();
    let (x, w) = (n.input(&[1, 4, 3, 3]), n.weight(&[4, 3, 3, 3]));
    let y = n.node("ConvTranspose", &[x, w], &[1, 3, 7, 7], &[("strides", ints(&[2, 2]))]);
    n.0.outputs.push(y);
    let left = n.lower().untuned();
    assert!(left[0].reason.contains("multiples of the strides"), "{}", left[0].reason);
}

#[test]
fn a_normalisation_before_a_convolution_is_a_map() {
    let mut n = Net::new();
    let x = n.input(&[1, 2, 5, 6]);
    let b = n.norm(x, 2, &[1, 2, 5, 6]);
    let r = n.node("Relu", &[b], &[1, 2, 5, 6], &[]);
    let y = n.conv(r, 2, 3);
    n.0.outputs.push(y);
    assert_eq!(n.fused(), ["bn_relu_2x5x6", "conv2d_2x5x6_k3_3x3"]);
    let text = n.lower().tasks()[0].workload.to_string();
    assert!(
        text.contains(
            "data X: f32[2, 30]\nweight S: f32[2]\nweight T: f32[2]\nstage Y: f32[i: 2, \
                       j: 30] = max(X[i, j] * S[i] + T[i], 0)"
        ),
        "{text}"
    );
}

/// As attention scales its queries and keys: the kernel of the product includes both factors.
#[test]
fn numbers_that_scale_the_operands_of_a_product_go_behind_it() {
    let mut n = Net::new();
    let (a, b) = (n.input(&[2, 5, 4]), n.input(&[2, 4, 6]));
    let (s, t) = (n.number(0.5), n.number(3.0));
    let scaled = n.node("Mul", &[a, s], &[2, 5, 4], &[]);
    let other = n.node("Mul", &[t, b], &[2, 4, 6], &[]);
    let product = n.node("MatMul", &[scaled, other], &[2, 5, 6], &[]);
    let y = n.node("Relu", &[product], &[2, 5, 6], &[]);
    n.0.outputs.push(y);
    assert_eq!(n.fused().len(), 3);
    let simple = Net(simplify(n.0.clone()));
    let names = simple.fused();
    assert!(names.len() == 1 && names[0].ends_with("_mul_mul_relu"), "{names:?}");
    let inputs = [some_numbers(&[2, 5, 4]), some_numbers(&[2, 4, 6])];
    let (got, want) = (run(&simple.lower(), &inputs).unwrap(), run(&n.lower(), &inputs).unwrap());
    let off = got[0].iter().zip(&want[0]).map(|(g, w)| (g - w).abs()).fold(0.0, f32::max);
    assert!(off < 1e-5, "{got:?} {want:?}");
    // A scaled value with other readers stays as it is.
    n.0.outputs.push(scaled);
    let kept = simplify(n.0.clone());
    assert_eq!(kept.nodes[0], n.0.nodes[0]);
    assert_eq!(kept.nodes.iter().filter(|x| x.op == "Mul").count(), 2);
}

/// As behind attention's output product: the kernel of the product includes the addition, and the
/// renames between them are removed.
#[test]
fn an_addition_is_read_past_what_only_renames() {
    let mut n = Net::new();
    let (a, b, r) = (n.input(&[6, 4]), n.input(&[4, 5]), n.input(&[1, 6, 5]));
    let product = n.node("MatMul", &[a, b], &[6, 5], &[]);
    let shape = n.list(&[6, 1, 5]);
    let tall = n.node("Reshape", &[product, shape], &[6, 1, 5], &[]);
    let order = ("perm", Attribute::Ints(vec![1, 0, 2]));
    let flat = n.node("Transpose", &[tall], &[1, 6, 5], &[order]);
    let sum = n.node("Add", &[flat, r], &[1, 6, 5], &[]);
    let y = n.node("Relu", &[sum], &[1, 6, 5], &[]);
    n.0.outputs.push(y);
    assert_eq!(n.fused().len(), 2);
    let simple = Net(simplify(n.0.clone()));
    assert!(simple.0.nodes.iter().all(|x| x.op != "Transpose" && x.op != "Reshape"));
    let names = simple.fused();
    assert!(names.len() == 1 && names[0].ends_with("_add_relu"), "{names:?}");
    let inputs = [&[6, 4][..], &[4, 5], &[1, 6, 5]].map(some_numbers);
    assert_eq!(run(&simple.lower(), &inputs).unwrap(), run(&n.lower(), &inputs).unwrap());
    // A node that moves elements is no rename, and neither is one that gives the sum another shape.
    let mut moved = Net::new();
    let (a, b, r) = (moved.input(&[6, 4]), moved.input(&[4, 6]), moved.input(&[6, 6]));
    let product = moved.node("MatMul", &[a, b], &[6, 6], &[]);
    let order = ("perm", Attribute::Ints(vec![1, 0]));
    let turned = moved.node("Transpose", &[product], &[6, 6], &[order]);
    let y = moved.node("Add", &[turned, r], &[6, 6], &[]);
    moved.0.outputs.push(y);
    assert_eq!(simplify(moved.0.clone()), moved.0);
    let mut wide = Net::new();
    let (a, b, r) = (wide.input(&[6, 4]), wide.input(&[4, 5]), wide.input(&[6, 5]));
    let product = wide.node("MatMul", &[a, b], &[6, 5], &[]);
    let shape = wide.list(&[1, 6, 5]);
    let tall = wide.node("Reshape", &[product, shape], &[1, 6, 5], &[]);
    let y = wide.node("Add", &[tall, r], &[1, 6, 5], &[]);
    wide.0.outputs.push(y);
    assert_eq!(simplify(wide.0.clone()), wide.0);
}

#[test]
fn the_later_producer_takes_the_residual() {
    let mut n = Net::new();
    let x = n.input(&[1, 3, 5, 6]);
    let (a, b) = (n.conv(x, 3, 3), n.conv(x, 3, 3));
    let s = n.node("Add", &[a, b], &[1, 3, 5, 6], &[]);
    let y = n.node("Relu", &[s], &[1, 3, 5, 6], &[]);
    n.0.outputs.push(y);
    assert_eq!(n.fused(), ["conv2d_3x5x6_k3_3x3", "conv2d_3x5x6_k3_3x3_add_relu"]);
    assert_eq!(n.lower().tasks()[1].nodes, ["Conv1", "Add2", "Relu3"]);
}

#[test]
fn a_value_with_another_reader_stays() {
    let mut n = Net::new();
    let x = n.input(&[1, 3, 5, 6]);
    let a = n.conv(x, 3, 3);
    let r = n.node("Relu", &[a], &[1, 3, 5, 6], &[]);
    let b = n.conv(r, 3, 3);
    let y = n.node("Add", &[b, a], &[1, 3, 5, 6], &[]);
    n.0.outputs.push(y);
    assert_eq!(n.fused(), ["conv2d_3x5x6_k3_3x3", "relu_3x5x6", "conv2d_3x5x6_k3_3x3_add"]);
}

#[test]
fn branches_that_meet_again_join() {
    // GELU written out, and x * sigmoid(x).
    let mut n = Net::new();
    let shape = [2, 4, 5];
    let x = n.input(&[2, 4, 3]);
    let (w, b) = (n.weight(&[3, 5]), n.weight(&[5]));
    let (root2, one, half) = (n.number(std::f32::consts::SQRT_2), n.number(1.0), n.number(0.5));
    let p = n.node("MatMul", &[x, w], &shape, &[]);
    let p = n.node("Add", &[b, p], &shape, &[]);
    let d = n.node("Div", &[p, root2], &shape, &[]);
    let e = n.node("Erf", &[d], &shape, &[]);
    let e = n.node("Add", &[e, one], &shape, &[]);
    let m = n.node("Mul", &[p, e], &shape, &[]);
    let g = n.node("Mul", &[m, half], &shape, &[]);
    let t = n.node("Transpose", &[g], &[5, 4, 2], &[]);
    n.0.outputs.push(g);
    n.0.outputs.push(t);
    let names: Vec<String> = n.lower().tasks().iter().map(|t| t.name.clone()).collect();
    assert_eq!(names, ["matmul_8x3x5_bias_gelu"]);
    n.0.nodes.pop();
    n.0.outputs.pop();
    assert_eq!(n.fused(), ["matmul_8x3x5_bias_gelu"]);
    let mut n = Net::new();
    let x = n.input(&[1, 3, 5, 6]);
    let c = n.conv(x, 3, 4);
    let s = n.node("Sigmoid", &[c], &[1, 4, 5, 6], &[]);
    let y = n.node("Mul", &[c, s], &[1, 4, 5, 6], &[]);
    n.0.outputs.push(y);
    assert_eq!(n.fused(), ["conv2d_3x5x6_k4_3x3_sigmoid_mul"]);
}

#[test]
fn a_factor_for_each_channel_broadcasts() {
    let mut n = Net::new();
    let x = n.input(&[1, 3, 5, 6]);
    let a = n.conv(x, 3, 3);
    let g = n.node("GlobalAveragePool", &[a], &[1, 3, 1, 1], &[]);
    let g = n.node("HardSigmoid", &[g], &[1, 3, 1, 1], &[("alpha", Attribute::Float(1.0 / 6.0))]);
    let y = n.node("Mul", &[g, a], &[1, 3, 5, 6], &[]);
    n.0.outputs.push(y);
    assert_eq!(n.fused(), ["conv2d_3x5x6_k3_3x3", "mean_3x30_hardsigmoid", "mul_3x5x6"]);
    let text = n.lower().tasks()[2].workload.to_string();
    assert!(
        text.contains(
            "data X: f32[3, 30]\ndata R: f32[3]\nstage Y: f32[i: 3, j: 30] = X[i, j] * R[i]"
        ),
        "{text}"
    );
}

#[test]
fn each_activation_computes_its_definition() {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    type Case = (&'static str, Vec<(&'static str, Attribute)>, Box<dyn Fn(f64) -> f64>);
    let cases: Vec<Case> = vec![
        ("Relu", vec![], Box::new(|x| if x > 0.0 { x } else { 0.0 })),
        (
            "LeakyRelu",
            vec![("alpha", Attribute::Float(0.2))],
            Box::new(|x| if x > 0.0 { x } else { 0.2 * x }),
        ),
        (
            "Elu",
            vec![("alpha", Attribute::Float(1.5))],
            Box::new(|x| if x > 0.0 { x } else { 1.5 * (x.exp() - 1.0) }),
        ),
        (
            "Selu",
            vec![],
            Box::new(|x| 1.050_701 * if x > 0.0 { x } else { 1.673_263_2 * (x.exp() - 1.0) }),
        ),
        (
            "Celu",
            vec![("alpha", Attribute::Float(2.0))],
            Box::new(|x| if x > 0.0 { x } else { 2.0 * ((x / 2.0).exp() - 1.0) }),
        ),
        ("HardSigmoid", vec![], Box::new(|x| (0.2 * x + 0.5).clamp(0.0, 1.0))),
        ("HardSwish", vec![], Box::new(|x| x * (x / 6.0 + 0.5).clamp(0.0, 1.0))),
        ("Softplus", vec![], Box::new(|x| (1.0 + x.exp()).ln())),
        ("Softsign", vec![], Box::new(|x| x / (1.0 + x.abs()))),
        ("Mish", vec![], Box::new(|x| x * (1.0 + x.exp()).ln().tanh())),
        ("Swish", vec![("alpha", Attribute::Float(0.5))], Box::new(move |x| x * sigmoid(0.5 * x))),
        ("Reciprocal", vec![], Box::new(|x| 1.0 / x)),
        (
            "Gelu",
            vec![("approximate", Attribute::String("tanh".into()))],
            Box::new(|x| {
                0.5 * x
                    * (1.0
                        + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh())
            }),
        ),
        (
            "Clip",
            vec![("min", Attribute::Float(-0.25)), ("max", Attribute::Float(0.5))],
            Box::new(|x| x.clamp(-0.25, 0.5)),
        ),
    ];
    for (op, attributes, want) in cases {
        let mut n = Net::new();
        let x = n.input(&[41]);
        let y = n.node(op, &[x], &[41], &attributes);
        n.0.outputs.push(y);
        let import = n.lower();
        assert!(import.untuned().is_empty(), "{:?}", import.untuned());
        // An odd step keeps away from zero, where a reciprocal ends.
        let xs: Vec<f32> = (0..41).map(|i| i as f32 * 0.3 - 6.1).collect();
        let ys = run(&import, std::slice::from_ref(&xs)).unwrap().remove(0);
        for (x, y) in xs.iter().zip(ys) {
            let want = want(f64::from(*x));
            assert!(
                (f64::from(y) - want).abs() < 1e-5 * want.abs().max(1.0),
                "{op}({x}) is {want}, not {y}"
            );
        }
    }
}

#[test]
fn what_is_not_tuned_has_a_reason() {
    type Case<'a> = (&'a str, &'a dyn Fn(&mut Net, ValueId) -> ValueId);
    let cases: &[Case<'_>] = &[
        ("only renames dimensions", &|n, x| n.node("Flatten", &[x], &[1, 90], &[])),
        ("moves data", &|n, x| n.node("Transpose", &[x], &[3, 1, 5, 6], &[])),
        ("there is no kernel for Frobnicate", &|n, x| n.node("Frobnicate", &[x], &[1], &[])),
        ("domain `com.example`", &|n, x| {
            let y = n.node("Relu", &[x], &[1, 3, 5, 6], &[]);
            n.0.nodes[0].domain = "com.example".into();
            y
        }),
        ("not of 32-bit floats", &|n, x| {
            n.0.values[x].dtype = Some(DType::F16);
            n.node("Relu", &[x], &[1, 3, 5, 6], &[])
        }),
        ("shape of its result is not known", &|n, x| {
            let y = n.node("Relu", &[x], &[1], &[]);
            n.0.values[y].shape = None;
            y
        }),
        ("what the reader said", &|n, x| {
            let y = n.node("Relu", &[x], &[1], &[]);
            n.0.values[y].shape = None;
            n.0.nodes[0].problem = Some("what the reader said".into());
            y
        }),
        ("filters are computed at run time", &|n, x| {
            let w = n.input(&[4, 3, 1, 1]);
            n.node("Conv", &[x, w], &[1, 4, 5, 6], &[])
        }),
        ("do not divide into 2 groups", &|n, x| {
            let w = n.weight(&[4, 3, 1, 1]);
            n.node("Conv", &[x, w], &[1, 4, 5, 6], &[("group", Attribute::Int(2))])
        }),
        ("a window of 9 does not fit", &|n, x| {
            let w = n.weight(&[4, 3, 9, 9]);
            n.node("Conv", &[x, w], &[1, 4, 1, 1], &[])
        }),
        ("by its operator's rule", &|n, x| {
            let w = n.weight(&[4, 3, 1, 1]);
            n.node("Conv", &[x, w], &[1, 4, 9, 9], &[])
        }),
        ("axis 7 is not one of 4", &|n, x| {
            n.node("Softmax", &[x], &[1, 3, 5, 6], &[("axis", Attribute::Int(7))])
        }),
        ("auto_pad `SIDEWAYS`", &|n, x| {
            let w = n.weight(&[4, 3, 1, 1]);
            n.node(
                "Conv",
                &[x, w],
                &[1, 4, 5, 6],
                &[("auto_pad", Attribute::String("SIDEWAYS".into()))],
            )
        }),
        ("its stride is 0", &|n, x| {
            let same = ("auto_pad", Attribute::String("SAME_UPPER".into()));
            let zero = ("strides", Attribute::Ints(vec![0, 0]));
            n.node(
                "MaxPool",
                &[x],
                &[1, 3, 5, 6],
                &[("kernel_shape", Attribute::Ints(vec![2, 2])), same, zero],
            )
        }),
    ];
    for (want, build) in cases {
        let mut n = Net::new();
        let x = n.input(&[1, 3, 5, 6]);
        let y = build(&mut n, x);
        n.0.outputs.push(y);
        let import = n.lower();
        assert!(import.tasks().is_empty(), "{want}: {}", import.tasks()[0].workload);
        let [u] = &import.untuned()[..] else { panic!("{want}: {:?}", import.untuned()) };
        assert!(u.reason.contains(want), "{want}: {}", u.reason);
    }
}

#[test]
fn a_weight_that_is_absent_stops_a_run_not_an_import() {
    let mut n = Net::new();
    let x = n.input(&[1, 3, 5, 6]);
    let y = n.conv(x, 3, 3);
    n.0.outputs.push(y);
    let w = n.0.nodes[0].inputs[1].unwrap();
    n.0.values[w].constant = None;
    let import = n.lower();
    assert_eq!(import.tasks().len(), 1);
    let e = run(&import, &[vec![0.0; 90]]).unwrap_err();
    assert!(e.contains("node `Conv0`: the weight `v1` [3, 3, 3, 3] is not in the file"), "{e}");
    let e = run(&import, &[vec![0.0; 9]]).unwrap_err();
    assert!(e.contains("input `v0` is [1, 3, 5, 6], 90 elements; given are 9"), "{e}");
}

#[test]
fn strange_paddings_compute_as_written_out() {
    // SAME_UPPER puts the odd element after the image, SAME_LOWER before it.
    for (auto, pads) in [("SAME_UPPER", vec![0, 0, 1, 1]), ("SAME_LOWER", vec![1, 1, 0, 0])] {
        let text = |attributes: &[(&str, Attribute)]| {
            let mut n = Net::new();
            let x = n.input(&[1, 1, 6, 6]);
            let two = |name| (name, Attribute::Ints(vec![2, 2]));
            let all: Vec<_> = attributes
                .iter()
                .cloned()
                .chain([("kernel_shape", Attribute::Ints(vec![3, 3])), two("strides")])
                .collect();
            let y = n.node("MaxPool", &[x], &[1, 1, 3, 3], &all);
            n.0.outputs.push(y);
            n.lower().tasks()[0].workload.to_string()
        };
        assert_eq!(
            text(&[("auto_pad", Attribute::String(auto.into()))]),
            text(&[("pads", Attribute::Ints(pads))])
        );
    }
}

#[test]
fn softmax_before_opset_13_takes_all_axes_that_follow() {
    let mut n = Net::new();
    let x = n.input(&[2, 3, 4]);
    let y = n.node("Softmax", &[x], &[2, 3, 4], &[]);
    n.0.outputs.push(y);
    assert_eq!(n.lower().tasks()[0].name, "softmax_6x4");
    n.0.opset = 12;
    assert_eq!(n.lower().tasks()[0].name, "softmax_2x12");
    n.0.nodes[0].attributes.insert("axis".into(), Attribute::Int(-1));
    assert_eq!(n.lower().tasks()[0].name, "softmax_6x4");
}

#[test]
fn a_slope_that_may_be_infinite_is_left_to_a_plain_operator() {
    let model = |known: bool| {
        let mut n = Net::new();
        let x = n.input(&[2, 3]);
        let slope = if known { n.weight(&[2, 3]) } else { n.input(&[2, 3]) };
        let y = n.node("PRelu", &[x, slope], &[2, 3], &[]);
        n.0.outputs.push(y);
        (n, slope)
    };
    let (n, slope) = model(true);
    assert!(n.lower().untuned().is_empty());
    // A product of its infinity with the 0 that stands for positive operands would be NaN.
    let mut n = n;
    let constant = n.0.values[slope].constant.as_mut().map(Arc::make_mut);
    if let Some(squall_core::graph::Constant::F32 { data, .. }) = constant {
        data[1] = f32::INFINITY;
    }
    let (given, _) = model(false);
    for n in [n, given] {
        let left = n.lower().untuned();
        assert!(left[0].reason.contains("finite"), "{}", left[0].reason);
    }
}
