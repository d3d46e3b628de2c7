//! Tests of the ONNX reader on quantised models built in memory: which nodes each form of
//! quantisation becomes (`frontend/src/onnx/reader/quantised.rs`), and which scales, zero points
//! and blocks are refused, by the node's name.

use squall_testing::onnx as build;

use build::*;
use squall_core::DType;
use squall_core::graph::Constant;
use squall_frontend::onnx::proto::{AttributeProto, TensorProto};

const U8: i32 = 2;
const S8: i32 = 3;
const U16: i32 = 4;
const U4: i32 = 21;
const S4: i32 = 22;

fn bytes(data_type: i32, dims: &[i64], raw_data: &[u8]) -> TensorProto {
    TensorProto {
        data_type,
        dims: dims.to_vec(),
        raw_data: raw_data.to_vec(),
        ..Default::default()
    }
}

fn scalar(x: f32) -> TensorProto {
    f32s(&[], &[x])
}

/// A model of one node of a domain, called `here`.
fn one(b: Build, domain: &str, op: &str, inputs: &[&str], attributes: &[AttributeProto]) -> Build {
    let mut b = b.node(op, inputs, &["y"], attributes).output("y");
    let node = &mut b.graph().node[0];
    (node.name, node.domain) = ("here".into(), domain.into());
    b
}

/// The problem of the node `here`, or of a node that stands for a part of it.
fn problem_of(b: &Build) -> String {
    let model = b.read().unwrap();
    let wrong = model.nodes.iter().find(|n| n.problem.is_some());
    let wrong = wrong.unwrap_or_else(|| panic!("no node has a problem"));
    assert!(wrong.name.starts_with("here"), "{}", wrong.name);
    wrong.problem.clone().unwrap()
}

fn ops(b: &Build) -> Vec<String> {
    let model = b.read().unwrap();
    let problem = model.nodes.iter().find_map(|n| n.problem.clone());
    assert_eq!(problem, None);
    model.nodes.iter().map(|n| n.op.clone()).collect()
}

/// Operators with a scale that can be replaced: domain, name, inputs.
const SCALED: &[(&str, &str, &[&str])] = &[
    ("", "QuantizeLinear", &["x", "s", "z"]),
    ("", "DequantizeLinear", &["q", "s", "z"]),
    ("", "QLinearConv", &["q", "t", "z", "w", "s", "v", "t", "z"]),
    ("", "QLinearConv", &["q", "t", "z", "w", "t", "v", "s", "z"]),
    ("", "QLinearMatMul", &["q", "s", "z", "m", "t", "v", "t", "z"]),
    ("com.microsoft", "QuantizeLinear", &["x", "s", "z"]),
    ("com.microsoft", "DequantizeLinear", &["q", "s", "z"]),
    ("com.microsoft", "QLinearAdd", &["q", "t", "z", "q", "s", "z", "t", "z"]),
    ("com.microsoft", "QLinearMul", &["q", "t", "z", "q", "t", "z", "s", "z"]),
    ("com.microsoft", "QLinearConcat", &["t", "z", "q", "s", "z"]),
    ("com.microsoft", "QLinearGlobalAveragePool", &["q", "t", "z", "s", "z"]),
    ("com.microsoft", "QLinearAveragePool", &["q", "s", "z", "t", "z"]),
    ("com.microsoft", "QLinearSoftmax", &["q", "t", "z", "s", "z"]),
    ("com.microsoft", "QLinearSigmoid", &["q", "s", "z", "t", "z"]),
    ("com.microsoft", "QLinearLeakyRelu", &["q", "t", "z", "s", "z"]),
    ("com.microsoft", "QGemm", &["r", "s", "z", "m", "t", "v", "", "t", "z"]),
    ("com.microsoft", "MatMulIntegerToFloat", &["q", "m", "s", "t", "z", "v"]),
    ("com.microsoft", "DynamicQuantizeMatMul", &["x", "m", "s", "v"]),
];

/// Floats, bytes, a filter or matrix, two scales and zero points.
fn values(scale: f32) -> Build {
    Build::new(21)
        .input("x", &[1, 2, 2, 2])
        .input_of("q", U8, &[1, 2, 2, 2])
        .input_of("r", U8, &[3, 2])
        .init("w", bytes(S8, &[2, 2, 1, 1], &[1, 2, 3, 4]))
        .init("m", bytes(S8, &[2, 2], &[1, 2, 3, 4]))
        .init("s", scalar(scale))
        .init("t", scalar(0.5))
        .init("z", bytes(U8, &[], &[3]))
        .init("v", bytes(S8, &[], &[0]))
}

fn scaled(b: Build, domain: &str, op: &str, inputs: &[&str]) -> Build {
    let attributes = match op {
        "QLinearAveragePool" => vec![ints("kernel_shape", &[1, 1])],
        "QLinearConcat" => vec![int("axis", 1)],
        _ => vec![],
    };
    one(b, domain, op, inputs, &attributes)
}

#[test]
fn scales_that_are_none_are_refused() {
    let wrong = [
        (0.0, "its scale 0 is not above 0"),
        (-0.5, "its scale -0.5 is not above 0"),
        (f32::NAN, "its scale NaN is no finite number"),
        (f32::INFINITY, "its scale inf is no finite number"),
    ];
    for (domain, op, inputs) in SCALED {
        for (scale, why) in wrong {
            let said = problem_of(&scaled(values(scale), domain, op, inputs));
            assert_eq!(said, why, "{op} {inputs:?}");
        }
        // The same operators with a scale that is one are read.
        ops(&scaled(values(0.25), domain, op, inputs));
    }
}

#[test]
fn zero_points_of_other_types_are_refused() {
    for (domain, op, inputs) in SCALED {
        // Each zero point in turn is of the other type of bytes, or of floats.
        for (i, zero) in inputs.iter().enumerate().filter(|(_, n)| matches!(**n, "z" | "v")) {
            for other in ["b", "f"] {
                let is_result = i + 1 == inputs.len();
                let is_free = *op == "QuantizeLinear" || is_result;
                if other == "b" && is_free || *op == "QLinearConcat" && i == 1 {
                    continue;
                }
                let mut inputs = inputs.to_vec();
                inputs[i] = other;
                let dtype = if *zero == "z" { S8 } else { U8 };
                let b = values(0.25).init("b", bytes(dtype, &[], &[3])).init("f", scalar(3.0));
                let why = problem_of(&scaled(b, domain, op, &inputs));
                assert!(why.contains("zero point"), "{op}, input {i}, {other}: {why}");
            }
        }
    }
}

#[test]
fn scales_and_zero_points_must_be_as_many() {
    let b = values(0.25).init("many", bytes(U8, &[2], &[1, 2]));
    let why = problem_of(&one(b, "", "QuantizeLinear", &["x", "s", "many"], &[]));
    assert_eq!(why, "its 2 zero points do not suit 1 scales");
    let b = values(0.25).init("many", bytes(S8, &[3], &[1, 2, 3]));
    problem_of(&one(b, "", "ConvInteger", &["q", "w", "z", "many"], &[]));
    let b = values(0.25).init("scales", f32s(&[3], &[1.0; 3]));
    let inputs = ["q", "t", "z", "w", "scales", "v", "t", "z"];
    problem_of(&one(b, "", "QLinearConv", &inputs, &[]));
}

#[test]
fn operators_of_onnxruntime_say_what_they_need() {
    let b = values(0.25).input("computed", &[]);
    let inputs = ["q", "computed", "z", "q", "s", "z", "t", "z"];
    let why = problem_of(&one(b, "com.microsoft", "QLinearAdd", &inputs, &[]));
    assert!(why.contains("must be constants"), "{why}");
}

/// A matrix of codes of 4 bits, 64 rows of 3, and scales of blocks along an axis.
fn blocked(data_type: i32, scales: &[i64], axis: i64, block: i64) -> Build {
    let count = scales.iter().product::<i64>() as usize;
    let scales = f32s(scales, &vec![-0.25; count]);
    let attributes = [int("axis", axis), int("block_size", block)];
    let b = Build::new(21).input("x", &[5, 64]).init("s", scales);
    let b = b.init("w", bytes(data_type, &[64, 3], &[0x71; 96]));
    let mut b = b.node("DequantizeLinear", &["w", "s"], &["d"], &attributes);
    b.graph().node[0].name = "here".into();
    b
}

#[test]
fn products_with_blocked_weights_read_them_packed() {
    for data_type in [U4, S4] {
        let b = blocked(data_type, &[2, 3], 0, 32).node("MatMul", &["x", "d"], &["y"], &[]);
        let b = b.output("y");
        assert_eq!(ops(&b), ["PackNBits", "MatMulNBits", "Identity"]);
        assert_eq!(b.shape("y"), [5, 3]);
        // The weights are as small as in the file, but for columns that fill up a tile.
        let model = b.read().unwrap();
        let node = model.nodes.iter().find(|n| n.op == "MatMulNBits").unwrap();
        let packed = &model.values[node.inputs[1].unwrap()];
        assert_eq!(
            (packed.dtype, packed.shape.as_deref()),
            (Some(DType::U8), Some(&[1, 8, 64][..]))
        );
        assert!(packed.constant.is_some() && packed.weight);
    }
    // Gemm, transposed, with a vector that is added by the product and with a matrix that is not.
    for (bias, last) in [(&[3][..], "MatMulNBits"), (&[5, 3][..], "Add")] {
        let scales = f32s(&[3, 2], &[0.5; 6]);
        let added = f32s(bias, &vec![1.0; bias.iter().product::<i64>() as usize]);
        let b = Build::new(21).input("x", &[5, 64]).init("c", added).init("s", scales);
        let b = b.init("w", bytes(S4, &[3, 64], &[0x71; 96]));
        let attributes = [int("axis", 1), int("block_size", 32)];
        let b = b.node("DequantizeLinear", &["w", "s"], &["d"], &attributes);
        let b = b.node("Gemm", &["x", "d", "c"], &["y"], &[int("transB", 1)]).output("y");
        let all = ops(&b);
        assert!(all.contains(&"MatMulNBits".into()) && all[all.len() - 2] == last, "{all:?}");
    }
    let scales = f32s(&[3, 2], &[0.5; 6]);
    let b = Build::new(21).input("x", &[5, 64]).init("s", scales);
    let b = b.init("w", bytes(U4, &[3, 64], &[0x71; 96]));
    let attributes = [int("axis", 1), int("block_size", 32)];
    let b = b.node("DequantizeLinear", &["w", "s"], &["d"], &attributes);
    let b = b.node("Transpose", &["d"], &["t"], &[ints("perm", &[1, 0])]);
    let b = b.node("MatMul", &["x", "t"], &["y"], &[]).output("y");
    assert_eq!(ops(&b), ["PackNBits", "MatMulNBits", "Identity"]);
}

#[test]
fn blocked_weights_that_no_product_reads_become_floats_once() {
    // Blocks across the reduction, and an output of the model.
    let b = blocked(S4, &[64, 1], 1, 3).node("MatMul", &["x", "d"], &["y"], &[]).output("y");
    assert_eq!(ops(&b), ["DequantizeLinear", "MatMul"]);
    let b = blocked(S4, &[2, 3], 0, 32).output("d");
    let Constant::F32 { data, .. } = b.constant("d") else { panic!("no floats") };
    assert_eq!(data[..3], [-0.25, -1.75, -0.25]);
}

#[test]
fn blocks_that_do_not_divide_are_refused() {
    for (scales, block) in [(&[2, 3][..], 31), (&[3, 3], 32), (&[64, 3], 32), (&[2], 32)] {
        let b = blocked(S4, scales, 0, block).output("d");
        let why = problem_of(&b);
        assert!(why.contains("in blocks of"), "{scales:?} {block}: {why}");
    }
    // No scale at all.
    let b = Build::new(21).init("w", bytes(S8, &[2], &[1, 2])).init("s", f32s(&[0], &[]));
    let b = b.node("DequantizeLinear", &["w", "s"], &["y"], &[int("axis", 0)]).output("y");
    assert!(b.read().unwrap().nodes.iter().any(|n| n.problem.is_some() || !n.folded));
    // The last block may be cut short.
    ops(&blocked(S4, &[3, 3], 0, 31).output("d"));
    problem_of(&blocked(S4, &[2, 3], 0, -32).output("d"));
    problem_of(&blocked(S4, &[2, 3], 7, 32).output("d"));
}

#[test]
fn quantising_to_four_bits_says_where_they_end() {
    let b = Build::new(21).input("x", &[4]).init("s", scalar(0.5)).init("z", bytes(S4, &[], &[0]));
    let b = b.node("QuantizeLinear", &["x", "s", "z"], &["y"], &[]).output("y");
    assert_eq!(b.typed("y"), (Some(DType::I8), vec![4]));
    let b = Build::new(21).input("x", &[4]).init("s", scalar(0.5));
    let to = [int("output_dtype", i64::from(U4))];
    let b = b.node("QuantizeLinear", &["x", "s"], &["y"], &to).output("y");
    assert_eq!(b.typed("y"), (Some(DType::U8), vec![4]));
    let model = b.read().unwrap();
    assert!(model.nodes.iter().any(|n| n.attributes.contains_key("bits")));
}

/// A product with 5 columns of weights of 4 bits, 33 rows in blocks of 16.
fn nbits(
    weights: TensorProto,
    scales: &[i64],
    zeros: TensorProto,
    more: &[AttributeProto],
) -> Build {
    let count = scales.iter().product::<i64>() as usize;
    let b = Build::new(21).input("x", &[2, 33]).init("w", weights).init("z", zeros);
    let b = b.init("s", f32s(scales, &vec![-0.5; count]));
    let mut attributes = more.to_vec();
    for (name, value) in [("K", 33), ("N", 5), ("bits", 4), ("block_size", 16)] {
        if !more.iter().any(|a| a.name == name) {
            attributes.push(int(name, value));
        }
    }
    one(b, "com.microsoft", "MatMulNBits", &["x", "w", "s", "z"], &attributes)
}

fn codes() -> TensorProto {
    bytes(U8, &[5, 3, 8], &[0x71; 120])
}

fn zeros() -> TensorProto {
    bytes(U8, &[5, 2], &[0x88; 10])
}

#[test]
fn weights_of_few_bits_are_read_packed_or_refused() {
    let b = nbits(codes(), &[5, 3], zeros(), &[]);
    assert_eq!(ops(&b), ["PackNBits", "MatMulNBits", "Identity"]);
    assert_eq!(b.typed("y"), (Some(DType::F32), vec![2, 5]));
    // onnxruntime takes vectors, too.
    ops(&nbits(codes(), &[15], bytes(U8, &[10], &[0x88; 10]), &[]));
    let floats = f32s(&[5, 3], &[7.5; 15]);
    ops(&nbits(codes(), &[5, 3], floats.clone(), &[]));
    let refused: Vec<(Build, &str)> = vec![
        (
            nbits(bytes(U8, &[5, 3, 7], &[0; 105]), &[5, 3], zeros(), &[]),
            "its weights are of shape",
        ),
        (nbits(bytes(U16, &[5, 3, 8], &[0; 240]), &[5, 3], zeros(), &[]), "unsigned bytes"),
        (nbits(codes(), &[5, 2], zeros(), &[]), "its scales are of shape"),
        (nbits(codes(), &[5, 3], bytes(U8, &[5, 1], &[0; 5]), &[]), "its zero points are of shape"),
        (nbits(codes(), &[5, 3], bytes(S8, &[5, 2], &[0; 10]), &[]), "its zero points are neither"),
        (nbits(codes(), &[5, 3], f32s(&[5, 2], &[0.0; 10]), &[]), "its zero points are of shape"),
        (nbits(codes(), &[5, 3], zeros(), &[int("bits", 3)]), "`bits` is 3"),
        (nbits(codes(), &[5, 3], zeros(), &[int("block_size", 12)]), "`block_size` is 12"),
        (nbits(codes(), &[5, 3], zeros(), &[int("block_size", 0)]), "`block_size` is 0"),
        (nbits(codes(), &[5, 3], zeros(), &[int("K", i64::MAX)]), "2^40"),
        (nbits(codes(), &[5, 3], zeros(), &[int("N", -1)]), "holds no weights"),
        (nbits(codes(), &[5, 3], zeros(), &[int("K", 34)]), "first input of shape"),
    ];
    for (b, why) in refused {
        let said = problem_of(&b);
        assert!(said.contains(why), "{said} instead of {why}");
    }
    for bad in [f32::NAN, f32::INFINITY] {
        let mut b = nbits(codes(), &[5, 3], zeros(), &[]);
        for t in b.graph().initializer.iter_mut().filter(|t| t.name == "s") {
            *t = TensorProto { name: "s".into(), ..f32s(&[5, 3], &[bad; 15]) };
        }
        assert!(problem_of(&b).contains("one of its scales is"));
    }
    // Bytes that are missing are found before any node.
    let cut = nbits(bytes(U8, &[5, 3, 8], &[0; 119]), &[5, 3], zeros(), &[]);
    assert!(cut.refused().contains("`w`: raw_data has 119 bytes"), "{}", cut.refused());
}

#[test]
fn rows_that_name_their_groups_become_floats_when_they_are_loaded() {
    let mut b = nbits(codes(), &[5, 3], zeros(), &[]);
    b.graph().node[0].input.push("g".into());
    let groups: Vec<i32> = (0..33).map(|i| (32 - i) / 16).collect();
    let order = |int32_data: Vec<i32>| TensorProto {
        name: "g".into(),
        data_type: I32,
        dims: vec![int32_data.len() as i64],
        int32_data,
        ..Default::default()
    };
    b.graph().initializer.push(order(groups.clone()));
    assert_eq!(ops(&b), ["UnpackNBits", "MatMul", "Identity"]);
    for wrong in [vec![3; 33], vec![-1; 33], vec![0; 32]] {
        b.graph().initializer.pop();
        b.graph().initializer.push(order(wrong));
        assert!(problem_of(&b).contains("group"), "{}", problem_of(&b));
    }
}
