//! Tests of the ONNX reader: one computation in the spellings of different opsets (axes as
//! attributes or operands, slices, splits, pads) must have the same shapes; and operators that no
//! network of the shared folder uses.

use squall_testing::onnx as build;

use build::*;
use squall_core::DType;
use squall_core::graph::Constant;
use squall_frontend::onnx;

fn x(opset: i64, dims: &[i64]) -> Build {
    Build::new(opset).input("x", dims)
}

/// The shape of `y` made by one node of `x`.
fn one(
    opset: i64,
    dims: &[i64],
    op: &str,
    attributes: &[squall_frontend::onnx::proto::AttributeProto],
) -> Vec<i64> {
    x(opset, dims).node(op, &["x"], &["y"], attributes).shape("y")
}

/// The shape of `y` made by one node of `x` and integer operands.
fn with(
    opset: i64,
    dims: &[i64],
    op: &str,
    operands: &[&[i64]],
    attributes: &[squall_frontend::onnx::proto::AttributeProto],
) -> Vec<i64> {
    let names = ["x", "a", "b", "c", "d"];
    let mut b = x(opset, dims);
    for (name, data) in names[1..].iter().zip(operands) {
        b = b.init(name, i64s(&[data.len() as i64], data));
    }
    b.node(op, &names[..=operands.len()], &["y"], attributes).shape("y")
}

#[test]
fn axes_are_attributes_or_operands() {
    assert_eq!(one(9, &[1, 3, 1], "Squeeze", &[ints("axes", &[0])]), [3, 1]);
    assert_eq!(with(13, &[1, 3, 1], "Squeeze", &[&[-1]], &[]), [1, 3]);
    assert_eq!(one(13, &[1, 3, 1], "Squeeze", &[]), [3]);
    assert_eq!(one(11, &[3], "Unsqueeze", &[ints("axes", &[0, -1])]), [1, 3, 1]);
    assert_eq!(with(13, &[3], "Unsqueeze", &[&[2, 0]], &[]), [1, 3, 1]);
    for opset in [9, 11, 13, 17] {
        assert_eq!(
            one(opset, &[2, 3, 4], "ReduceMean", &[ints("axes", &[-1]), int("keepdims", 0)]),
            [2, 3]
        );
    }
    assert_eq!(with(18, &[2, 3, 4], "ReduceMean", &[&[1, 2]], &[]), [2, 1, 1]);
    assert_eq!(one(11, &[2, 3, 4], "ReduceSum", &[ints("axes", &[0])]), [1, 3, 4]);
    assert_eq!(with(13, &[2, 3, 4], "ReduceSum", &[&[0]], &[int("keepdims", 0)]), [3, 4]);
    assert_eq!(one(18, &[2, 3, 4], "ReduceMax", &[]), [1, 1, 1]);
    assert_eq!(
        with(18, &[2, 3, 4], "ReduceL2", &[&[]], &[int("noop_with_empty_axes", 1)]),
        [2, 3, 4]
    );
    assert_eq!(with(18, &[2, 3, 4], "ReduceL2", &[&[]], &[]), [1, 1, 1]);
    assert_eq!(one(13, &[2, 3, 4], "ArgMax", &[int("axis", 1), int("keepdims", 0)]), [2, 4]);
}

#[test]
fn slices_of_all_forms() {
    let attributes =
        [ints("starts", &[1, -2]), ints("ends", &[i64::MAX, -1]), ints("axes", &[0, 1])];
    assert_eq!(one(9, &[5, 6], "Slice", &attributes), [4, 1]);
    assert_eq!(with(10, &[5, 6], "Slice", &[&[1, -2], &[i64::MAX, -1]], &[]), [4, 1]);
    assert_eq!(with(13, &[5, 6], "Slice", &[&[0], &[5], &[-1], &[2]], &[]), [5, 3]);
    assert_eq!(with(13, &[5], "Slice", &[&[-1], &[i64::MIN], &[0], &[-1]], &[]), [5]);
    assert_eq!(with(13, &[5], "Slice", &[&[3], &[-10], &[0], &[-2]], &[]), [2]);
    assert_eq!(with(13, &[5], "Slice", &[&[4], &[2], &[0], &[1]], &[]), [0]);
    assert_eq!(with(13, &[0], "Slice", &[&[0], &[9], &[0], &[-1]], &[]), [0]);
    assert_eq!(with(13, &[5], "Slice", &[&[0], &[5], &[0], &[i64::MAX]], &[]), [1]);
}

#[test]
fn splits_of_all_forms() {
    let parts = |b: Build| {
        let m = b.read().unwrap();
        let n = m.nodes.last().unwrap().clone();
        assert_eq!(n.problem, None);
        n.outputs.iter().map(|o| m.values[*o].shape.clone().unwrap()[0]).collect::<Vec<_>>()
    };
    assert_eq!(parts(x(9, &[6]).node("Split", &["x"], &["a", "b", "c"], &[])), [2, 2, 2]);
    assert_eq!(
        parts(x(11, &[6]).node("Split", &["x"], &["a", "b"], &[ints("split", &[1, 5])])),
        [1, 5]
    );
    assert_eq!(
        parts(x(13, &[6]).init("s", i64s(&[2], &[4, 2])).node(
            "Split",
            &["x", "s"],
            &["a", "b"],
            &[]
        )),
        [4, 2]
    );
    assert_eq!(
        parts(x(18, &[7]).node("Split", &["x"], &["a", "b", "c"], &[int("num_outputs", 3)])),
        [3, 3, 1]
    );
    assert!(
        x(13, &[7])
            .node("Split", &["x"], &["a", "b"], &[])
            .problem()
            .contains("not divisible into 2 equal parts")
    );
    assert!(
        x(11, &[6])
            .node("Split", &["x"], &["a", "b"], &[ints("split", &[1, 4])])
            .problem()
            .contains("do not make an extent of 6")
    );
}

#[test]
fn pads_and_bounds_of_all_forms() {
    assert_eq!(one(2, &[2, 3], "Pad", &[ints("pads", &[1, 0, 0, 2])]), [3, 5]);
    assert_eq!(with(13, &[2, 3], "Pad", &[&[1, 0, 0, 2]], &[]), [3, 5]);
    let some_axes = x(18, &[2, 3]).init("p", i64s(&[2], &[4, 5])).init("a", i64s(&[1], &[-1]));
    assert_eq!(some_axes.node("Pad", &["x", "p", "", "a"], &["y"], &[]).shape("y"), [2, 12]);
    assert_eq!(one(9, &[2, 3], "Clip", &[float("min", 0.0), float("max", 6.0)]), [2, 3]);
    let bounds = x(13, &[2, 3]).init("hi", f32s(&[], &[6.0]));
    assert_eq!(bounds.node("Clip", &["x", "", "hi"], &["y"], &[]).shape("y"), [2, 3]);
}

#[test]
fn reshapes() {
    assert_eq!(with(9, &[2, 3, 4], "Reshape", &[&[0, -1]], &[]), [2, 12]);
    assert_eq!(with(14, &[2, 0], "Reshape", &[&[0, 7]], &[int("allowzero", 1)]), [0, 7]);
    let b =
        x(14, &[2, 3]).init("a", i64s(&[2], &[-1, 4])).node("Reshape", &["x", "a"], &["y"], &[]);
    assert_eq!(b.problem(), "[2, 3] cannot be reshaped to [-1, 4]");
    assert_eq!(one(9, &[2, 3, 4], "Flatten", &[]), [2, 12]);
    assert_eq!(one(9, &[2, 3, 4], "Flatten", &[int("axis", 0)]), [1, 24]);
    assert_eq!(one(13, &[2, 3, 4], "Flatten", &[int("axis", -1)]), [6, 4]);
    assert_eq!(one(9, &[2, 3, 4], "Flatten", &[int("axis", 3)]), [24, 1]);
    assert_eq!(one(9, &[2, 3, 4], "Transpose", &[]), [4, 3, 2]);
    assert_eq!(with(13, &[3, 1], "Expand", &[&[2, 1, 6]], &[]), [2, 3, 6]);
    assert_eq!(with(13, &[3, 2], "Tile", &[&[2, 3]], &[]), [6, 6]);
}

#[test]
fn windows_at_the_border() {
    let pool = |extent: i64, attributes: &[_]| {
        one(17, &[1, 1, extent], "MaxPool", &[attributes, &[ints("kernel_shape", &[3])]].concat())
            [2]
    };
    assert_eq!(pool(7, &[ints("strides", &[2])]), 3);
    assert_eq!(pool(8, &[ints("strides", &[2])]), 3);
    assert_eq!(pool(8, &[ints("strides", &[2]), int("ceil_mode", 1)]), 4);
    // The fourth window would start at 9, where the image with its left padding ends: it is
    // dropped.
    let padded = |ceil| [ints("strides", &[3]), ints("pads", &[1, 1]), int("ceil_mode", ceil)];
    assert_eq!(pool(8, &padded(0)), 3);
    assert_eq!(pool(8, &padded(1)), 3);
    let two = [
        ints("kernel_shape", &[2]),
        ints("strides", &[2]),
        ints("pads", &[1, 1]),
        int("ceil_mode", 1),
    ];
    assert_eq!(one(19, &[1, 1, 3], "AveragePool", &two), [1, 1, 2]);
    assert_eq!(pool(8, &[ints("dilations", &[3])]), 2);
    for (auto, n) in [("SAME_UPPER", 4), ("SAME_LOWER", 4), ("VALID", 3), ("NOTSET", 3)] {
        assert_eq!(pool(8, &[ints("strides", &[2]), text("auto_pad", auto)]), n, "{auto}");
        let conv = x(11, &[1, 2, 8]).absent("w", &[5, 2, 3]);
        let conv = conv.node(
            "Conv",
            &["x", "w"],
            &["y"],
            &[ints("strides", &[2]), text("auto_pad", auto)],
        );
        assert_eq!(conv.shape("y"), [1, 5, n], "{auto}");
    }
    let depthwise = x(11, &[1, 6, 9, 9]).absent("w", &[12, 1, 3, 3]);
    let depthwise = depthwise.node(
        "Conv",
        &["x", "w"],
        &["y"],
        &[int("group", 6), ints("pads", &[2, 1, 0, 1]), ints("dilations", &[2, 1])],
    );
    assert_eq!(depthwise.shape("y"), [1, 12, 7, 9]);
    let transposed = |a: &[_]| {
        x(11, &[1, 4, 5, 5])
            .absent("w", &[4, 3, 3, 3])
            .node("ConvTranspose", &["x", "w"], &["y"], a)
            .shape("y")
    };
    assert_eq!(
        transposed(&[
            ints("strides", &[2, 2]),
            ints("pads", &[1, 1, 1, 1]),
            ints("output_padding", &[1, 0])
        ]),
        [1, 3, 10, 9]
    );
    assert_eq!(
        transposed(&[ints("strides", &[2, 2]), ints("output_shape", &[10, 11])]),
        [1, 3, 10, 11]
    );
    assert_eq!(
        transposed(&[ints("strides", &[2, 2]), text("auto_pad", "SAME_UPPER")]),
        [1, 3, 10, 10]
    );
    assert_eq!(one(9, &[1, 7, 5, 6], "GlobalAveragePool", &[]), [1, 7, 1, 1]);
}

#[test]
fn resizes_by_scales_or_sizes() {
    let scales = f32s(&[4], &[1.0, 1.0, 2.0, 1.5]);
    assert_eq!(
        one(7, &[1, 3, 4, 5], "Upsample", &[floats("scales", &[1.0, 1.0, 2.0, 2.0])]),
        [1, 3, 8, 10]
    );
    let b = |opset| x(opset, &[1, 3, 4, 5]).init("s", scales.clone());
    assert_eq!(b(9).node("Upsample", &["x", "s"], &["y"], &[]).shape("y"), [1, 3, 8, 7]);
    assert_eq!(b(10).node("Resize", &["x", "s"], &["y"], &[]).shape("y"), [1, 3, 8, 7]);
    assert_eq!(b(13).node("Resize", &["x", "", "s"], &["y"], &[]).shape("y"), [1, 3, 8, 7]);
    // PyTorch writes empty tensors for what is not given.
    let empty = b(13).init("e", f32s(&[0], &[])).init("z", i64s(&[4], &[1, 3, 9, 9]));
    assert_eq!(empty.node("Resize", &["x", "e", "e", "z"], &["y"], &[]).shape("y"), [1, 3, 9, 9]);
    let axes = x(18, &[1, 3, 4, 5]).init("z", i64s(&[2], &[8, 8]));
    assert_eq!(
        axes.node("Resize", &["x", "", "", "z"], &["y"], &[ints("axes", &[2, 3])]).shape("y"),
        [1, 3, 8, 8]
    );
    assert_eq!(one(13, &[1, 8, 2, 3], "DepthToSpace", &[int("blocksize", 2)]), [1, 2, 4, 6]);
    assert_eq!(one(13, &[1, 2, 4, 6], "SpaceToDepth", &[int("blocksize", 2)]), [1, 8, 2, 3]);
}

#[test]
fn matrix_products() {
    let product = |a: &[i64], b: &[i64]| {
        x(13, a).input("w", b).node("MatMul", &["x", "w"], &["y"], &[]).shape("y")
    };
    assert_eq!(product(&[2, 3], &[3, 4]), [2, 4]);
    assert_eq!(product(&[7, 1, 2, 3], &[5, 3, 4]), [7, 5, 2, 4]);
    assert_eq!(product(&[3], &[3, 4]), [4]);
    assert_eq!(product(&[5, 2, 3], &[3]), [5, 2]);
    assert!(product(&[3], &[3]).is_empty());
    let gemm = |c: &[i64]| {
        let b = x(13, &[3, 2]).absent("w", &[4, 3]).absent("c", c);
        b.node("Gemm", &["x", "w", "c"], &["y"], &[int("transA", 1), int("transB", 1)])
    };
    assert_eq!(gemm(&[4]).shape("y"), [2, 4]);
    assert!(gemm(&[3]).problem().contains("do not broadcast"));
}

#[test]
fn constants_of_all_forms() {
    let value = |a| Build::new(13).node("Constant", &[], &["y"], &[a]).constant("y");
    assert_eq!(value(int("value_int", 3)), Constant::I64 { shape: vec![], data: vec![3] });
    assert_eq!(
        value(ints("value_ints", &[3, 4])),
        Constant::I64 { shape: vec![2], data: vec![3, 4] }
    );
    assert_eq!(value(float("value_float", 0.5)), Constant::F32 { shape: vec![], data: vec![0.5] });
    assert_eq!(
        value(floats("value_floats", &[0.5])),
        Constant::F32 { shape: vec![1], data: vec![0.5] }
    );
    assert_eq!(
        value(tensor("value", f32s(&[1, 1], &[2.0]))),
        Constant::F32 { shape: vec![1, 1], data: vec![2.0] }
    );
    let narrow = squall_frontend::onnx::proto::TensorProto {
        data_type: I32,
        int32_data: vec![7],
        ..Default::default()
    };
    let b = Build::new(13).node("Constant", &[], &["y"], &[tensor("value", narrow)]);
    assert_eq!(b.typed("y"), (Some(DType::I32), vec![]));
}

#[test]
fn initialisers_may_be_inputs_too() {
    let mut b = x(8, &[1, 3, 8, 8])
        .absent("w", &[4, 3, 3, 3])
        .node("Conv", &["x", "w"], &["y"], &[])
        .output("y");
    b.graph().input.push(info("w", F32, &[4, 3, 3, 3]));
    let m = b.read().unwrap();
    let names = |ids: &[usize]| ids.iter().map(|i| m.values[*i].name.clone()).collect::<Vec<_>>();
    assert_eq!(
        (names(&m.inputs), names(&m.outputs)),
        (vec!["x".to_string()], vec!["y".to_string()])
    );
}

#[test]
fn open_dimensions_are_asked_for_by_name() {
    let mut b = Build::new(13);
    b.graph().input = vec![symbolic("x", &["N", "3", "?"]), symbolic("z", &["N", "seq", "1"])];
    let b = b.node("Add", &["x", "z"], &["y"], &[]);
    let read = |dims: &[(&str, i64)]| {
        let dims: Vec<(String, i64)> = dims.iter().map(|(n, v)| (n.to_string(), *v)).collect();
        onnx::read(&b.bytes(), "hand.onnx", &dims)
    };
    let e = read(&[]).unwrap_err().to_string();
    assert_eq!(
        e,
        "hand.onnx: these dimensions have no value: `N`, `x.2`, `seq`; give each one, as in \
         `--dim N=1 --dim x.2=1 --dim seq=1`"
    );
    let m = read(&[("N", 2), ("seq", 3), ("x.2", 5)]).unwrap();
    assert_eq!(m.values.last().unwrap().shape, Some(vec![2, 3, 5]));
    // A batch may be empty.
    let m = read(&[("N", 0), ("seq", 3), ("x.2", 5)]).unwrap();
    assert_eq!(m.values.last().unwrap().shape, Some(vec![0, 3, 5]));
    assert!(
        read(&[("N", -1), ("seq", 3), ("x.2", 5)])
            .unwrap_err()
            .to_string()
            .contains("`--dim N=-1`: the extent is impossible")
    );
}

#[test]
fn what_passes_its_operand_on_is_an_alias() {
    let b = x(13, &[2, 3])
        .node("Relu", &["x"], &["r"], &[])
        .node("Identity", &["r"], &["i"], &[])
        .node("Dropout", &["i"], &["d"], &[])
        .node("Cast", &["d"], &["c"], &[int("to", 1)])
        .init("s", i64s(&[2], &[2, 3]))
        .node("Reshape", &["c", "s"], &["y"], &[])
        .node("Cast", &["y"], &["h"], &[int("to", 10)])
        .node("Transpose", &["y"], &["t"], &[])
        .init("z", i64s(&[2], &[0, 0]))
        .init("back", i64s(&[2], &[-1, -1]))
        .init("least", i64s(&[2], &[-9, -9]))
        .init("axes", i64s(&[2], &[0, 1]))
        .node("Slice", &["y", "back", "least", "axes", "back"], &["v"], &[]);
    let m = b.read().unwrap();
    let v = |name: &str| m.values.iter().position(|v| v.name == name).unwrap();
    for name in ["i", "d", "c", "y"] {
        assert_eq!(m.values[v(name)].alias, Some(v("r")), "{name}");
    }
    for name in ["h", "t", "v", "r"] {
        assert_eq!(m.values[v(name)].alias, None, "{name}");
    }
    assert_eq!(m.nodes.iter().filter(|n| n.folded).count(), 4);
    assert_eq!(m.values[v("v")].shape, Some(vec![2, 3]));
    assert_eq!(
        x(13, &[2])
            .init(
                "t",
                squall_frontend::onnx::proto::TensorProto {
                    data_type: BOOL,
                    int32_data: vec![1],
                    ..Default::default()
                }
            )
            .node("Dropout", &["x", "", "t"], &["y"], &[])
            .problem(),
        "it is in training mode; export the model for inference"
    );
}

#[test]
fn what_depends_on_absent_weights_alone_needs_no_run() {
    let b = x(13, &[2, 3]).absent("w", &[4, 3]).node("Transpose", &["w"], &["t"], &[]).node(
        "MatMul",
        &["x", "t"],
        &["y"],
        &[],
    );
    let m = b.read().unwrap();
    let t = &m.values[m.nodes[0].outputs[0]];
    assert!(m.nodes[0].folded && t.weight && t.constant.is_none() && t.shape == Some(vec![3, 4]));
    assert!(!m.nodes[1].folded && !m.values[m.nodes[1].outputs[0]].weight);
    // With the data at hand and no evaluator, the node has to run.
    let b = Build::new(13).init("w", f32s(&[1], &[1.0])).node("Erf", &["w"], &["y"], &[]);
    assert!(!b.read().unwrap().nodes[0].folded);
}

#[test]
fn shape_arithmetic_is_pythons() {
    let b = Build::new(15)
        .input("x", &[2, 6, 4])
        .init("a", i64s(&[4], &[7, -7, 7, -7]))
        .init("b", i64s(&[4], &[2, 2, -2, -2]))
        .init("zero", i64s(&[], &[0]))
        .init("two", i64s(&[], &[2]))
        .init("minus", i64s(&[], &[-1]))
        .init("ten", i64s(&[], &[10]))
        .node("Div", &["a", "b"], &["quotient"], &[])
        .node("Mod", &["a", "b"], &["modulo"], &[])
        .node("Mod", &["a", "b"], &["fmod"], &[int("fmod", 1)])
        .node("Shape", &["x"], &["inner"], &[int("start", 1), int("end", -1)])
        .node("Shape", &["x"], &["shape"], &[])
        .node("Size", &["x"], &["size"], &[])
        .node("Gather", &["shape", "minus"], &["last"], &[])
        .node("ReduceProd", &["shape"], &["prod"], &[int("keepdims", 0)])
        .node("Range", &["zero", "ten", "two"], &["up"], &[])
        .node("Range", &["ten", "zero", "two"], &["none"], &[])
        .node("Greater", &["a", "b"], &["greater"], &[])
        .node("Where", &["greater", "a", "zero"], &["chosen"], &[])
        .node("Cast", &["greater"], &["cast"], &[int("to", 7)])
        .node("Unsqueeze", &["last", "axes"], &["lifted"], &[])
        .init("axes", i64s(&[1], &[0]))
        .node("Concat", &["lifted", "inner"], &["joined"], &[int("axis", 0)]);
    for (name, expected) in [
        ("quotient", vec![3, -3, -3, 3]),
        ("modulo", vec![1, 1, -1, -1]),
        ("fmod", vec![1, -1, 1, -1]),
        ("inner", vec![6]),
        ("size", vec![48]),
        ("last", vec![4]),
        ("prod", vec![48]),
        ("up", vec![0, 2, 4, 6, 8]),
        ("none", vec![]),
        ("chosen", vec![7, 0, 7, 0]),
        ("cast", vec![1, 0, 1, 0]),
        ("joined", vec![4, 6]),
    ] {
        assert_eq!(b.constant_ints(name), expected, "{name}");
    }
    assert!(b.read().unwrap().nodes.iter().all(|n| n.folded));
}
